"""The clients of a fit as one cohort: their rows, coded and turned into costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.question import CostQuestion, Question
from fedsplit.clients.stacked import QUIET, StackedClients
from fedsplit.clients.sums import rounded_products
from fedsplit.data.formula.formula import Formula
from fedsplit.data.pooled.column_statistics import Withheld
from fedsplit.errors import InputError, RequestError
from fedsplit.losses.observations import Observations
from fedsplit.problem import Problem
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.design import Calibration, Design, Moments, Scaling
from fedsplit.regression.client.findings import Finding
from fedsplit.regression.client.guards import thresholds
from fedsplit.regression.client.guards.extremes import without_extremes
from fedsplit.regression.client.guards.ledger import RowSum
from fedsplit.regression.client.guards.points import (
    At,
    RowTerms,
    at_named_points,
    check_allowed,
    points_of,
    unpadded,
)
from fedsplit.regression.client.guards.rounding import (
    RoundedLeastSquares,
    rounded_moments,
    rounded_parts,
)
from fedsplit.regression.client.guards.rules import WARN, Rules
from fedsplit.regression.client.guards.statements import (
    of_calibration,
    of_design,
    of_points,
    of_products,
)
from fedsplit.regression.client.privacy.bounded_rows import BoundedRows
from fedsplit.regression.client.privacy.privacy import Privacy
from fedsplit.regression.client.questions.coding import Coding, Frame, key_of
from fedsplit.regression.client.questions.fit_question import FitQuestion, strict_is_asked
from fedsplit.regression.client.questions.moments import Coded
from fedsplit.regression.client.questions.residuals import ResidualSizes
from fedsplit.regression.client.summing import SumsOfCohort
from fedsplit.remote import codec
from fedsplit.remote.channel import Request, Unprepared
from fedsplit.threads import one_blas_thread

UNSTATED = "unstated"
"""What questions are counted as that do not state what they disclose."""

RADIUS = "radius"
"""What radii of balls of constant Hessians are counted as."""

MOST_RADII = 16
"""Of the same rows: where a radius changes along a line is a number of one row."""

MATRIX = "matrix"
"""What questions for matrices are counted as."""

MOST_PROOFS = 16
"""Of matrices, where the owner allows them for proofs only."""

MOST_CALIBRATIONS = 5
"""How often a client under rules counts the predictions of targets with the same column: where a
count changes is a number of one row."""


class DatasetCohort:
    """Clients whose rows are here.

    Rows are read when they are first asked for. The latest preparation is kept; a question about
    any other raises ``Unprepared``, and ``settle`` codes the rows again.

    Parameters
    ----------
    datasets : sequence of Dataset
    rules : Rules
        Those of the clients' owner, which hold even if a question asks for less.
    vectors : bool
        Tell matrices for proofs only.

    Attributes
    ----------
    names : list of str
    datasets : dict of Dataset
        By name.
    rows : list of Design
        The coded rows, of the clients that take part.
    sums : SumsOfCohort
        The same clients, where they tell sums alone.
    records : bool
        Whether what is disclosed is recorded under rules that only warn, too.
    """

    def __init__(
        self, datasets: Sequence[Dataset], rules: Rules = WARN, vectors: bool = False
    ) -> None:
        self.rules = rules
        self.vectors = vectors
        self.names = [dataset.name for dataset in datasets]
        self.datasets = dict(zip(self.names, datasets, strict=True))
        for dataset in datasets:
            dataset.state = partial(self._state, dataset.name)
        self.records = False
        self.rows: list[Design] = []
        self._coding: Coding | None = None
        self._moments: list[Moments] = []
        # What the answer in progress discloses, by client; None where it is not recorded.
        self._stated: dict[str, list[RowSum]] | None = None
        # The problem without its ridge, under the key of everything that it depends on.
        self._base: tuple[str, Problem] | None = None
        # The latest two preparations by key.
        self._prepared: dict[str, tuple[Frame, Problem]] = {}
        # The clients of the last question, with their key and number.
        self._clients: tuple[str, int, StackedClients] | None = None
        # The rows of the last question with noise, with what they were made by.
        self._bounded: tuple[bytes, list[BoundedRows]] | None = None
        self.sums = SumsOfCohort(self)

    @classmethod
    def of_rows(cls, coding: Coding, rows: list[Design], moments: list[Moments]) -> DatasetCohort:
        """Clients whose rows are coded already."""
        cohort = cls([])
        cohort.names = list(coding.names)
        cohort.rows = rows
        cohort._coding = coding
        cohort._moments = moments
        return cohort

    @property
    def asked_strict(self) -> bool:
        """Whether the server asked for refusals when the rows were coded."""
        return self._coding is not None and self._coding.strict

    @property
    def refuses(self) -> bool:
        """Whether the owner, or the server when the rows were coded, asked for refusals."""
        return self.rules.asked(self.asked_strict).refuse

    def answer(self, request: Request) -> Any:
        if request.sums:
            return self.sums.answer(request)
        question = request.question
        with one_blas_thread(), np.errstate(**QUIET):
            strict = self.asked_strict or any(map(strict_is_asked, request.parts))
            rules = self.rules.asked(strict)
            if not (rules.refuse or self.records or self.vectors):
                return self._answer(request)
            versions = [dataset.version for dataset in self.datasets.values()]
            about = request.key, question, request.preparation, versions
            digest = sha256(codec.encode(about)).hexdigest()
            new = not all(digest in dataset.ledger for dataset in self.datasets.values())
            if new:
                self._check_number(question, rules)
            self._stated = {} if new and (rules.refuse or self.records) else None
            try:
                value = self._answer(request)
                if new:
                    for name in self._names_of(question):
                        self._record(name, digest, question, rules)
            finally:
                self._stated = None
        return value

    def _names_of(self, question: Question) -> Sequence[str]:
        """The clients that a question was answered for."""
        for each in question.singles():
            if isinstance(each, FitQuestion) and each.names:
                return each.names
        return [rows.name for rows in self.rows]

    def _answer(self, request: Request) -> Any:
        """The answer, with a statement of what it discloses."""
        question = request.question
        self._prepare(request)
        if isinstance(question, FitQuestion):
            return question.answer(self, request.key)
        if not isinstance(question, CostQuestion):
            raise RequestError(f"the question {question.name()} is not allowed here")
        clients = self.among(request.key, request.m)
        if self._quadratic or not self.refuses:
            answer = clients.ask(question)
            self.state_points(request.key, points_of(question, answer.parts), question)
            return answer
        check_allowed(question)
        question = at_named_points(question)
        answer = clients.ask(question)
        points = points_of(question, answer.parts)
        self.check_size(request.key, points or [])
        self.state_points(request.key, points, question)
        terms = self._terms(request.key)
        parts = rounded_parts(question, answer.parts, terms)
        parts = without_extremes(question, parts, terms, self._may_disclose_radius)
        # how long it took, and how many steps, depends on single rows too
        nothing = np.zeros_like(answer.seconds)
        return answer._replace(parts=parts, seconds=nothing, work=np.zeros_like(answer.work))

    def _may_disclose_radius(self, j: int) -> bool:
        """Whether client j has disclosed few radii of balls of constant Hessians; it counts one."""
        dataset = self.datasets.get(self.rows[j].name)
        if dataset is None or dataset.ledger.count(RADIUS) >= MOST_RADII:
            return False
        dataset.ledger.add(f"{RADIUS} {dataset.ledger.count(RADIUS)}", [], [RADIUS])
        return True

    @property
    def _quadratic(self) -> bool:
        return self._coding is not None and self._coding.plan.chosen_family.quadratic

    @property
    def guarded(self) -> bool:
        """Whether points are under rules: those of a quadratic disclose no more than moments."""
        return self.refuses and not self._quadratic

    def _terms(self, key: str) -> list[RowTerms]:
        """The rows of each client in the coordinates of the rounds."""
        clients = self._prepared[key][1].clients
        return [unpadded(clients.terms_of(j)) for j in range(clients.m)]

    def check_size(self, key: str, points: Sequence[At]) -> None:
        """Raise InputError for points at which predictors are too far out."""
        if not self.guarded:
            return
        for j, (rows, terms) in enumerate(zip(self.rows, self._terms(key), strict=True)):
            for at in points:
                x = np.broadcast_to(at.point, (len(self.rows), at.point.shape[-1]))[j : j + 1]
                self.rules.check_size(rows.name, terms.eta(x))

    def check_predictor(self, design: Design, x: Array) -> None:
        """The same for a point of the scaled columns."""
        if self.guarded:
            self.rules.check_size(design.name, design.predictor(x))

    def rounded(
        self, key: str, question: CostQuestion, parts: Mapping[str, Array]
    ) -> Mapping[str, Array]:
        """The parts of an answer; under rules without rounding errors."""
        return rounded_parts(question, parts, self._terms(key)) if self.guarded else parts

    def state_points(
        self, key: str, points: Sequence[At] | None, question: CostQuestion | None = None
    ) -> None:
        """State what is disclosed at points; None states nothing."""
        if self._stated is None or points is None:
            return
        if self._quadratic:  # every answer follows from the moments
            for rows in self.rows:
                self.state(rows, list)
            return
        for j, (rows, terms) in enumerate(zip(self.rows, self._terms(key), strict=True)):
            sums = of_points(question, points, terms, j, rows.row_ids)
            self._state(rows.name, partial(list, sums))

    def _state(self, name: str, make: Callable[[], Sequence[RowSum]]) -> None:
        """Add to what the answer in progress discloses of a client's rows."""
        if self._stated is not None:
            self._stated.setdefault(name, []).extend(make())

    def state(self, rows: Design, make: Callable[[], Sequence[RowSum]]) -> None:
        """The same of coded rows."""
        self._state(rows.name, make)

    def _check_number(self, question: Question, rules: Rules) -> None:
        """Raise RequestError for a question too many, or for a matrix that the owner withholds."""
        if self.vectors and question.brings_matrices:
            raise RequestError(
                f"client {self.names[0]} allows matrices for proofs only: choose the method "
                "quasi-newton, and leave out firth"
            )
        for name, dataset in self.datasets.items():
            ledger = dataset.ledger
            if rules.refuse and len(ledger) >= rules.points:
                raise RequestError(
                    f"client {name} has answered {len(ledger)} questions about its rows, and its "
                    f"rules allow {rules.points}"
                )
            if self.vectors and question.matrices and ledger.count(MATRIX) >= MOST_PROOFS:
                raise RequestError(
                    f"client {name} has disclosed {MOST_PROOFS} matrices of its rows, and its "
                    "owner allows no more"
                )

    def _record(self, name: str, key: str, question: Question, rules: Rules) -> None:
        """Record what the answer discloses, before it leaves.

        Raises
        ------
        RequestError
            If rules refuse, and the question has not stated it.
        InputError
            If a leverage would exceed what the owner allows.
        """
        ledger = self.datasets[name].ledger
        version = self.datasets[name].version
        tags = [MATRIX] * bool(question.matrices) + [version] * bool(version)
        if self._stated is None:
            if self.vectors and question.matrices:
                ledger.add(key, [], tags)
            return
        sums = self._stated.get(name)
        if sums is None:
            if rules.refuse:
                raise RequestError(
                    f"the question {question.name()} does not state what it discloses, and its "
                    "rules answer no such question"
                )
            sums = []
            tags.append(UNSTATED)
        if rules.leverage is not None and rules.refuse:
            largest = float(ledger.leverages(sums).max(initial=0.0))
            if largest > rules.leverage:
                raise InputError(
                    f"client {name}: with this answer the leverage of a row would be "
                    f"{largest:.4f} (rule largest_leverage: {rules.leverage:g})"
                )
        ledger.add(key, sums, tags)

    def leverages(self, person: str | None = None) -> dict[str, Array]:
        """h of every row of each client, or of every person by a column that names them."""
        found = {}
        for name, dataset in self.datasets.items():
            found[name] = dataset.ledger.leverages()
            if person is not None:
                persons = dataset.persons(person)
                rows = np.zeros(len(persons))
                rows[: len(found[name])] = found[name]
                found[name] = np.bincount(persons, rows).astype(np.float64)
        return found

    def calibration(self, design: Design, x: Array, key: str) -> Calibration:
        """The calibration of a client's rows at x.

        Under rules there are few of targets with the same column; the others have no counts.
        """
        limit = self._counting("calibration", design, x, key)
        if limit is None:
            return Calibration.withheld()
        self.state(design, lambda: of_calibration(design, x, limit))
        return design.calibration(x, limit)

    def residual_sizes(self, design: Design, question: ResidualSizes, key: str) -> Array:
        """How many of a client's rows have residuals of which size.

        Under rules small counts are withheld, and there are few of targets with the same column, as
        of calibrations; a client of few rows merges cells. Else the counts of all clients are
        those of their rows together, however these are split.
        """
        limit = self._counting("residuals", design, question.x, key)
        if limit is None:
            return np.zeros(question.sizes.cells + 2)
        sizes = question.of(design.b, design.predictor(question.x))
        counted = question.sizes
        if self.refuses:
            self.state(design, lambda: [RowSum(design.row_ids, counted.columns(sizes, limit))])
            return counted.part(sizes, limit)
        self.state(design, lambda: [RowSum(design.row_ids, counted.every(sizes))])
        total: Array = np.sum(counted.every(sizes), axis=0)
        return total

    def _counting(self, what: str, design: Design, x: Array, key: str) -> Withheld | None:
        """Which counts of rows at a point are withheld; None if all are.

        Those of targets with the same column are counted under rules.
        """
        assert self._coding is not None
        rules = self.rules.asked(self._coding.strict)
        dataset = self.datasets.get(design.name)
        if rules.refuse and dataset is not None:
            about = what, self._coding.plan, self.frame(key).scaling, x
            digest = sha256(codec.encode((about, dataset.version))).hexdigest()
            columns = Formula(self._coding.plan.formula).target_columns
            tags = [f"{what} of {column}" for column in columns]
            most = max(map(dataset.ledger.count, tags), default=0)
            if most >= MOST_CALIBRATIONS and digest not in dataset.ledger:
                return None
            dataset.ledger.add(digest, [], tags)
        return rules.withheld

    def bounded(self, coding: Coding, privacy: Privacy) -> list[BoundedRows]:
        """The rows of each client for sums with noise, read once for all questions of a fit."""
        about = codec.encode((coding, privacy))
        if self._bounded is None or self._bounded[0] != about:
            rows = [self.datasets[name].bounded(coding.plan, privacy) for name in coding.names]
            self._bounded = about, rows
        return self._bounded[1]

    def _prepare(self, request: Request) -> None:
        """Carry out the preparation that a request brings, unless that was done before."""
        if isinstance(request.preparation, FitQuestion) and request.key not in self._prepared:
            request.preparation.answer(self, "")

    def code(self, coding: Coding) -> list[Coded]:
        """Code the rows, and describe them by their moments."""
        self._forget()
        rules = self.rules.asked(coding.strict)
        coded = [self._code(name, coding, rules) for name in coding.names]
        self.rows = [rows for rows, _ in coded]
        for rows in self.rows:
            self.state(rows, partial(of_design, rows))
        self._moments = [self._described(rows, rules) for rows in self.rows]
        self._coding = coding
        return [
            Coded(moments, [*warnings, *self._withheld(rows)], not self.vectors, not rules.refuse)
            for moments, (rows, warnings) in zip(self._moments, coded, strict=True)
        ]

    def _withheld(self, rows: Design) -> list[Finding]:
        """Why the rounds get no matrices of a client; empty if they do."""
        if not self.vectors:
            return []
        what = "matrices for proofs only, so that the rounds use vectors"
        name = rows.name
        return [Finding(name, f"client {name} allows {what}", f"clients allow {what}", name)]

    def _described(self, rows: Design, rules: Rules) -> Moments:
        """The moments of a client's rows."""
        if rules.refuse:
            return rounded_moments(rows, rows.moments())
        return rows.moments()

    def _code(self, name: str, coding: Coding, rules: Rules) -> tuple[Design, Sequence[Finding]]:
        """The rows of one client, and what their moments could disclose."""
        dataset = self.datasets[name]
        return dataset.code(coding.plan, rules)

    def settle(self, coding: Coding, frame: Frame) -> list[Moments]:
        """Make the costs of the rounds; the moments of the rows that they are made of."""
        self._ready(coding, frame.scaling)
        base = key_of(coding, frame.without_ridge())
        if self._base is None or self._base[0] != base:
            if frame.precise and any(rows.scaling is not None for rows in self.rows):
                self.code(coding)  # scaled columns have lost the digits that are wanted
            self._base = base, self._problem(coding, frame)
        for rows in self.rows:  # the moments were stated when the rows were coded
            self.state(rows, list)
        latest = list(self._prepared.items())[-1:]
        prepared = frame, self._base[1].with_ridge(frame.ridge)
        self._prepared = dict(latest) | {key_of(coding, frame): prepared}
        return self._moments

    def products(self, coding: Coding, scaling: Scaling, directions: Array) -> list[Array]:
        """Σ w y yᵀ of combinations of the scaled columns."""
        self._ready(coding, scaling)
        for rows in self.rows:
            A = rows.A if rows.scaling is not None else (rows.A - scaling.centre) / scaling.scale
            self._check_range(coding, scaling, rows, A @ directions)
            self.state(rows, partial(of_products, rows, rows.w, A @ directions))
        found = [rows.products(scaling, directions) for rows in self.rows]
        if self.rules.asked(coding.strict).refuse:
            found = [rounded_products(each) for each in found]
        return found

    def _check_range(self, coding: Coding, scaling: Scaling, rows: Design, A: Array) -> None:
        """Refuse combinations of columns, (n, k), whose products could be beyond float64."""
        if self.rules.asked(coding.strict).refuse:
            target = (rows.b - scaling.origin) / scaling.unit
            thresholds.check_range(rows.name, ["the target"], target[:, None])
            root = np.sqrt(rows.w)[:, None]
            names = ["a combination of columns"] * A.shape[1]
            thresholds.check_range(rows.name, names, root * A)

    def frame(self, key: str) -> Frame:
        """The coordinates that the clients were prepared with."""
        if key not in self._prepared:
            raise Unprepared
        return self._prepared[key][0]

    def scaled(self, key: str) -> list[Design]:
        """The rows in the coordinates that the clients were prepared with."""
        return self._scaled(self.frame(key))

    def _ready(self, coding: Coding, scaling: Scaling) -> None:
        """Code the rows, unless they are, and not scaled otherwise: they are scaled in place."""
        same = all(
            np.all(a == b)
            for rows in self.rows
            if rows.scaling is not None
            for a, b in zip(rows.scaling, scaling, strict=True)
        )
        if coding != self._coding or not same:
            self.code(coding)

    def _problem(self, coding: Coding, frame: Frame) -> Problem:
        family = coding.plan.chosen_family
        classes = family.count_classes(coding.plan.classes)
        loss = family.in_units(frame.scaling.unit / frame.spread).loss(classes, frame.symmetric)
        if family.quadratic and self.rules.asked(coding.strict).refuse:
            loss = RoundedLeastSquares()
        # A column may be zero at all clients of this cohort, so none is looked for here: the server
        # knows of those that are zero everywhere.
        data = self._data(coding, frame)
        for rows, (A, b, w, o) in zip(self.rows, data, strict=True):
            own = np.asarray(A)
            self._check_range(coding, frame.scaling, rows, own)
            if family.quadratic:
                both = np.column_stack([own, b - o])
                self.state(rows, partial(of_products, rows, w, both))
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
        self._moments = []
        self._bounded = None
        self.rows = []
        for dataset in self.datasets.values():
            dataset.release()

    def _forget(self) -> None:
        """Drop everything that was made from rows as they were coded."""
        self._prepared = {}
        self._base = None
        self._clients = None

    def among(self, key: str, m: int) -> StackedClients:
        """The clients of the rounds, where there are m in all."""
        if key not in self._prepared:
            raise Unprepared
        if self._clients is None or self._clients[:2] != (key, m):
            self._clients = key, m, self._prepared[key][1].among(m)
        return self._clients[2]
