"""One regression: from designs to the numbers of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace

import numpy as np

from fedsplit.arrays import Array, Mask, add_diagonal
from fedsplit.clients.oracle import Clients, Removed
from fedsplit.clients.stacked import QUIET
from fedsplit.data.formula.formula import Formula
from fedsplit.errors import InputError, listed
from fedsplit.methods import parse, with_penalty
from fedsplit.methods.default import default_method
from fedsplit.methods.information import FedSplitInformation, InformationState
from fedsplit.methods.method import State
from fedsplit.penalties.nonnegative_elastic_net import NonNegativeElasticNet
from fedsplit.penalties.penalty import FitPenalty
from fedsplit.regression.client.design import AT_REST, Calibration, Moments, Recession
from fedsplit.regression.client.fit_questions import (
    Along,
    Course,
    Fitted,
    Frame,
    GoodnessOfFit,
    Recede,
    Receding,
)
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.options import AUTO, Settings
from fedsplit.regression.server.arithmetic import gradient_error
from fedsplit.regression.server.coordinates import Coordinates
from fedsplit.regression.server.federation import FederatedRows
from fedsplit.regression.server.firth import FirthEstimate, FirthSearch
from fedsplit.regression.server.inference import (
    Inference,
    PenalisedLikelihood,
    contributions,
    inverse,
    sandwich,
)
from fedsplit.regression.server.null_model import null_value
from fedsplit.regression.server.pool import Pool
from fedsplit.regression.server.proof import Proof
from fedsplit.regression.server.search import Estimate, Progress, Search
from fedsplit.rounds.certificate import moved
from fedsplit.rounds.trace import Trace

LEAST_DISPERSION = 1e-6
"""Of a target in units of its deviation: the tolerance is in standard errors of at least this φ.

A better fit has standard errors so small that rounding shows in them.
"""


MOST_ROUNDING = 1e-6
"""In standard errors: a fit that the arithmetic may have moved further is not converged."""


INFORMATION = "information"
"""The name of the method with matrices."""


def _chosen(clients: Clients) -> str:
    """The name of the method that suits the clients."""
    method, _ = default_method(clients)
    if isinstance(method, FedSplitInformation):
        return INFORMATION
    return "fedsplit"


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
    asked : sequence of Row
        What was asked before the rounds.
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
        # the last answers about how well a model fits, with the question
        self._told: tuple[Fitted, list[GoodnessOfFit]] | None = None
        self._inverted: tuple[Proof, Array, Array] | None = None
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
        if settings.method == AUTO and not settings.firth:
            self.settings = replace(settings, method=_chosen(self.clients))
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

    @property
    def _freedom(self) -> int:
        """Residual degrees of freedom, n - d, or 1 where that is less."""
        return max(1, self.pool.n - self.d)

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
        other.frame = replace(self.frame, ridge=ridge)
        other.clients = self.rows.settle(other.frame)
        return other

    def run(
        self,
        penalty: FitPenalty | None,
        state: State | None = None,
        report: Callable[[Progress], object] | None = None,
        reached: Mapping[str, float] | None = None,
    ) -> Estimate:
        """Run the rounds until the tolerance is proved.

        Parameters
        ----------
        penalty : FitPenalty or None
        state : State, optional
            Where to start; otherwise from ``reached``, or from the model without covariates.
        report : callable, optional
            Called after every round, with gaps in the units of the files.
        reached : mapping of str to float, optional
            Coefficients that an earlier run ended with.
        """
        settings = self.settings
        if settings.firth:
            return self._run_firth(report, reached or {})
        in_units = None
        if report is not None:
            unit = self.scaling.unit**2

            def in_units(now: Progress) -> object:
                return report(now._replace(gap=unit * now.gap))

        search = Search(
            clients=self.clients,
            columns=self.names,
            basis=self.basis,
            tol=settings.tol,
            rounds=settings.rounds,
            penalty=penalty,
            bounded=settings.ridge > 0
            or (penalty is not None and penalty.bounded)
            or not (self.family.classifies or self.family.margin),
            verify=self._recedes,
            per_radius=self._per_radius,
            report=in_units,
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
        mean = self._null_mean(0.0)
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

    def _null_mean(self, more: float) -> float:
        """The share of events, with ``more`` trials whose share is ½; ½ without an intercept."""
        if self.pool.intercept is None:
            return 0.5
        weight = self.pool.weight
        return (weight * self.pool.target + 0.5 * more) / (weight + more)

    def _recedes(self, direction: Array) -> bool:
        """Whether no row's loss rises along a direction, (d,), and that of some row falls."""
        if self.family.margin is None:
            clients = self.clients.insistent()
            lowest = clients.margin(direction).rows.min()
            highest = -clients.margin(-direction).rows.min()
            return bool(lowest >= -AT_REST * highest and highest > 0)
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
                state = with_penalty(parse(self.settings.method), penalty).resume(last.state)
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
        state: InformationState = found.state
        for l1, ridge in rest:
            state = FedSplitInformation(self.penalty(l1, ridge)).resume(state)
            state = state._replace(x=state.ahead)
            yield state.x

    @np.errstate(**QUIET)
    def infer(self, found: Estimate, missing: Mapping[str, int]) -> Inference:
        """The numbers of the regression table.

        Parameters
        ----------
        found : Estimate
            Where the rounds ended.
        missing : mapping
            The rows that each client left out, those of clients without a complete row included.
        """
        proof = found.proof
        x = proof.x
        unit = self.scaling.unit**2  # of the objective, in the units of the files
        phi = self._dispersion(proof)
        H = proof.information.sum(axis=0)
        back = np.where(self.kept[:, None], self.back, np.nan)
        expected = back @ self._inverses(proof)[1] @ back.T
        covariance = None
        robust = None
        if self.settings.biased is None:
            robust = sandwich(inverse(H), proof.gradients, self.pool.n)
            if robust is not None:
                robust = back @ robust @ back.T
            # as many coefficients as rows leave nothing to estimate φ from
            known = not self.family.dispersed or self.pool.n > self.d
            if known and self.family.log_likelihood is not None:
                covariance = phi * expected
        # each client carries its share of the ridge in the rounds; its own part of the answer is
        # that of its rows alone
        share = self.frame.ridge / self.clients.m
        clients = contributions(
            self.sizes,
            missing,
            proof.gradients - share * x,
            add_diagonal(proof.information.copy(), -share),
            H,
            self.back[self.kept],
            [name for name, kept in zip(self.names, self.kept, strict=True) if kept],
            phi,
        )
        deviance = self._deviance(proof) * unit
        null_deviance = self._null_deviance(proof)
        log_likelihood, calibration = self._likelihood(proof)
        rows = [row._replace(objective=unit * row.objective) for row in found.trace.rows]
        inference = Inference(
            names=self.names,
            aliased=self.aliased,
            coef=np.where(self.kept, self.coefficients(x), np.nan),
            covariance_=covariance,
            robust_=robust,
            errors=np.sqrt(phi * np.diag(expected)),
            dispersion=phi * unit,
            deviance=deviance,
            null_deviance=null_deviance,
            log_likelihood=log_likelihood,
            calibration=calibration,
            clients=clients,
            trace=Trace(unit * found.trace.start, rows),
            proofs=[(at, None if c.gap is None else unit * c.gap) for at, c in found.proofs],
            floats=found.floats,
            converged=found.converged and self.arithmetic(found) <= MOST_ROUNDING,
            x=x,
        )
        if isinstance(found, FirthEstimate):
            return self._with_firth(inference, found)
        return inference

    def _with_firth(self, inference: Inference, found: FirthEstimate) -> Inference:
        """The numbers of R's logistf: standard errors by the augmented information."""
        back = np.where(self.kept[:, None], self.back, np.nan)
        log_likelihood = float(inference.log_likelihood or 0.0)
        # of the coordinates, and of the ways to choose the successes of groups
        volume = float(np.linalg.slogdet(self.back[self.kept])[1])
        constant = log_likelihood + float(found.proof.scalars.value.sum())
        df = self.d - (self.pool.intercept is not None)
        return inference._replace(
            covariance_=back @ inverse(found.look.augmented) @ back.T,
            robust_=None,
            penalised=PenalisedLikelihood(
                constant - found.look.objective - volume,
                self._penalised_null(constant - volume),
                df,
            ),
        )

    def _penalised_null(self, constant: float) -> float | None:
        """The penalised log-likelihood of the intercept alone; None if there is an offset.

        All rows have the same μ, and columns that are orthonormal over all clients the information
        Wμ(1 - μ)I: the penalty is as good as d more trials, half of them with an event.
        """
        plan = next(iter(self.rows.codings.values())).plan
        if plan.offset is not None or Formula(plan.formula).has_offset:
            return None
        weight = self.pool.weight
        events = weight * self.pool.target
        mu = self._null_mean(float(self.d))
        likelihood = events * np.log(mu) + (weight - events) * np.log1p(-mu)
        return float(constant + likelihood + 0.5 * self.d * np.log(weight * mu * (1.0 - mu)))

    def _dispersion(self, proof: Proof) -> float:
        """φ in the coordinates of the rounds."""
        if not self.family.dispersed:
            return 1.0
        if self.family.pearson is None:
            return self._deviance(proof) / self._freedom
        return sum(each.pearson or 0.0 for each in self._fitted(proof)) / self._freedom

    def _deviance(self, proof: Proof) -> float:
        """Twice the loss above that of the saturated model, in the coordinates of the rounds."""
        ridge = 0.5 * float(np.sum(self.frame.ridge * proof.x * proof.x))
        above = float(np.sum(proof.scalars.value - proof.scalars.floor))
        return 2.0 * max(0.0, above - self.pool.floor / self.scaling.unit**2 - ridge)

    def distance(self, found: Estimate) -> float | None:
        """The proved bound on |coefficient - pooled|/SE of every coefficient, if there is one."""
        radius = found.proof.certificate.radius
        if radius is None:
            return None
        return radius * self._per_radius(found.proof)

    def arithmetic(self, found: Estimate) -> float:
        """A bound on |coefficient - that of exact arithmetic|/SE; inf if there is none."""
        proof = found.proof
        H = proof.information.sum(axis=0)
        weight = self.pool.weight
        if self.family.has_units:
            weight = 0.0
        with np.errstate(divide="ignore", **QUIET):
            design = self.coordinates.design
            nu = gradient_error(design, H, proof.x, proof.scalars, weight)
            radius = moved(H, nu, proof.scalars) * self._per_radius(proof)
            phi = max(self._dispersion(proof), LEAST_DISPERSION)
            V = self.back @ self._inverses(proof)[1] @ self.back.T
            converted = self.coordinates.conversion_error(proof.x)
            errors = np.sqrt(phi * np.diag(V))[self.kept]
            bound = float(radius + np.max(converted[self.kept] / errors))
        if np.isnan(bound):
            return np.inf
        return bound

    def inflation(self, found: Estimate) -> float:
        """How many times those of the table the standard errors of both bounds are."""
        eps = np.finfo(np.float64).eps
        phi = max(self._dispersion(found.proof), eps**2)
        return float(np.sqrt(max(phi, LEAST_DISPERSION) / phi))

    def _per_radius(self, proof: Proof) -> float:
        """The bound on |coefficient - pooled|/SE per unit of the distance in the Hessian's norm."""
        phi = max(self._dispersion(proof), LEAST_DISPERSION)
        back = self.back[self.kept]
        with np.errstate(divide="ignore", **QUIET):
            observed, expected = self._inverses(proof)
            bound = np.diag(back @ observed @ back.T)
            errors = phi * np.diag(back @ expected @ back.T)
            worst = float(np.sqrt(np.max(bound / errors)))
        if np.isnan(worst):
            return np.inf
        return worst

    def _inverses(self, proof: Proof) -> tuple[Array, Array]:
        """Those of the observed and of the expected information, (d, d), once per proof."""
        if self._inverted is None or self._inverted[0] is not proof:
            observed = inverse(proof.information.sum(axis=0))
            expected = observed
            if not self.family.canonical:
                expected = inverse(self._expected(proof))
            self._inverted = proof, observed, expected
        return self._inverted[1:]

    def _expected(self, proof: Proof) -> Array:
        """The expected information in the coordinates of the rounds, (d, d)."""
        if self.family.canonical:
            H: Array = proof.information.sum(axis=0)
            return H
        if self.family.expects_other:
            return np.asarray(np.sum([each.expected for each in self._fitted(proof)], axis=0))
        if self.settings.biased is None:
            return self.pool.weight * np.eye(self.d)
        return self.basis.T @ self.pool.products(self.scaling) @ self.basis

    def _null_deviance(self, proof: Proof) -> float | None:
        """The deviance of the model without covariates, in the units of the files."""
        if self.family.log_likelihood is None:
            return None
        null = self._null
        told = [each.null for each in self._fitted(proof, last=True) if each.null is not None]

        def ask(x: Array) -> list[Course]:
            found: list[Course] = self.clients.entries(replace(null, x=x, curved=True))
            return found

        value = null_value(null.x, null.directions, self.pool.weight, told, ask)
        floor = float(np.sum(proof.scalars.floor))
        return 2.0 * (self.scaling.unit**2 * (value - floor) - self.pool.floor)

    @property
    def _null(self) -> Along:
        """The model without covariates, or a point near it, with the directions of intercepts."""
        columns = np.arange(len(self.pool.names)) == self.pool.intercept
        each = columns[:, None].astype(np.float64)
        unit = np.kron(np.eye(self.coordinates.copies), each)
        intercepts = self.coordinates.point_of_scaled(unit[:, unit.any(axis=0)])
        return Along(self._intercept_alone, intercepts, self.clients.m)

    def _fitted(self, proof: Proof, last: bool = False) -> list[GoodnessOfFit]:
        """How well the model of a proof fits, by client: one question, however often it is wanted.

        The calibration of a classifier is asked for at the ``last`` proof alone.
        """
        phi = 1.0
        null = None
        if self.family.log_likelihood is not None:
            deviance = self._deviance(proof) * self.scaling.unit**2
            phi = self.family.likelihood_dispersion(deviance, self.pool.n, self.pool.weight)
            null = self._null
        calibrate = last and self.family.binary
        if self._told is not None:
            before, told = self._told
            if np.array_equal(before.x, self.basis @ proof.x) and before.calibrate >= calibrate:
                return told
        asked = Fitted(self.basis @ proof.x, phi, null, calibrate)
        self._told = asked, self.clients.entries(asked)
        return self._told[1]

    def _likelihood(self, proof: Proof) -> tuple[float | None, Calibration | None]:
        """The log-likelihood, and the calibration of a binary classifier, if there are any."""
        if self.family.log_likelihood is None:
            return None, None
        told = self._fitted(proof, last=True)
        calibration = None
        parts = [each.calibration for each in told if each.calibration is not None]
        if parts:
            calibration = Calibration(*np.sum(parts, axis=0))
        return sum(each.log_likelihood or 0.0 for each in told), calibration

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
        return self._intercept_alone

    @property
    def _intercept_alone(self) -> Array:
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
            raise InputError(f"{what}: there is nothing to fit")

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
