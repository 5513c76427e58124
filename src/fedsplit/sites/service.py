"""A client of a fit on its owner's machine, which answers messages under its owner's rules."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedsplit.channels.channel import Reply, Request, Unprepared
from fedsplit.channels.summed import ALL
from fedsplit.clients.question import Question
from fedsplit.clients.questions import QUESTIONS
from fedsplit.errors import InputError, RequestError, listed
from fedsplit.regression.client.cache import CachedCohort
from fedsplit.regression.client.coding import Coding
from fedsplit.regression.client.questions import NoisedSum, NoisySums, SumQuestion
from fedsplit.regression.client.survey import FIT_QUESTIONS, Survey
from fedsplit.remote.messages import (
    PROTOCOL,
    Hello,
    Identity,
    content_digest,
    read_request,
    write_reply,
)
from fedsplit.sites.budget import Budget
from fedsplit.sites.error_replies import ErrorReplies
from fedsplit.sites.events import Event, harmless, ignore
from fedsplit.sites.log.entries import Exchange
from fedsplit.sites.log.exchange_log import NOT_LOGGED, ExchangeLog
from fedsplit.sites.options import SiteOptions
from fedsplit.sites.refusals import HALTED, Refusals
from fedsplit.sites.rows.current_rows import CurrentRows
from fedsplit.sites.settings import SiteSettings
from fedsplit.sites.studies.approval import Approval
from fedsplit.sites.studies.local_view import local_view
from fedsplit.sites.studies.noise import ledger_of, spent
from fedsplit.sites.studies.policy import in_words
from fedsplit.sites.studies.proposal import (
    ABOUT_STUDIES,
    Decision,
    Finish,
    Propose,
    ShareKeys,
)
from fedsplit.sites.studies.scope import belonging, check_categories, narrowed
from fedsplit.sites.studies.store import Studies
from fedsplit.sites.studies.study import Study
from fedsplit.sites.studies.words import study_in_words
from fedsplit.sites.terms import terms
from fedsplit.version import __version__

if TYPE_CHECKING:
    from fedsplit.sites.secure.ledger import Fresh, Record

ALLOWED: Mapping[str, type[Question]] = {
    **{question.name(): question for question in ABOUT_STUDIES},
    **FIT_QUESTIONS,
    **QUESTIONS,
}
"""Every question that a client answers: a message that asks anything else is refused."""

LONGEST_SUMMARY = 50_000
"""Characters of a result that is shown."""


DEFAULT = SiteOptions()


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
    options : SiteOptions
        What the owner has chosen.
    watch : callable, optional
        Called with an ``Event`` whenever the owner should see something.

    Attributes
    ----------
    refusals : Refusals
        Those that the owner has not reviewed yet. After as many as the rules allow, nothing is
        answered until ``refusals.clear()``.
    """

    def __init__(
        self,
        name: str,
        data: str,
        *,
        folder: Path,
        options: SiteOptions = DEFAULT,
        watch: Callable[[Event], object] = ignore,
    ) -> None:
        self.name = name
        self._data = data
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_mode & 0o077:
            raise InputError(
                f"{folder}: other users of this machine may read it: make it private (chmod 700), "
                "or choose another --folder"
            )
        self._options = options
        self.log = options.log or folder / "questions.jsonl"
        self.rules = options.rules.asked(options.strict)
        vectors = options.vectors or not self.rules.matrices
        reading = options.reading
        self._rows = CurrentRows(name, data, folder, self.rules, vectors, reading)
        self.refusals = Refusals(folder)
        self._lock = threading.Lock()
        self._budget = Budget(folder, options.max_rounds, self.rules.questions)
        self._watch = harmless(watch)
        self._errors = ErrorReplies(
            name, self._rows, self.rules, self.refusals, (self.log, folder), self._watch
        )
        # How many rows there are, by their version.
        self._counted: dict[str, int] = {}
        self._count_rows()
        self._approval: Approval | None = None
        if options.approve is not None:
            self._approval = Approval(
                Studies(folder),
                name,
                options.approve,
                ALLOWED,
                options.credentials,
                self._words,
                self.rules,
            )
        where = str(Path(data).absolute())
        settings = SiteSettings(name, where, reading.na, reading.decimal, vectors, self.rules)
        self._record = ExchangeLog(
            self.log, folder, settings.keep(folder), self._approval, self._budget, self._watch
        )
        if options.fresh:
            self._budget.reset()

    @property
    def _cohort(self) -> CachedCohort:
        return self._rows.cohort

    @property
    def columns(self) -> Collection[str]:
        """The names of the columns that it answers from."""
        return self._rows.source.names()

    def terms(self) -> str:
        """What leaves this machine and what does not, in words; reads the file."""
        return terms(
            self.name,
            self._data,
            self._rows.source,
            self.rules,
            self._cohort.vectors,
            self._approval is not None,
            self._options.max_rounds,
            self.log,
        )

    def wait_for_words(self) -> None:
        """Wait until the study that was proposed last can be read by its owner."""
        if self._approval is not None:
            self._approval.wait_for_words()

    def reply(self, message: bytes) -> bytes:
        """The reply to a message, logged before it leaves; no exception ever does."""
        with self._lock:
            try:
                exchange = self._exchange(message)
                return self._record.sent(exchange, self._rows.version)
            except Exception as error:  # what cannot be counted or logged must not be told
                self._watch(Event("trouble", f"nothing is answered: {error}"))
                return write_reply(Reply("failed", text=NOT_LOGGED))

    def _exchange(self, message: bytes) -> Exchange:
        """A question, and the reply to it.

        Raises
        ------
        OSError
            If a refusal cannot be written down.
        """
        request: Request | None = None
        try:
            request = read_request(message, ALLOWED)
            return Exchange(request, message, Reply("answer", self._answer(request)))
        except Unprepared:
            return Exchange(request, message, Reply("unprepared", text="not prepared"))
        except Exception as error:  # the site goes on, and its owner finds this in the log
            trouble = str(error)
            if not isinstance(error, InputError):
                trouble = repr(error)
            reply = self._errors.reply(request, error, trouble)
            return Exchange(request, message, reply, trouble)

    def _answer(self, request: Request) -> Any:
        question = request.question
        if isinstance(question, Hello):
            return Identity(self.name, __version__, PROTOCOL)
        if isinstance(question, Propose):
            return self._propose(question)
        study = None
        if self._approval is not None:
            study = self._approval.admit(request)
        if isinstance(question, Finish):
            return self._finish(request, question)
        if study is None or not study.secure:
            if request.sums or isinstance(question, ShareKeys):
                raise RequestError("the study has no secure sums")
            self._check_allowed(request, self.name)
            if self._approval is not None and study is not None:
                self._approval.secure.check_first(study)
            plain = partial(self._from_rows, request, partial(self._plain, study))
            return self._once(request, list[NoisedSum], plain)
        assert self._approval is not None  # which has admitted the study
        secure = self._approval.secure
        if isinstance(question, ShareKeys):
            self._approval.count(request, "")
            return secure.of(study).meet(question.letters)
        self._check_allowed(request, ALL)
        return secure.answer(study, request, partial(self._added, study, request))

    def _from_rows(self, request: Request, answer: Callable[[Request], Any]) -> Any:
        """An answer from the rows as they are now, or as they were when the fit began."""
        begins = any(map(_begins_a_fit, request.parts))
        told = self._rows.follow(begins)
        if told:
            self._watch(Event("data", told))
        if self._approval is not None:
            self._approval.count(request, self._rows.version)
        self._budget.spend()
        value = answer(request)
        if self._approval is not None:
            self._approval.note_answer(request.study)
        for note in self._rows.notes():
            self._watch(Event("data", note))
        return value

    def _plain(self, study: Study | None, request: Request) -> Any:
        if study is None:
            return self._cohort.answer(request)
        return self._answer_within(study, request)

    def _added(self, study: Study, asked: Request, record: Record) -> Fresh:
        """What this client adds to the sums of all, before it is masked."""
        from fedsplit.sites.secure.ledger import Fresh  # needs cryptography

        def added(request: Request) -> Any:
            assert self._approval is not None  # which has admitted the study
            stream = self._approval.secure.of(study).stream
            self._cohort.sums.memory = record.memory
            self._cohort.sums.stream = partial(stream, content_digest(asked))
            return self._answer_within(study, request)

        def numbers() -> Any:
            [found] = self._from_rows(asked, added)
            return found.view(np.int64)

        found = self._once(asked, NDArray[np.int64], numbers)
        return Fresh(found.view(np.uint64), self._cohort.sums.memory)

    def _once(self, request: Request, kind: Any, compute: Callable[[], Any]) -> Any:
        """An answer, which is computed and drawn once if there is noise in it."""
        question = request.question
        if not isinstance(question, NoisySums):
            return compute()
        if self._approval is None:
            raise RequestError("noise is for studies that its owner has approved")
        ledger = ledger_of(self._approval.studies.folder, request.study)
        return ledger.answer(question, kind, compute)

    def _propose(self, question: Propose) -> Decision:
        if self._approval is None:
            raise RequestError("it takes part without studies")
        decision = self._approval.propose(question, self._count_rows())
        return decision._replace(left=self._budget.left)

    def _finish(self, request: Request, question: Finish) -> bool:
        """End a study that has a result; one that was stopped may be resumed."""
        if len(question.summary) > LONGEST_SUMMARY:
            raise RequestError(f"a result of more than {LONGEST_SUMMARY} characters")
        if self._approval is not None:
            self._approval.count(request, "")
            if question.summary:
                self._approval.end(request.study)
        return True

    def _count_rows(self) -> int | None:
        """How many rows there are, counted once for each version; None if no rule depends on it."""
        if not self.rules.refuse:
            return None
        version = self._rows.version
        if version not in self._counted:
            source = self._rows.source
            self._counted[version] = len(source.read(dict.fromkeys(source.names()[:1], "text")))
        return self._counted[version]

    def _check_allowed(self, request: Request, name: str) -> None:
        """Raise RequestError for a question to another client, or while it is suspended."""
        for each in request.parts:
            coding = getattr(each, "coding", None)
            if coding is not None and coding.names != (name,):
                raise RequestError(f"it is {self.name}, but was asked as {', '.join(coding.names)}")
        if len(self.refusals.found()) >= self.rules.refusals:
            raise RequestError(HALTED)

    def _answer_within(self, study: Study, request: Request) -> Any:
        """The answer to a question of a study, and nothing beside that."""
        columns = self._rows.source.columns(study.columns)
        absent = [name for name in study.columns if name not in columns]
        if absent and not all(map(_surveys_a_draft, request.parts)):
            # before anything else says it, with the names of the columns that there are
            raise RequestError(f"there is no column {listed(absent)} here")
        for each in request.parts:
            check_categories(study, each, columns)
        predictor = min(self.rules.predictor, study.predictor)
        self._cohort.rules = replace(self.rules, predictor=predictor)
        cohort = partial(self._cohort.answer, belongs=belonging(study))
        if request.sums:
            return self._cohort.sums.contributions(request, cohort)
        answer = cohort(request)
        return narrowed(study, request.question, answer)

    def _about_others(self, study: Study) -> dict[str, Any]:
        """What the owner has to know of other studies, and of the other clients of secure sums."""
        if self._approval is None:
            return {}
        secure = self._approval.secure
        known = secure.pins.known() if study.secure else {}
        before = spent(self._approval.studies, study)
        return {"known": known, "exposed": secure.exposed(study), "spent": before}

    def _words(self, study: Study, signed: bool) -> str:
        """A study in words, with what it means here."""
        here = local_view(
            self.name,
            self._rows.own_source,
            study.columns,
            signed=signed,
            vectors=self._cohort.vectors,
            rules=in_words(self.rules),
            left=self._budget.left,
            limit=self._budget.limit,
            least=self.rules.rows,
            log=f"every question and answer is written to {self.log}",
            **self._about_others(study),
        )
        return study_in_words(study, here)


def _begins_a_fit(question: Question) -> bool:
    """Whether a question may be the first of a fit, which is about the rows as they are then."""
    match question:
        case Survey() | NoisySums(number=1):
            return True
    return False


def _surveys_a_draft(question: Question) -> bool:
    """Whether a question is about columns that are still to be agreed on."""
    match question:
        case Survey(coding=coding) | SumQuestion(coding=Coding() as coding):
            return coding.plan.draft
    return False
