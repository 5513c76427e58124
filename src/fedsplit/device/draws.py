"""Random rows drawn on a device: other numbers than NumPy's, the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from fedsplit.arrays import Array
from fedsplit.device.backend import DeviceArray, check_memory, floats, library
from fedsplit.device.placing import StackedRows
from fedsplit.errors import InputError

Respond = Callable[[Any, DeviceArray], DeviceArray]
"""The targets, from a generator and the predictors."""


def gaussian_rows(
    shape: tuple[int, int, int],
    x_true: Array,
    seed: int,
    device: str,
    dtype: str,
    respond: Respond,
    units: Array | None = None,
) -> StackedRows:
    """Clients with rows of N(0, 1) entries, times the columns' units; ``shape`` is m, n and d."""
    library(device)
    if min(shape) < 1:
        raise InputError(f"an ensemble needs at least one client, row and column, not {shape}")
    cupy = import_module("cupy")
    m, n, d = shape
    kind = np.dtype(floats(dtype))
    check_memory(kind.itemsize * m * n * (d + 1), f"an ensemble of {m:,} clients")
    rng = cupy.random.default_rng(seed)
    A = cupy.empty((m * n, d), dtype=kind)
    b = cupy.empty(m * n, dtype=kind)
    x = cupy.asarray(x_true, dtype=kind)
    # more numbers at a time would need as many more as working memory
    rows = max(1, 2**24 // d)
    for first in range(0, m * n, rows):
        part = A[first : first + rows]
        part[...] = rng.standard_normal(part.shape, dtype=kind)
        if units is not None:
            part *= cupy.asarray(units, dtype=kind)
        b[first : first + rows] = respond(rng, part @ x)
    return StackedRows(A.reshape(m, n, d), b.reshape(m, n))


def with_noise(noise: float) -> Respond:
    """Targets of least squares, with noise of this variance."""

    def respond(rng: Any, eta: DeviceArray) -> DeviceArray:
        return eta + np.sqrt(noise) * rng.standard_normal(eta.shape, dtype=eta.dtype)

    return respond


def labels(rng: Any, eta: DeviceArray) -> DeviceArray:
    """Targets -1 and 1 of logistic regression."""
    cupy = import_module("cupy")
    u = rng.random(eta.shape, dtype=eta.dtype)
    return cupy.where(u * (1.0 + cupy.exp(-eta)) < 1.0, 1.0, -1.0)


def sorted_by_label(rows: StackedRows) -> StackedRows:
    """The same rows, dealt out to clients in the order of their labels."""
    m, n, d = rows.A.shape
    order = rows.b.reshape(-1).argsort(kind="stable")
    A = rows.A.reshape(m * n, d)[order]
    return StackedRows(A.reshape(m, n, d), rows.b.reshape(-1)[order].reshape(m, n))
