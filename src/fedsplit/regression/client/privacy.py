"""How much noise a fit with noise needs, and what its rows are bounded by."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.errors import InputError, RequestError, listed
from fedsplit.losses.linear import LinearLoss
from fedsplit.regression.families.family import Family
from fedsplit.regression.privacy import Privacy

SLACK = 1e-6
"""The share of ε and δ that is left for noise on a grid in the place of real numbers.

For |k| ≤ Bσ, with σ in steps of the grid, the probabilities of a discrete Gaussian are within
1 ± η of those of a rounded one, η ≤ (B² + 1)/(24σ²); so are those of a sum of several, up to less
than e^(-σ²). For L numbers this adds 2Lη to ε and a factor (1 + η)^L to δ, and what is beyond B has
no more than Le^(ε - B²/2). With σ ≥ 2⁴⁰ and B² = 2(700 + ε), that is below this share for L up to a
million and every ε ≥ 1e-9.
"""


@lru_cache(maxsize=16)
def noise_multiplier(epsilon: float, delta: float) -> float:
    """The least σ/Δ with which one Gaussian mechanism of sensitivity Δ is (ε, δ)-private.

    Answers to several questions, of which each may depend on those before, are one such mechanism
    if the squares of their Δ/σ add up to its own.
    """
    try:
        from dp_accounting.pld import accountant, common
    except ModuleNotFoundError:
        raise RequestError(
            "a fit with dp needs the package dp-accounting: pip install 'fedsplit[dp]'"
        ) from None
    wanted = common.DifferentialPrivacyParameters((1.0 - SLACK) * epsilon, (1.0 - SLACK) * delta)
    return float(accountant.get_smallest_gaussian_noise(wanted, 1, 1.0))


@dataclass(frozen=True)
class DeclaredColumns:
    """Columns (a - centre)/scale, of values between two ends."""

    # (p,): the ends; infinite where none are declared
    low: Array
    high: Array
    centre: Array  # (p,)
    scale: Array  # (p,)
    intercept: bool  # whether the first column is the constant

    @classmethod
    def of(
        cls, names: Sequence[str], ranges: Mapping[str, Sequence[float]], intercept: bool
    ) -> DeclaredColumns:
        """Those of a design with these names."""
        unknown = [name for name in ranges if name not in names[intercept:]]
        if unknown:
            raise InputError(
                f"dp ranges: there is no column {listed(unknown)} in the design, which has "
                f"{listed(names, 12)}"
            )
        centre, scale = np.zeros(len(names)), np.ones(len(names))
        low, high = -np.inf * scale, np.inf * scale
        for name, (least, most) in ranges.items():
            at = names.index(name)
            low[at], high[at] = least, most
            scale[at] = max(abs(least), abs(most))
            if intercept:  # which takes up the centre
                centre[at], scale[at] = 0.5 * (least + most), 0.5 * (most - least)
        return cls(low, high, centre, scale, intercept)

    def scaled(self, A: Array) -> Array:
        """The rows of a design in these units, (n, p)."""
        rows: Array = (np.clip(A, self.low, self.high) - self.centre) / self.scale
        return rows

    @property
    def back(self) -> Array:
        """What takes coefficients of these columns to those of the data, (p, p)."""
        found = np.diag(1.0 / self.scale)
        if self.intercept:
            found[0] -= self.centre / self.scale
            found[0, 0] = 1.0
        return found


class DerivativeBounds(NamedTuple):
    """What no row exceeds: |φ'| and φ'', each times the row's weight."""

    score: float
    weight: float


def bounds_of(family: Family, privacy: Privacy) -> DerivativeBounds:
    """The bounds of a family: declared ones, or those that hold in any case."""
    loss = _loss(family)
    known = {"score": loss.steepest, "weight": loss.curvature_range[1]}
    for name, value in known.items():
        declared = getattr(privacy, name)
        if declared is None and math.isinf(value):
            what = {"score": "the residual of a row, |φ'|", "weight": "the weight of a row, φ''"}
            raise InputError(
                f"dp: {family.name} has no bound on {what[name]}: declare one as {name} of dp"
            )
        if declared is not None:
            known[name] = declared
    return DerivativeBounds(**known)


def cut_off(
    family: Family, bounds: DerivativeBounds, eta: Array, b: Array, w: Array
) -> tuple[Array, Array, Array]:
    """wφ', wφ'' and wφ'² of rows, each (n,), cut off at ±C, W and C².

    Where they are not numbers, as of rows so far out that they overflow, they are 0.
    """
    C, W = bounds
    loss = _loss(family)
    targets = family.labels(b)
    with np.errstate(all="ignore"):
        slope, curvature = loss.slope(eta, targets), loss.curvature(eta, targets)
        found = [w * slope, w * curvature, w * slope**2]
        score, weight, square = (np.nan_to_num(each, nan=0.0) for each in found)
        return np.clip(score, -C, C), np.clip(weight, 0.0, W), np.clip(square, 0.0, C**2)


def _loss(family: Family) -> LinearLoss:
    """The loss of a family, of which rows can be cut off."""
    loss = family.loss(classes=2)
    if not isinstance(loss, LinearLoss):
        raise InputError(f"dp is for families with one predictor, not {family.name}")
    return loss
