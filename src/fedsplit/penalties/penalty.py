"""What a penalty is: a convex g(x) that the server adds to F, known by its prox.

The clients never see it.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from fedsplit.arrays import Array, on_host, placed, to_host
from fedsplit.checks import instance
from fedsplit.errors import InputError


class Penalty(Protocol):
    """A convex g, perhaps not smooth, perhaps +inf outside a set. Required: ``value`` and ``prox``.

    Attributes
    ----------
    coordinatewise : bool, optional
        Whether g is a sum over coordinates, so that t in ``prox`` may be (d,), a step per
        coordinate. False if missing.
    convexity : float, optional
        μ ≥ 0 such that g(x) - (μ/2)‖x‖² is convex. 0 if missing.
    dual_gap : (x, gradient, level) -> float, optional
        An upper bound on max_y ⟨∇f(x), x - y⟩ + g(x) - g(y), over the y with g(y) ≤ level: the
        optimum is one of them, so it bounds F(x) - F*. Certificates use it if it is there.
    nearest_subgradient : (x, v) -> tuple of two arrays, optional
        The subgradient of g at x closest to v, and slack ≥ 0 with g(x + h) ≥ g(x) +
        ⟨subgradient, h⟩ + Σ_i slack_i|h_i| for all h. Certificates use it if it is there.
    """

    def value(self, x: Array) -> float:
        """g(x), +inf outside the set of a constraint."""

    def prox(self, v: Array, t: float | Array) -> Array:
        """argmin_x g(x) + ½‖x - v‖²/t."""


class FitPenalty(Penalty, Protocol):
    """The penalty of a fit, which proves its distance from the optimum by curvature."""

    @property
    def l2(self) -> Array:
        """The weights, (d,), of a ridge that is part of it."""

    @property
    def bounded(self) -> bool:
        """Whether it keeps coefficients finite whatever the data (unpenalised ones aside)."""


def inside(penalty: Penalty | None, x: Array) -> Array:
    """x, or if a constraint excludes it, a point inside: of a set, the nearest."""
    if penalty is None or np.isfinite(penalty.value(x)):
        return x
    return penalty.prox(x, 1.0)


def prox_or_same(penalty: Penalty | None, v: Array, t: float | Array) -> Array:
    """prox_{tg}(v), which is v itself without a penalty."""
    if penalty is None:
        return v
    # a penalty, which may be the user's own, is of NumPy arrays
    point = penalty.prox(to_host(v), t)
    return point if on_host(v) else placed(point, v)


def check_penalty(penalty: object) -> None:
    """Raise InputError unless ``penalty`` is None or has ``value`` and ``prox``."""
    if penalty is not None:
        instance("penalty", penalty, "a Penalty", "value", "prox")


def check_dimension(penalty: Penalty, d: int) -> None:
    """Raise InputError unless ``penalty`` is one of d coordinates."""
    check_penalty(penalty)
    # A penalty need not state its dimension: applying it once shows whether it fits.
    try:
        shape = np.shape(penalty.prox(np.zeros(d), 1.0))
        value = penalty.value(np.zeros(d))
    except (ValueError, IndexError, TypeError) as error:
        raise InputError(
            f"penalty: it does not fit x, which has {d} coordinates ({error})"
        ) from None
    if shape != (d,) or np.ndim(value) != 0:
        raise InputError(
            f"penalty: prox must return {d} numbers and value one, "
            f"not shapes {shape} and {np.shape(value)}"
        )
