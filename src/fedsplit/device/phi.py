"""The losses of a linear predictor over the array API: φ, φ' and φ'' of one observation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from array_api_compat import array_namespace

from fedsplit.device.backend import DeviceArray
from fedsplit.errors import InputError
from fedsplit.losses.huber import Huber
from fedsplit.losses.least_squares import LeastSquares
from fedsplit.losses.linear import LinearLoss
from fedsplit.losses.logistic import Logistic
from fedsplit.losses.poisson import Poisson


class Phi(Protocol):
    """φ(η, b) and its derivatives in η, elementwise, as in ``LinearLoss``.

    Attributes
    ----------
    loss : LinearLoss
        The same for NumPy arrays.
    code : str
        The same in CUDA C++: functions ``value``, ``slope`` and ``bend`` of (η, b).
    """

    loss: LinearLoss
    code: str

    def value(self, eta: DeviceArray, b: DeviceArray) -> DeviceArray: ...

    def slope(self, eta: DeviceArray, b: DeviceArray) -> DeviceArray: ...

    def curvature(self, eta: DeviceArray, b: DeviceArray) -> DeviceArray: ...


@dataclass(frozen=True)
class SquarePhi:
    """Least squares: (η - b)²/2."""

    loss: LeastSquares
    code = """
    __device__ float value(float t, float b) { return 0.5f * (t - b) * (t - b); }
    __device__ float slope(float t, float b) { return t - b; }
    __device__ float bend(float t, float b) { return 1.0f; }
    """

    def value(self, eta: DeviceArray, b: DeviceArray) -> DeviceArray:
        return 0.5 * (eta - b) ** 2

    def slope(self, eta: DeviceArray, b: DeviceArray) -> DeviceArray:
        return eta - b

    def curvature(self, eta: DeviceArray, b: DeviceArray) -> DeviceArray:
        return array_namespace(eta).ones_like(eta)


@dataclass(frozen=True)
class LogisticPhi:
    """Logistic regression: log(1 + e^{-bη})."""

    loss: Logistic
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

    def value(self, eta: DeviceArray, b: DeviceArray) -> DeviceArray:
        xp = array_namespace(eta)
        margin = b * eta
        beyond = 0.5 * (xp.abs(margin) - margin)  # max(-bη, 0)
        return xp.log1p(xp.exp(-xp.abs(margin))) + beyond

    def slope(self, eta: DeviceArray, b: DeviceArray) -> DeviceArray:
        # 1/(1 + e^t) without an overflow on either side
        xp = array_namespace(eta)
        margin = b * eta
        e = xp.exp(-xp.abs(margin))
        return -b * xp.where(margin > 0, e, xp.ones_like(e)) / (1.0 + e)

    def curvature(self, eta: DeviceArray, b: DeviceArray) -> DeviceArray:
        xp = array_namespace(eta)
        e = xp.exp(-xp.abs(eta))
        return e / (1.0 + e) ** 2


@dataclass(frozen=True)
class PoissonPhi:
    """Poisson regression: e^η - bη."""

    loss: Poisson
    code = """
    __device__ float value(float t, float b) { return expf(t) - b * t; }
    __device__ float slope(float t, float b) { return expf(t) - b; }
    __device__ float bend(float t, float b) { return expf(t); }
    """

    def value(self, eta: DeviceArray, b: DeviceArray) -> DeviceArray:
        return array_namespace(eta).exp(eta) - b * eta

    def slope(self, eta: DeviceArray, b: DeviceArray) -> DeviceArray:
        return array_namespace(eta).exp(eta) - b

    def curvature(self, eta: DeviceArray, b: DeviceArray) -> DeviceArray:
        return array_namespace(eta).exp(eta)


@dataclass(frozen=True)
class HuberPhi:
    """Huber's loss: r²/2 for |r| ≤ δ, else δ|r| - δ²/2, with r = η - b."""

    loss: Huber

    @property
    def code(self) -> str:
        return f"""
    #define DELTA {float(self.loss.delta)!r}f
    __device__ float value(float t, float b) {{
        float r = fabsf(t - b);
        return r <= DELTA ? 0.5f * r * r : DELTA * (r - 0.5f * DELTA);
    }}
    __device__ float slope(float t, float b) {{ return fminf(fmaxf(t - b, -DELTA), DELTA); }}
    __device__ float bend(float t, float b) {{ return fabsf(t - b) <= DELTA ? 1.0f : 0.0f; }}
    """

    def value(self, eta: DeviceArray, b: DeviceArray) -> DeviceArray:
        xp = array_namespace(eta)
        delta = self.loss.delta
        r = xp.abs(eta - b)
        return xp.where(r <= delta, 0.5 * r * r, delta * (r - 0.5 * delta))

    def slope(self, eta: DeviceArray, b: DeviceArray) -> DeviceArray:
        delta = self.loss.delta
        return array_namespace(eta).clip(eta - b, -delta, delta)

    def curvature(self, eta: DeviceArray, b: DeviceArray) -> DeviceArray:
        xp = array_namespace(eta)
        return xp.astype(xp.abs(eta - b) <= self.loss.delta, eta.dtype)


PHIS: Mapping[type, type] = {
    LeastSquares: SquarePhi,
    Logistic: LogisticPhi,
    Poisson: PoissonPhi,
    Huber: HuberPhi,
}
"""The losses that have a device path."""


def phi_of(loss: object) -> Phi:
    """A loss over the array API; raises InputError if it has no device path."""
    kind = PHIS.get(type(loss))
    if kind is None:
        names = ", ".join(each.__name__ for each in PHIS)
        raise InputError(f"{type(loss).__name__} has no device path: use one of {names}")
    found: Phi = kind(loss)
    return found
