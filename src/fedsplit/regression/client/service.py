"""A client of a fit on its owner's machine, which answers messages under its owner's rules."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedsplit import files
from fedsplit.clients.question import Answer, Question
from fedsplit.clients.questions import QUESTIONS
from fedsplit.data.reading import PLAIN, Reading
from fedsplit.data.sources.sources import sources
from fedsplit.errors import InputError, RequestError
from fedsplit.regression.client.cache import CachedCohort
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.fit_questions import FIT_QUESTIONS, strict_is_asked
from fedsplit.regression.client.refusals import HALTED, REFUSED, Refusals
from fedsplit.regression.client.rules import WARN, Rules
from fedsplit.remote.channel import Reply, Request, Unprepared
from fedsplit.remote.messages import PROTOCOL, Hello, Identity, read_request, write_reply
from fedsplit.version import __version__

ALLOWED: Mapping[str, type[Question]] = {Hello.name(): Hello, **FIT_QUESTIONS, **QUESTIONS}
"""Every question that a client answers: a message that asks anything else is refused."""

TERMS = """\
client {name}: {rows:,} rows and {columns} columns in {where}

What leaves this machine, to the server alone:
  once       the names of the columns, and whether all, most, some or none of their values are
             numbers, dates, booleans or text
  once       for the columns of the model: counts of rows and missing values, the levels of
             categories with their counts, sums of columns whose missing values are to be filled
  once       for poly, scale, bs, ns and cut in the formula: sums of powers of their columns,
             and counts of rows in wide intervals, none of them below {smallest}
  once       means and cross products of the coded columns, for gaussian also with the target;
             once or twice more if columns are nearly dependent, or some rows say nothing about
             the coefficients
  seldom     whether a direction of the coefficients suits every row: yes or no
  per round  {rounds}, and a few numbers
  per proof  the gradient and the information matrix of this client, and a few numbers
  at the end the log-likelihood, the loss without covariates, and for a classifier counts of
             rows by predicted probability
Rows never leave, as long as the server asks only what fedsplit asks.
{guards}
{limit}Every question and every answer is logged in {log}
This machine runs its own fedsplit {version}; it takes no code from the server.
"""


ROUNDS = {
    False: "vectors and an information matrix, or a vector, as long as the coefficients",
    True: "a vector as long as the coefficients",
}
"""What a client tells in a round, by whether it is vectors alone."""


class Site:
    """One client's data, and the rules under which it answers.

    Parameters
    ----------
    name : str
        The client's name in the federation.
    data : str
        A file, as ``fit`` takes it.
    folder : Path
        Where prepared data are kept.
    max_rounds : int, optional
        The most questions that are answered, over all models.
    strict : bool
        Refuse answers that could disclose single rows, even if the server does not ask for that.
    rules : Rules, optional
        The owner's rules; by default those of ``strict``, or warnings only.
    vectors : bool
        Tell matrices for proofs only.
    log : Path, optional
        A file with one line of JSON per question; ``folder/questions.jsonl`` where None.
    fresh : bool
        Reset the counts of questions and of matrices.
    reading : Reading
        How the file is read.

    Attributes
    ----------
    refusals : Refusals
        Those that the owner has not looked at yet. After as many as the rules allow, nothing is
        answered until ``refusals.clear()``.
    """

    def __init__(
        self,
        name: str,
        data: str,
        *,
        folder: Path,
        max_rounds: int | None = None,
        strict: bool = False,
        rules: Rules = WARN,
        vectors: bool = False,
        log: Path | None = None,
        fresh: bool = False,
        reading: Reading = PLAIN,
    ) -> None:
        found = sources(data, reading=reading)
        if len(found) != 1:
            raise InputError(f"{data}: a client has one file, this names {len(found)}")
        self.name = name
        self._data = data
        self._source = found[0]
        self._limit = max_rounds
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        self.log = log or folder / "questions.jsonl"
        self.rules = rules.asked(strict)
        self._cohort = CachedCohort(Dataset(self._source, name), folder, self.rules, vectors)
        self.refusals = Refusals(folder)
        self._lock = threading.Lock()
        self._spent = folder / "rounds"
        if fresh:
            self._spent.unlink(missing_ok=True)
            self._cohort.forget_told()

    def terms(self) -> str:
        """What leaves this machine and what does not, in words; reads the file."""
        columns = self._source.columns()
        consequence = "is reported to the server as a warning"
        if self.rules.refuse:
            consequence = "is refused"
        limit = ""
        if self._limit is not None:
            limit = f"At most {self._limit:,} questions are answered, over all models.\n"
        return TERMS.format(
            name=self.name,
            rows=len(self._source.read(dict.fromkeys(list(columns)[:1], "text"))),
            columns=len(columns),
            where=self._data,
            smallest=self.rules.smallest,
            rounds=ROUNDS[self._cohort.vectors],
            guards=f"An answer from fewer than {self.rules.rows} rows, a level of fewer than "
            f"{self.rules.smallest}, or\nmore parameters than {self.rules.share} of the rows "
            f"{consequence}.",
            limit=limit,
            log=self.log,
            version=__version__,
        )

    def reply(self, message: bytes) -> bytes:
        """The reply to a message; each is logged before it leaves."""
        with self._lock:
            request: Request | None = None
            trouble = ""
            try:
                request = read_request(message, ALLOWED)
                reply = Reply("answer", self._answer(request))
            except Unprepared:
                reply = Reply("unprepared", text="not prepared")
            except Exception as error:  # the site goes on, and its owner finds this in the log
                trouble = str(error)
                if not isinstance(error, InputError):
                    trouble = repr(error)
                reply = self._refusal(request, error, trouble)
            out = write_reply(reply)
            self._log(request, message, reply, out, trouble)
            return out

    def _refusal(self, request: Request | None, error: Exception, trouble: str) -> Reply:
        """What the server is told of an error: under rules, nothing that depends on the data."""
        of_data = request is not None and not isinstance(error, RequestError)
        if of_data and request is not None and self._refuses(request):
            self.refusals.add(request.question.name(), trouble)
            return Reply("refused", text=f"client {self.name}: {REFUSED}")
        if isinstance(error, MemoryError):
            text = f"client {self.name}: not enough memory for this model"
            return Reply("refused", text=text)
        if isinstance(error, InputError):
            return Reply("refused", text=f"client {self.name}: {self._public(error)}")
        return Reply("failed", text=f"{type(error).__name__} at the client, see its log")

    def _refuses(self, request: Request) -> bool:
        """Whether the rules, or the request, ask for refusals rather than warnings."""
        asked = self._cohort.asked_strict
        for question in request.parts:
            asked = asked or strict_is_asked(question)
        return self.rules.refuse or asked

    def _answer(self, request: Request) -> Any:
        question = request.question
        if isinstance(question, Hello):
            return Identity(self.name, __version__, PROTOCOL)
        for each in request.parts:
            coding = getattr(each, "coding", None)
            if coding is not None and coding.names != (self.name,):
                raise RequestError(f"it is {self.name}, but was asked as {', '.join(coding.names)}")
        if len(self.refusals.found()) >= self.rules.refusals:
            raise RequestError(HALTED)
        if self._limit is not None:
            self._count(self._limit)
        return self._cohort.answer(request)

    def _public(self, error: InputError) -> str:
        """An error without the values and paths that only the owner may see."""
        text = str(getattr(error, "public", error))
        for path in (str(Path(self._data).absolute()), self._data):
            text = text.replace(path, "its file")
        return text.removeprefix(f"client {self.name}: ").removeprefix(f"client {self.name}, ")

    def _count(self, limit: int) -> None:
        """Refuse more questions than the owner allows; the count outlives the process."""
        done = 0
        if self._spent.exists():
            done = int(self._spent.read_text(encoding="utf-8"))
        if done >= limit:
            raise RequestError(f"its owner allows {limit} questions, and all have been answered")
        files.write(self._spent, str(done + 1))

    def _log(
        self, request: Request | None, message: bytes, reply: Reply, out: bytes, trouble: str
    ) -> None:
        line: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "question": "unreadable",
            "asked": None,
            "received_bytes": len(message),
            "outcome": reply.outcome,
            "sent": reply.text,
            "sent_bytes": len(out),
        }
        if request is not None:
            line["question"] = request.question.name()
            line["asked"] = _summary(request.question)
            if request.preparation is not None:
                line["prepared"] = _summary(request.preparation)
        if reply.outcome == "answer":
            line["sent"] = _summary(reply.value)
        if trouble:
            line["trouble"] = trouble
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _summary(value: Any) -> Any:
    """A value for the log: counts and names as they are, arrays by their shape."""
    if isinstance(value, Answer):
        return {"numbers": sum(array.size for array in value.parts.values())}
    if hasattr(value, "_asdict"):
        value = value._asdict()
    elif is_dataclass(value):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _summary(each) for name, each in value.items()}
    if isinstance(value, list | tuple | frozenset):
        return [_summary(each) for each in value]
    if hasattr(value, "shape"):
        return {"array": list(value.shape)}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
