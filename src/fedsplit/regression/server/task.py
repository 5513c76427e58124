"""One regression: from designs to where its rounds end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.clients.oracle import Clients, Removed
from fedsplit.clients.questions import Margin
from fedsplit.clients.stacked import QUIET
from fedsplit.errors import InputError, listed
from fedsplit.methods import parse
from fedsplit.methods.default import default_method
from fedsplit.methods.information import FedSplitInformation
from fedsplit.penalties.coordinatewise import NonNegativeElasticNet
from fedsplit.penalties.penalty import FitPenalty
from fedsplit.regression.client.design import Moments, Recession
from fedsplit.regression.client.questions.along import Recede, Receding
from fedsplit.regression.client.questions.coding import Frame
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.options import AUTO, Settings
from fedsplit.regression.server.assessment import Assessment
from fedsplit.regression.server.coordinates import Coordinates
from fedsplit.regression.server.federation import FederatedRows
from fedsplit.regression.server.firth import FirthEstimate, FirthSearch
from fedsplit.regression.server.inference import (
    inverse,
)
from fedsplit.regression.server.pool import Pool
from fedsplit.regression.server.search import Estimate, Progress, Search

INFORMATION = "information"
"""The name of the method with matrices."""


class NothingToFit(InputError):
    """The target is the same in every row."""


def _chosen(clients: Clients) -> str:
    """The name of the method that suits the clients."""
    method, _ = default_method(clients)
    if isinstance(method, FedSplitInformation):
        return INFORMATION
    return "quasi-newton"


def _no_matrices(rows: FederatedRows, d: int) -> str:
    """Why there can be no secure sums."""
    why = f"{d} coefficients are too many for matrices"
    if not rows.matrices:
        why = "the rules of a client allow no matrix in every round"
    return f"secure sums need the method information, and {why}: fit fewer columns, or openly"


class Task:
    """One regression, ready for its rounds.

    Columns are always centred and scaled for the rounds; ``standardize`` only decides on which
    scale a penalty acts. Without a penalty they are also made orthonormal over all clients, so that
    columns that nearly depend on each other, such as a year and its square, cost no rounds.

    Parameters
    ----------
    rows : FederatedRows
        The designs at the clients.
    moments : sequence of Moments
        One per client.
    settings : Settings
    intercept : int or None
        Which column is the constant term, if there is one.
    labels : sequence of str
        The classes of a target column that is a class.

    Attributes
    ----------
    names : list of str
        The q coefficients, those of aliased columns included.
    sizes : dict of str to int
        The rows of each client.
    pool : Pool
        The moments of all clients.
    coordinates : Coordinates
        Those of the rounds; ``scaling``, ``basis``, ``back`` and ``kept`` are its own.
    frame : Frame
        What makes the clients' costs of their designs.
    clients : FitClients
        The clients of the rounds.
    asked_method : str
        As the settings had it before a method was chosen.
    asked : sequence of Row
        What was asked before the rounds.
    assessment : Assessment
        What a proof means in the units of the table.
    """

    def __init__(
        self,
        rows: FederatedRows,
        moments: Sequence[Moments],
        settings: Settings,
        intercept: int | None,
        labels: Sequence[str] = (),
    ) -> None:
        self.rows = rows
        self.settings = settings
        self.sizes = {name: each.n for name, each in zip(rows.members.names, moments, strict=True)}
        self.family = FAMILIES[settings.family]
        self.pool = Pool(moments, intercept)
        classes = self.family.count_classes(labels)
        self.names = self.family.coefficient_names(self.pool.names, labels)
        self._check_target()
        self.assessment = Assessment(self)
        found = Coordinates(rows, self.pool, settings, classes)
        self.coordinates = found
        self.scaling = found.scaling
        self.basis = found.basis
        self.back = found.back
        self.kept = found.kept
        ridge = settings.ridge * self.penalised(2)
        delta = settings.delta / self.scaling.unit
        self.frame = Frame(self.scaling, found.whiten, delta, found.symmetric, ridge, found.precise)
        self.clients = rows.settle(self.frame)
        self.asked_method = settings.method
        if settings.method == AUTO and not settings.firth:
            chosen = _chosen(self.clients)
            if settings.secure and chosen != INFORMATION:
                raise InputError(_no_matrices(rows, self.d))
            self.settings = replace(settings, method=chosen)
        self.asked = tuple(rows.members.history.exchanges)

    @property
    def d(self) -> int:
        """How many coefficients are fitted: the rank."""
        return int(self.kept.sum())

    @property
    def aliased(self) -> list[str]:
        """The coefficients of columns that those before them determine."""
        return [name for name, kept in zip(self.names, self.kept, strict=True) if not kept]

    @property
    def reports_separation(self) -> bool:
        """Whether coefficients that grow without bound are reported rather than refused."""
        return self.family.margin is not None and self.settings.separation == "report"

    def coefficients(self, x: Array) -> Array:
        """The coefficients in the units of the files, (..., q), at x of the rounds, (..., d).

        Those that are aliased are 0.
        """
        return self.coordinates.coefficients(x)

    def in_scaled_columns(self, x: Array) -> tuple[Clients, Array, Array]:
        """The problem as methods that average would be run on it: with columns not orthonormal.

        Returns
        -------
        clients : Clients
            Of the scaled columns that are not aliased.
        x : (d,) array
            The point x of the rounds in coefficients of the scaled columns.
        back : (d, d) array
            Takes those to coefficients in the units of the files.
        """
        if self.settings.biased is not None:
            return self.clients, x, self.back[self.kept]
        whiten = None
        if self.aliased:
            columns = self.kept[: len(self.pool.names)]
            whiten = np.ascontiguousarray(np.eye(len(columns))[:, columns])
        clients = self.rows.settle(replace(self.frame, whiten=whiten, precise=False))
        back = self.coordinates.unscaling[np.ix_(self.kept, self.kept)]
        return clients, (self.basis @ x)[self.kept], back

    def penalised(self, power: int) -> Array:
        """The factor of a penalty on |coefficient|^power in the coordinates of the rounds, (d,).

        0 for the intercept.
        """
        scale = self.scaling.scale
        if self.settings.standardize:
            scale = np.ones_like(scale)
        # the objective of the rounds is that of the files over unit²
        factor = (self.scaling.unit / scale) ** power / self.scaling.unit**2
        if self.pool.intercept is not None:
            factor[self.pool.intercept] = 0.0
        return np.tile(factor, self.coordinates.copies)[self.kept]

    def penalty(self, l1: float, l2: float = 0.0) -> NonNegativeElasticNet | None:
        """The penalty of the server, with these weights and the constraints of the settings."""
        constraints = self.nonnegative
        if not (l1 or l2 or constraints.any()):
            return None
        return NonNegativeElasticNet(l1 * self.penalised(1), l2 * self.penalised(2), constraints)

    def at(self, l1: float, ridge: float, tol: float) -> Task:
        """The same regression with other penalties and another tolerance; no data are copied."""
        other = self.with_ridge(ridge * self.penalised(2))
        other.settings = replace(self.settings, l1=l1, ridge=ridge, tol=tol)
        return other

    def with_ridge(self, ridge: Array) -> Task:
        """The same regression with this ridge, (d,), at the clients; no data are copied."""
        other = copy(self)
        other.assessment = Assessment(other)
        other.frame = replace(self.frame, ridge=ridge)
        other.clients = self.rows.settle(other.frame)
        return other

    def run(
        self,
        penalty: FitPenalty | None,
        state: Any = None,
        report: Callable[[Progress], object] | None = None,
        reached: Mapping[str, float] | None = None,
        spent: int = 0,
    ) -> Estimate:
        """Run the rounds until the tolerance is proved.

        Parameters
        ----------
        penalty : FitPenalty or None
        state : Any, optional
            Where to start; otherwise from ``reached``, or from the model without covariates.
        report : callable, optional
            Called after every round, with gaps in the units of the files.
        reached : mapping of str to float, optional
            Coefficients that an earlier run ended with.
        spent : int
            How much of the budget earlier runs of the same fit have used.
        """
        settings = self.settings
        if settings.firth:
            return self._run_firth(report, reached or {})
        in_units = None
        if report is not None:
            unit = self.scaling.unit**2

            def in_units(now: Progress) -> object:
                return report(now._replace(gap=unit * now.gap))

        remedy = "add a ridge"
        if self.family.binary:
            remedy = "fit with firth, add a ridge"
        search = Search(
            clients=self.clients,
            columns=self.names,
            basis=self.basis,
            tol=settings.tol,
            rounds=settings.rounds - spent,
            penalty=penalty,
            bounded=settings.ridge > 0
            or (penalty is not None and penalty.bounded)
            or not (self.family.classifies or self.family.margin),
            verify=self._recedes,
            directions=self.rows.directions,
            per_radius=self.assessment.per_radius,
            report=in_units,
            remedy=remedy,
        )
        with np.errstate(**QUIET):
            try:
                return search.run(parse(settings.method), self._start(reached or {}), state)
            except Removed as gone:
                self.rows.members.history.exchanges += search.rows
                if search.states:
                    coef = self.coefficients(search.states[-1].x)
                    gone.reached = dict(zip(self.names, coef.tolist(), strict=True))
                raise

    def _run_firth(
        self, report: Callable[[Progress], object] | None, reached: Mapping[str, float]
    ) -> FirthEstimate:
        """Run the rounds until the modified score is proved to be within the tolerance of zero."""
        search = FirthSearch(self.clients, self.settings.tol, self.settings.rounds, report)
        mean = self.null_mean(0.0)
        # the columns are orthonormal over all clients
        V = np.eye(self.d) / (self.pool.weight * mean * (1.0 - mean))
        with np.errstate(**QUIET):
            try:
                return search.run(self._start(reached), V)
            except Removed as gone:
                if search.x is not None:
                    coef = self.coefficients(search.x)
                    gone.reached = dict(zip(self.names, coef.tolist(), strict=True))
                raise

    def null_mean(self, more: float) -> float:
        """The share of events, with ``more`` trials whose share is ½; ½ without an intercept."""
        if self.pool.intercept is None:
            return 0.5
        weight = self.pool.weight
        return (weight * self.pool.target + 0.5 * more) / (weight + more)

    def _recedes(self, direction: Array) -> bool:
        """Whether no row's loss rises along a direction, (d,), and that of some row falls."""
        if self.family.margin is None:
            clients = self.clients.insistent()
            none_loses = bool((clients.ask(Margin(direction)).rows >= 0).all())
            return none_loses and bool((clients.ask(Margin(-direction)).rows < 0).any())
        answers: list[Receding] = self.clients.entries(Recede(direction))
        return any(each.some for each in answers) and not any(each.against for each in answers)

    def recession(self, direction: Array) -> tuple[Recession, list[str]]:
        """A direction, (d,), for the clients to drop the rows that recede along it.

        Returns
        -------
        recession : Recession
        rest : list of str
            The clients with rows that are at rest.
        """
        answers: list[Receding] = self.clients.entries(Recede(direction))
        named = zip(self.rows.members.names, answers, strict=True)
        rest = [name for name, each in named if not each.all]
        return self.coordinates.recession(direction), rest

    def follow(
        self, penalties: Sequence[tuple[float, float]], last: Estimate | None = None
    ) -> Iterator[Estimate]:
        """Run the rounds for one pair of l1 and ridge after the other.

        Each run resumes from the state, gradients and Hessians of the one before it, the first one
        from ``last``.
        """
        for l1, ridge in penalties:
            penalty = self.penalty(l1, ridge)
            state = None
            if last is not None:
                method: Any = parse(self.settings.method)
                suited: Any = replace(method, penalty=penalty).suited(self.clients.m, len(last.x))
                state = suited.resume(last.state)
            last = self.run(penalty, state=state)
            yield last

    def points(self, penalties: Sequence[tuple[float, float]]) -> Iterator[Array]:
        """x of ``follow``, (d,), without proofs where one question tells all about the costs.

        Models of second order are exact for quadratics: the first run has the clients' sums.
        """
        first, *rest = penalties
        found = self.run(self.penalty(*first))
        yield found.x
        if not (self.family.quadratic and self.settings.method == INFORMATION):
            yield from (each.x for each in self.follow(rest, found))
            return
        state: Any = found.state  # an InformationState
        for l1, ridge in rest:
            state = FedSplitInformation(self.penalty(l1, ridge)).resume(state)
            state = state._replace(x=state.ahead)
            yield state.x

    def _start(self, reached: Mapping[str, float]) -> Array:
        """The coefficients ``reached``, if they are of these columns, or an intercept alone.

        If the loss is quadratic, the moments tell a better start: the solution, but for rounding.
        """
        if set(reached) == set(self.names):
            return self.coordinates.point(np.array([reached[name] for name in self.names]))
        if self.family.quadratic and self.settings.method == INFORMATION:
            H = self.basis.T @ self.pool.products(self.scaling) @ self.basis
            products = self.basis.T @ self.pool.target_products(self.scaling)
            x: Array = inverse(H + np.diag(self.frame.ridge)) @ products
            if np.isfinite(x).all():
                return x
        return self.intercept_alone

    @property
    def intercept_alone(self) -> Array:
        """The model without covariates, (d,); 0 without an intercept."""
        pool = self.pool
        x = np.zeros((self.coordinates.copies, len(pool.names)))
        if pool.intercept is not None:
            eta = self.family.null_predictor(pool.target, pool.classes, pool.log_exposure)
            x[:, pool.intercept] = (eta - self.scaling.origin) / self.scaling.unit
        return self.coordinates.point_of_scaled(x.ravel())

    def _check_target(self) -> None:
        """Raise InputError if the target leaves nothing to fit."""
        what = ""
        scaled = self.family.has_units or self.family.dispersed
        if scaled and not self.pool.target_varies:
            what = f"the target is {self.pool.target:g} in every row of every client"
        elif self.family.link.multiplicative and self.pool.target == 0:
            what = "every count of every client is zero"
        elif self.family.classifies and (self.pool.classes == 0).any():
            what = "every row of every client is of the same class"
        if what:
            raise NothingToFit(f"{what}: there is nothing to fit")

    @property
    def nonnegative(self) -> Mask:
        """Which of those fitted are constrained, (d,), by their names or by those of columns."""
        chosen = set(self.settings.nonnegative)
        unknown = chosen - {*self.names, *self.pool.names}
        if unknown:
            raise InputError(
                f"nonnegative: there is no coefficient {listed(sorted(unknown))}; "
                f"there are {listed(self.names, 12)}"
            )
        columns = self.pool.names * self.coordinates.copies
        pairs = zip(self.names, columns, strict=True)
        constrained = np.array([name in chosen or column in chosen for name, column in pairs])
        return constrained[self.kept]
