"""Losses of one linear predictor, each given by a scalar function φ and its derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import xlogy

from fedsplit.arrays import Array, namespace
from fedsplit.checks import number
from fedsplit.errors import InputError
from fedsplit.losses.linear import LinearLoss
from fedsplit.losses.observations import Observations, check_targets


@dataclass(frozen=True)
class Logistic(LinearLoss):
    """f_j(x) = Σ_i w_i log(1 + exp(-b_i η_i)), η_i = a_iᵀx + o_i (the paper's §4.2).

    Labels are {-1, 1}, {0, 1} or bool, the same coding at every client. No margin overflows: at
    bη = -1e4 the value is 1e4. L_j = λ_max(A_jᵀW_jA_j)/4 and ℓ_j = 0.
    """

    curvature_range = (0.0, 0.25)
    concordance = 1.0
    steepest = 1.0
    classifies = True
    code = """
    __device__ float value(float t, float b) {
        return log1pf(expf(-fabsf(t))) + fmaxf(-b * t, 0.0f);
    }
    __device__ float slope(float t, float b) { return __fdividef(-b, 1.0f + expf(b * t)); }
    __device__ float bend(float t, float b) {
        float e = expf(-fabsf(t));
        return __fdividef(e, (1.0f + e) * (1.0f + e));
    }
    """

    def value(self, eta: Array, b: Array) -> Array:
        xp = namespace(eta)
        margin = b * eta
        size = xp.abs(margin)
        # log(1 + e^-m) = log(1 + e^-|m|) + max(-m, 0): no margin overflows
        result: Array = xp.log1p(xp.exp(-size)) + 0.5 * (size - margin)
        return result

    def slope(self, eta: Array, b: Array) -> Array:
        with np.errstate(over="ignore"):  # e^m beyond float64 is a slope of 0, as it should be
            slope: Array = -b / (1.0 + namespace(eta).exp(b * eta))
        return slope

    def curvature(self, eta: Array, b: Array) -> Array:
        xp = namespace(eta)
        e = xp.exp(-xp.abs(eta))  # even in η, and the same for both b
        result: Array = e / (1.0 + e) ** 2
        return result

    def tilt(self, eta: Array, b: Array) -> Array:
        result: Array = -np.tanh(0.5 * eta)
        return result

    def floor(self, b: Array) -> Array:
        return np.zeros_like(b)

    def expression(self, cp: Any, eta: Any, b: Array) -> Any:
        return cp.logistic(-cp.multiply(b, eta))

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        return np.where(rng.logistic(size=eta.shape) < eta, 1.0, -1.0)


@dataclass(frozen=True)
class Poisson(LinearLoss):
    """f_j(x) = Σ_i w_i (exp(η_i) - b_i η_i), η_i = a_iᵀx + o_i, for counts b ≥ 0 of mean exp(η).

    The negative log-likelihood without log b!. An offset of log t_i is an exposure of t_i. If e^η
    exceeds float64, the value is +inf and the gradient ±inf, without a warning. There is no
    global L_j.
    """

    concordance = 1.0
    code = """
    __device__ float value(float t, float b) { return expf(t) - b * t; }
    __device__ float slope(float t, float b) { return expf(t) - b; }
    __device__ float bend(float t, float b) { return expf(t); }
    """

    def value(self, eta: Array, b: Array) -> Array:
        return self.curvature(eta, b) - b * eta

    def slope(self, eta: Array, b: Array) -> Array:
        return self.curvature(eta, b) - b

    def curvature(self, eta: Array, b: Array) -> Array:
        result: Array = namespace(eta).exp(eta)
        return result

    def log_slope(self, eta: Array, b: Array) -> Array:
        return eta

    def floor(self, b: Array) -> Array:
        result: Array = b - xlogy(b, b)
        return result

    def expression(self, cp: Any, eta: Any, b: Array) -> Any:
        return cp.exp(eta) - cp.multiply(b, eta)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        return rng.poisson(np.exp(eta)).astype(np.float64)

    def targets(self, data: Sequence[Observations]) -> Sequence[Observations]:
        check_targets(data, lambda b: b < 0, "a count of at least zero")
        return data


@dataclass(frozen=True)
class Gamma(LinearLoss):
    """f_j(x) = Σ_i w_i (η_i + b_i exp(-η_i)), η_i = a_iᵀx + o_i, for amounts b > 0 of mean exp(η).

    The negative log-likelihood of a gamma distribution, per unit of its shape and up to a constant.
    The least value of a term is 1 + log b_i, so 2(f_j - floor) is the deviance. If e^{-η} exceeds
    float64, the value is +inf and the gradient ±inf, without a warning. There is no global L_j.
    """

    concordance = 1.0

    def value(self, eta: Array, b: Array) -> Array:
        return eta + self.curvature(eta, b)

    def slope(self, eta: Array, b: Array) -> Array:
        return 1.0 - self.curvature(eta, b)

    def curvature(self, eta: Array, b: Array) -> Array:
        result: Array = b * namespace(eta).exp(-eta)
        return result

    def log_slope(self, eta: Array, b: Array) -> Array:
        return np.log(b) - eta

    def floor(self, b: Array) -> Array:
        return 1.0 + np.log(b)

    def expression(self, cp: Any, eta: Any, b: Array) -> Any:
        return eta + cp.multiply(b, cp.exp(-eta))

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        return np.exp(eta) * rng.gamma(4.0, 0.25, size=eta.shape)

    def targets(self, data: Sequence[Observations]) -> Sequence[Observations]:
        check_targets(data, lambda b: b <= 0, "above zero")
        return data


@dataclass(frozen=True)
class Huber(LinearLoss):
    """f_j(x) = Σ_i w_i φ(a_iᵀx + o_i - b_i), with φ(r) = r²/2 for |r| ≤ δ, else δ|r| - δ²/2.

    ``curvature`` is the generalised second derivative: 1 inside, 0 outside.

    Parameters
    ----------
    delta : float
        δ, in the unit of b. 1.345 standard deviations keep 95 % efficiency under Gaussian noise.
    """

    delta: float = 1.345

    curvature_range = (0.0, 1.0)

    def __post_init__(self) -> None:
        number("Huber: delta", self.delta)

    @property
    def steepest(self) -> float:  # type: ignore[override]  # it is δ
        return self.delta

    @property
    def code(self) -> str:  # type: ignore[override]  # it holds δ
        return f"""
    #define DELTA {float(self.delta)!r}f
    __device__ float value(float t, float b) {{
        float r = fabsf(t - b);
        return r <= DELTA ? 0.5f * r * r : DELTA * (r - 0.5f * DELTA);
    }}
    __device__ float slope(float t, float b) {{ return fminf(fmaxf(t - b, -DELTA), DELTA); }}
    __device__ float bend(float t, float b) {{ return fabsf(t - b) <= DELTA ? 1.0f : 0.0f; }}
    """

    def value(self, eta: Array, b: Array) -> Array:
        xp = namespace(eta)
        r = xp.abs(eta - b)
        result: Array = xp.where(r <= self.delta, 0.5 * r * r, self.delta * (r - 0.5 * self.delta))
        return result

    def slope(self, eta: Array, b: Array) -> Array:
        result: Array = namespace(eta).clip(eta - b, -self.delta, self.delta)
        return result

    def curvature(self, eta: Array, b: Array) -> Array:
        xp = namespace(eta)
        result: Array = xp.astype(xp.abs(eta - b) <= self.delta, eta.dtype)
        return result

    def room(self, eta: Array, b: Array) -> Array:
        xp = namespace(eta)
        result: Array = xp.abs(xp.abs(eta - b) - self.delta)
        return result

    def floor(self, b: Array) -> Array:
        return np.zeros_like(b)

    def expression(self, cp: Any, eta: Any, b: Array) -> Any:
        return 0.5 * cp.huber(eta - b, self.delta)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        return eta + rng.standard_t(1.5, size=eta.shape)


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
        return self._floor(b) if callable(self._floor) else np.full_like(b, self._floor)

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
            for i in np.flatnonzero(wrong)[:1]:
                numbers = ", ".join(f"{name} {answer[i]:g}" for name, answer in answers.items())
                raise InputError(
                    f"client {j}, row {i}: φ at η = {o[i]:g}, b = {b[i]:g} must be convex and at "
                    f"least its floor: {numbers}"
                )
        return data
