"""The driver of a regression: whatever is done about asking is done here, once.

The dialogues of a regression ask about rows (``FitQuestion``, such as sums over the rows of a plan)
and about the costs that are made of them (``AboutCosts``). The driver knows who takes part, asks
all of them at once, wherever they are, counts the exchanges, and reports the rounds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from fedsplit.arrays import Array
from fedsplit.channels.channel import Channel, LocalChannel, Reply, Request
from fedsplit.channels.clients import RemoteClients
from fedsplit.channels.members import Check, Members
from fedsplit.channels.patience import Patience
from fedsplit.channels.summed import SummedChannel
from fedsplit.clients.oracle import Removed
from fedsplit.clients.question import CostQuestion, Question
from fedsplit.clients.stacked import QUIET
from fedsplit.dialogue import Dialogue, NoAnswer, Several, advance, converse
from fedsplit.errors import InputError
from fedsplit.fixed_point import LIMBS
from fedsplit.loop.certificate import Certificate
from fedsplit.loop.conversation import Conversation
from fedsplit.loop.result import Diverged
from fedsplit.loop.trace import Row, Trace
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.client.design import Moments, key_of
from fedsplit.regression.client.guards.rules import Finding
from fedsplit.regression.client.plan import Coding, Plan
from fedsplit.regression.client.questions import FitQuestion, Settle, SumAnswer, SumQuestion, joined
from fedsplit.regression.client.statistics import DesignMoments, moments_of
from fedsplit.statistic import Statistic, Values
from fedsplit.threads import one_blas_thread

if TYPE_CHECKING:  # a problem is made of rows that the driver has asked about
    from fedsplit.regression.server.problem import FitProblem

R = TypeVar("R")


@dataclass(frozen=True)
class CodedRows:
    """Which rows a regression is about."""

    names: tuple[str, ...]  # the clients that take part
    plan: Plan  # how their rows become numbers
    strict: bool  # whether clients refuse answers that could disclose single rows
    matrices: bool = True  # whether every client sends a matrix in every round
    directions: bool = True  # whether every client says what a direction does to its rows
    clusters: int = 0  # how many clients there are; in secure sums they have one name together
    # by client, the moments by which its rows are recognised, as they were answered
    told: Mapping[str, Values] = field(default_factory=dict)

    @property
    def coding(self) -> Coding:
        """By which their clients are asked about them."""
        return Coding(self.plan, self.strict, self.names)

    @cached_property
    def moments(self) -> list[Moments]:
        """Of the rows of each client."""
        return [moments_of(self.told[name], self.plan) for name in self.names]

    @property
    def intercept(self) -> int | None:
        """Which column of a design is the constant term, if there is one."""
        return 0 if self.plan.design_columns.intercept else None


class AboutCosts(NamedTuple):
    """A question about the costs of a problem: of the core, an effect, or about their rows.

    The answer to a ``FitQuestion`` is a list with one entry for each client.
    """

    problem: FitProblem
    question: Any


class SummedClients(NamedTuple):
    """Which clients are seen added up, as one; the answer is a tuple of their names, or empty."""


class BeforeSums(NamedTuple):
    """A dialogue for clients that may be asked one by one before sums over all are.

    The answer is its result, or None where the clients answer by sums alone.
    """

    dialogue: Dialogue[Any]


class Everyone(NamedTuple):
    """A question that is asked until every client has answered it."""

    question: CostQuestion


class InTrace(NamedTuple):
    """A question about rows that is a round as well, and counts among the rounds."""

    question: FitQuestion


class Progress(NamedTuple):
    """A round as a user sees it.

    Attributes
    ----------
    round : int
    gap : float
        A bound on F(x) - F*, or an estimate from the last move; nan before there is one.
    answered, clients : int
        How many clients answered, and how many there are.
    floats : int
        Sent both ways so far.
    proved : bool
        Whether the gap is a bound. After each round that is a measurement, which is not counted,
        and made only if the clients are in this process.
    """

    round: int
    gap: float
    answered: int
    clients: int
    floats: int
    proved: bool = False


class Reported(NamedTuple):
    """What a round has come to, for whoever watches; the answer is None.

    The ``gap`` is an estimate of F(x) - F*, or nan, and ``proved`` a bound on it, if there is one.
    A ``proof`` finds a bound, where asking costs nothing.
    """

    gap: float = math.nan
    proved: float | None = None
    proof: Dialogue[Certificate] | None = None


class FitDriver:
    """Asks the members of a run on behalf of the dialogues of a regression.

    Attributes
    ----------
    trace : Trace
        All exchanges about costs; the others are in the members' history.
    begun : int
        How many there were when it began.
    """

    def __init__(
        self,
        members: Members,
        rounds: float = math.inf,  # the budget: who wants to ask more gets a ``BudgetSpent``
        # called after every round, with gaps in the units of the files
        report: Callable[[Progress], object] | None = None,
        # reaches the clients whose sums the members tell, where they may be asked one by one before
        before: Channel | None = None,
    ) -> None:
        self.members = members
        self._before = before
        self.trace = Trace(math.nan)
        self.begun = len(members.history.exchanges)
        self._rounds = rounds
        self._report = report
        self._conversations: dict[FitProblem, Conversation] = {}

    def run(self, dialogue: Dialogue[R], watch: Callable[[Any, Any], object] | None = None) -> R:
        """Carry a dialogue to its end; ``watch`` sees every question with its answer."""
        with one_blas_thread(), np.errstate(**QUIET):
            try:
                return converse(dialogue, self, watch)
            except Diverged as error:
                error.result.trace.rows.extend(self.trace.rows)
                raise
            except Removed:
                # the others agree anew, and what was asked in vain counts all the same
                self.members.history.exchanges += self.trace.rows
                raise

    def ask(self, question: Any) -> Any:
        """Answer a question of a dialogue, or carry out what it wants of the driver.

        By client, its answer to a ``FitQuestion``; of ``Several`` the answers to each, by its name,
        of those about rows in one exchange.
        """
        match question:
            case FitQuestion():
                return self._ask_about_rows({"": question})[""]
            case Several(questions=parts):
                rows = {key: each for key, each in parts.items() if isinstance(each, FitQuestion)}
                others = {key: self.ask(each) for key, each in parts.items() if key not in rows}
                return others | (self._ask_about_rows(rows) if rows else {})
            case SummedClients():
                return self.members.summed
            case BeforeSums(dialogue=before):
                if self._before is None or not self.members.summed:
                    return None
                patience = None if self._before.free else self.members.patience
                return FitDriver(Members(self._before, patience)).run(before)
            case AboutCosts(problem=problem, question=asked):
                return self._ask_about_costs(problem, asked)
        raise InputError(f"a dialogue about rows yields questions, not {question!r}")

    def _ask_about_costs(self, problem: FitProblem, question: Any) -> Any:
        if problem not in self._conversations:
            asked = FitClients(self.members, problem)
            made = Conversation(asked, rounds=self._rounds, trace=self.trace)
            self._conversations[problem] = made
        conversation = self._conversations[problem]
        clients = conversation.clients
        assert isinstance(clients, FitClients)
        match question:
            case FitQuestion():
                return clients.entries(question)
            case InTrace(question=inner):
                entries = clients.entries(inner)
                conversation.note(self.members.history.exchanges.pop())
                return entries
            case Everyone(question=inner):
                conversation.clients = clients.insistent()
                try:
                    return conversation.ask(inner)
                finally:
                    conversation.clients = clients
            case Reported():
                return self._show(problem, clients, question)
        return conversation.ask(question)

    def _ask_about_rows(self, questions: Mapping[str, FitQuestion]) -> dict[str, dict[str, Any]]:
        """Ask each cohort what is for it, in one exchange."""
        members = self.members
        if all(each.names for each in questions.values()):
            members = members.only([name for each in questions.values() for name in each.names])
        own: dict[int, dict[str, FitQuestion]] = {}
        for at, names in members.cohorts.items():
            parts = {
                key: each.among(() if members.summed else names) for key, each in questions.items()
            }
            own[at] = {key: each for key, each in parts.items() if each is not None}
        requests = {at: Request(joined(parts)) for at, parts in own.items() if parts}
        replies = _heard(members, requests, partial(members.ask, insist=True))
        answers: dict[str, dict[str, Any]] = {key: {} for key in questions}
        for at, reply in replies.items():
            for key, part in own[at].items():
                entries = reply.value[key] if len(own[at]) > 1 else reply.value
                answers[key] |= zip(part.names or members.cohorts[at], entries, strict=True)
        return answers

    def _show(self, problem: FitProblem, clients: FitClients, effect: Reported) -> None:
        """Report a round, with a proof of its gap if that is quick and costs nothing."""
        if self._report is None:
            return
        bound = effect.proved
        # with more coefficients a proof takes longer than a round
        if effect.proof is not None and not clients.recorded and clients.d <= 200:
            bound = converse(effect.proof, clients).gap
        rows = self.trace.rows
        m = clients.m * clients.stands_for
        now = Progress(
            round=len(rows),
            gap=(effect.gap if bound is None else bound) * problem.unit,
            # a proof is asked until all have answered
            answered=rows[-1].answered if rows and effect.proved is None else m,
            clients=m,
            floats=sum(row.floats_up + row.floats_down for row in rows),
            proved=bound is not None,
        )
        self._report(now)


def about(problem: FitProblem, dialogue: Dialogue[R]) -> Dialogue[R]:
    """A dialogue whose questions are about the costs of a problem."""
    event: Any = None
    while True:
        try:
            question = advance(dialogue, event)
        except StopIteration as end:
            result: R = end.value
            return result
        try:
            event = yield AboutCosts(problem, question)
        except NoAnswer as interruption:
            event = interruption


def code_rows(rows: CodedRows) -> Dialogue[tuple[CodedRows, list[Finding]]]:
    """Have the clients code their rows, and say what they allow and what could be disclosed."""
    coded: dict[str, SumAnswer] = yield SumQuestion({"": DesignMoments()}, rows.coding)
    told = {name: coded[name].values[""] for name in rows.names}
    matrices, directions = np.sum([each["withholds"][0] for each in told.values()], axis=0) == 0
    rows = replace(rows, matrices=bool(matrices), directions=bool(directions), told=told)
    return rows, [finding for name in rows.names for finding in coded[name].warnings]


def sums_of(
    about: CodedRows | Coding, statistics: Mapping[str, Statistic]
) -> Dialogue[dict[str, dict[str, Array]]]:
    """The sums over the rows of all clients, by the name of a statistic and of its part.

    A ``Coding`` is enough for statistics of rows that are no design yet.
    """
    question = SumQuestion(statistics, about if isinstance(about, Coding) else about.coding)
    answers: dict[str, SumAnswer] = yield question
    return question.pooled(list(answers.values()))


def members_of(channel: Channel, patience: Patience | None, secure: bool) -> Members:
    """The clients that a channel reaches; with secure sums all of them answer as one."""
    patience = None if channel.free else patience or Patience()
    if not secure:
        return Members(channel, patience)
    summed = SummedChannel(channel)
    return Members(summed, patience, summed=summed.clients)


def release_rows(channel: Channel) -> None:
    """Let clients in this process let go of their rows, until they are asked again."""
    match channel:
        case LocalChannel(cohort=DatasetCohort() as cohort):
            cohort.release()


class FitClients(RemoteClients):
    """Clients whose costs are made of coded rows, in coordinates that come with the first question.

    Their answers to those coordinates are known: the moments of the rows.
    """

    def __init__(self, members: Members, problem: FitProblem) -> None:
        rows, frame = problem.rows, problem.frame
        members = members.only(rows.names)
        settle: dict[int, Question] = {}
        keys, known = {}, {}
        for at, names in members.cohorts.items():
            # sums are those of all clients, under whatever name a channel has for them together
            coding = replace(rows.coding, names=() if members.summed else names)
            settle[at], keys[at] = Settle(coding, frame), key_of(coding, frame)
            known[at] = [rows.told[name] for name in names]
        super().__init__(members, problem.d, settle, keys, known)
        self.hessians = rows.matrices
        if members.summed:
            self.stands_for = len(members.summed)
            self.words = LIMBS

    def without(self, names: Sequence[str]) -> RemoteClients:
        """Not possible here: coding and coordinates were agreed by all, and must be agreed anew."""
        raise Removed(names)

    def entries(self, question: FitQuestion) -> list[Any]:
        """Each client's answer to a question about its rows."""
        m = len(self.members.names)
        requests = {at: Request(question, key, m) for at, key in self.keys.items()}
        replies = _heard(self.members, requests, partial(self.ask_cohorts, insist=True))
        return [entry for reply in replies.values() for entry in reply.value]

    def note_prepared(self, cohorts: Collection[int]) -> None:
        """The coordinates are no question of their own; what they hold is counted."""
        sizes = {at: len(self.members.cohorts[at]) for at in cohorts}
        if not sizes:
            return
        down = sum([size * numbers_in(self._preparations[at]) for at, size in sizes.items()])
        row = Row(
            *(math.nan, math.nan, "setup", 0.0, 0),
            floats_down=down * self.stands_for,
            answered=sum(sizes.values()) * self.stands_for,
            seconds=0.0,
            questions=0,
        )
        self.members.history.exchanges.append(row)


def _heard(
    members: Members,
    requests: dict[int, Request],
    ask: Callable[[dict[int, Request], Check], dict[int, Reply]],
) -> dict[int, Reply]:
    """The replies, by cohort, of an exchange that is counted."""
    questions: dict[int, Any] = {at: request.question for at, request in requests.items()}
    began = time.perf_counter()
    replies = ask(
        requests, lambda at, value: questions[at].check_answer(value, len(members.cohorts[at]))
    )
    seconds = time.perf_counter() - began
    sizes = {at: len(members.cohorts[at]) for at in requests}
    down = sum([size * numbers_in(requests[at].question) for at, size in sizes.items()])
    up = sum([numbers_in(reply.value) for reply in replies.values()])
    answered = sum(sizes.values())
    if members.summed:
        answered = len(members.summed)
        down *= answered
        up *= answered * LIMBS
    kind = next(iter(questions.values())).kind
    latency = None
    if members.patience is not None:
        latency = {
            name: reply.seconds for at, reply in replies.items() for name in members.cohorts[at]
        }
    row = Row(math.nan, math.nan, kind, 0.0, up, down, answered, seconds, latency=latency)
    members.history.exchanges.append(row)
    return replies


def numbers_in(value: Any) -> int:
    """How many numbers a plain value holds.

    Counts, means and entries of arrays are numbers; texts, keys and truth values are not.
    """
    if value is None or isinstance(value, str | bool):
        return 0
    if isinstance(value, np.ndarray):
        return value.size
    if isinstance(value, int | float | np.number):
        return 1
    if isinstance(value, Mapping):
        value = value.values()
    elif is_dataclass(value):
        value = [getattr(value, each.name) for each in fields(value)]
    return sum(map(numbers_in, value))
