"""Array libraries and their devices: where arrays are, and how they get there and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import array_namespace

from fedsplit.arrays import Array, to_host
from fedsplit.errors import InputError

DeviceArray: TypeAlias = Any
"""An array of any library that follows the array API standard."""

Namespace: TypeAlias = Any


def library(name: str) -> tuple[Namespace, Any]:
    """The array library for a device named by the user, and the device, if this machine has it."""
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
    dtypes = ("float32", "float64")
    if name not in dtypes:
        raise InputError(f"dtype must be one of {', '.join(dtypes)}, not {name!r}")
    return name


def numbers(values: Any) -> Array | None:
    """Numbers that a user passes, here or on a device, as float64; None if they are not numbers."""
    try:
        return np.asarray(to_host(values), dtype=np.float64)
    except (AttributeError, RuntimeError, TypeError, ValueError):  # as libraries raise them
        return None


@contextmanager
def within_memory(what: Callable[[], str]) -> Iterator[None]:
    """Raise InputError, in one line, where a device has too little memory for something."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # CuPy's, and PyTorch's
        if isinstance(error, RuntimeError) and "out of memory" not in str(error).lower():
            raise
        raise InputError(
            f"{what()} does not fit in the device's memory: use fewer clients, float32 rows, or a "
            "method that sends less"
        ) from None
