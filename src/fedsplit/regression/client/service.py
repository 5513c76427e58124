"""A client of a fit on its owner's machine, which answers messages under its owner's rules."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedsplit.clients.question import Question
from fedsplit.clients.questions import QUESTIONS
from fedsplit.data.reading import PLAIN, Reading
from fedsplit.data.sources.client_data import Source
from fedsplit.data.types import Fit
from fedsplit.errors import InputError, RequestError
from fedsplit.regression.client.approval import Approval, Credentials
from fedsplit.regression.client.audit_log import AuditLog, NotLogged
from fedsplit.regression.client.budget import Budget
from fedsplit.regression.client.cache import CachedCohort
from fedsplit.regression.client.current_rows import CurrentRows
from fedsplit.regression.client.entries import entry_of, sent_numbers
from fedsplit.regression.client.events import Event, nobody
from fedsplit.regression.client.fit_questions import (
    FIT_QUESTIONS,
    Columns,
    Describe,
    strict_is_asked,
)
from fedsplit.regression.client.local_view import complete_rows
from fedsplit.regression.client.policy import in_words
from fedsplit.regression.client.proposal import Decision, Finish, Propose
from fedsplit.regression.client.refusals import HALTED, REFUSED, Refusals
from fedsplit.regression.client.rules import WARN, Rules
from fedsplit.regression.client.scope import belonging, narrowed
from fedsplit.regression.client.site_settings import SiteSettings
from fedsplit.regression.client.studies import Studies
from fedsplit.regression.client.study import Study
from fedsplit.regression.client.study_words import Local, study_in_words
from fedsplit.remote.channel import Reply, Request, Unprepared
from fedsplit.remote.messages import (
    PROTOCOL,
    Hello,
    Identity,
    read_request,
    with_log,
    write_reply,
)
from fedsplit.version import __version__

ABOUT_STUDIES: tuple[type[Question], ...] = (Hello, Propose, Finish)

ALLOWED: Mapping[str, type[Question]] = {
    **{question.name(): question for question in ABOUT_STUDIES},
    **FIT_QUESTIONS,
    **QUESTIONS,
}
"""Every question that a client answers: a message that asks anything else is refused."""

TERMS = """\
client {name}: {rows:,} rows and {columns} columns in {where}

What leaves this machine, to the server alone:
  once       for {named}: whether all, most, some or none of
             their values are numbers, dates, booleans or text
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


LONGEST_SUMMARY = 50_000
"""Characters of a result that is shown."""

NAMED = {
    True: "the columns of a study that you have approved, and no others",
    False: "all columns, by their names",
}
"""Which columns are described, by whether there are studies."""

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
        approve: str | None = None,
        credentials: Credentials | None = None,
        watch: Callable[[Event], object] = nobody,
    ) -> None:
        self.name = name
        self._data = data
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        self.log = log or folder / "questions.jsonl"
        self.rules = rules.asked(strict)
        vectors = vectors or not rules.matrices
        self._rows = CurrentRows(name, data, folder, self.rules, vectors, reading)
        self.refusals = Refusals(folder)
        self._lock = threading.Lock()
        self._limit = max_rounds
        self._budget = Budget(folder, max_rounds, rules.questions)
        self._audit = AuditLog(self.log)
        settings = SiteSettings(
            name,
            str(Path(data).absolute()),
            tuple(reading.na),
            reading.decimal,
            vectors,
            self.rules,
        )
        self._settings = settings.keep(folder)
        self._watch = watch
        self._approval: Approval | None = None
        if approve is not None:
            self._approval = Approval(
                Studies(folder), name, approve, ALLOWED, credentials, self._words, self.rules
            )
        # The last decision about each study that the log has.
        self._decisions: dict[str, Decision] = {}
        if fresh:
            self._budget.reset()
            self._cohort.forget_told()

    @property
    def _cohort(self) -> CachedCohort:
        return self._rows.cohort

    @property
    def _source(self) -> Source:
        return self._rows.source

    def terms(self) -> str:
        """What leaves this machine and what does not, in words; reads the file."""
        columns = self._source.columns()
        limit = ""
        if self._limit is not None:
            limit = f"At most {self._limit:,} questions are answered, over all models.\n"
        return TERMS.format(
            name=self.name,
            named=NAMED[self._approval is not None],
            rows=len(self._source.read(dict.fromkeys(list(columns)[:1], "text"))),
            columns=len(columns),
            where=self._data,
            smallest=self.rules.smallest,
            rounds=ROUNDS[self._cohort.vectors],
            guards=self._guards(),
            limit=limit,
            log=self.log,
            version=__version__,
        )

    def _guards(self) -> str:
        consequence = "is reported to the server as a warning"
        if self.rules.refuse:
            consequence = "is refused"
        return (
            f"An answer from fewer than {self.rules.rows} rows, a level of fewer than "
            f"{self.rules.smallest}, or\nmore parameters than {self.rules.share} of the rows "
            f"{consequence}."
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
            if self._repeats(reply):
                return write_reply(reply)
            return self._logged(request, message, reply, trouble)

    def _repeats(self, reply: Reply) -> bool:
        """Whether a reply says what the owner was told before: pending studies are asked about
        again and again, and one line of the log is enough.
        """
        if not isinstance(reply.value, Decision):
            return False
        return self._decisions.get(reply.value.study) == reply.value

    def _logged(self, request: Request | None, message: bytes, reply: Reply, trouble: str) -> bytes:
        """The reply as it is sent, once it is on disk; without a log there is no answer."""
        out = write_reply(reply)
        try:
            head = self._audit.append(self._entry(request, message, reply, out, trouble))
        except NotLogged as error:
            self._watch(Event("trouble", f"nothing is answered: {error}"))
            text = "its log cannot be written, so that it answers nothing: its owner was told"
            return write_reply(Reply("failed", text=text))
        if isinstance(reply.value, Decision):
            self._decisions[reply.value.study] = reply.value
        self._show(request, reply, trouble)
        return with_log(out, *head)

    def _entry(
        self, request: Request | None, message: bytes, reply: Reply, out: bytes, trouble: str
    ) -> dict[str, Any]:
        entry = entry_of(request, message, reply, out, trouble)
        return {"settings": self._settings, **entry}

    def _show(self, request: Request | None, reply: Reply, trouble: str) -> None:
        """Tell the owner what was just sent."""
        name = "something unreadable"
        if request is not None:
            name = request.question.name()
        if reply.outcome != "answer":
            self._watch(Event("refusal", f"{name}: {trouble or reply.text}"))
            return
        assert request is not None
        match request.question:
            case Finish(summary=summary):
                self._watch(Event("end", summary, request.study))
            case Propose():
                self._watch(Event("study", reply.value.state, reply.value.study))
            case Hello():
                pass
            case _:
                asked = most = 0
                if self._approval is not None:
                    asked, most = self._approval.asked(request.study)
                text = f"{name}, {sent_numbers(reply.value):,} numbers"
                self._watch(Event("answer", text, request.study, asked, most, self._budget.left))

    def _refusal(self, request: Request | None, error: Exception, trouble: str) -> Reply:
        """What the server is told of an error: under rules, nothing that depends on the data."""
        if isinstance(error, OSError):  # a full disk, or a file that is gone
            self._watch(Event("trouble", f"nothing is answered: {error}"))
            return Reply("failed", text="something is wrong with its disk: its owner was told")
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
        if isinstance(question, Propose):
            if self._approval is None:
                raise RequestError("it takes part without studies")
            return self._approval.propose(question)._replace(left=self._budget.left)
        study = None
        if self._approval is not None:
            study = self._approval.admit(request)
        if isinstance(question, Finish):
            if len(question.summary) > LONGEST_SUMMARY:
                raise RequestError(f"a result of more than {LONGEST_SUMMARY} characters")
            return True
        for each in request.parts:
            coding = getattr(each, "coding", None)
            if coding is not None and coding.names != (self.name,):
                raise RequestError(f"it is {self.name}, but was asked as {', '.join(coding.names)}")
        if len(self.refusals.found()) >= self.rules.refusals:
            raise RequestError(HALTED)
        self._budget.spend()
        told = self._rows.follow(begins=isinstance(question, Columns | Describe))
        if told:
            self._watch(Event("data", told))
        if study is None:
            return self._cohort.answer(request)
        predictor = min(self.rules.predictor, study.predictor)
        self._cohort.rules = replace(self.rules, predictor=predictor)
        answer = self._cohort.answer(request, belonging(study))
        return narrowed(study, question, answer)

    def _public(self, error: InputError) -> str:
        """An error without the values and paths that only the owner may see."""
        text = str(getattr(error, "public", error))
        for path in self._rows.places():
            text = text.replace(path, "its file")
        return text.removeprefix(f"client {self.name}: ").removeprefix(f"client {self.name}, ")

    def _words(self, study: Study, signed: bool) -> str:
        """A study in words, with what it means here."""
        columns: Mapping[str, Fit | None] = {}
        rows = complete = 0
        trouble = ""
        try:
            # A source of its own: questions of other studies are answered meanwhile.
            source = self._rows.own_source()
            columns = source.columns()
            rows, complete = complete_rows(source, study.columns)
        except Exception as error:  # for the owner alone, who has to see the study in any case
            trouble = str(error)
        here = Local(
            name=self.name,
            signed=signed,
            columns=columns,
            rows=rows,
            complete=complete,
            trouble=trouble,
            vectors=self._cohort.vectors,
            rules=in_words(self.rules),
            left=self._budget.left,
            log=f"every question and answer is written to {self.log}",
        )
        return study_in_words(study, here)
