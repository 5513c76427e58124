"""A loss of one's own of a linear predictor, given by a scalar function φ."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedsplit.arrays import Array
from fedsplit.errors import InputError
from fedsplit.losses.linear import LinearLoss
from fedsplit.losses.observations import Observations


class ScalarLoss(LinearLoss):
    """f_j(x) = Σ_i w_i φ(η_i, b_i), η_i = a_iᵀx + o_i, for a convex scalar function φ of your own.

    It is a full loss, as fast as the built-in ones: clients are stacked, Newton systems solved
    together. What you state here is taken as proved: certificates are only as true as
    ``curvature_range``, ``concordance`` and ``floor``.

    Parameters
    ----------
    value, slope, curvature : callable
        φ, φ' and φ'', the derivatives in η: ``value(eta, b) -> array`` elementwise, for arrays of
        one shape.
    curvature_range : (float, float)
        Bounds on φ'' that hold for all η and b. They set the step, and strong convexity.
    concordance : float
        c such that |φ'''| ≤ c φ'' everywhere; 0 if φ is quadratic. With it, a ``Certificate`` needs
        no strong convexity.
    floor : callable or float
        ``floor(b) -> array``, or one number: a lower bound on φ(·, b).

    Examples
    --------
    The log-cosh loss, a smooth relative of Huber's: φ''' = -2 tanh(r) φ'', so c = 2.

    >>> def slope(eta, b):
    ...     return np.tanh(eta - b)
    >>> def curvature(eta, b):
    ...     return 1 - np.tanh(eta - b) ** 2
    >>> def value(eta, b):
    ...     return np.logaddexp(eta - b, b - eta) - np.log(2)
    >>> loss = ScalarLoss(
    ...     value, slope, curvature, curvature_range=(0, 1), concordance=2, floor=0
    ... )
    """

    def __init__(
        self,
        value: Callable[[Array, Array], Array],
        slope: Callable[[Array, Array], Array],
        curvature: Callable[[Array, Array], Array],
        *,
        curvature_range: tuple[float, float] = (0.0, np.inf),
        concordance: float = np.inf,
        floor: Callable[[Array], Array] | float = -np.inf,
    ) -> None:
        low, high = curvature_range
        if not 0 <= low <= high:
            raise InputError(
                f"ScalarLoss: curvature_range must be 0 <= low <= high, not {curvature_range!r}"
            )
        if not concordance >= 0:
            raise InputError(f"ScalarLoss: concordance must be at least 0, not {concordance!r}")
        self._value = value
        self._slope = slope
        self._curvature = curvature
        self._floor = floor
        self.curvature_range = (float(low), float(high))
        self.concordance = float(concordance)

    def value(self, eta: Array, b: Array) -> Array:
        return self._value(eta, b)

    def slope(self, eta: Array, b: Array) -> Array:
        return self._slope(eta, b)

    def curvature(self, eta: Array, b: Array) -> Array:
        return self._curvature(eta, b)

    def floor(self, b: Array) -> Array:
        if callable(self._floor):
            return self._floor(b)
        return np.full_like(b, self._floor)

    def targets(self, data: Sequence[Observations]) -> Sequence[Observations]:
        """The data, unchanged, once φ has been checked where every predictor is its offset."""
        for j, (_, b, _, o) in enumerate(data):
            answers = {
                "value": self.value(o, b),
                "slope": self.slope(o, b),
                "curvature": self.curvature(o, b),
                "floor": self.floor(b),
            }
            for name, answer in answers.items():
                if np.shape(answer) != b.shape:
                    raise InputError(
                        f"client {j}: {name} must return shape {b.shape}, "
                        f"it returned {np.shape(answer)}"
                    )
            wrong = (
                np.isnan(list(answers.values())).any(axis=0)
                | (answers["curvature"] < 0)
                | (answers["value"] < answers["floor"])
            )
            if wrong.any():
                i = int(np.flatnonzero(wrong)[0])
                numbers = ", ".join(f"{name} {answer[i]:g}" for name, answer in answers.items())
                raise InputError(
                    f"client {j}, row {i}: φ at η = {o[i]:g}, b = {b[i]:g} must be convex and at "
                    f"least its floor: {numbers}"
                )
        return data
