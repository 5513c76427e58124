"""The derivatives of a row's loss, cut off at declared bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.errors import InputError, listed
from fedsplit.losses.gamma import Gamma
from fedsplit.losses.huber import Huber
from fedsplit.losses.logistic import Logistic
from fedsplit.losses.poisson import Poisson
from fedsplit.regression.client.privacy.privacy import Privacy

Derivatives = Callable[[Array, Array], tuple[Array, Array]]
"""φ' and φ'' from η and b, each (n,)."""


class Bounds(NamedTuple):
    """What no row exceeds: |φ'| and φ'', each times the row's weight.

    Attributes
    ----------
    score, weight : float
    """

    score: float
    weight: float


class Scored(NamedTuple):
    """A loss of which rows can be cut off.

    Attributes
    ----------
    derivatives : callable
        From Huber's δ, what gives φ' and φ''.
    score, weight : callable
        From δ, the bounds that hold without being declared; None if there is none.
    """

    derivatives: Callable[[float], Derivatives]
    score: Callable[[float], float | None]
    weight: float | None


def _logistic(eta: Array, b: Array) -> tuple[Array, Array]:
    sign = np.where(b == 1, 1.0, -1.0)
    return Logistic().slope(eta, sign), Logistic().curvature(eta, sign)


SCORED: Mapping[str, Scored] = {
    "gaussian": Scored(
        lambda delta: lambda eta, b: (eta - b, np.ones_like(b)), lambda delta: None, 1.0
    ),
    "logistic": Scored(lambda delta: _logistic, lambda delta: 1.0, 0.25),
    "poisson": Scored(
        lambda delta: lambda eta, b: (Poisson().slope(eta, b), Poisson().curvature(eta, b)),
        lambda delta: None,
        None,
    ),
    "gamma": Scored(
        lambda delta: lambda eta, b: (Gamma().slope(eta, b), Gamma().curvature(eta, b)),
        lambda delta: None,
        None,
    ),
    "huber": Scored(
        lambda delta: lambda eta, b: (Huber(delta).slope(eta, b), Huber(delta).curvature(eta, b)),
        lambda delta: delta,
        1.0,
    ),
}
"""The families that a fit with noise is for."""


def bounds_of(family: str, privacy: Privacy, delta: float) -> Bounds:
    """The bounds of a family: declared ones, or those that hold in any case."""
    if family not in SCORED:
        raise InputError(f"dp is for the families {listed(SCORED, 12)}, not {family}")
    known = {"score": SCORED[family].score(delta), "weight": SCORED[family].weight}
    for name, value in known.items():
        declared = getattr(privacy, name)
        if declared is None and value is None:
            what = {"score": "the residual of a row, |φ'|", "weight": "the weight of a row, φ''"}
            raise InputError(
                f"dp: {family} has no bound on {what[name]}: declare one with --dp-{name}, or "
                f"{name}= in Privacy"
            )
        if declared is not None:
            known[name] = declared
    return Bounds(float(known["score"] or 0.0), float(known["weight"] or 0.0))


def cut_off(
    family: str, delta: float, bounds: Bounds, eta: Array, b: Array, w: Array
) -> tuple[Array, Array, Array]:
    """wφ', wφ'' and wφ'² of rows, each (n,), cut off at ±C, W and C².

    Where they are not numbers, as of rows so far out that they overflow, they are 0.
    """
    C, W = bounds
    with np.errstate(all="ignore"):
        slope, curvature = SCORED[family].derivatives(delta)(eta, b)
        found = [w * slope, w * curvature, w * slope**2]
        score, weight, square = (np.nan_to_num(each, nan=0.0) for each in found)
        return np.clip(score, -C, C), np.clip(weight, 0.0, W), np.clip(square, 0.0, C**2)
