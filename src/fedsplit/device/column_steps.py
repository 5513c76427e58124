"""Local solvers on all d coordinates of every client, over the array API.

For clients with at least as many rows as columns, and steps or ridges per coordinate.
"""

from __future__ import annotations

from typing import NamedTuple

from fedsplit.device.backend import DeviceArray
from fedsplit.device.line_search import searched
from fedsplit.device.rows import DeviceRows
from fedsplit.device.span_steps import MOST_STEPS


class Quadratic(NamedTuple):
    """What a prox or a ridge adds to f_j: ½uᵀdiag(D)u - ⟨q_j, u⟩.

    Attributes
    ----------
    D : (d,) array
    q : (m, d) array, or a number
    """

    D: DeviceArray
    q: DeviceArray | float

    def gradient(self, rows: DeviceRows, U: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
        """That of Σφ(Au) + ½uᵀdiag(D)u - ⟨q, u⟩, (m, d), and Au, (m, n)."""
        product = rows.product(U)
        slopes = rows.slopes(rows.predictor(product))
        return rows.adjoint(slopes) + self.D * U - self.q, product

    def value(self, rows: DeviceRows, U: DeviceArray) -> DeviceArray:
        """The same sum itself, (m,), in float64; inf where it is not a number."""
        xp = rows.xp
        added = xp.sum((0.5 * self.D * U - self.q) * U, axis=1, dtype=xp.float64)
        return rows.values(rows.predictor(rows.product(U))) + added


def gradient_steps(
    rows: DeviceRows, h: Quadratic, U: DeviceArray, step: DeviceArray | float, steps: int
) -> DeviceArray:
    """Steps u ← u - a∘∇h(u), (m, d); a is a number, (m, 1) or (m, d)."""
    for _ in range(steps):
        U = U - step * h.gradient(rows, U)[0]
    return U


def newton(rows: DeviceRows, h: Quadratic, U: DeviceArray) -> DeviceArray:
    """Minimise h_j by Newton's method to rounding, from u_j or 0, whichever is better, (m, d)."""
    xp = rows.xp
    origin = xp.zeros_like(U)
    value = h.value(rows, U)
    zero = h.value(rows, origin)
    U = xp.where((value <= zero)[:, None], U, origin)
    value = xp.where(value <= zero, value, zero)
    eps = float(xp.finfo(rows.A.dtype).eps)
    size = xp.ones_like(value) * xp.inf
    active = size > 0.0
    for _ in range(MOST_STEPS):
        G, product = h.gradient(rows, U)
        W = rows.curvatures(rows.predictor(product))
        H = xp.matmul(xp.matrix_transpose(rows.A), W[:, :, None] * rows.A)
        H = H + xp.eye(rows.d, dtype=H.dtype, device=rows.device) * h.D
        delta = xp.linalg.solve(H, G[:, :, None])[:, :, 0]
        previous = size
        size = _lengths(rows, delta)
        scale = _lengths(rows, U) + eps
        stalled = (size > 0.5 * previous) & (size <= 1e4 * eps * scale)
        active = active & (size > 4.0 * eps * scale) & ~stalled
        if not bool(xp.any(active)):
            break
        delta = xp.where(active[:, None], delta, xp.zeros_like(delta))
        slope = -xp.sum(G * delta, axis=1, dtype=xp.float64)
        U, value = _searched(rows, h, U, value, delta, slope)
    return U


def _searched(
    rows: DeviceRows,
    h: Quadratic,
    U: DeviceArray,
    value: DeviceArray,
    delta: DeviceArray,
    slope: DeviceArray,
) -> tuple[DeviceArray, DeviceArray]:
    """A step by which h_j falls enough, for every client."""
    xp = rows.xp

    def ahead(t: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
        points = U - t * delta
        return points, h.value(rows, points)

    found, values, refused = searched(rows, value, slope, ahead)
    return xp.where(refused[:, None], U, found), xp.where(refused, value, values)


def _lengths(rows: DeviceRows, U: DeviceArray) -> DeviceArray:
    return rows.xp.sqrt(rows.xp.sum(U * U, axis=1, dtype=rows.xp.float64))
