"""The clients of a fit as one cohort: their rows, coded and turned into costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from hashlib import sha256
from typing import Any

import numpy as np

from fedsplit.arrays import Array
from fedsplit.channels import codec
from fedsplit.channels.channel import Request, Unprepared
from fedsplit.clients.question import Answer, CostQuestion, Question
from fedsplit.clients.questions import Evaluate, Information, Prox
from fedsplit.clients.stacked import QUIET, StackedClients
from fedsplit.errors import RequestError
from fedsplit.losses.observations import Observations
from fedsplit.problem import Problem
from fedsplit.regression.client.coding import Coding, Frame, key_of
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.design import Design
from fedsplit.regression.client.guards import thresholds
from fedsplit.regression.client.guards.rounding import (
    RoundedLeastSquares,
    Watch,
    at_named_points,
    points_alone,
    rounded_again,
)
from fedsplit.regression.client.guards.rules import WARN, Rules
from fedsplit.regression.client.guards.thresholds import Finding
from fedsplit.regression.client.noise import BoundedRows
from fedsplit.regression.client.questions import (
    FitQuestion,
    SumAnswer,
    SumQuestion,
    SurveyAnswer,
)
from fedsplit.regression.client.release import Release
from fedsplit.regression.client.statistics import CostAt, DesignMoments, FitRows
from fedsplit.regression.client.summing import SumsOfCohort
from fedsplit.regression.privacy import Privacy
from fedsplit.statistic import RowSum, Values
from fedsplit.threads import one_blas_thread


class DatasetCohort:
    """Clients whose rows are here.

    Rows are read when they are first asked for. The latest preparation is kept; a question about
    any other raises ``Unprepared``, and ``settle`` codes the rows again.

    Parameters
    ----------
    rules : Rules
        Those of the clients' owner, which hold even if a question asks for less.
    vectors : bool
        Tell matrices for proofs only.

    Attributes
    ----------
    datasets : dict of Dataset
        By name.
    rows : list of Design
        The coded rows, of the clients that take part.
    records : bool
        Whether what is disclosed is recorded under rules that only warn, too.
    """

    def __init__(
        self, datasets: Sequence[Dataset], rules: Rules = WARN, vectors: bool = False
    ) -> None:
        self.rules = rules
        self.vectors = vectors
        self.names = [dataset.name for dataset in datasets]
        self.datasets = {dataset.name: dataset for dataset in datasets}
        self.records = False
        self.rows: list[Design] = []
        self._coding: Coding | None = None
        # What was found when the rows were coded, and the moments that were told then, by client.
        self._findings: dict[str, Sequence[Finding]] = {}
        self._told: dict[str, Values] = {}
        # The problem without its ridge, under the key of everything that it depends on.
        self._base: tuple[str, Problem] | None = None
        # The latest two preparations by key.
        self._prepared: dict[str, tuple[Frame, Problem]] = {}
        # The clients of the last question, with their key and number.
        self._clients: tuple[str, int, StackedClients] | None = None
        # The rows of the last question with noise, with what they were made by.
        self._bounded: tuple[bytes, list[BoundedRows]] | None = None
        self._release = Release(self.datasets, WARN)

    @cached_property
    def sums(self) -> SumsOfCohort:
        """The same clients, where they tell sums alone."""
        return SumsOfCohort(self)

    @property
    def asked_strict(self) -> bool:
        """Whether the server asked for refusals when the rows were coded."""
        return self._coding is not None and self._coding.strict

    @property
    def refuses(self) -> bool:
        """Whether the owner, or the server when the rows were coded, asked for refusals."""
        return self.rules.asked(self.asked_strict).refuse

    def answer(self, request: Request) -> Any:
        """The answer: a draft, by thresholds, recorded in the ledger, released."""
        if request.sums:
            return self.sums.answer(request)
        question = request.question
        with one_blas_thread(), np.errstate(**QUIET):
            strict = any(isinstance(each, FitQuestion) and each.strict for each in request.parts)
            rules = self.rules.asked(strict or self.asked_strict)
            self._release = Release(self.datasets, rules, self.records)
            if not (rules.refuse or self.records or self.vectors):
                return self._answer(request)
            about = request.key, question, request.preparation
            self._release.begin(sha256(codec.encode(about)).hexdigest(), question, self.vectors)
            try:
                value = self._answer(request)
                self._release.record(self._asked(question), question)
            finally:
                self._release = Release(self.datasets, WARN)
        return value

    def names_of(self, coding: Coding) -> Sequence[str]:
        """The clients that take part."""
        return coding.names or self.names

    def _asked(self, question: Question) -> Sequence[str]:
        """The clients that a question was answered for."""
        for each in question.singles():
            if isinstance(each, FitQuestion) and each.coding is not None:
                return self.names_of(each.coding)
        return [rows.name for rows in self.rows]

    def _answer(self, request: Request) -> Any:
        """The answer, with a statement of what it discloses."""
        question = request.question
        self._prepare(request)
        if isinstance(question, FitQuestion):
            return question.answer(self, request)
        if not isinstance(question, CostQuestion):
            raise RequestError(f"the question {question.name()} is not allowed here")
        clients = self.among(request.key, request.m)
        if self._quadratic or not (self.refuses or self._release.open):
            answer = clients.ask(question)
            if points_alone(question, answer.parts) is not None:
                for rows in self.rows:  # it follows from the moments
                    self._release.state(rows.name, None, list)
            return answer
        return self._watched(question, clients, request)

    def _watched(self, question: CostQuestion, clients: StackedClients, request: Request) -> Answer:
        """The answer about costs that are not quadratic, with the sums that it is made of."""
        watch = self._watch()
        problem = self._prepared[request.key][1]
        if not self.refuses:  # the same sums, once more, are recorded
            answer = clients.ask(question)
            alone = points_alone(question, answer.parts)
            if alone is None or not watch.knows(problem):
                return answer
            watched = watch.clients(problem, request.m)
            for each in alone:
                watched.ask(each)
        else:
            question = at_named_points(question)
            watched = watch.clients(problem, request.m)
            # a prox has a way, whose points it does not name
            asked = clients if isinstance(question, Prox) else watched
            answer = rounded_again(question, asked.ask(question), watched)
            if points_alone(question, answer.parts) is None:
                return answer
            # how long it took, and how many steps, depends on single rows too
            nothing = np.zeros_like(answer.seconds)
            answer = answer._replace(seconds=nothing, work=np.zeros_like(answer.work))
        for j, rows in enumerate(self.rows):
            self._release.state(rows.name, rows.row_ids, partial(watch.of, j))
        return answer

    def _watch(self) -> Watch:
        def check(j: int, eta: Array) -> None:
            if self.refuses:
                self.rules.check_size(self.rows[j].name, eta)

        return Watch(self.refuses, check, self._may_disclose_radius)

    def _may_disclose_radius(self, j: int) -> bool:
        """Whether client j has disclosed few radii of balls of constant Hessians; it counts one."""
        dataset = self.datasets.get(self.rows[j].name)
        # where a radius changes along a line is a number of one row
        # what radii of balls of constant Hessians are counted as
        radius = "radius"
        if dataset is None or dataset.ledger.count(radius) >= 16:
            return False
        dataset.ledger.add(f"{radius} {dataset.ledger.count(radius)}", [], [radius])
        return True

    @property
    def _quadratic(self) -> bool:
        return self._coding is not None and self._coding.plan.chosen_family.quadratic

    @property
    def _guarded(self) -> bool:
        """Whether points are under rules: those of a quadratic disclose no more than moments."""
        return self.refuses and not self._quadratic

    def sum_over_rows(self, question: SumQuestion, request: Request) -> list[SumAnswer | None]:
        """What each client answers to a question about sums."""
        coding = question.coding
        if coding is None:
            frame = self.frame(request.key)
            self._scaled(frame)
            cost = partial(self._cost, request.key, {})
            return [
                self._of_rows(question, self._fit_rows(rows, request.m, frame, partial(cost, j)))
                for j, rows in enumerate(self.rows)
            ]
        if any(each.of_table for each in question.statistics.values()):
            rules = self.rules.asked(coding.strict)
            names = self.names_of(coding)
            return [self._of_table(question, self.datasets[name], rules) for name in names]
        # by their moments rows are recognised later: they are read again
        moments = [
            name for name, each in question.statistics.items() if isinstance(each, DesignMoments)
        ]
        self.code(coding) if moments else self.load_or_code(coding)
        answers = [self._of_rows(question, self._fit_rows(rows, request.m)) for rows in self.rows]
        for name in moments:
            for rows, answer in zip(self.rows, answers, strict=True):
                self._told[rows.name] = answer.values[name]
        return list(answers)

    def _of_table(self, question: SumQuestion, dataset: Dataset, rules: Rules) -> SumAnswer | None:
        """What one client answers of its complete rows, before there is a design."""
        assert question.coding is not None
        made = dataset.table_rows(question.coding.plan, question.statistics, rules)
        if made is None:  # that it cannot be read before types are agreed on
            self._release.state(dataset.name, None, list)
            return None
        rows, findings = made
        where = dataset.numbers(rows.frame.frame.index.to_numpy(dtype=np.intp))
        return SumAnswer(self._release.sums(dataset.name, where, question, rows), findings)

    def _fit_rows(
        self,
        rows: Design,
        m: int,
        frame: Frame | None = None,
        cost: Callable[[Array], CostAt] | None = None,
    ) -> FitRows:
        assert self._coding is not None  # which the rows are coded by
        rules = self.rules.asked(self._coding.strict)
        matrices = not self.vectors
        return FitRows(self._coding.plan, rows, rules, matrices, self._guarded, m, frame, cost)

    def _of_rows(self, question: SumQuestion, rows: FitRows) -> SumAnswer:
        """What one client answers of its coded rows."""
        name = rows.design.name
        values = self._release.sums(name, rows.design.row_ids, question, rows)
        return SumAnswer(values, () if question.coding is None else self._findings[name])

    def _cost(self, key: str, known: dict[bytes, Any], j: int, x: Array) -> CostAt:
        """The cost of client j at a point; all clients are evaluated at once, ``known`` is kept."""
        at = x.tobytes()
        if at not in known:
            problem, watch = self._prepared[key][1].with_ridge(0.0), self._watch()
            clients = problem.clients
            if not self._quadratic and (self.refuses or self._release.open):
                clients = watch.clients(problem, len(self.rows))
            known[at] = clients.ask(Evaluate(x)).parts, clients, [], watch
        parts, clients, hessians, watch = known[at]

        def curvature() -> Array:
            if not hessians:
                hessians.append(clients.ask(Information(x)).rows)
            own: Array = hessians[0][j]
            return own

        value = float(parts["value"][j])
        return CostAt(value, parts["gradient"][j], curvature, partial(watch.of, j))

    def bounded(self, coding: Coding, privacy: Privacy) -> list[BoundedRows]:
        """The rows of each client for sums with noise, read once for all questions of a fit."""
        about = codec.encode((coding, privacy))
        names = self.names_of(coding)
        if self._bounded is None or self._bounded[0] != about:
            rows = [self.datasets[name].bounded(coding.plan, privacy) for name in names]
            self._bounded = about, rows
        for name in names:
            self._release.state(name, None, list)  # noise bounds what is disclosed
        return self._bounded[1]

    def survey(self, coding: Coding) -> list[SurveyAnswer]:
        """What the columns of a plan hold at each client."""
        rules = self.rules.asked(coding.strict)
        answers = []
        for name in self.names_of(coding):
            answer, counted = self.datasets[name].survey(coding.plan, rules)
            if self._release.open:
                self._release.state(name, *((None, list) if counted is None else counted()))
            answers.append(answer)
        return answers

    def _prepare(self, request: Request) -> None:
        """Carry out the preparation that a request brings, unless that was done before."""
        if isinstance(request.preparation, FitQuestion) and request.key not in self._prepared:
            request.preparation.answer(self, Request(request.preparation))

    def code(self, coding: Coding) -> None:
        """Read and code the rows."""
        self._forget()
        rules, names = self.rules.asked(coding.strict), self.names_of(coding)
        made = {name: self.datasets[name].code(coding.plan, rules) for name in names}
        self.rows = [rows for rows, _ in made.values()]
        self._findings = {
            rows.name: [*warnings, *self._withheld(rows)] for rows, warnings in made.values()
        }
        self._coding = coding

    def load_or_code(self, coding: Coding) -> None:
        """Have the rows in the units of the files: read again, unless they are at hand."""
        if self._coding != coding or any(rows.scaling is not None for rows in self.rows):
            self.code(coding)

    def _withheld(self, rows: Design) -> list[Finding]:
        """Why the rounds get no matrices of a client; empty if they do."""
        if not self.vectors:
            return []
        what = "matrices for proofs only, so that the rounds use vectors"
        name = rows.name
        return [Finding(name, f"client {name} allows {what}", f"clients allow {what}", name)]

    def settle(self, coding: Coding, frame: Frame) -> list[Values]:
        """Make the costs of the rounds; the moments of the rows that they are made of."""
        self._ready(coding, frame)
        base = key_of(coding, frame.without_ridge())
        if self._base is None or self._base[0] != base:
            if frame.precise and any(rows.scaling is not None for rows in self.rows):
                self.code(coding)  # scaled columns have lost the digits that are wanted
            self._base = base, self._problem(coding, frame)
        latest = list(self._prepared.items())[-1:]
        prepared = frame, self._base[1].with_ridge(frame.ridge)
        self._prepared = dict(latest) | {key_of(coding, frame): prepared}
        return [self._moments(rows) for rows in self.rows]

    def _moments(self, rows: Design) -> Values:
        """The moments of coded rows, which are told once."""
        if rows.name not in self._told:
            release = Release({}, self.rules.asked(self.asked_strict))
            own = self._fit_rows(rows.restored(), 0)
            statistic, shapes = DesignMoments(), DesignMoments().shapes(own.plan)
            self._told[rows.name] = release.of("", rows.row_ids, statistic, own, shapes)
        return self._told[rows.name]

    def frame(self, key: str) -> Frame:
        """The coordinates that the clients were prepared with."""
        if key not in self._prepared:
            raise Unprepared
        return self._prepared[key][0]

    def _ready(self, coding: Coding, frame: Frame) -> None:
        """Code the rows, unless they are, and not scaled otherwise: they are scaled in place."""
        same = all(
            np.all(a == b)
            for rows in self.rows
            if rows.scaling is not None
            for a, b in zip(rows.scaling, frame.scaling, strict=True)
        )
        if coding != self._coding or not same:
            self.code(coding)
        for rows in self.rows:
            # the moments were stated when they were told; a client that was not asked states them
            self._release.state(rows.name, None, list)

    def _problem(self, coding: Coding, frame: Frame) -> Problem:
        family = coding.plan.chosen_family
        classes = family.count_classes(coding.plan.classes)
        refuses = self.rules.asked(coding.strict).refuse
        loss = family.in_units(frame.scaling.unit / frame.spread).loss(classes, frame.symmetric)
        if family.quadratic and refuses:
            loss = RoundedLeastSquares()
        # A column may be zero at all clients of this cohort, so none is looked for here: the server
        # knows of those that are zero everywhere.
        data = self._data(coding, frame)
        for rows, (A, b, w, o) in zip(self.rows, data, strict=True):
            own = np.asarray(A)
            if refuses:
                thresholds.check_range(rows.name, ["the target"], b[:, None])
                names = ["a combination of columns"] * own.shape[1]
                thresholds.check_range(rows.name, names, np.sqrt(w)[:, None] * own)
            if family.quadratic:
                both = RowSum(np.column_stack([own, b - o]), weights=w)
                self._release.state(rows.name, rows.row_ids, partial(list, [both]))
        return Problem(loss, data, ridge=1.0).with_ridge(frame.ridge)

    def _data(self, coding: Coding, frame: Frame) -> list[Observations]:
        """The observations of the rounds."""
        if frame.whiten is not None and frame.precise:
            columns = [rows.combine(frame.scaling, frame.whiten) for rows in self.rows]
            data = [rows.observations for rows in self._scaled(frame)]
            return [each._replace(A=A) for each, A in zip(data, columns, strict=True)]
        data = [rows.observations for rows in self._scaled(frame)]
        if frame.whiten is None:
            return data
        return [each._replace(A=each.A @ frame.whiten) for each in data]

    def _scaled(self, frame: Frame) -> list[Design]:
        """The coded rows, scaled in place."""
        for rows in self.rows:
            if rows.scaling is None:
                rows.scale(frame.scaling)
        return self.rows

    def release(self) -> None:
        """Let go of the rows: they are read and coded again when a question needs them."""
        self._forget()
        self._coding = None
        self._bounded = None
        self.rows = []
        for dataset in self.datasets.values():
            dataset.release()

    def _forget(self) -> None:
        """Drop everything that was made from rows as they were coded."""
        self._prepared = {}
        self._base = None
        self._clients = None
        self._findings = {}
        self._told = {}

    def among(self, key: str, m: int) -> StackedClients:
        """The clients of the rounds, where there are m in all."""
        if key not in self._prepared:
            raise Unprepared
        if self._clients is None or self._clients[:2] != (key, m):
            self._clients = key, m, self._prepared[key][1].among(m)
        return self._clients[2]

    def leverages(self, person: str | None = None) -> dict[str, Array]:
        """h of every row of each client, or of every person by a column that names them."""
        return {
            name: dataset.ledger.leverages(
                persons=None if person is None else dataset.persons(person)
            )
            for name, dataset in self.datasets.items()
        }
