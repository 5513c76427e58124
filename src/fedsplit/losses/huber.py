"""Robust regression: φ(η, b) is quadratic in η - b up to δ and linear beyond."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsplit.arrays import Array, namespace
from fedsplit.checks import number
from fedsplit.losses.linear import LinearLoss


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
        return xp.where(r <= self.delta, 0.5 * r * r, self.delta * (r - 0.5 * self.delta))

    def slope(self, eta: Array, b: Array) -> Array:
        return namespace(eta).clip(eta - b, -self.delta, self.delta)

    def curvature(self, eta: Array, b: Array) -> Array:
        xp = namespace(eta)
        return xp.astype(xp.abs(eta - b) <= self.delta, eta.dtype)

    def room(self, eta: Array, b: Array) -> Array:
        xp = namespace(eta)
        return xp.abs(xp.abs(eta - b) - self.delta)

    def floor(self, b: Array) -> Array:
        return np.zeros_like(b)

    def expression(self, cp: Any, eta: Any, b: Array) -> Any:
        return 0.5 * cp.huber(eta - b, self.delta)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        return eta + rng.standard_t(1.5, size=eta.shape)
