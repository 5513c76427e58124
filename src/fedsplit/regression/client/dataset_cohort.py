"""The clients of a fit as one cohort: their rows, coded and turned into costs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.question import CostQuestion
from fedsplit.clients.stacked import QUIET, StackedClients
from fedsplit.clients.sums import rounded_products
from fedsplit.data.formula.formula import Formula
from fedsplit.errors import InputError, RequestError
from fedsplit.losses.observations import Observations
from fedsplit.problem import Problem
from fedsplit.regression.client.calibrating import may_calibrate
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.design import Calibration, Design, Moments, Scaling
from fedsplit.regression.client.findings import Finding
from fedsplit.regression.client.guards import disclosure
from fedsplit.regression.client.guards.answered import Asked
from fedsplit.regression.client.guards.blocks import of_combinations, of_design
from fedsplit.regression.client.guards.comparison import Comparison
from fedsplit.regression.client.guards.matrices import Ledger, MatrixGuard, check_matrices
from fedsplit.regression.client.guards.points import PointGuard
from fedsplit.regression.client.guards.rules import WARN, Rules
from fedsplit.regression.client.guards.slopes import Slopes
from fedsplit.regression.client.guards.told_sums import RoundedLeastSquares, rounded_moments
from fedsplit.regression.client.privacy.bounded_rows import BoundedRows
from fedsplit.regression.client.privacy.privacy import Privacy
from fedsplit.regression.client.questions.coding import Coding, Frame, key_of
from fedsplit.regression.client.questions.fit_question import FitQuestion
from fedsplit.regression.client.questions.moments import Coded
from fedsplit.regression.client.summing import SumsOfCohort
from fedsplit.remote import codec
from fedsplit.remote.channel import Request, Unprepared
from fedsplit.threads import one_blas_thread


def _admit_design(dataset: Dataset, asked: Asked, rows: Design, rules: Rules) -> None:
    """Refuse coded rows that, with what was answered before, single out some of them."""
    if rules.refuse:
        dataset.admit(asked, of_design(rows), rules)


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
    """

    def __init__(
        self, datasets: Sequence[Dataset], rules: Rules = WARN, vectors: bool = False
    ) -> None:
        self.rules = rules
        self.vectors = vectors
        self.names = [dataset.name for dataset in datasets]
        self.datasets = dict(zip(self.names, datasets, strict=True))
        for dataset in datasets:
            dataset.histograms = partial(self._ledger, dataset.name, kind="histograms")
        self.rows: list[Design] = []
        self._coding: Coding | None = None
        self._moments: list[Moments] = []
        self._guards: list[MatrixGuard] = []
        # By client, model and kind.
        self._ledgers: dict[tuple[str, str, str], Ledger] = {}
        # The problem without its ridge, under the key of everything that it depends on.
        self._base: tuple[str, Problem] | None = None
        # The latest two preparations by key.
        self._prepared: dict[str, tuple[Frame, Problem]] = {}
        # The guard of the points of the last question, with its key and rules.
        self._points: tuple[tuple[str, Rules], PointGuard] | None = None
        self._model = ""
        # By client, what was told at points, whatever the model.
        self._told: dict[str, Slopes] = {}
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
            self._prepare(request)
            check_matrices(self._guards, question, request.key)
            if isinstance(question, FitQuestion):
                return question.answer(self, request.key)
            if isinstance(question, CostQuestion):
                clients = self.among(request.key, request.m)
                guard = self.point_guard(request.key)
                if guard is None:
                    return clients.ask(question)
                return guard.ask(clients, question, request.key)
        raise RequestError(f"the question {question.name()} is not allowed here")

    def point_guard(self, key: str) -> PointGuard | None:
        """What looks at the points of questions; None without rules, and for a quadratic loss."""
        if key not in self._prepared:
            raise Unprepared
        if self._coding is None:
            return None
        rules = self.rules.asked(self._coding.strict)
        if not rules.refuse or self._coding.plan.chosen_family.quadratic:
            return None
        about = key, rules
        if self._points is None or self._points[0] != about:
            names = [rows.name for rows in self.rows]
            ledgers = [self._ledger(name, self._model, "points") for name in names]
            clients = self._prepared[key][1].clients
            told = [self._slopes(name) for name in names]
            guard = PointGuard(names, clients, rules, ledgers, told, self.rows)
            self._points = about, guard
        return self._points[1]

    def _slopes(self, name: str) -> Slopes:
        """What a client has told of its rows at points."""
        return self._told.setdefault(name, Slopes())

    def calibration(self, design: Design, x: Array, key: str) -> Calibration:
        """The calibration of a client's rows at x.

        Under rules there are few of targets with the same column, since where a count changes is a
        number of one row, and none that singles out rows with what was answered before; the others
        have no counts.
        """
        assert self._coding is not None
        rules = self.rules.asked(self._coding.strict)
        if rules.refuse:
            plan = self._coding.plan
            asked = Asked(
                plan=plan,
                recessions=self._coding.recessions,
                scaling=self.frame(key).scaling,
                point=x,
            )
            ledgers = [
                self._ledger(design.name, sha256(column.encode()).hexdigest(), "calibrations")
                for column in Formula(plan.formula).target_columns
            ]
            dataset = self.datasets.get(design.name)
            if not may_calibrate(dataset, design, asked, ledgers, rules):
                return Calibration.withheld()
        return design.calibration(x, rules.withheld)

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
        if rules.refuse:
            for rows in self.rows:
                Comparison(rows, self._slopes(rows.name), rules).admit_moments()
        self._moments = [self._described(rows, rules) for rows in self.rows]
        self._take(coding)
        return [
            Coded(moments, [*warnings, *guard.findings], not guard.findings, not rules.refuse)
            for moments, guard, (_, warnings) in zip(
                self._moments, self._guards, coded, strict=True
            )
        ]

    def _described(self, rows: Design, rules: Rules) -> Moments:
        """The moments of a client's rows."""
        if rules.refuse:
            return rounded_moments(rows, rows.moments())
        return rows.moments()

    def _take(self, coding: Coding) -> None:
        """Take note of the coding of the rows; matrices of the same ones are counted on."""
        self._coding = coding
        rules = self.rules.asked(coding.strict)
        # By columns, not by what is made of them: the same can be written in many ways. A server
        # may choose among many directions of recession: their number counts.
        plan = coding.plan
        about = [plan.family, *sorted(plan.columns), *coding.names]
        model = sha256(codec.encode((about, len(coding.recessions)))).hexdigest()
        self._model = model
        self._guards = [
            MatrixGuard(rows, rules, self.vectors, self._ledger(rows.name, model, "matrices"))
            for rows in self.rows
        ]

    def _ledger(self, name: str, model: str, kind: str) -> Ledger:
        """What a client has told of its rows as they are coded for a model."""
        return self._ledgers.setdefault((name, model, kind), Ledger())

    def _code(self, name: str, coding: Coding, rules: Rules) -> tuple[Design, Sequence[Finding]]:
        """The rows of one client that are at rest, and what their moments could disclose."""
        dataset = self.datasets[name]
        rows, warnings = dataset.code(coding.plan, rules)
        if not coding.recessions:
            _admit_design(dataset, Asked(plan=coding.plan), rows, rules)
            return rows, warnings
        every = len(rows.b)
        for recession in coding.recessions:
            rows = rows.at_rest(recession)
        if min(rows.rows, len(rows.b)) < 1:
            raise InputError(f"client {name}: no row is at rest along the directions of recession")
        # those of all rows were told before
        found = disclosure.in_difference(name, every - len(rows.b), rules)
        found += disclosure.in_rest(rows, Formula(coding.plan.formula).target, rules)
        disclosure.refuse(found, rules)
        asked = Asked(plan=coding.plan, recessions=coding.recessions)
        _admit_design(dataset, asked, rows, rules)
        return rows, found

    def resting(self, coding: Coding) -> tuple[str, ...]:
        """The clients that have a row at rest along the directions of recession.

        Under rules that refuse, all of them: that one has none is a refusal, which is counted.
        """
        if not coding.recessions or self.rules.asked(coding.strict).refuse:
            return tuple(self.names)
        found = []
        for name in self.names:
            rows, _ = self.datasets[name].code(coding.plan, WARN)
            for recession in coding.recessions:
                rows = rows.at_rest(recession)
            if min(rows.rows, len(rows.b)) > 0:
                found.append(name)
        return tuple(found)

    def settle(self, coding: Coding, frame: Frame) -> list[Moments]:
        """Make the costs of the rounds; the moments of the rows that they are made of."""
        self._ready(coding, frame.scaling)
        base = key_of(coding, frame.without_ridge())
        if self._base is None or self._base[0] != base:
            if frame.precise and any(rows.scaling is not None for rows in self.rows):
                self.code(coding)  # scaled columns have lost the digits that are wanted
            self._admit_combinations(coding, frame.scaling, frame.whiten, frame.precise)
            self._base = base, self._problem(coding, frame)
        latest = list(self._prepared.items())[-1:]
        prepared = frame, self._base[1].with_ridge(frame.ridge)
        self._prepared = dict(latest) | {key_of(coding, frame): prepared}
        return self._moments

    def products(self, coding: Coding, scaling: Scaling, directions: Array) -> list[Array]:
        """Σ w y yᵀ of combinations of the scaled columns."""
        self._ready(coding, scaling)
        self._admit_combinations(coding, scaling, directions, precise=False)
        told = [rows.products(scaling, directions) for rows in self.rows]
        if self.rules.asked(coding.strict).refuse:
            told = [rounded_products(each) for each in told]
        return told

    def _admit_combinations(
        self, coding: Coding, scaling: Scaling, directions: Array | None, precise: bool
    ) -> None:
        """Refuse combinations of columns that, as they are computed, single out rows."""
        rules = self.rules.asked(coding.strict)
        if not rules.refuse:
            return
        asked = Asked(
            plan=coding.plan,
            recessions=coding.recessions,
            scaling=scaling,
            directions=directions,
            precise=precise,
        )
        for rows in self.rows:
            block = of_combinations(rows, asked)
            target = (rows.b - scaling.origin) / scaling.unit
            disclosure.check_range(rows.name, ["the target"], target[:, None])
            names = ["a combination of columns"] * block.columns.shape[1]
            disclosure.check_range(rows.name, names, block.columns)
            dataset = self.datasets[rows.name]
            # products of columns were looked at, or too many to look at, when these were coded
            if dataset.answered.tells_more(block):
                dataset.admit(asked, block, rules)

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
        return Problem(loss, self._data(coding, frame), ridge=1.0).with_ridge(frame.ridge)

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
        self._points = None

    def among(self, key: str, m: int) -> StackedClients:
        """The clients of the rounds, where there are m in all."""
        if key not in self._prepared:
            raise Unprepared
        if self._clients is None or self._clients[:2] != (key, m):
            self._clients = key, m, self._prepared[key][1].among(m)
        return self._clients[2]
