"""What the end of the rounds means: proofs in standard errors, and the numbers of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedsplit.arrays import Array, add_diagonal
from fedsplit.clients.stacked import QUIET
from fedsplit.data.formula.formula import Formula
from fedsplit.loop.certificate import ScaledHessian, near
from fedsplit.loop.trace import Trace
from fedsplit.regression.client.design import Calibration
from fedsplit.regression.client.questions.along import Along, Course
from fedsplit.regression.client.questions.fitted import LEAST_CLUSTERS, Fitted, GoodnessOfFit
from fedsplit.regression.server.arithmetic import gradient_error
from fedsplit.regression.server.clustered import (
    ClusteredCovariance,
    clustered_covariance,
    summed_covariance,
)
from fedsplit.regression.server.firth import FirthEstimate
from fedsplit.regression.server.inference import (
    Inference,
    PenalisedLikelihood,
    contributions,
    inverse,
)
from fedsplit.regression.server.null_model import null_value
from fedsplit.regression.server.proof import Proof
from fedsplit.regression.server.search import Estimate

if TYPE_CHECKING:
    from fedsplit.regression.server.task import Task

LEAST_DISPERSION = 1e-6
"""Of a target in units of its deviation: the tolerance is in standard errors of at least this φ.

A better fit has standard errors so small that rounding shows in them.
"""


MOST_ROUNDING = 1e-6
"""In standard errors: a fit that the arithmetic may have moved further is not converged."""


class Assessment:
    """What proofs of a regression say, in the units of its table.

    Parameters
    ----------
    task : Task
        The regression.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        # the last answers about how well a model fits, with the question
        self._told: tuple[Fitted, list[GoodnessOfFit]] | None = None
        self._inverted: tuple[Proof, Array, Array] | None = None

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
        task = self.task
        proof = found.proof
        x = proof.x
        unit = task.scaling.unit**2  # of the objective, in the units of the files
        phi = self._dispersion(proof)
        H = proof.information.sum(axis=0)
        back = np.where(task.kept[:, None], task.back, np.nan)
        expected = back @ self._inverses(proof)[1] @ back.T
        covariance = None
        robust = None
        if task.settings.biased is None:
            robust = self._clustered(proof, inverse(H), back)
            # as many coefficients as rows leave nothing to estimate φ from
            known = not task.family.dispersed or task.pool.n > task.d
            if known and task.family.log_likelihood is not None:
                covariance = phi * expected
        # each client carries its share of the ridge in the rounds; its own part of the answer is
        # that of its rows alone
        share = task.frame.ridge / task.clients.m
        clients = contributions(
            task.sizes,
            missing,
            proof.gradients - share * x,
            add_diagonal(proof.information.copy(), -share),
            H,
            task.back[task.kept],
            [name for name, kept in zip(task.names, task.kept, strict=True) if kept],
            phi,
        )
        deviance = self._deviance(proof) * unit
        null_deviance = self._null_deviance(proof)
        log_likelihood, calibration, pearson = self._likelihood(proof)
        rows = [row._replace(objective=unit * row.objective) for row in found.trace.rows]
        inference = Inference(
            names=task.names,
            aliased=task.aliased,
            coef=np.where(task.kept, task.coefficients(x), np.nan),
            covariance_=covariance,
            robust=robust,
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
            pearson=pearson,
        )
        if isinstance(found, FirthEstimate):
            return self._with_firth(inference, found)
        return inference

    def _clustered(self, proof: Proof, V: Array, back: Array) -> ClusteredCovariance | None:
        """The covariance of the coefficients clustered by client, if there is one."""
        task = self.task
        summed = task.rows.members.summed
        m = len(summed or proof.gradients)
        if m < (LEAST_CLUSTERS if summed else 2) or task.pool.n <= task.d or np.isnan(V).any():
            return None
        if not summed:
            return clustered_covariance(V, proof.gradients, proof.information, back)
        [told] = self._fitted(proof, last=True)
        return summed_covariance(V, np.asarray(told.scores), told.clusters or 0, task.pool.n, back)

    def _with_firth(self, inference: Inference, found: FirthEstimate) -> Inference:
        """The numbers of R's logistf: standard errors by the augmented information."""
        task = self.task
        back = np.where(task.kept[:, None], task.back, np.nan)
        log_likelihood = float(inference.log_likelihood or 0.0)
        # of the coordinates, and of the ways to choose the successes of groups
        volume = float(np.linalg.slogdet(task.back[task.kept])[1])
        constant = log_likelihood + float(found.proof.scalars.value.sum())
        df = task.d - (task.pool.intercept is not None)
        return inference._replace(
            covariance_=back @ inverse(found.look.augmented) @ back.T,
            robust=None,
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
        task = self.task
        plan = next(iter(task.rows.codings.values())).plan
        if plan.offset is not None or Formula(plan.formula).has_offset:
            return None
        weight = task.pool.weight
        events = weight * task.pool.target
        mu = task.null_mean(float(task.d))
        likelihood = events * np.log(mu) + (weight - events) * np.log1p(-mu)
        return float(constant + likelihood + 0.5 * task.d * np.log(weight * mu * (1.0 - mu)))

    def distance(self, found: Estimate) -> float | None:
        """The proved bound on |coefficient - pooled|/SE of every coefficient, if there is one."""
        radius = found.proof.certificate.radius
        if radius is None:
            return None
        return radius * self.per_radius(found.proof)

    def arithmetic(self, found: Estimate) -> float:
        """A bound on |coefficient - that of exact arithmetic|/SE; inf if there is none."""
        task = self.task
        proof = found.proof
        H = proof.information.sum(axis=0)
        weight = task.pool.weight
        if task.family.has_units:
            weight = 0.0
        with np.errstate(divide="ignore", **QUIET):
            design = task.coordinates.design
            nu = gradient_error(design, H, proof.x, proof.scalars, weight)
            # how far the minimiser moves with the gradient, in the norm of H
            moved = near(nu, ScaledHessian(H).least(), proof.scalars).radius
            radius = moved * self.per_radius(proof)
            phi = max(self._dispersion(proof), LEAST_DISPERSION)
            V = task.back @ self._inverses(proof)[1] @ task.back.T
            converted = task.coordinates.conversion_error(proof.x)
            errors = np.sqrt(phi * np.diag(V))[task.kept]
            bound = float(radius + np.max(converted[task.kept] / errors))
        if np.isnan(bound):
            return np.inf
        return bound

    def inflation(self, found: Estimate) -> float:
        """How many times those of the table the standard errors of both bounds are."""
        eps = np.finfo(np.float64).eps
        phi = max(self._dispersion(found.proof), eps**2)
        return float(np.sqrt(max(phi, LEAST_DISPERSION) / phi))

    def per_radius(self, proof: Proof) -> float:
        """The bound on |coefficient - pooled|/SE per unit of the distance in the Hessian's norm."""
        task = self.task
        phi = max(self._dispersion(proof), LEAST_DISPERSION)
        back = task.back[task.kept]
        with np.errstate(divide="ignore", **QUIET):
            observed, expected = self._inverses(proof)
            bound = np.diag(back @ observed @ back.T)
            errors = phi * np.diag(back @ expected @ back.T)
            worst = float(np.sqrt(np.max(bound / errors)))
        if np.isnan(worst):
            return np.inf
        return worst

    @property
    def _freedom(self) -> int:
        """Residual degrees of freedom, n - d, or 1 where that is less."""
        task = self.task
        return max(1, task.pool.n - task.d)

    def _dispersion(self, proof: Proof) -> float:
        """φ in the coordinates of the rounds."""
        task = self.task
        if not task.family.dispersed:
            return 1.0
        if task.family.pearson is None:
            return self._deviance(proof) / self._freedom
        return sum(each.pearson or 0.0 for each in self._fitted(proof)) / self._freedom

    def _deviance(self, proof: Proof) -> float:
        """Twice the loss above that of the saturated model, in the coordinates of the rounds."""
        task = self.task
        ridge = 0.5 * float(np.sum(task.frame.ridge * proof.x * proof.x))
        above = float(np.sum(proof.scalars.value - proof.scalars.floor))
        return 2.0 * max(0.0, above - task.pool.floor / task.scaling.unit**2 - ridge)

    def _expected(self, proof: Proof) -> Array:
        """The expected information in the coordinates of the rounds, (d, d)."""
        task = self.task
        if task.family.canonical:
            H: Array = proof.information.sum(axis=0)
            return H
        if task.family.expects_other:
            return np.asarray(
                sum(each.expected for each in self._fitted(proof) if each.expected is not None)
            )
        if task.settings.biased is None:
            return task.pool.weight * np.eye(task.d)
        return task.basis.T @ task.pool.products(task.scaling) @ task.basis

    def _inverses(self, proof: Proof) -> tuple[Array, Array]:
        """Those of the observed and of the expected information, (d, d), once per proof."""
        if self._inverted is None or self._inverted[0] is not proof:
            observed = inverse(proof.information.sum(axis=0))
            expected = observed
            if not self.task.family.canonical:
                expected = inverse(self._expected(proof))
            self._inverted = proof, observed, expected
        return self._inverted[1:]

    def _null_deviance(self, proof: Proof) -> float | None:
        """The deviance of the model without covariates, in the units of the files."""
        task = self.task
        if task.family.log_likelihood is None:
            return None
        null = self._null
        told = [each.null for each in self._fitted(proof, last=True) if each.null is not None]

        def ask(x: Array) -> list[Course]:
            found: list[Course] = task.clients.entries(replace(null, x=x, curved=True))
            return found

        value = null_value(null.x, null.directions, task.pool.weight, told, ask)
        floor = float(np.sum(proof.scalars.floor))
        return 2.0 * (task.scaling.unit**2 * (value - floor) - task.pool.floor)

    @property
    def _null(self) -> Along:
        """The model without covariates, or a point near it, with the directions of intercepts."""
        task = self.task
        columns = np.arange(len(task.pool.names)) == task.pool.intercept
        each = columns[:, None].astype(np.float64)
        unit = np.kron(np.eye(task.coordinates.copies), each)
        intercepts = task.coordinates.point_of_scaled(unit[:, unit.any(axis=0)])
        return Along(task.intercept_alone, intercepts, task.clients.m)

    def _fitted(self, proof: Proof, last: bool = False) -> list[GoodnessOfFit]:
        """How well the model of a proof fits, by client: one question, however often it is wanted.

        The calibration of a classifier is asked for at the ``last`` proof alone.
        """
        task = self.task
        phi = 1.0
        null = None
        if task.family.log_likelihood is not None:
            deviance = self._deviance(proof) * task.scaling.unit**2
            phi = task.family.likelihood_dispersion(deviance, task.pool.n, task.pool.weight)
            null = self._null
        calibrate = last and task.family.binary
        if self._told is not None:
            before, told = self._told
            if np.array_equal(before.x, task.basis @ proof.x) and before.calibrate >= calibrate:
                return told
        clustered = None
        if task.settings.biased is None and len(task.rows.members.summed) >= LEAST_CLUSTERS:
            clustered = Along(proof.x, np.eye(task.d), task.clients.m)
        expected = task.family.expects_other
        asked = Fitted(task.basis @ proof.x, phi, null, calibrate, expected, clustered)
        self._told = asked, task.clients.entries(asked)
        return self._told[1]

    def _likelihood(self, proof: Proof) -> tuple[float | None, Calibration | None, float | None]:
        """The log-likelihood, a binary classifier's calibration and Pearson's X², if any."""
        if self.task.family.log_likelihood is None:
            return None, None, None
        told = self._fitted(proof, last=True)
        calibration = pearson = None
        parts = [each.calibration for each in told if each.calibration is not None]
        if parts:
            calibration = Calibration(*np.sum(parts, axis=0))
        squares = [each.pearson for each in told if each.pearson is not None]
        if squares:
            pearson = sum(squares)
        return sum(each.log_likelihood or 0.0 for each in told), calibration, pearson
