"""Array libraries and their devices: where arrays are, and how they get there and back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import (
    array_namespace,
    device,
    is_array_api_obj,
    is_cupy_array,
    is_jax_array,
    is_numpy_array,
    to_device,
)

from fedsplit.arrays import Array
from fedsplit.errors import InputError

DeviceArray: TypeAlias = Any
"""An array of any library that follows the array API standard."""

Namespace: TypeAlias = Any

DTYPES = ("float32", "float64")
"""What rows may be kept in."""


def on_device(values: object) -> bool:
    """Whether this is an array of another library than NumPy."""
    if is_numpy_array(values):
        return False
    try:
        return bool(is_array_api_obj(values))
    except AttributeError:  # a module of the user's has the name of an array library
        return False


def library(name: str) -> tuple[Namespace, Any]:
    """The array library for a device named by the user, and the device.

    Raises
    ------
    InputError
        If it is not known, or cannot be used on this machine.
    """
    if name != "cuda":
        raise InputError(f'device {name!r} is not known: use "cuda", or leave it out')
    try:
        cupy = import_module("cupy")
    except ImportError:
        raise InputError(
            'device "cuda" needs CuPy: pip install "fedsplit[gpu]", or another CuPy that suits '
            "your driver"
        ) from None
    try:
        found = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise InputError(f'device "cuda": there is no GPU that CuPy can use ({error})') from None
    if not found:
        raise InputError('device "cuda": there is no GPU on this machine')
    return array_namespace(cupy.empty(0)), cupy.cuda.Device()


def check_memory(needed: int, what: str) -> None:
    """Raise InputError unless the GPU has so many bytes left."""
    cupy = import_module("cupy")
    free, _ = cupy.cuda.runtime.memGetInfo()
    free += cupy.get_default_memory_pool().free_bytes()
    if needed > free:
        raise InputError(
            f"{what} needs {needed:,} bytes on the GPU, and {free:,} are free: use fewer clients, "
            'or dtype="float32"'
        )


def floats(name: str) -> str:
    """A dtype that rows may be kept in."""
    if name not in DTYPES:
        raise InputError(f"dtype must be one of {', '.join(DTYPES)}, not {name!r}")
    return name


def to_host(values: Any) -> Array:
    """An array as a NumPy array, copied from its device if it is on one."""
    if not on_device(values):
        return np.asarray(values)
    xp = array_namespace(values)
    if hasattr(values, "get"):  # CuPy
        return np.asarray(values.get())
    if xp.__name__.endswith("array_api_strict"):
        return np.asarray(to_device(values, xp.Device("CPU_DEVICE")))
    if is_jax_array(values):  # its devices have no names
        return np.asarray(values)
    return np.asarray(to_device(values, "cpu"))


def numbers(values: Any) -> Array | None:
    """Numbers that a user passes, here or on a device, as float64; None if they are not numbers."""
    try:
        return np.asarray(to_host(values), dtype=np.float64)
    except (AttributeError, RuntimeError, TypeError, ValueError):  # as libraries raise them
        return None


def combined(terms: Sequence[tuple[float, DeviceArray]]) -> DeviceArray:
    """Σ_i t_i a_i of arrays of one shape and dtype."""
    (t, array), *others = terms
    if others and is_cupy_array(array):
        coefficients, arrays = zip(*terms, strict=True)
        return _fused_sum(len(terms))(*arrays, *coefficients)
    result = array if t == 1.0 else t * array
    for t, array in others:
        result = result + (array if t == 1.0 else t * array)
    return result


def difference(a: DeviceArray, b: DeviceArray, dtype: Any) -> DeviceArray:
    """a - b in the precision of both, rounded to another one afterwards."""
    xp = array_namespace(a)
    if not is_cupy_array(a):
        return xp.astype(a - b, dtype, copy=False)
    cupy = import_module("cupy")
    return cupy.subtract(a, b, out=cupy.empty(a.shape, dtype=dtype), casting="unsafe")


@cache
def _fused_sum(count: int) -> Any:
    """The sum of so many multiples in one pass, for CuPy."""
    names = range(count)
    inputs = [f"T a{i}" for i in names] + [f"float64 t{i}" for i in names]
    code = "y = " + " + ".join(f"t{i} * a{i}" for i in names)
    cupy = import_module("cupy")
    return cupy.ElementwiseKernel(", ".join(inputs), "T y", code, "fedsplit_sum")


def vector(values: Any, like: DeviceArray) -> DeviceArray:
    """Numbers as float64 on the device of another array."""
    xp = array_namespace(like)
    if on_device(values):
        return xp.astype(values, xp.float64, copy=False)
    return xp.asarray(np.asarray(values, dtype=np.float64), device=device(like))
