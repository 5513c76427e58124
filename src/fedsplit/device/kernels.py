"""Fused kernels for CuPy: the local solves of all clients in one pass over the rows.

For float32 rows of at most 32 rows and 128 columns per client; ``prox.cu`` says how. Everything
else takes the plain path, which computes the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, is_cupy_array

from fedsplit.arrays import Array
from fedsplit.clients.question import CostQuestion, Summary
from fedsplit.clients.questions import Descend, Prox, Reflection
from fedsplit.device.backend import DeviceArray
from fedsplit.device.rows import DeviceRows
from fedsplit.local.gradient import GradientProx
from fedsplit.local.newton import ExactProx
from fedsplit.local.solver import ProxSolver

VALUES, GRADIENT, NEWTON, QUADRATIC = range(4)
"""The kinds of ``SOLVER`` in prox.cu."""

Bounds = Callable[[], tuple[DeviceArray, DeviceArray]]
"""ℓ_j and L_j, each (m,), computed when they are needed."""


class Pass(NamedTuple):
    """What one pass over the rows does: u near argmin_u s·Σφ(Au) + ½r‖u‖² - pull·⟨v, u⟩."""

    kind: int  # the solver
    x: DeviceArray  # (d,): where F is computed too
    points: DeviceArray | None = None  # (m, d): p of every client; None where all of them are at x
    side: float = 1.0  # v = x + side·(p - x)
    start: tuple[float, float] = (0.0, 1.0)  # (float, float): α and β of the start αv + βx
    s: float = 1.0
    r: float = 1.0
    pull: float = 1.0
    step: float | DeviceArray = 0.0  # (m,): that of gradient steps
    steps: int = 0  # the number of gradient steps, or the most Newton steps
    reflect: bool = False  # whether the answer is p + 2(u - x); otherwise it is u
    # (int, int, int): gradients, Hessians and factorisations of a client, as they are counted
    work: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True)
class Planner:
    """Which questions a pass over the rows can answer, and how."""

    quadratic: bool  # whether the costs are
    ridge: float  # λ/m
    bounds: Bounds
    newton_steps: int = 30  # far more than a convex cost with a line search needs in float32
    # those that are known: of a solver and an s, a number, (m,), or None
    inner_steps: dict[tuple[GradientProx, float], float | DeviceArray | None] = field(
        default_factory=dict, repr=False
    )

    def plan(self, question: CostQuestion) -> Pass | None:
        """The pass that answers a question; None if it takes the plain path."""
        match question:
            case Reflection():
                return self._reflection(question)
            case Prox():
                return self._prox(question)
            case Descend():
                return self._descent(question)
        return None

    def _reflection(self, question: Reflection) -> Pass | None:
        # v = 2x - z, so that z = 2x - v
        starts = {"broadcast": (0.0, 1.0), "iterate": (-1.0, 2.0), "argument": (1.0, 0.0)}
        start = starts[question.solver.start]
        at = Pass(NEWTON, question.x, question.z, -1.0, start, reflect=True)
        return self._solve(at, question.s, question.solver)

    def _prox(self, question: Prox) -> Pass | None:
        at = None
        if question.start is None and question.v.ndim == 1:
            at = Pass(NEWTON, question.v)
        elif question.start is not None and question.start.ndim < question.v.ndim:
            at = Pass(NEWTON, question.start, question.v)
        return None if at is None else self._solve(at, question.s, question.solver)

    def _solve(self, at: Pass, s: float, solver: ProxSolver) -> Pass | None:
        """The pass with a local solver; None if there is no kernel for it."""
        at = at._replace(s=s, r=1.0 + s * self.ridge)
        if isinstance(solver, ExactProx):
            kind = QUADRATIC if self.quadratic else NEWTON
            return at._replace(kind=kind, steps=self.newton_steps, work=(1, 1, 1))
        if isinstance(solver, GradientProx):
            step = self._inner_steps(solver, s)
            if step is None:
                return None
            work = (solver.steps + 1, 0, 0)
            return at._replace(kind=GRADIENT, step=step, steps=solver.steps, work=work)
        return None

    def _inner_steps(self, solver: GradientProx, s: float) -> float | DeviceArray | None:
        """The gradient steps of a solver; None if a line search has to find some of them."""
        if (solver, s) not in self.inner_steps:  # a device has to be waited for
            steps: Any = solver.inner_steps(s, self.bounds)
            xp = np if isinstance(steps, float) else array_namespace(steps)
            self.inner_steps[solver, s] = steps if xp.all(xp.isfinite(steps)) else None
        return self.inner_steps[solver, s]

    def _descent(self, question: Descend) -> Pass | None:
        if question.shift is not None or question.x.ndim != 1:
            return None
        work = (question.steps, 0, 0)
        at = Pass(GRADIENT, question.x, r=self.ridge, pull=0.0, work=work)
        return at._replace(step=float(question.step), steps=question.steps)


class Compiled(NamedTuple):
    """The kernels of one kind of pass."""

    # the pass itself, and the sums over its warps
    prox: Any
    gather: Any
    warps: int  # how many there are on the whole device, each a block of its own
    shared: int  # bytes of shared memory of each
    partial: DeviceArray  # (warps, d + 4): what each warp has added up


class Kernels:
    """The kernels for rows that fit.

    With at most eight warps on a multiprocessor each thread has 255 registers, which hold the rows.
    """

    most_rows = 32
    most_columns = 128

    def __init__(self, rows: DeviceRows, most_warps: int = 8) -> None:
        self.rows = rows
        self._most_warps = most_warps
        self._cupy = import_module("cupy")
        self._limits = self._cupy.cuda.Device().attributes
        # of this process, where a kernel writes without a copy that would have to be waited for
        self._numbers: Array = import_module("cupyx").empty_pinned(4)
        self._diagonals = rows.n // 2 + 1  # of a symmetric matrix that differ
        self._gram = self._gram_of_lanes()
        self._functions: dict[tuple[int, bool, bool, bool], Compiled] = {}

    @classmethod
    def fit(cls, rows: DeviceRows) -> bool:
        """Whether there are kernels for these rows."""
        fits = rows.n <= cls.most_rows and rows.d <= cls.most_columns and bool(rows.phi.code)
        if not (fits and rows.in_float32 and is_cupy_array(rows.A)):
            return False
        return bool(rows.A.data.ptr % 16 == 0)  # not so where they are a part of another array

    def begin(self, at: Pass) -> tuple[DeviceArray, DeviceArray]:
        """Begin a pass: the answers, (m, d) in float32, and their mean, (d,).

        ``read`` waits for it, before another one begins.
        """
        rows = self.rows
        cupy = self._cupy
        own_steps = not isinstance(at.step, float)
        kind = (at.kind, at.points is not None, at.reflect, own_steps)
        if kind not in self._functions:
            self._functions[kind] = self._compiled(*kind)
        compiled = self._functions[kind]
        out = cupy.empty((0 if at.kind == VALUES else rows.m, rows.d), dtype=np.float32)
        points = None
        if at.points is not None:
            points = cupy.ascontiguousarray(at.points, dtype=np.float32)
        step = cupy.ascontiguousarray(at.step, dtype=np.float32) if own_steps else None
        arrays = (rows.A, rows.b, rows.w, rows.o, self._gram, points, step)
        numbers = (at.side, *at.start, at.s, at.r, at.pull, 0.0 if own_steps else at.step)
        compiled.prox(
            (compiled.warps,),
            (32,),
            (
                *(self._gram if array is None else array for array in arrays),  # not used
                at.x,
                out,
                compiled.partial,
                np.int64(rows.m),
                np.int32(at.steps),
                *map(np.float32, numbers),
            ),
            shared_mem=compiled.shared,
        )
        mean = cupy.empty(rows.d)
        numbers_of = np.uintp(self._numbers.ctypes.data)
        read = (compiled.partial, np.int32(compiled.warps), np.float64(rows.m), mean, numbers_of)
        compiled.gather((rows.d + 4,), (256,), read)
        return out, mean

    def read(self, at: Pass, mean: DeviceArray) -> tuple[Summary, float]:
        """Wait for the pass that began last: what is known of all answers, and Σφ at x."""
        self._cupy.cuda.get_current_stream().synchronize()
        away, value, left, margin = self._numbers.tolist()
        moved = 2.0 * away if at.reflect else away
        # what is left of the gradient of an r-strongly convex function bounds the distance
        error = left / at.r if at.pull else 0.0
        return Summary(mean, moved, error, margin, at.work), value

    def _compiled(self, solver: int, points: bool, reflect: bool, own: bool) -> Compiled:
        """The kernels for one kind of pass."""
        rows = self.rows
        shared, on_each = self._sizes(points)
        module = self._module(solver, points, reflect, own)
        prox = module.get_function("prox")
        prox.max_dynamic_shared_size_bytes = shared
        warps = on_each * self._limits["MultiProcessorCount"]
        partial = self._cupy.empty((warps, rows.d + 4))
        return Compiled(prox, module.get_function("gather"), warps, shared, partial)

    def _sizes(self, points: bool) -> tuple[int, int]:
        """The bytes of shared memory of a warp, and how many warps a multiprocessor has."""
        n, d = self.rows.n, self.rows.d
        clients = 32 // n  # of a warp at a time
        # inner products, rows, points and a barrier, each from a multiple of 32 bytes on
        sizes = (self._diagonals * 32, clients * n * d, points * clients * d, 2)
        shared = sum(32 * -(-size // 8) for size in sizes)
        reserved = 1024  # by the driver, for each block
        room = self._limits["MaxSharedMemoryPerMultiprocessor"] // (shared + reserved)
        return shared, max(1, min(room, self._most_warps))

    def _module(
        self, solver: int = VALUES, points: bool = False, reflect: bool = False, own: bool = False
    ) -> Any:
        rows = self.rows
        macros = {"SOLVER": solver, "POINTS": points, "REFLECT": reflect, "OWN_STEPS": own}
        macros |= {"N": rows.n, "D": rows.d, "WARPS": self._sizes(points)[1]}
        macros |= {"WEIGHTS": rows.w is not None, "OFFSETS": rows.o is not None}
        macros |= {"STEADY": rows.phi.concordance <= 1.0}
        return _compile(rows.phi.code, tuple(macros.items()))

    def _gram_of_lanes(self) -> DeviceArray:
        """A_jA_jᵀ in the order in which lanes read it."""
        rows = self.rows
        size = -(-rows.m // (32 // rows.n)) * self._diagonals * 32
        laid_out = self._cupy.empty(size, dtype=np.float32)
        gram = self._cupy.matmul(rows.A, rows.A.transpose(0, 2, 1))
        arguments = (gram, laid_out, np.int64(rows.m))
        self._module().get_function("lay_out")((-(-size // 256),), (256,), arguments)
        return laid_out


@cache
def _compile(loss: str, macros: tuple[tuple[str, int], ...]) -> Any:
    """A module, compiled once in a process."""
    code = files("fedsplit.device").joinpath("prox.cu").read_text()
    options = tuple(f"-D{name}={int(value)}" for name, value in macros)
    return import_module("cupy").RawModule(code=loss + code, options=("-std=c++17", *options))
