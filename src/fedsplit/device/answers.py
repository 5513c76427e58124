"""Answers whose arrays stay on the device: the host gets the few numbers that it decides by."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_cupy_array

from fedsplit.arrays import Array, Mask
from fedsplit.clients.question import Answer
from fedsplit.device.backend import DeviceArray, to_host


class Numbers:
    """A few float64 numbers on the device, which are read on the host when they are needed.

    CuPy copies them as soon as they are there: a copy that is asked for later would wait for
    everything that the device was asked to do since.
    """

    def __init__(self, array: DeviceArray) -> None:
        self._array = array
        self._copied: Any = None
        if is_cupy_array(array):
            cupy = import_module("cupy")
            buffer = cupy.cuda.alloc_pinned_memory(array.nbytes)
            self._array = np.frombuffer(buffer, np.float64, array.size)
            array.get(out=self._array, blocking=False)
            self._copied = cupy.cuda.Event(block=False, disable_timing=True)
            self._copied.record()

    @cached_property
    def _read(self) -> Array:
        if self._copied is not None:
            self._copied.synchronize()
        return to_host(self._array)

    def number(self, i: int) -> Callable[[], float]:
        """How to read one of them."""
        return lambda: float(self._read[i])


def nothing() -> float:
    """Where there is no number."""
    return float("nan")


def exact() -> float:
    """The error of an exact answer."""
    return 0.0


@dataclass(frozen=True)
class Told:
    """What the host may read of the answers of all m clients.

    Attributes
    ----------
    m : int
    error : callable
        The largest proved error.
    margin : callable
        The smallest margin of a classifier, by its sign; nan without classes.
    value : callable or None
        F at the x of the question, if the same pass has computed it.
    work : (int, int, int)
        Gradients, Hessians and factorisations of one client.
    """

    m: int
    error: Callable[[], float] = exact
    margin: Callable[[], float] = nothing
    value: Callable[[], float] | None = None
    work: tuple[int, int, int] = (0, 0, 0)


class DeviceAnswer(Answer):
    """The answers of all clients. Parts may be block vectors, and ``present`` is on the device."""

    told: Told

    @classmethod
    def on_device(
        cls, parts: Mapping[str, Any], present: DeviceArray, everyone: Any, told: Told
    ) -> DeviceAnswer:
        """An answer with these parts.

        Parameters
        ----------
        parts : mapping of str to arrays or block vectors
        present : (m,) mask
            On the device, all true.
        everyone : (m,) mask
            The same on the host.
        told : Told
        """
        answer = cls(dict(parts), present, np.zeros(0), np.zeros((0, 3)))
        answer.told = told
        answer._everyone = everyone
        return answer

    @property
    def error(self) -> Any:
        if "error" in self.parts:
            return self.parts["error"]
        xp = array_namespace(self.present)
        return xp.astype(self.present, xp.float64) * self.told.error()

    def rows_or(self, default: Any) -> Any:
        return self.rows

    @property
    def who(self) -> Mask:
        everyone: Mask = self._everyone
        return everyone

    @property
    def complete(self) -> bool:
        return True

    @property
    def margin(self) -> float:
        return self.told.margin()

    def largest_error(self) -> float:
        return self.told.error()

    def total_work(self) -> tuple[int, int, int]:
        m = self.told.m
        gradients, hessians, factorisations = self.told.work
        return m * gradients, m * hessians, m * factorisations

    def floats(self) -> int:
        """As if every client had sent its part: an error bound and a margin come with a prox."""
        entries = sum([math.prod(part.shape[1:]) for part in self.parts.values()])
        bounded = "point" in self.parts and "error" not in self.parts
        margin = not math.isnan(self.margin)
        return entries + (bounded and self.told.error is not exact) + margin

    _everyone: Any
