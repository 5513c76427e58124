"""The clients of a fit as one cohort: their rows, coded and turned into costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from fedsplit import fixed_point
from fedsplit.arrays import Array
from fedsplit.channels import codec
from fedsplit.channels.channel import Request, Unprepared
from fedsplit.channels.summed import FEWEST
from fedsplit.clients.local_models import LastModels, LocalModel
from fedsplit.clients.question import Answer, CostQuestion, Question
from fedsplit.clients.questions import Evaluate, Information, Prox
from fedsplit.clients.stacked import QUIET, StackedClients
from fedsplit.errors import RequestError
from fedsplit.fixed_point import Limbs
from fedsplit.problem import Problem
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.design import Design, Frame, key_of
from fedsplit.regression.client.guards.rounding import (
    RoundedLeastSquares,
    Watch,
    at_named_points,
    points_alone,
    rounded_again,
)
from fedsplit.regression.client.guards.rules import WARN, Finding, Rules, check_range
from fedsplit.regression.client.noise import BoundedRows
from fedsplit.regression.client.plan import Coding
from fedsplit.regression.client.questions import (
    FitQuestion,
    Joint,
    NoisySums,
    Settle,
    SumAnswer,
    SumQuestion,
    Survey,
    SurveyAnswer,
)
from fedsplit.regression.client.release import Release
from fedsplit.regression.client.statistics import CostAt, DesignMoments, FitRows
from fedsplit.regression.privacy import Privacy
from fedsplit.statistic import RowSum, Values
from fedsplit.sums import KEPT, LastDigits, Summands
from fedsplit.threads import one_blas_thread


class Prepared(NamedTuple):
    """Costs in the coordinates of a frame."""

    frame: Frame
    base: str  # names everything that they depend on but the ridge
    problem: Problem
    clients: dict[int, StackedClients]  # by how many there are in all, of the last question


class Memory(NamedTuple):
    """What a cohort that tells sums alone needs for its centres in the next round."""

    last: tuple[str, LastModels] | None = None  # with the key that they were made under


class DatasetCohort:
    """Clients whose rows are here.

    Rows are read when they are first asked for, and costs are made of them for the latest two
    frames; a question about any other raises ``Unprepared``.

    Parameters
    ----------
    rules : Rules
        Those of the clients' owner, which hold even if a question asks for less.

    Attributes
    ----------
    datasets : dict of Dataset
        By name.
    rows : list of Design
        The coded rows, of the clients that take part.
    records : bool
        Whether what is disclosed is recorded under rules that only warn, too.
    memory : Memory
        If it is lost, the cohort stays at x.
    stream : callable or None
        By numbers as they are, (n, 4), what random last digits are drawn from; None for those of
        the numbers, which is for sums that no other organisation can read.
    """

    def __init__(self, datasets: Sequence[Dataset], rules: Rules = WARN) -> None:
        self.rules = rules
        self.names = [dataset.name for dataset in datasets]
        self.datasets = {dataset.name: dataset for dataset in datasets}
        self.records = False
        self.memory = Memory()
        self.stream: Callable[[Limbs], Callable[[int], bytes]] | None = None
        self.rows: list[Design] = []
        self._coding: Coding | None = None
        self._prepared: dict[str, Prepared] = {}
        # the rows of the last question with noise, with what they were made by
        self._bounded: tuple[bytes, dict[str, BoundedRows]] | None = None
        self._release = Release(self.datasets, WARN)
        # the warnings that owners were told, where the server has only their number
        self._warned: set[Finding] = set()

    @property
    def refuses(self) -> bool:
        """Whether the owner, or the server when the rows were coded, asked for refusals."""
        return self._rules().refuse

    def _rules(self, strict: bool = False) -> Rules:
        """Those for a request that is strict, or for rows that were coded by one."""
        return self.rules.asked(strict or (self._coding is not None and self._coding.strict))

    def answer(self, request: Request) -> Any:
        """The answer: a draft, by thresholds, recorded in the ledger, released."""
        if request.sums:
            contributions = self.contributions(request)
            return fixed_point.total(contributions, len(contributions[0]))
        question = request.question
        with one_blas_thread(), np.errstate(**QUIET):
            strict = any(isinstance(each, FitQuestion) and each.strict for each in request.parts)
            rules = self._rules(strict)
            self._release = Release(self.datasets, rules)
            if not rules.refuse and not self.records and rules.matrices:
                return self._answer(request)
            about = request.key, question, request.preparation
            key = sha256(codec.encode(about)).hexdigest()
            self._release.begin(key, question, self.records)
            try:
                value = self._answer(request)
                self._release.record(self._asked(question))
            finally:
                self._release = Release(self.datasets, WARN)
        return value

    def contributions(self, request: Request) -> list[Limbs]:
        """What each client adds to the sums of all clients, each (n, 4)."""
        question = request.question
        if not question.summable:
            raise RequestError(f"the question {question.name()} is about single clients")
        if request.m < FEWEST:
            raise RequestError(f"a sum of {request.m} clients, where {FEWEST} are the fewest")
        if isinstance(question, FitQuestion):
            question = question.for_sums(request.m)  # whatever the server says how many there are
        if any(isinstance(each, FitQuestion) and each.names for each in request.parts):
            raise RequestError("a question about sums is for all clients, and names none")
        asked = question
        if isinstance(question, LocalModel):
            last = self.memory.last
            known = last is not None and last[0] == request.key
            asked = question.centred(last[1] if last is not None and known else None)
        value = self.answer(request._replace(question=asked, sums=False))
        if isinstance(asked, LocalModel) and asked.hessian:
            self.memory = Memory((request.key, LastModels.of(value.parts)))
        if isinstance(question, FitQuestion):
            self._warn(question.entries(value))
        with np.errstate(**QUIET):
            return [self._encoded(each) for each in question.summands(value)]

    def _encoded(self, own: Summands) -> Limbs:
        """What a client adds, with last digits that tell nothing of it where others read sums."""
        if self.stream is None:
            return own.vector
        kept = 44 if self.refuses else KEPT  # those of the grid of ``clients.rounding``
        return own.encoded(LastDigits(self.stream(own.vector), kept))

    def _warn(self, entries: Sequence[Any]) -> None:
        """Keep for the owners the warnings of which the server hears the number alone."""
        for finding in (each for entry in entries for each in getattr(entry, "warnings", ())):
            if finding not in self._warned:
                self._warned.add(finding)
                self.datasets[finding.name].private.append(finding.one)

    def names_of(self, coding: Coding) -> Sequence[str]:
        """The clients that take part."""
        return coding.names or self.names

    def _asked(self, question: Question) -> Sequence[str]:
        """The clients that a question was answered for."""
        for each in question.singles():
            if isinstance(each, FitQuestion) and each.coding is not None:
                return self.names_of(each.coding)
        return [rows.name for rows in self.rows]

    def _prepare(self, request: Request) -> None:
        """Carry out the preparation that a request brings, unless that was done before."""
        if isinstance(request.preparation, FitQuestion) and request.key not in self._prepared:
            self._answer_about_rows(request.preparation, request)

    def _answer(self, request: Request) -> Any:
        """The answer, with a statement of what it discloses."""
        question = request.question
        self._prepare(request)
        if isinstance(question, FitQuestion):
            return self._answer_about_rows(question, request)
        if not isinstance(question, CostQuestion):
            raise RequestError(f"the question {question.name()} is not allowed here")
        prepared = self._at(request.key)
        if request.m not in prepared.clients:
            for each in self._prepared.values():  # factors that they hold take memory
                each.clients.clear()
            prepared.clients[request.m] = prepared.problem.among(request.m)
        clients = prepared.clients[request.m]
        if self._watches:
            return self._watched(question, clients, request)
        answer = clients.ask(question)
        if points_alone(question, answer.parts) is not None:  # it follows from the moments
            self._state_nothing()
        return answer

    def _answer_about_rows(self, question: Question, request: Request) -> Any:
        """The entry of every client; the request says what the cohort was prepared with."""
        match question:
            case Joint(questions=several):
                return {
                    name: self._answer_about_rows(each, request) for name, each in several.items()
                }
            case SumQuestion():
                return self._sum_over_rows(question, request)
            case Survey(coding=coding):
                return self._survey(coding)
            case Settle(coding=coding, frame=frame):
                return self.settle(coding, frame)
            case NoisySums(coding=coding, privacy=privacy):
                return question.noised(self._bounded_rows(coding, privacy))
        raise RequestError(f"the question {question.name()} is not allowed here")

    def _watched(self, question: CostQuestion, clients: StackedClients, request: Request) -> Answer:
        """The answer about costs that are not quadratic, with the sums that it is made of."""
        watch = self._watch()
        watched = self._watched_clients(watch, self._at(request.key).problem, request.m)
        if self._guarded:
            assert watched is not None
            question = at_named_points(question)
            # a prox has a way, whose points it does not name
            asked = clients if isinstance(question, Prox) else watched
            answer = rounded_again(question, asked.ask(question), watched)
            if points_alone(question, answer.parts) is None:
                return answer
            # how long it took, and how many steps, depends on single rows too
            nothing = np.zeros_like(answer.seconds)
            answer = answer._replace(seconds=nothing, work=np.zeros_like(answer.work))
        else:  # the same sums, once more, are recorded
            answer = clients.ask(question)
            alone = points_alone(question, answer.parts)
            if alone is None or watched is None:
                return answer
            for each in alone:
                watched.ask(each)
        for j, rows in enumerate(self.rows):
            self._release.state(rows.name, rows.row_ids, partial(watch.of, j))
        return answer

    def _watched_clients(self, watch: Watch, problem: Problem, m: int) -> StackedClients | None:
        """Those whose sums are recorded; None, under rules RequestError, if there are none."""
        clients = watch.clients(problem, m)
        if clients is None and self._guarded:
            raise RequestError(
                "its cost is no sum over its rows: no bound is known on what answers disclose of "
                "one, and its rules allow none without it"
            )
        return clients

    def _watch(self) -> Watch:
        def check(j: int, eta: Array) -> None:
            if self.refuses:
                self.rules.check_size(self.rows[j].name, eta)

        def radius(j: int) -> bool:
            # where a radius changes along a line is a number of one row: each client has few
            dataset = self.datasets.get(self.rows[j].name)
            if dataset is None or dataset.ledger.count("radius") >= 16:
                return False
            dataset.ledger.add(f"radius {dataset.ledger.count('radius')}", [], ["radius"])
            return True

        return Watch(self.refuses, check, radius)

    @property
    def _quadratic(self) -> bool:
        return self._coding is not None and self._coding.plan.chosen_family.quadratic

    @property
    def _guarded(self) -> bool:
        """Whether points are under rules: those of a quadratic disclose no more than moments."""
        return self.refuses and not self._quadratic

    @property
    def _watches(self) -> bool:
        """Whether it is recorded which sums answers about costs are made of."""
        return self._guarded or (self._release.open and not self._quadratic)

    def _sum_over_rows(self, question: SumQuestion, request: Request) -> list[SumAnswer | None]:
        """What each client answers to a question about sums."""
        coding = question.coding
        if coding is None:
            frame = self._at(request.key).frame
            cost = partial(self._cost, request.key, {})
            scaled = [replace(rows, scaling=frame.scaling) for rows in self.rows]
            return [
                self._of_rows(question, self._fit_rows(rows, request.m, frame, partial(cost, j)))
                for j, rows in enumerate(scaled)
            ]
        if any(each.of_table for each in question.statistics.values()):
            rules = self.rules.asked(coding.strict)
            names = self.names_of(coding)
            return [self._of_table(question, self.datasets[name], rules) for name in names]
        # by their moments rows are recognised later: they are read again
        moments = [
            name for name, each in question.statistics.items() if isinstance(each, DesignMoments)
        ]
        if moments or self._coding != coding:
            self.code(coding)
        answers = [self._of_rows(question, self._fit_rows(rows, request.m)) for rows in self.rows]
        for name in moments:
            for rows, answer in zip(self.rows, answers, strict=True):
                rows.moments = answer.values[name]
        return list(answers)

    def _of_table(self, question: SumQuestion, dataset: Dataset, rules: Rules) -> SumAnswer | None:
        """What one client answers of its complete rows, before there is a design."""
        assert question.coding is not None
        made = dataset.table_rows(question.coding.plan, question.statistics, rules)
        if made is None:  # that it cannot be read before types are agreed on
            self._release.state(dataset.name)
            return None
        rows, findings = made
        where = dataset.numbers(rows.frame.frame)
        return SumAnswer(self._release.sums(dataset.name, where, question, rows), findings)

    def _fit_rows(
        self,
        rows: Design,
        m: int,
        frame: Frame | None = None,
        cost: Callable[[Array], CostAt] | None = None,
    ) -> FitRows:
        return FitRows(rows, self._rules(), m, frame, cost)

    def _of_rows(self, question: SumQuestion, rows: FitRows) -> SumAnswer:
        """What one client answers of its coded rows."""
        design = rows.design
        values = self._release.sums(design.name, design.row_ids, question, rows)
        return SumAnswer(values, () if question.coding is None else design.warnings)

    def _cost(self, key: str, known: dict[bytes, Any], j: int, x: Array) -> CostAt:
        """The cost of client j at a point; all clients are evaluated at once, ``known`` is kept."""
        at = x.tobytes()
        if at not in known:
            problem, watch = self._at(key).problem.with_ridge(0.0), self._watch()
            watched = None
            if self._watches:
                watched = self._watched_clients(watch, problem, len(self.rows))
            clients = watched or problem.clients
            stated = watched is not None or self._quadratic
            known[at] = clients.ask(Evaluate(x)).parts, clients, [], watch, stated
        parts, clients, hessians, watch, stated = known[at]

        def curvature() -> Array:
            if not hessians:
                hessians.append(clients.ask(Information(x)).rows)
            own: Array = hessians[0][j]
            return own

        value = float(parts["value"][j])
        discloses = partial(watch.of, j) if stated else None
        return CostAt(value, parts["gradient"][j], curvature, discloses)

    def _bounded_rows(self, coding: Coding, privacy: Privacy) -> Mapping[str, BoundedRows]:
        """The rows of each client for sums with noise, read once for all questions of a fit."""
        about = codec.encode((coding, privacy))
        names = self.names_of(coding)
        if self._bounded is None or self._bounded[0] != about:
            rows = {name: self.datasets[name].bounded(coding.plan, privacy) for name in names}
            self._bounded = about, rows
        for name in names:
            self._release.state(name)  # noise bounds what is disclosed
        return self._bounded[1]

    def _survey(self, coding: Coding) -> list[SurveyAnswer]:
        """What the columns of a plan hold at each client."""
        rules = self.rules.asked(coding.strict)
        answers = []
        for name in self.names_of(coding):
            answer, counted = self.datasets[name].survey(coding.plan, rules)
            if self._release.open:
                of_rows = () if counted is None else self.datasets[name].counted(counted)
                self._release.state(name, *of_rows)
            answers.append(answer)
        return answers

    def code(self, coding: Coding) -> None:
        """Read and code the rows."""
        self._prepared = {}  # that was made of rows as they were coded
        rules, names = self.rules.asked(coding.strict), self.names_of(coding)
        self.rows = [self.datasets[name].code(coding.plan, rules) for name in names]
        if not rules.matrices:
            what = "matrices for proofs only, so that the rounds use vectors"
            for own in self.rows:
                one, many = f"client {own.name} allows {what}", f"clients allow {what}"
                own.warnings = [*own.warnings, Finding(own.name, one, many, own.name)]
        self._coding = coding

    def settle(self, coding: Coding, frame: Frame) -> list[Values]:
        """Make the costs of the rounds; the moments of the rows that they are made of."""
        if self._coding != coding:
            self.code(coding)
        # the moments were stated when they were told; a client that was not asked states them
        self._state_nothing()
        base = key_of(coding, replace(frame, ridge=np.zeros(0)))
        known = [each.problem for each in self._prepared.values() if each.base == base]
        problem = known[0] if known else self._problem(coding, frame)
        latest = list(self._prepared.items())[-1:]
        made = Prepared(frame, base, problem.with_ridge(frame.ridge), {})
        self._prepared = dict(latest) | {key_of(coding, frame): made}
        return [self._moments(rows) for rows in self.rows]

    def _state_nothing(self) -> None:
        for rows in self.rows:
            self._release.state(rows.name)

    def _moments(self, rows: Design) -> Values:
        """The moments of coded rows, which are told once."""
        if not rows.moments:
            own = self._fit_rows(rows, 0)
            statistic, shapes = DesignMoments(), DesignMoments().shapes(rows.plan)
            release = Release({}, self._rules())
            rows.moments = release.of("", rows.row_ids, statistic, own, shapes)
        return rows.moments

    def _at(self, key: str) -> Prepared:
        if key not in self._prepared:
            raise Unprepared
        return self._prepared[key]

    def _problem(self, coding: Coding, frame: Frame) -> Problem:
        family = coding.plan.chosen_family
        classes = family.count_classes(coding.plan.classes)
        loss = family.in_units(frame.scaling.unit / frame.spread).loss(classes, frame.symmetric)
        if family.quadratic and self.refuses:
            loss = RoundedLeastSquares()
        # A column may be zero at all clients of this cohort, so none is looked for here: the server
        # knows of those that are zero everywhere.
        data = [
            replace(rows, scaling=frame.scaling).observations(frame.whiten, frame.precise)
            for rows in self.rows
        ]
        for rows, (A, b, w, o) in zip(self.rows, data, strict=True):
            own = np.asarray(A)
            if self.refuses:
                check_range(rows.name, ["the target"], b[:, None])
                names = ["a combination of columns"] * own.shape[1]
                check_range(rows.name, names, np.sqrt(w)[:, None] * own)
            if family.quadratic:
                both = RowSum(np.column_stack([own, b - o]), weights=w)
                self._release.state(rows.name, rows.row_ids, partial(list, [both]))
        return Problem(loss, data, ridge=1.0)

    def release(self) -> None:
        """Let go of the rows: they are read and coded again when a question needs them."""
        self._prepared = {}
        self._coding = None
        self._bounded = None
        self.rows = []
        for dataset in self.datasets.values():
            dataset.release()

    def leverages(self, person: str | None = None) -> dict[str, Array]:
        """h of every row of each client, or of every person by a column that names them."""
        return {
            name: dataset.ledger.leverages(
                persons=None if person is None else dataset.persons(person)
            )
            for name, dataset in self.datasets.items()
        }
