"""A program of one client as a kernel: its operations are written down as CUDA C++, and compiled.

A warp takes a client at a time, whose vectors stay in registers, so each array is read once. What
is added up is float64, in a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import is_cupy_array

from fedsplit.arrays import column_sums
from fedsplit.device.backend import DeviceArray

MOST_COLUMNS = 256
"""With more of them, a client's vectors do not fit into the registers of a warp."""

THREADS = 128

BLOCKS = 8
"""For each multiprocessor."""

KERNEL = """
#define EACH(...) _Pragma("unroll") for (int q = 0; q < Q; ++q) {{ __VA_ARGS__ }}
#define INFINITE __longlong_as_double(0x7ff0000000000000LL)
#define INSIDE (lane + 32 * q < D)
constexpr int D = {columns};
constexpr int Q = (D + 31) / 32;

__device__ __forceinline__ double over_lanes(double v) {{
    for (int h = 16; h > 0; h /= 2) v += __shfl_xor_sync(0xffffffffu, v, h);
    return v;
}}

extern "C" __global__ void __launch_bounds__(128) program({parameters}, long long m) {{
    const int lane = threadIdx.x & 31;
    const long long warp = (blockIdx.x * (long long)blockDim.x + threadIdx.x) >> 5;
    const long long warps = (gridDim.x * (long long)blockDim.x) >> 5;
    {before}
    for (long long j = warp; j < m; j += warps) {{
        {each}
    }}
    {after}
}}
"""


class Symbol:
    """A variable of the kernel: a number, or a vector of which each lane has some columns."""

    def __init__(self, code: Code, name: str, is_vector: bool) -> None:
        self.code = code
        self.name = name
        self.is_vector = is_vector

    def __add__(self, other: Any) -> Symbol:
        return self.code.combined("{} + {}", self, other)

    def __radd__(self, other: Any) -> Symbol:
        return self.code.combined("{} + {}", other, self)

    def __sub__(self, other: Any) -> Symbol:
        return self.code.combined("{} - {}", self, other)

    def __rsub__(self, other: Any) -> Symbol:
        return self.code.combined("{} - {}", other, self)

    def __mul__(self, other: Any) -> Symbol:
        return self.code.combined("{} * {}", self, other)

    def __rmul__(self, other: Any) -> Symbol:
        return self.code.combined("{} * {}", other, self)

    def __truediv__(self, other: Any) -> Symbol:
        return self.code.combined("{} / {}", self, other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return self.code.combined("{} / {}", other, self)

    def __gt__(self, other: Any) -> Symbol:
        return self.code.combined("{} > {}", self, other)

    def __le__(self, other: Any) -> Symbol:
        return self.code.combined("{} <= {}", self, other)

    def __and__(self, other: Any) -> Symbol:
        return self.code.combined("{} && {}", self, other)


class Code:
    """The kernel as it is written, and the operations of a program that writes it.

    Attributes
    ----------
    parameters : list of str
    before, each, after : lists of str
        What is done before the clients, for each of them, and after them.
    """

    def __init__(self) -> None:
        self.parameters: list[str] = []
        self.before: list[str] = []
        self.each: list[str] = []
        self.after: list[str] = []

    def dot(self, u: Symbol, v: Symbol) -> Symbol:
        """uᵀv."""
        name = f"t{len(self.each)}"
        add = f"if (INSIDE) {name} += {_column(u)} * {_column(v)};"
        self.each.append(f"double {name} = 0.0; EACH({add}) {name} = over_lanes({name});")
        return Symbol(self, name, is_vector=False)

    def where(self, condition: Symbol, one: Any, other: Any) -> Symbol:
        """One of two numbers or vectors."""
        return self.combined("{} ? {} : {}", condition, one, other)

    def sqrt(self, t: Symbol) -> Symbol:
        """√t."""
        return self.combined("sqrt({})", t)

    def combined(self, expression: str, *operands: Any) -> Symbol:
        """A new variable: an expression of others, for every column if one is a vector."""
        name = f"t{len(self.each)}"
        is_vector = any(isinstance(each, Symbol) and each.is_vector for each in operands)
        value = expression.format(*map(_column, operands))
        if is_vector:
            self.each.append(f"double {name}[Q]; EACH({name}[q] = {value};)")
        else:
            self.each.append(f"const auto {name} = {value};")
        return Symbol(self, name, is_vector)

    def vector(self, name: str, kind: str) -> Symbol:
        """A vector of each client, which is read."""
        self.parameters.append(f"const {kind}* __restrict__ {name}_all")
        value = f"INSIDE ? (double){name}_all[j * D + lane + 32 * q] : 0.0"
        self.each.append(f"double {name}[Q]; EACH({name}[q] = {value};)")
        return Symbol(self, name, is_vector=True)

    def number(self, name: str, kind: str) -> Symbol:
        """A number of each client, which is read."""
        self.parameters.append(f"const {kind}* __restrict__ {name}_all")
        self.each.append(f"const auto {name} = {name}_all[j];")
        return Symbol(self, name, is_vector=False)

    def shared_vector(self, name: str) -> Symbol:
        """A vector that all clients share."""
        self.parameters.append(f"const double* __restrict__ {name}_all")
        value = f"INSIDE ? {name}_all[lane + 32 * q] : 0.0"
        self.before.append(f"double {name}[Q]; EACH({name}[q] = {value};)")
        return Symbol(self, name, is_vector=True)

    def shared_number(self, name: str) -> Symbol:
        """A number that all clients share."""
        self.parameters.append(f"const double {name}")
        return Symbol(self, name, is_vector=False)

    def write_vector(self, name: str, value: Symbol) -> None:
        """Write a vector of each client."""
        self.parameters.append(f"double* __restrict__ {name}")
        self.each.append(f"EACH(if (INSIDE) {name}[j * D + lane + 32 * q] = {_column(value)};)")

    def write_number(self, name: str, value: Symbol) -> None:
        """Write a number of each client."""
        self.parameters.append(f"double* __restrict__ {name}")
        self.each.append(f"if (lane == 0) {name}[j] = {value.name};")

    def write_total(self, name: str, value: Symbol) -> None:
        """Write the sum of a vector over the clients of each warp."""
        self.parameters.append(f"double* __restrict__ {name}")
        self.before.append(f"double {name}_sum[Q]; EACH({name}_sum[q] = 0.0;)")
        self.each.append(f"EACH({name}_sum[q] += {_column(value)};)")
        store = f"{name}[warp * D + lane + 32 * q] = {name}_sum[q];"
        self.after.append(f"EACH(if (INSIDE) {store})")

    def kernel(self, columns: int) -> str:
        """All of it."""
        return KERNEL.format(
            columns=columns,
            parameters=", ".join(self.parameters),
            before="\n    ".join(self.before),
            each="\n        ".join(self.each),
            after="\n    ".join(self.after),
        )


class Kernel(NamedTuple):
    """A kernel, and how many vectors, numbers and totals it writes."""

    run: Any
    vectors: int
    numbers: int
    totals: int


def in_one_pass(
    program: Callable[..., Any],
    vectors: Sequence[DeviceArray],
    numbers: Sequence[DeviceArray],
    shared: Sequence[DeviceArray | float],
) -> tuple[tuple[DeviceArray, ...], tuple[DeviceArray, ...], tuple[DeviceArray, ...]]:
    """What a program finds for all clients: vectors, numbers and totals."""
    cupy = import_module("cupy")
    m, d = vectors[0].shape
    arrays = [cupy.ascontiguousarray(each) for each in (*vectors, *numbers)]
    is_number = tuple(not is_cupy_array(each) for each in shared)
    common = [np.float64(each) if n else each for each, n in zip(shared, is_number, strict=True)]
    kinds = tuple(_kind(each) for each in arrays)
    split = len(vectors)
    kernel = _compiled(program, d, kinds[:split], kinds[split:], is_number)
    blocks = BLOCKS * cupy.cuda.Device().attributes["MultiProcessorCount"]
    rows = [cupy.empty((m, d)) for _ in range(kernel.vectors)]
    values = [cupy.empty(m) for _ in range(kernel.numbers)]
    sums = [cupy.empty((blocks * THREADS // 32, d)) for _ in range(kernel.totals)]
    kernel.run((blocks,), (THREADS,), (*arrays, *common, *rows, *values, *sums, np.int64(m)))
    return tuple(rows), tuple(values), tuple(map(column_sums, sums))


@cache
def _compiled(
    program: Callable[..., Any],
    d: int,
    vectors: tuple[str, ...],
    numbers: tuple[str, ...],
    shared: tuple[bool, ...],
) -> Kernel:
    """The kernel of a program for arrays of these types; ``shared`` says what is a number."""
    code, found = traced(program, vectors, numbers, shared)
    module = import_module("cupy").RawModule(code=code.kernel(d), options=("-std=c++17",))
    sizes = map(len, (found.vectors, found.numbers, found.totals))
    return Kernel(module.get_function("program"), *sizes)


def traced(
    program: Callable[..., Any],
    vectors: Sequence[str],
    numbers: Sequence[str],
    shared: Sequence[bool],
) -> tuple[Code, Any]:
    """The code of a program, and the symbols that it returns."""
    code = Code()
    symbols = [code.vector(f"u{i}", kind) for i, kind in enumerate(vectors)]
    symbols += [code.number(f"n{i}", kind) for i, kind in enumerate(numbers)]
    symbols += [
        code.shared_number(f"s{i}") if is_number else code.shared_vector(f"s{i}")
        for i, is_number in enumerate(shared)
    ]
    found = program(code, *symbols)
    for i, value in enumerate(found.vectors):
        code.write_vector(f"vector{i}", value)
    for i, value in enumerate(found.numbers):
        code.write_number(f"number{i}", value)
    for i, value in enumerate(found.totals):
        code.write_total(f"total{i}", value)
    return code, found


def _kind(array: DeviceArray) -> str:
    return {"float64": "double", "float32": "float", "bool": "bool"}[str(array.dtype)]


def _column(operand: Any) -> str:
    """An operand within an expression."""
    if not isinstance(operand, Symbol):
        return f"({float(operand)!r})".replace("inf", "INFINITE")
    if operand.is_vector:
        return f"{operand.name}[q]"
    return operand.name
