"""Newton's method on sums with noise, and what its end is worth."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.channels.members import Members
from fedsplit.data.formula.formula import Formula
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError, ShortClip, listed
from fedsplit.regression.client.noise import Noise
from fedsplit.regression.client.plan import Coding, Plan
from fedsplit.regression.client.privacy import DeclaredColumns, bounds_of, noise_multiplier
from fedsplit.regression.client.questions import NoisedSum, NoisySums
from fedsplit.regression.options import Settings
from fedsplit.regression.privacy import Privacy
from fedsplit.regression.server.agreement import draft_of, with_declarations
from fedsplit.regression.server.columns import with_levels
from fedsplit.regression.server.report import Estimates, NoiseReport


class NoisyAnswer(NamedTuple):
    """Gradient and Hessian of all clients in the declared columns, with noise."""

    g: Array  # (p,)
    H: Array  # (p, p)
    # standard deviations: of every entry of g, and of the diagonal of H; those beside the diagonal
    # have that over √2
    g_noise: float
    H_noise: float
    # in the last answer rows, the sum of squared residuals, and that of weights, as shares of their
    # bounds
    rest: Array

    def definite(self) -> tuple[Array, int]:
        """H with its smallest eigenvalues raised to the level of noise, and how many were."""
        values, vectors = np.linalg.eigh(self.H)
        least = self.H_noise * math.sqrt(2.0 * len(self.g))
        low = values < least
        repaired: Array = (vectors * np.where(low, least, values)) @ vectors.T
        return repaired, int(low.sum())


class PrivateSearch:
    """A fixed number of Newton steps from zero, by a plan that is made of declarations."""

    def __init__(self, members: Members, plan: Plan, settings: Settings) -> None:
        assert settings.dp is not None
        self.plan = plan
        self.settings = settings
        self.summed = members.summed
        self.warnings: list[str] = []  # what its end is worth
        self._coding = Coding(plan, False, tuple(members.names))
        self._family = settings.chosen_family
        self._privacy: Privacy = settings.dp
        self._bounds = bounds_of(self._family, self._privacy)
        ranges, intercept = self._privacy.ranges or {}, plan.parsed.intercept
        self._back = DeclaredColumns.of(plan.names, ranges, intercept).back
        self._clients = list(self.summed or members.names)
        shares = len(self._clients) - self._privacy.colluding if self.summed else 1
        if shares < 1:
            raise InputError("dp: more clients collude than there are others")
        self._noise = math.sqrt(len(self._clients)) * Noise.of(self._privacy, shares).scale

    def run(self) -> Dialogue[tuple[Estimates, NoiseReport]]:
        """Ask all questions."""
        x = np.zeros(len(self.plan.names))
        for number in range(1, self._privacy.rounds + 1):
            answer = yield from self._ask(number, x)
            H, repaired = answer.definite()
            step: Array = -np.linalg.solve(H, answer.g)
            shorter = self._shortened(step, H)
            x = x + shorter
        if repaired:
            self.warnings.append(
                f"the noise is as large as the information in {repaired} of {len(x)} directions: "
                "some coefficients are not determined, and no standard error is known: raise "
                "epsilon or leave columns out"
            )
        if shorter is not step:
            self.warnings.append("the last step was shortened: allow more questions (dp rounds)")
        return self._estimate(x, shorter, H, answer, determined=not repaired)

    def _ask(self, number: int, x: Array) -> Dialogue[NoisyAnswer]:
        answers: dict[str, NoisedSum] = yield NoisySums(self._coding, self._privacy, number, x)
        parts = [answers[name] for name in self._coding.names]
        total = np.sum([each.high + each.low for each in parts], axis=0)
        a, h, c = np.sqrt(self._privacy.shares(number, self._family.dispersed))
        C, W = self._bounds
        R = self._privacy.clip
        p = len(x)
        first, second = np.triu_indices(p)
        H = np.zeros((p, p))
        packed, rest = np.split(total[p:], [len(first)])
        H[first, second] = packed / np.where(first == second, 1.0, math.sqrt(2.0))
        H[second, first] = H[first, second]
        g_unit, H_unit = C * R / a, W * R**2 / h
        noise = g_unit * self._noise, H_unit * self._noise
        return NoisyAnswer(g_unit * total[:p], H_unit * H, *noise, rest / c)

    def _shortened(self, step: Array, H: Array) -> Array:
        """A step that moves η by so much that φ'' can have become another; itself if not."""
        if self._family.has_units:  # least squares and Huber's loss
            return step
        # the root mean square over the rows: Σw ≥ tr H/R², as no row is longer than R
        moves = self._privacy.clip * math.sqrt(float(step @ H @ step) / float(np.trace(H)))
        longest = 1.5
        return step if moves <= longest else longest / moves * step

    def _estimate(
        self, x: Array, step: Array, H: Array, answer: NoisyAnswer, determined: bool
    ) -> tuple[Estimates, NoiseReport]:
        """The table at x, the end of a last step with H and a gradient.

        With H + E in the place of H, and a gradient with noise n, the last step from y ends at x
        with (H + E)(x - x*) = E(y - x*) - n, to first order, and y - x* is about -step.
        """
        privacy, p = self._privacy, len(x)
        C, W = self._bounds
        _, _, c = np.sqrt(privacy.shares(privacy.rounds, self._family.dispersed))
        unit = math.sqrt(3.0)
        rows, squares, weights = (unit * np.array([1.0, C**2, W]) * answer.rest).tolist()
        rows_noise = unit / c * self._noise
        shifted = 0.5 * answer.H_noise**2 * (step @ step * np.eye(p) + np.outer(step, step))
        noise = answer.g_noise**2 * np.eye(p) + shifted
        inverse = np.linalg.inv(H)
        back = self._back
        noise_part = back @ inverse @ noise @ inverse @ back.T
        dispersion = 1.0
        if self._family.dispersed:
            if self._family.quadratic:
                squares += float(answer.g @ step)  # of the end, where the gradient is 0
            dispersion = self._dispersion(squares, weights - p, rows_noise)
        covariance = None
        noise_se = errors = np.sqrt(np.diag(noise_part))
        if determined and math.isfinite(dispersion):
            covariance = dispersion * back @ inverse @ back.T + noise_part
            errors = np.sqrt(np.diag(covariance))
            moved = float(np.max(np.abs(back @ step) / errors))
            if not self._family.quadratic and moved > 3.0:
                self.warnings.append(
                    f"the last step moved a coefficient by {moved:.1f} standard errors: allow more "
                    "questions (dp rounds)"
                )
        report = NoiseReport(
            clients=self._clients,
            rows=rows,
            rows_error=rows_noise,
            dispersion=dispersion,
            noise_se=noise_se.tolist(),
            multiplier=noise_multiplier(privacy.epsilon, privacy.delta),
            score=C,
            weight=W,
        )
        return Estimates(self.plan.names, back @ x, covariance, None, errors), report

    def _dispersion(self, squares: float, weights: float, rows_noise: float) -> float:
        """φ by squares over weights; an upper bound where the noise is as large, nan without any.

        ``rows_noise`` is the standard deviation of the noise of a count of rows.
        """
        C, W = self._bounds
        if weights <= 2.0 * W * rows_noise:
            self.warnings.append("the noise hides the dispersion: raise epsilon")
            return math.nan
        estimate = squares / weights
        unsure = 2.0 * C**2 * rows_noise / weights
        if estimate > unsure:
            return estimate
        self.warnings.append(
            "the noise hides the dispersion, and an upper bound of it is used: declare a smaller "
            "dp score, or raise epsilon"
        )
        return max(estimate, 0.0) + unsure


def search_privately(
    members: Members, formula: Formula, settings: Settings, excluded: Sequence[str]
) -> PrivateSearch:
    """A fit with noise: no client has been asked anything yet."""
    plan = declared_plan(formula, settings, excluded)
    search = PrivateSearch(members, plan, settings)
    assert settings.dp is not None
    longest, clip = longest_row(plan, settings.dp), settings.dp.clip
    if longest is not None and clip < (1.0 - 1e-9) * longest:
        warnings.warn(
            f"dp: rows within the declared ranges can be {longest:.4g} long, and the clip is "
            f"{clip:g}: longer ones are scaled down, which biases the coefficients",
            ShortClip,
            stacklevel=2,
        )
    return search


def declared_plan(formula: Formula, settings: Settings, excluded: Sequence[str]) -> Plan:
    """The plan of a fit with noise; InputError unless declarations alone make it."""
    plan = with_declarations(draft_of(formula, settings, excluded), settings)
    formula = plan.parsed
    called = [call.text for call in formula.pooled if call.function.agreement() is not None]
    if called:
        raise InputError(
            f"dp: {listed(called)} depends on all rows: write the numbers that it stands for, as "
            "in bs(x, knots=c(3, 6), Boundary.knots=c(0, 9))"
        )
    if formula.grouped is not None:
        raise InputError("dp: a row of cbind() stands for many trials: use one row per trial")
    plan, _ = with_levels(plan, settings, {})
    if plan.shares and settings.weights is not None:
        raise InputError("dp: a share of trials stands for many: use one row per trial")
    return plan


def longest_row(plan: Plan, privacy: Privacy) -> float | None:
    """The most that a row of the design is long in its declared units; None if nothing says."""
    columns = plan.parsed.compile(plan.schema)
    ranges = privacy.ranges or {}
    at = int(columns.intercept)
    squares = float(columns.intercept)
    for blocks in columns.terms:
        width = math.prod(len(block.endings) for block in blocks)
        names = columns.names[at : at + width]
        at += width
        tables = [block.table for block in blocks if block.table is not None]
        if all(name in ranges for name in names):
            squares += width
        elif len(tables) == len(blocks):  # a row has one level of each category
            squares += math.prod(float(np.square(each[:-1]).sum(axis=1).max()) for each in tables)
        else:
            return None
    return math.sqrt(squares)
