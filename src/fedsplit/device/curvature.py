"""Each client's extreme curvatures on a device, without the ridge."""

from __future__ import annotations

from fedsplit.device.backend import DeviceArray
from fedsplit.device.rows import DeviceRows


def bounds(rows: DeviceRows) -> tuple[DeviceArray, DeviceArray]:
    """ℓ_j and L_j, each (m,), that hold at every x: 0 and inf if nothing better is known."""
    xp = rows.xp
    low, high = rows.phi.curvature_range
    none = rows.zeros(rows.m)
    if high == float("inf"):
        return none, none + float("inf")
    ones = xp.ones_like(rows.b)
    smallest, largest = _extremes(rows, rows.weighted(ones))
    return low * smallest, high * largest


def bounds_at(rows: DeviceRows, x: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
    """The extreme eigenvalues of ∇²f_j(x), each (m,); 0 for the smallest with too few rows."""
    return _extremes(rows, rows.curvatures(rows.predictor(rows.product(x))))


def diagonal(rows: DeviceRows, x: DeviceArray) -> DeviceArray:
    """The diagonal of ∇²f_j(x), (m, d)."""
    W = rows.curvatures(rows.predictor(rows.product(x)))
    return rows.xp.matmul(W[:, None, :], rows.A * rows.A)[:, 0, :]


def _extremes(rows: DeviceRows, W: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
    """Those of A_jᵀdiag(W_j)A_j, each (m,), in float64."""
    xp = rows.xp
    root = xp.sqrt(W)
    if rows.wide:
        M = root[:, :, None] * rows.row_gram * root[:, None, :]
    else:
        B = root[:, :, None] * rows.A
        M = xp.matmul(xp.matrix_transpose(B), B)
    spectrum = xp.astype(xp.linalg.eigvalsh(M), xp.float64)
    largest = xp.clip(spectrum[:, -1], 0.0, None)
    if rows.wide:
        return xp.zeros_like(largest), largest
    rounding = 4 * rows.d * float(xp.finfo(rows.A.dtype).eps) * largest
    smallest = spectrum[:, 0]
    return xp.where(smallest > rounding, smallest, xp.zeros_like(smallest)), largest
