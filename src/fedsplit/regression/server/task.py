"""From coded rows to numbers: scale, run the rounds, prove, infer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace

import numpy as np

from fedsplit.arrays import Array, Mask, add_diagonal
from fedsplit.clients.oracle import Clients, Removed
from fedsplit.clients.stacked import QUIET
from fedsplit.errors import InputError, listed
from fedsplit.methods import parse
from fedsplit.methods.method import State
from fedsplit.penalties.nonnegative_elastic_net import NonNegativeElasticNet
from fedsplit.regression.client.design import Calibration, Moments, Scaling
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.fit_questions import Frame
from fedsplit.regression.options import Settings
from fedsplit.regression.server.federation import FederatedRows
from fedsplit.regression.server.inference import Inference, contributions, inverse, sandwich
from fedsplit.regression.server.pool import Pool
from fedsplit.regression.server.search import Estimate, Progress, Proof, Search
from fedsplit.rounds.trace import Trace

LEAST_DISPERSION = 1e-6
"""Of a target in units of its deviation. A better fit has standard errors so small that rounding shows in them: they
count as those of this dispersion, in what is proved."""


class Task:
    """One regression, ready for its rounds: the problem in its own coordinates, and the way back to the files' units.

    Columns are centred and scaled for the rounds always; ``standardize`` only says on which scale a penalty acts.
    Without a penalty they are made orthonormal over all clients too: columns that nearly depend on each other, such as
    a year and its square, then cost no rounds. ``basis`` takes x of the rounds to coefficients of the scaled columns,
    ``back`` to those of the files' columns.
    """

    def __init__(
        self,
        rows: FederatedRows,
        moments: Sequence[Moments],
        settings: Settings,
        intercept: int | None,
        labels: Sequence[str] = (),
    ) -> None:
        self.rows, self.settings, self.intercept = rows, settings, intercept
        self.sizes = [each.n for each in moments]
        self.family = FAMILIES[settings.family]
        self.pool = Pool(moments)
        classes = self.family.count_classes(labels)
        self.copies = max(1, classes - 1)
        self.names = self.family.coefficient_names(self.pool.names, labels)
        self._check_target()
        if not settings.ridge and not settings.l1:
            self.pool.check_independent(intercept)
        self.scaling = self.pool.scaling(
            intercept, self.pool.deviation(intercept) if self.family.has_units else 1.0
        )
        symmetric = self.family.has_reference and settings.symmetric
        mix = self.family.mix(classes, symmetric)
        whiten = self.pool.whitening(self.scaling) if settings.biased is None else None
        self.basis = np.kron(mix, np.eye(len(self.pool.names)) if whiten is None else whiten)
        self.back = np.kron(np.eye(self.copies), _way_back(self.scaling, intercept)) @ self.basis
        delta, ridge = settings.delta / self.scaling.unit, settings.ridge * self.penalised(2)
        self.frame = Frame(self.scaling, whiten, delta, symmetric, ridge)
        self.clients = rows.settle(self.frame)

    @property
    def d(self) -> int:
        return len(self.names)

    def in_scaled_columns(self, x: Array) -> tuple[Clients, Array, Array]:
        """The clients, x, and the way back, in scaled columns as others would use them: not made orthonormal."""
        if self.settings.biased is not None:
            return self.clients, x, self.back
        clients = self.rows.settle(replace(self.frame, whiten=None))
        return (
            clients,
            self.basis @ x,
            np.kron(np.eye(self.copies), _way_back(self.scaling, self.intercept)),
        )

    def penalised(self, power: int) -> Array:
        """What multiplies a penalty on |coefficient|^power in the coordinates of the rounds; 0 for the intercept."""
        scale = (
            self.scaling.scale
            if not self.settings.standardize
            else np.ones_like(self.scaling.scale)
        )
        factor = (self.scaling.unit / scale) ** power / self.scaling.unit**2
        if self.intercept is not None:
            factor[self.intercept] = 0.0
        return np.tile(factor, self.copies)

    def penalty(self, l1: float, l2: float = 0.0) -> NonNegativeElasticNet | None:
        """The nonsmooth part of the objective, where there is one."""
        nonnegative = self._nonnegative()
        if not (l1 or l2 or nonnegative.any()):
            return None
        return NonNegativeElasticNet(l1 * self.penalised(1), l2 * self.penalised(2), nonnegative)

    def at(self, l1: float, ridge: float, tol: float) -> Task:
        """The same regression with other penalties and another tolerance; no data are copied."""
        other = copy(self)
        other.settings = replace(self.settings, l1=l1, ridge=ridge, tol=tol)
        return other.with_ridge(ridge * self.penalised(2))

    def with_ridge(self, ridge: Array) -> Task:
        """The same regression with this ridge, (d,), at the clients; no data are copied."""
        other = copy(self)
        other.frame = replace(self.frame, ridge=ridge)
        other.clients = self.rows.settle(other.frame)
        return other

    def run(
        self,
        penalty: NonNegativeElasticNet | None,
        state: State | None = None,
        report: Callable[[Progress], object] | None = None,
        reached: Mapping[str, float] | None = None,
    ) -> Estimate:
        """The rounds, from the model without covariates, from coefficients that were reached before, or from a state.

        Gaps are reported in the files' units.
        """
        chosen, unit = self.settings, self.scaling.unit**2

        def in_units(now: Progress) -> object:
            return report(now._replace(gap=unit * now.gap)) if report is not None else None

        search = Search(
            self.clients,
            self.names,
            self.basis,
            chosen.tol,
            chosen.rounds,
            chosen.seed,
            penalty,
            chosen.ridge > 0 or (penalty is not None and penalty.bounded),
            self._per_radius,
            None if report is None else in_units,
        )
        with np.errstate(**QUIET):
            try:
                return search.run(parse(chosen.method), self._start(reached or {}), state)
            except Removed as gone:
                if search.watch.states:
                    coef = self.back @ search.watch.states[-1].x
                    gone.reached = dict(zip(self.names, coef.tolist(), strict=True))
                raise

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
        x = found.x
        proof = found.proof
        unit = self.scaling.unit**2  # of the objective, in the units of the files
        phi = self.dispersion(x, proof)
        H = proof.information.sum(axis=0)
        expected = self.back @ inverse(self._expected(proof)) @ self.back.T
        covariance = None
        robust = None
        if self.settings.biased is None:
            robust = sandwich(inverse(H), proof.gradients, self.pool.n)
            if robust is not None:
                robust = self.back @ robust @ self.back.T
            if self.family.has_likelihood:
                covariance = phi * expected
        # each client carries its share of the ridge in the rounds; its own part of the answer is
        # that of its rows alone
        share = self.frame.ridge / self.clients.m
        clients = contributions(
            dict(zip(self.rows.names, self.sizes, strict=True)),
            missing,
            proof.gradients - share * x,
            add_diagonal(proof.information.copy(), -share),
            H,
            self.back,
            self.names,
            phi,
        )
        log_likelihood, calibration = self._fitted(x, phi)
        rows = [row._replace(objective=unit * row.objective) for row in found.trace.rows]
        return Inference(
            names=self.names,
            coef=self.back @ x,
            covariance_=covariance,
            robust_=robust,
            errors=np.sqrt(phi * np.diag(expected)),
            dispersion=phi * unit,
            deviance=self.deviance(x, proof) * unit,
            log_likelihood=log_likelihood,
            calibration=calibration,
            clients=clients,
            trace=Trace(unit * found.trace.start, rows),
            proofs=[(at, None if c.gap is None else unit * c.gap) for at, c in found.proofs],
            floats=found.floats,
            converged=found.converged,
            x=x,
        )

    def dispersion(self, x: Array, proof: Proof) -> float:
        """φ in the coordinates of the rounds: 1, or the deviance or Pearson's X² over n - d."""
        freedom = max(1, self.pool.n - self.d)

        def pearson() -> float:
            return sum(self.clients.pearson(self.basis @ x))

        return self.family.dispersion(self.deviance(x, proof), pearson, freedom)

    def deviance(self, x: Array, proof: Proof) -> float:
        """Twice what the loss has above that of the saturated model."""
        ridge = 0.5 * float(np.sum(self.frame.ridge * x * x))
        return 2.0 * max(0.0, float(np.sum(proof.told.value - proof.told.floor)) - ridge)

    def distance(self, found: Estimate) -> float | None:
        """The proved bound on |coefficient - pooled|/SE, for all of them; None where nothing is proved."""
        radius = found.proof.certificate.radius
        return None if radius is None else radius * self._per_radius(found.proof)

    def _per_radius(self, proof: Proof) -> float:
        """The most that |coefficient - pooled|/SE can be where the proved distance, in the Hessian's norm, is one."""
        phi = max(self.dispersion(proof.x, proof), LEAST_DISPERSION)
        with np.errstate(divide="ignore", **QUIET):
            bound = np.diag(self.back @ inverse(proof.information.sum(axis=0)) @ self.back.T)
            errors = phi * np.diag(self.back @ inverse(self._expected(proof)) @ self.back.T)
            worst = float(np.sqrt(np.max(bound / errors)))
        return worst if np.isfinite(worst) else np.inf

    def _expected(self, proof: Proof) -> Array:
        """The expected information in the coordinates of the rounds, (d, d).

        The Hessian is another matrix, unless the link is canonical: it has the certificate's say,
        not that of the standard errors.
        """
        if self.family.canonical:
            H: Array = proof.information.sum(axis=0)
            return H
        if self.family.unit_weights:
            information = self.pool.products(self.scaling)
        else:
            parts = self.clients.expected_information(self.basis @ proof.x)
            information = np.sum(parts, axis=0)
        return self.basis.T @ information @ self.basis

    def _fitted(self, x: Array, phi: float) -> tuple[float | None, Calibration | None]:
        """The log-likelihood, where the family has one, and the calibration of a binary classifier."""
        if not self.family.has_likelihood:
            return None, None
        freedom = max(1, self.pool.n - self.d)
        phi = self.family.likelihood_dispersion(phi, self.scaling.unit**2, freedom, self.pool.n)
        told = self.clients.fitted(self.basis @ x, phi)
        parts = [each.calibration for each in told if each.calibration is not None]
        calibration = (
            Calibration(*(np.sum(part, axis=0) for part in zip(*parts, strict=True)))
            if parts
            else None
        )
        return sum(each.log_likelihood for each in told), calibration

    def _start(self, reached: Mapping[str, float]) -> Array:
        """The coefficients that were reached, where they are of the same columns; else an intercept alone."""
        if set(reached) == set(self.names):
            return np.linalg.solve(self.back, np.array([reached[name] for name in self.names]))
        x = np.zeros((self.copies, len(self.pool.names)))
        if self.intercept is not None:
            eta = self.family.null_predictor(
                self.pool.target, self.pool.classes, self.pool.mean_offset
            )
            x[:, self.intercept] = eta / self.scaling.unit
        return np.linalg.solve(self.basis, x.ravel())

    def _check_target(self) -> None:
        family, pool = self.family, self.pool
        if family.has_units and not pool.varies(self.intercept):
            raise InputError(
                f"the target is {pool.target:g} in every row of every client: there is nothing to fit"
            )
        if family.link.multiplicative and pool.target == 0:
            raise InputError("every count of every client is zero: there is nothing to fit")
        if family.classifies and (pool.classes == 0).any():
            raise InputError(
                "every row of every client is of the same class: there is nothing to fit"
            )

    def _nonnegative(self) -> Mask:
        terms = dict(zip(self.names, self.pool.names * self.copies, strict=True))
        for wanted in self.settings.nonnegative:
            if wanted not in terms and wanted not in terms.values():
                raise InputError(
                    f"nonnegative: there is no coefficient {wanted}; there are {listed(self.names, 12)}"
                )
        chosen = set(self.settings.nonnegative)
        return np.array([name in chosen or term in chosen for name, term in terms.items()])


def _way_back(scaling: Scaling, intercept: int | None) -> Array:
    """The matrix that takes x of the rounds to coefficients in the files' units, (p, p)."""
    back = np.diag(scaling.unit / scaling.scale)
    if intercept is not None:
        back[intercept] -= scaling.unit * scaling.centre / scaling.scale
    return back
