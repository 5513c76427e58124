"""Fused kernels for CuPy: a prox of every client in one pass over the rows.

For float32 rows of at most 32 rows and 128 columns per client; ``prox.cu`` says how. They compute
what ``span_steps`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from importlib import import_module
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import is_cupy_array

from fedsplit.device.answers import Numbers, Told, nothing
from fedsplit.device.backend import DeviceArray
from fedsplit.device.blocks import Coefficients, Dense, Displacement, Spanned
from fedsplit.device.rows import DeviceRows
from fedsplit.losses.least_squares import LeastSquares

MOST_ROWS = 32
MOST_COLUMNS = 128
THREADS = 128
"""Of a block: two blocks fit on a multiprocessor, with more than 200 registers for each thread."""

NEWTON_STEPS = 30


class Pass(NamedTuple):
    """What one pass over the rows does.

    Attributes
    ----------
    newton : bool
        Whether to solve exactly; otherwise gradient steps.
    start : (float, float)
        α and β of the start αv + βx.
    linear : (float, float, float)
        s, r and l of the steps u ← u - a(s∇Σφ(Au) + ru - lv).
    step : float or (m,) array
        a.
    steps : int
    proved : float
        What the length of the residual is multiplied by to bound the error.
    """

    newton: bool
    start: tuple[float, float]
    linear: tuple[float, float, float]
    step: float | DeviceArray
    steps: int
    proved: float


def fits(rows: DeviceRows) -> bool:
    """Whether there are kernels for these rows."""
    return (
        is_cupy_array(rows.A)
        and str(rows.A.dtype) == "float32"
        and rows.n <= MOST_ROWS
        and rows.d <= MOST_COLUMNS
    )


class Kernels:
    """The kernels for some rows.

    Parameters
    ----------
    rows : DeviceRows
        That fit.
    """

    def __init__(self, rows: DeviceRows) -> None:
        self.rows = rows
        self._cupy = import_module("cupy")
        processors = self._cupy.cuda.Device().attributes["MultiProcessorCount"]
        self._blocks = 2 * processors
        self._warps = self._blocks * THREADS // 32
        self._partial = self._cupy.empty((self._warps, rows.d + 4))

    def prox(
        self,
        x: DeviceArray,
        e: DeviceArray,
        factor: float,
        moved: Displacement | None,
        what: Pass,
        half_ridge: float,
    ) -> tuple[Displacement, Numbers]:
        """The displacements of v = e + factor·δ from x, and their squares, F(x), error and margin.

        δ is in the span of the rows if answers are; else it is of m·d numbers.
        """
        rows = self.rows
        own_steps = not isinstance(what.step, float)
        dense = own_steps or isinstance(moved, Dense)
        terms = self._terms(moved, dense)
        run, gather = self._compiled(what.newton, own_steps, dense, len(terms))
        alpha, beta = _end(what)
        size = rows.d if dense else rows.n
        out = self._cupy.empty((rows.m, size), dtype=np.float32)
        carried = self._cupy.empty_like(out) if len(terms) == 2 else None
        nowhere = self._partial  # a pointer that is not used
        numbers = [*what.start, *what.linear, 0.0 if own_steps else what.step]
        missing = 2 - len(terms)
        numbers += [*(t for t, _ in terms), *(0.0,) * missing]
        numbers += [factor, alpha, beta - 1.0, what.proved]
        displaced = [*(c for _, c in terms), *(None,) * missing]
        arrays = [rows.A, rows.b, rows.w, rows.o, self._gram_of_lanes, *displaced, carried]
        arrays.append(what.step if own_steps else None)
        run(
            (self._blocks,),
            (THREADS,),
            (
                *(nowhere if array is None else array for array in arrays),
                x,
                e,
                out,
                self._partial,
                np.int64(rows.m),
                np.int32(what.steps),
                *map(np.float32, numbers),
            ),
        )
        if carried is not None and isinstance(moved, Spanned):
            moved.coefficients.become(carried)
        found = self._cupy.empty(2 * rows.d + 4)
        clients = 0.0 if dense else float(rows.m)
        scalars = map(np.float64, (clients, alpha, beta - 1.0, half_ridge))
        gather((rows.d + 4,), (256,), (self._partial, np.int32(self._warps), x, e, *scalars, found))
        read = Numbers(found[2 * rows.d :])
        both = found[: 2 * rows.d].reshape(2, rows.d)
        moved_e, total = both
        square = read.number(0)
        if dense:
            return Dense(rows, total, out, square=square), read
        c = Coefficients((1.0, out))
        return Spanned(rows, total, moved_e, c, square=square, both=both), read

    def told(self, numbers: Numbers, work: tuple[int, int, int]) -> Told:
        """What the host may read of an answer."""
        has_classes = self.rows.phi.classifies
        margin = numbers.number(3) if has_classes else nothing
        return Told(self.rows.m, numbers.number(2), margin, numbers.number(1), work)

    @cached_property
    def _gram_of_lanes(self) -> DeviceArray:
        """K in the order of the lanes."""
        rows = self.rows
        groups = -(-rows.m // (32 // rows.n))
        size = groups * rows.n * 32
        laid_out = self._cupy.empty(size, dtype=np.float32)
        code = _module(rows, False, False, False, 0).get_function("lay_out")
        code((-(-size // 256),), (256,), (rows.row_gram, laid_out, np.int64(rows.m)))
        return laid_out

    def _compiled(self, newton: bool, own_steps: bool, dense: bool, terms: int) -> tuple[Any, Any]:
        key = (newton, own_steps, dense, terms)
        if key not in self._functions:
            module = _module(self.rows, *key)
            self._functions[key] = module.get_function("prox"), module.get_function("gather")
        return self._functions[key]

    @cached_property
    def _functions(self) -> dict[tuple[bool, bool, bool, int], tuple[Any, Any]]:
        return {}

    def _terms(
        self, moved: Displacement | None, dense: bool
    ) -> Sequence[tuple[float, DeviceArray]]:
        """At most two multiples of arrays that a displacement is the sum of."""
        if moved is None:
            return ()
        if dense or not isinstance(moved, Spanned):
            return ((1.0, self._cupy.ascontiguousarray(moved.dense())),)
        if len(moved.coefficients.terms) > 2:
            return ((1.0, moved.c),)
        return moved.coefficients.terms


def _end(what: Pass) -> tuple[float, float]:
    """α and β after all steps, if they are common to all clients; else 0."""
    if what.newton:
        return 1.0 / what.linear[1], 0.0
    if not isinstance(what.step, float):
        return 0.0, 0.0
    alpha, beta = what.start
    _, r, pull = what.linear
    for _ in range(what.steps):
        alpha = (1.0 - what.step * r) * alpha + what.step * pull
        beta = (1.0 - what.step * r) * beta
    return alpha, beta


def _module(rows: DeviceRows, newton: bool, own_steps: bool, dense: bool, terms: int) -> Any:
    settings = {
        "N": rows.n,
        "D": rows.d,
        "NEWTON": newton,
        "QUADRATIC": isinstance(rows.phi, LeastSquares),
        "OWN_STEPS": own_steps,
        "DENSE": dense,
        "TERMS": terms,
        "WEIGHTS": rows.w is not None,
        "OFFSETS": rows.o is not None,
        "STEADY": rows.phi.concordance <= 1.0,
    }
    options = tuple(f"-D{name}={int(value)}" for name, value in settings.items())
    return _compile(rows.phi.code, options)


@cache
def _compile(loss: str, options: tuple[str, ...]) -> Any:
    """A module with a loss, compiled once in a process."""
    code = files("fedsplit.device").joinpath("prox.cu").read_text()
    cupy = import_module("cupy")
    return cupy.RawModule(code=loss + code, options=("-std=c++17", *options))
