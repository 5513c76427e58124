"""A client of a fit on its owner's machine: it answers letters, under its owner's rules."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedsplit import files
from fedsplit.arrays import Array
from fedsplit.clients.oracle import Answer
from fedsplit.data.sources import sources
from fedsplit.errors import InputError
from fedsplit.regression.client.cache import StoredCohort
from fedsplit.regression.client.cohort import Coding, Frame
from fedsplit.regression.client.dataset import Dataset, Request
from fedsplit.regression.client.design import SMALLEST_CELL
from fedsplit.regression.client.disclosure import FEWEST_ROWS, ROWS_A_PARAMETER
from fedsplit.remote.channel import Question, Reply, Unprepared
from fedsplit.remote.messages import PROTOCOL, ROUND_ARGUMENTS, Hello, read_question, write_reply
from fedsplit.version import __version__

ARGUMENTS: Mapping[str, Any] = {
    "hello": tuple,
    "columns": tuple,
    "describe": tuple[Request],
    "code": tuple[Coding],
    "settle": tuple[Coding, Frame],
    "fitted": tuple[str, Array, float],
    "pearson": tuple[str, Array],
    **ROUND_ARGUMENTS,
}
"""All that a client may be asked, and with what: a letter that asks anything else is refused."""

TERMS = """\
client {name}: {rows:,} rows and {columns} columns in {where}

These leave this machine, to the server alone:
  once      the names and kinds of the columns
  once      of the columns that the model uses: counts of rows and missing values, the levels of categories with their
            counts, sums of columns whose missing values are to be filled
  once      means and cross products of the coded columns
  a round   a vector as long as the coefficients, and a few numbers
  a proof   the gradient and the information matrix of this client at the result, and a few numbers
  at last   the log-likelihood, and for a classifier counts of rows by predicted probability
Rows never do, while the server asks what fedsplit asks.
{guards}
{limit}Every question and what was sent: {log}
What runs here is this machine's fedsplit {version}; no code is taken from the server.
"""


class Site:
    """One client's data, and the rules under which it answers.

    Parameters
    ----------
    name : str
        By which the others know it.
    data : str
        A file, as ``fit`` takes it.
    folder : Path
        Where prepared data are kept.
    max_rounds : int, optional
        The most questions that are answered, whatever the models; ``fresh`` begins to count anew.
    strict : bool
        Refuse to answer where that could tell of single rows, whatever the server wants.
    log : Path, optional
        A file with one line of JSON for each question; ``folder/questions.jsonl`` where None.
    """

    def __init__(
        self,
        name: str,
        data: str,
        *,
        folder: Path,
        max_rounds: int | None = None,
        strict: bool = False,
        log: Path | None = None,
        fresh: bool = False,
    ) -> None:
        found = sources(data)
        if len(found) != 1:
            raise InputError(f"{data}: a client has one file, these are {len(found)}")
        self._data = data
        self.name, self._source, self._strict, self._limit = name, found[0], strict, max_rounds
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        self.log = folder / "questions.jsonl" if log is None else log
        self._cohort = StoredCohort(Dataset(self._source, name), folder, strict)
        self._lock = threading.Lock()
        self._spent = folder / "rounds"
        if fresh:
            self._spent.unlink(missing_ok=True)

    def terms(self) -> str:
        """What leaves this machine and what does not, in words; the file is read for it."""
        columns = self._source.columns()
        finding = "is refused" if self._strict else "is reported to the server as a warning"
        return TERMS.format(
            name=self.name,
            rows=len(self._source.read(list(columns)[:1])),
            columns=len(columns),
            where=self._data,
            guards=f"An answer that rests on fewer than {FEWEST_ROWS} rows, a level of fewer than {SMALLEST_CELL}, or\n"
            f"fewer than {ROWS_A_PARAMETER} rows a parameter {finding}.",
            limit=""
            if self._limit is None
            else f"At most {self._limit:,} questions are answered, whatever the models.\n",
            log=self.log,
            version=__version__,
        )

    def reply(self, letter: bytes) -> bytes:
        """The answer to a letter, or what kept it from being given; every one is logged before it leaves."""
        with self._lock:
            question: Question | None = None
            trouble = ""
            try:
                question = read_question(letter, ARGUMENTS)
                reply = Reply("answer", self._answer(question))
            except Unprepared:
                reply = Reply("unprepared", text="not settled")
            except InputError as error:
                public, trouble = getattr(error, "public", str(error)), str(error)
                for place in (str(Path(self._data).absolute()), self._data):
                    public = public.replace(place, "its file")
                reply = Reply(
                    "refused", text=f"client {self.name}: {_without_name(public, self.name)}"
                )
            except MemoryError:
                reply = Reply(
                    "refused", text=f"client {self.name}: not enough memory for this model"
                )
            except (
                Exception
            ) as error:  # whatever it is, the node goes on, and its owner finds it in the log
                reply, trouble = (
                    Reply("failed", text=f"{type(error).__name__} at the client, see its log"),
                    repr(error),
                )
            out = write_reply(reply)
            self._note(question, letter, reply, out, trouble)
            return out

    def _answer(self, question: Question) -> Any:
        if question.name == "hello":
            return Hello(self.name, __version__, PROTOCOL)
        if question.name == "describe":
            [request] = question.args
            question = Question(
                "describe", (replace(request, strict=request.strict or self._strict),)
            )
        if question.name in ("code", "settle"):
            coding = question.args[0]
            if coding.names != (self.name,):
                raise InputError(f"it is {self.name}, and was asked as {', '.join(coding.names)}")
        if question.name not in ("hello", "columns") and self._limit is not None:
            self._count(self._limit)
        return self._cohort.answer(question)

    def _count(self, limit: int) -> None:
        """Refuse more questions than the owner allows; the count outlives the process."""
        done = int(self._spent.read_text(encoding="utf-8")) if self._spent.exists() else 0
        if done >= limit:
            raise InputError(f"its owner allows {limit} questions, and they are spent")
        files.write(self._spent, str(done + 1))

    def _note(
        self, question: Question | None, letter: bytes, reply: Reply, out: bytes, trouble: str
    ) -> None:
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "question": "unreadable" if question is None else question.name,
            "asked": None if question is None else _summed(question.args),
            "received_bytes": len(letter),
            "outcome": reply.outcome,
            "sent": _told(reply),
            "sent_bytes": len(out),
        }
        if trouble:
            line["trouble"] = trouble
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _told(reply: Reply) -> Any:
    """What an answer holds, for the log: counts and names as they are, arrays by their size."""
    value = reply.value
    if reply.outcome != "answer":
        return reply.text
    if isinstance(value, Answer):
        return {
            "numbers": int(
                value.rows.size
                + value.error.size
                + (0 if value.margin is None else value.margin.size)
            )
        }
    return _summed(value)


def _summed(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return {name: _summed(each) for name, each in value._asdict().items()}
    if is_dataclass(value):
        return {name: _summed(each) for name, each in vars(value).items()}
    if isinstance(value, Mapping):
        return {str(name): _summed(each) for name, each in value.items()}
    if isinstance(value, list | tuple | frozenset):
        return [_summed(each) for each in value]
    if hasattr(value, "shape"):
        return {"array": list(value.shape)}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _without_name(text: str, name: str) -> str:
    """A message that begins with the client's name, without it."""
    return text.removeprefix(f"client {name}: ").removeprefix(f"client {name}, ")
