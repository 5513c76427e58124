"""From what a user passes to rows on a device: checked, padded, and in one dtype."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple
from warnings import catch_warnings, simplefilter

import numpy as np
from array_api_compat import array_namespace, is_cupy_array
from array_api_compat import device as device_of
from scipy.sparse import issparse

from fedsplit.arrays import Array, chosen, on_device, to_host
from fedsplit.device.backend import DeviceArray, check_memory, floats, library
from fedsplit.device.rows import DeviceRows
from fedsplit.errors import InputError
from fedsplit.losses.linear import LinearLoss
from fedsplit.losses.observations import Observations, read
from fedsplit.losses.scalar import Gamma, Poisson


class StackedRows(NamedTuple):
    """The rows of m clients with n each, as arrays of any library, on its device.

    Attributes
    ----------
    A : (m, n, d) array
    b : (m, n) array
        Targets.
    weights, offset : (m, n) array, optional
        A row of weight zero does not count, so clients may have fewer rows than n.
    """

    A: Any
    b: Any
    weights: Any = None
    offset: Any = None


def belongs_on_device(clients: object, device: str | None) -> bool:
    """Whether a problem with these clients is one on a device."""
    return device is not None or isinstance(clients, StackedRows) or _on_device_first(clients)


def _on_device_first(clients: object) -> bool:
    """Whether the rows of the first client are an array on a device."""
    if not isinstance(clients, Sequence) or not clients:
        return False
    first = clients[0]
    return isinstance(first, Sequence) and bool(first) and on_device(first[0])


def place(
    loss: object, clients: object, ridge: Array, device: str | None, dtype: str | None
) -> DeviceRows:
    """The rows of a problem on its device: "cuda", or None for where the arrays are.

    NumPy arrays are copied to the device; arrays on a device are taken as they are. ``ridge`` is
    only checked against the data; a ``dtype`` of None is that of the arrays.
    """
    if not isinstance(loss, LinearLoss):
        raise InputError(
            f"{type(loss).__name__} has no device path: use a loss of one linear predictor, such "
            "as Logistic"
        )
    if dtype is not None:
        floats(dtype)
    if device is not None:
        _check_dense(clients)
        library(device)  # before anything is copied
    if not isinstance(clients, StackedRows):
        clients = _stacked(loss, clients, dtype)
    if device is None and _on_gpu(clients.A) and find_spec("cupy") is not None:
        device = "cuda"  # where CuPy's kernels take them as they are
    if device is not None:
        clients = _moved(clients, device, dtype)
    else:
        _check_library(clients)
    A, b, w, o = _cast(clients, dtype)
    A, b, w, o = _padded_at_the_end(A, b, w, o)
    rows = DeviceRows(loss, A, _targets(loss, b, w), w, o)
    _check_numbers(rows, ridge)
    _check_functions(loss, rows.b)
    if not is_cupy_array(A):
        return rows
    # kernels read rows of d numbers, and twice the inner products of the rows of every client
    contiguous = import_module("cupy").ascontiguousarray
    w, o = (None if each is None else contiguous(each) for each in (rows.w, rows.o))
    beside = 2 * rows.m * rows.n * (rows.n + 8) * rows.A.itemsize
    check_memory(beside, f"a problem of {rows.m:,} clients")
    return DeviceRows(loss, contiguous(rows.A), contiguous(rows.b), w, o)


def _check_dense(clients: object) -> None:
    """Raise InputError if rows are sparse."""
    for client in clients if isinstance(clients, Sequence) else ():
        if isinstance(client, Sequence) and client and issparse(client[0]):
            raise InputError(
                "sparse rows have no device path: pass A.toarray(), or leave out device"
            )


def _stacked(loss: Any, clients: Any, dtype: str | None) -> StackedRows:
    """The clients' arrays, padded to one length by rows of weight zero."""
    if _on_device_first(clients):
        return _stacked_on_device(clients)
    checked: Sequence[Observations] = loss.targets(read(clients))
    m, n, d = len(checked), max(len(each.b) for each in checked), checked[0].A.shape[1]
    kind = np.dtype(dtype or "float64")
    check_memory(kind.itemsize * m * n * d, f"{m:,} clients, padded to {n:,} rows each,")
    A = np.zeros((m, n, d), dtype=kind)
    b, w, o = np.zeros((3, m, n))
    for j, each in enumerate(checked):
        size = len(each.b)
        A[j, :size], b[j, :size], w[j, :size], o[j, :size] = each
        b[j, size:] = each.b[-1]  # padding has weight zero, but the loss is evaluated there
    weights = None if (w == 1).all() else w
    return StackedRows(A, b, weights, o if o.any() else None)


def _stacked_on_device(data: Sequence[Sequence[DeviceArray]]) -> StackedRows:
    """The same of arrays on a device."""
    for j, client in enumerate(data):
        if not isinstance(client, Sequence) or not all(map(on_device, client)):
            raise InputError(
                f"client {j}: the arrays of the first client are on a device, and these are not"
            )
    xp = array_namespace(data[0][0])
    shapes = {tuple(tuple(array.shape) for array in client) for client in data}
    if len(shapes) > 1 or len(data[0]) != 2:
        raise InputError(
            "clients on a device with weights, offsets or arrays of different shapes: pass "
            "StackedRows(A, b, weights, offset), where a row of weight zero does not count"
        )
    return StackedRows(xp.stack([A for A, _ in data]), xp.stack([b for _, b in data]))


def _on_gpu(A: Any) -> bool:
    """Whether an array of another library than CuPy is on an NVIDIA GPU."""
    if not on_device(A) or is_cupy_array(A) or not hasattr(A, "__dlpack_device__"):
        return False
    # DLPack's number for NVIDIA's devices
    return int(A.__dlpack_device__()[0]) == 2


def _check_float64(A: DeviceArray) -> None:
    """Raise InputError if the library of an array has no float64, as JAX unless it is told so."""
    xp = array_namespace(A)
    with catch_warnings():
        simplefilter("ignore")
        one = xp.ones(1, dtype=xp.float64)
    if one.dtype != xp.float64:
        raise InputError(
            f"{xp.__name__} has no float64, which sums over clients are in: "
            'set jax_enable_x64 before the arrays are made, or pass device="cuda"'
        )


def _moved(clients: StackedRows, device: str, dtype: str | None) -> StackedRows:
    """On the device: by DLPack without a copy if they are there already."""
    xp, place = library(device)
    if not on_device(clients.A):
        size = np.dtype(floats(dtype or "float64")).itemsize
        check_memory(size * np.size(clients.A), "the clients' data")

    def moved(values: Any) -> Any:
        if values is None or is_cupy_array(values):
            return values
        if _on_gpu(values):
            return _by_dlpack(xp, values)
        wanted = np.asarray(to_host(values), dtype=dtype or None)
        return xp.asarray(wanted, device=place)

    return StackedRows(*map(moved, clients))


def _check_library(clients: StackedRows) -> None:
    """Raise InputError unless all arrays are of one library, and on a device."""
    if not on_device(clients.A):
        raise InputError('StackedRows has NumPy arrays: pass device="cuda", or a list of (A, b)')
    for name, each in zip(clients._fields, clients, strict=True):
        optional = each is None and name != "b"
        if not optional and type(each) is not type(clients.A):
            raise InputError(
                f"{name} is of type {type(each).__name__}, and A of type "
                f"{type(clients.A).__name__}: put both on one device"
            )
        if each is not None and device_of(each) != device_of(clients.A):
            raise InputError(f"{name} is on another device than A: put both on one")
    _check_float64(clients.A)


def _by_dlpack(xp: Any, values: Any) -> DeviceArray:
    """An array of another library, not copied."""
    try:
        return xp.from_dlpack(values)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"an array of type {type(values).__module__}.{type(values).__name__} cannot be taken "
            f'to device "cuda": {str(error).splitlines()[0]}'
        ) from None


def _cast(clients: StackedRows, dtype: str | None) -> list[DeviceArray | None]:
    """In the shapes that they have to have, and in one dtype: that of A, or the one asked for."""
    A = clients.A
    xp = array_namespace(A)
    given = {name: each for name, each in clients._asdict().items() if each is not None}
    if any(xp.isdtype(each.dtype, "complex floating") for each in given.values()):
        raise InputError("rows on a device must be real numbers")
    wanted = A.dtype if dtype is None else getattr(xp, floats(dtype))
    if wanted not in (xp.float32, xp.float64):
        raise InputError(
            f'A has dtype {wanted}: rows on a device are float32 or float64, pass dtype="float64"'
        )
    if A.ndim != 3 or 0 in A.shape:
        raise InputError(f"A must be (clients, rows, columns), its shape is {tuple(A.shape)}")
    for name, each in given.items():
        if name != "A" and tuple(each.shape) != tuple(A.shape[:2]):
            raise InputError(
                f"{name} must have shape {tuple(A.shape[:2])}, as A has, not {tuple(each.shape)}"
            )
    return [None if each is None else xp.astype(each, wanted, copy=False) for each in clients]


def _padded_at_the_end(A: Any, b: Any, w: Any, o: Any) -> tuple[Any, Any, Any, Any]:
    """The rows of each client, those of weight zero last: batches are drawn of the others."""
    unused = np.zeros((1, 1)) if w is None else to_host(w) == 0
    if (unused[:, 1:] >= unused[:, :-1]).all():
        return A, b, w, o
    order = np.argsort(unused, axis=1, kind="stable")
    offset = None if o is None else chosen(o, order)
    return chosen(A, order), chosen(b, order), chosen(w, order), offset


def _targets(loss: LinearLoss, b: DeviceArray, w: DeviceArray | None) -> DeviceArray:
    """Targets in the coding of φ, checked; those of padding may be anything."""
    xp = array_namespace(b)
    counted = b if w is None else xp.where(w > 0, b, xp.ones_like(b))
    if loss.classifies:
        low = -1 if bool(xp.any(counted == -1)) else 0
        if not bool(xp.all((counted == low) | (counted == 1))):
            raise InputError("labels must be {-1, 1}, or {0, 1}, the same at every client")
        return xp.where(b == 1, xp.ones_like(b), -xp.ones_like(b))
    if isinstance(loss, Poisson) and bool(xp.any(counted < 0)):
        raise InputError("b must be a count of at least zero")
    if isinstance(loss, Gamma) and bool(xp.any(counted <= 0)):
        raise InputError("b must be above zero")
    return b


def _check_functions(loss: LinearLoss, b: DeviceArray) -> None:
    """Raise InputError unless φ, which may be the user's own, takes arrays of this library."""
    try:
        for function in (loss.value, loss.slope, loss.curvature):
            function(b[:1, :1], b[:1, :1])
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"{type(loss).__name__} has no device path, as its functions are not written over the "
            f"array API ({str(error).splitlines()[0]})"
        ) from None


def _check_numbers(rows: DeviceRows, ridge: Array) -> None:
    """Raise InputError unless all numbers are finite, and every coefficient is determined."""
    xp = rows.xp
    named = (("A", rows.A), ("b", rows.b), ("weights", rows.w), ("offset", rows.o))
    for name, each in named:
        if each is not None and not bool(xp.all(xp.isfinite(each))):
            raise InputError(f"{name} has numbers that are not finite: drop or fill them first")
    if rows.w is not None:
        if bool(xp.any(rows.w < 0)):
            raise InputError("weights must be at least zero")
        if not bool(xp.all(xp.any(rows.w > 0, axis=1))):
            raise InputError("a client is empty: every weight is zero, leave it out")
    if ridge.shape not in ((), (rows.d,)):
        raise InputError(
            f"ridge must be a number or have {rows.d} entries, its shape is {ridge.shape}"
        )
    if not ridge.all() and not bool(xp.all(xp.any(rows.A != 0, axis=(0, 1)))):
        raise InputError("a column is zero at every client: drop it, or add a ridge")
