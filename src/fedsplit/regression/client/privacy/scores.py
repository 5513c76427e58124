"""The derivatives of a row's loss, cut off at declared bounds."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.errors import InputError
from fedsplit.losses.linear import LinearLoss
from fedsplit.regression.client.privacy.privacy import Privacy
from fedsplit.regression.families.family import Family


class Bounds(NamedTuple):
    """What no row exceeds: |φ'| and φ'', each times the row's weight.

    Attributes
    ----------
    score, weight : float
    """

    score: float
    weight: float


def bounds_of(family: Family, privacy: Privacy) -> Bounds:
    """The bounds of a family: declared ones, or those that hold in any case."""
    loss = _loss(family)
    known = {"score": loss.steepest, "weight": loss.curvature_range[1]}
    for name, value in known.items():
        declared = getattr(privacy, name)
        if declared is None and math.isinf(value):
            what = {"score": "the residual of a row, |φ'|", "weight": "the weight of a row, φ''"}
            raise InputError(
                f"dp: {family.name} has no bound on {what[name]}: declare one with --dp-{name}, or "
                f"{name}= in Privacy"
            )
        if declared is not None:
            known[name] = declared
    return Bounds(**known)


def cut_off(
    family: Family, bounds: Bounds, eta: Array, b: Array, w: Array
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
