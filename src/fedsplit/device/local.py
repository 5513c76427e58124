"""The local solvers of all clients on a device, and what becomes of their answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

from fedsplit.arrays import Array
from fedsplit.device import column_steps, span_steps
from fedsplit.device.answers import Numbers, Told, nothing
from fedsplit.device.backend import DeviceArray, combined, difference, vector
from fedsplit.device.blocks import (
    BlockVector,
    Coefficients,
    Dense,
    Displacement,
    Spanned,
    squares,
)
from fedsplit.device.column_steps import Quadratic
from fedsplit.device.kernels import NEWTON_STEPS, Kernels, Pass, fits
from fedsplit.device.rows import DeviceRows
from fedsplit.device.span_steps import Combination, Images
from fedsplit.errors import InputError
from fedsplit.local.gradient import GradientProx, inner_step
from fedsplit.local.newton import ExactProx, NewtonProx
from fedsplit.local.solver import ProxSolver

Bounds = Callable[[], tuple[DeviceArray, DeviceArray]]
"""ℓ_j and L_j, each (m,), computed when they are needed."""


class Solved(NamedTuple):
    """The answers of all clients.

    Attributes
    ----------
    point : BlockVector or (m, d) array
        Block vectors are answered by block vectors.
    errors : (m,) array or None
        Proved errors, where a method asks for those of each client.
    told : Told
    """

    point: Any
    errors: DeviceArray | None
    told: Told


class Origin(NamedTuple):
    """A point x, (d,), and where a solver starts: αv + βx.

    Attributes
    ----------
    x : (d,) array
    alpha, beta : float
    of_server : bool
        Whether x is the server's.
    """

    x: DeviceArray
    alpha: float
    beta: float
    of_server: bool = True


class Local:
    """How the clients of these rows solve their subproblems.

    Parameters
    ----------
    rows : DeviceRows
    ridge : (d,) array
        Per client, on the host.
    """

    def __init__(self, rows: DeviceRows, ridge: Array) -> None:
        self.rows = rows
        self.ridge = ridge
        self._one_ridge = bool((ridge == ridge[0]).all())

    @cached_property
    def _ridge(self) -> DeviceArray:
        return vector(self.ridge, self.rows.A)

    def prox(
        self, v: Any, s: float | DeviceArray, start: Any, solver: ProxSolver, bounds: Bounds
    ) -> Solved:
        """prox_{s f_j}(v_j), for v that is a block vector, (d,) or (m, d)."""
        if not isinstance(solver, GradientProx | ExactProx | NewtonProx):
            raise InputError(
                f"{type(solver).__name__} has no device path: use ExactProx, NewtonProx or "
                "GradientProx"
            )
        origin = _origin(v, start)
        simple = isinstance(s, float) and self._one_ridge
        if simple and origin is not None and self.kernels is not None:
            return self._fused(self.kernels, v, s, origin, solver, bounds)
        if origin is None or not (simple and self.rows.wide):
            return self._in_columns(v, s, start, solver, bounds)
        rows = self.rows
        images = Images(self._image(v), rows.product(origin.x))
        r = 1.0 + s * float(self.ridge[0])
        if isinstance(solver, GradientProx):
            step = self._step(solver, s, bounds)
            linear = (s, r, 1.0)
            at = (origin.alpha, origin.beta)
            found, slopes = span_steps.gradient_steps(rows, images, at, linear, step, solver.steps)
            residual = r * found.w + s * slopes
            left = self._dense_residual(v, origin.x, r * found.alpha - 1.0, r * found.beta)
            errors = self._norms(left + rows.adjoint(residual)) / r
            work = (solver.steps + 1, 0, 0)
        else:
            kappa = s / r
            offset = rows.predictor(images.v / r)
            guess = -rows.slopes(rows.predictor(images.x))
            mu, missing = span_steps.newton(rows, kappa * rows.row_gram, offset, guess)
            found = Combination(1.0 / r, 0.0, kappa * mu)
            errors = s * self._norms(rows.adjoint(missing)) / r
            work = (1, 1, 1)
        displacement = self._displacement(v, origin.x, found)
        point = _point(v, origin.x, displacement)
        return Solved(point, errors, self._told(errors, images.x, origin, work))

    def descend(self, x: DeviceArray, step: float, steps: int) -> Solved:
        """Gradient steps on f_j from x, (d,)."""
        rows = self.rows
        origin = Origin(x, 0.0, 1.0)
        if self._one_ridge and self.kernels is not None:
            ridge = float(self.ridge[0])
            what = Pass(False, (0.0, 1.0), (1.0, ridge, 0.0), float(step), steps, 0.0)
            return self._passed(self.kernels, x, origin, what, (steps, 0, 0))
        product = rows.product(x)
        if self._one_ridge and rows.wide:
            linear = (1.0, float(self.ridge[0]), 0.0)
            images = Images(product, product)
            found, _ = span_steps.gradient_steps(rows, images, (0.0, 1.0), linear, step, steps)
            displacement = self._displacement(None, x, found)
        else:
            h = Quadratic(rows.cast(self._ridge), 0.0)
            U = rows.xp.broadcast_to(rows.cast(x), (rows.m, rows.d))
            displacement = self._dense(column_steps.gradient_steps(rows, h, U, step, steps), x)
        told = self._told(None, product, origin, (steps, 0, 0))
        return Solved(BlockVector.moved(x, displacement), None, told)

    def objective(self, x: DeviceArray) -> float:
        """F(x): what a pass without a step tells."""
        value = self.descend(x, 0.0, 0).told.value
        return nothing() if value is None else value()

    def _fused(
        self,
        kernels: Kernels,
        v: Any,
        s: float,
        origin: Origin,
        solver: ProxSolver,
        bounds: Bounds,
    ) -> Solved:
        """The prox by a kernel."""
        r = 1.0 + s * float(self.ridge[0])
        at = (origin.alpha, origin.beta)
        if isinstance(solver, GradientProx):
            step = self._step(solver, s, bounds)
            if not isinstance(step, float):
                step = self.rows.xp.reshape(step, (self.rows.m,))
            what = Pass(False, at, (s, r, 1.0), step, solver.steps, 1.0 / r)
            return self._passed(kernels, v, origin, what, (solver.steps + 1, 0, 0))
        what = Pass(True, at, (s, r, 1.0), 0.0, NEWTON_STEPS, 1.0 / r)
        return self._passed(kernels, v, origin, what, (1, 1, 1))

    def _passed(
        self,
        kernels: Kernels,
        v: Any,
        origin: Origin,
        what: Pass,
        work: tuple[int, int, int],
    ) -> Solved:
        """The answer of a kernel."""
        rows = self.rows
        t = 1.0
        moved: Displacement | None = None
        if isinstance(v, BlockVector):
            t, moved = v.displacement
            if isinstance(moved, Spanned) and isinstance(what.step, float):
                e = combined([*v.shared, (t, moved.e)])
            else:
                e = v.common
        elif v.ndim == 1:
            e = v
        else:
            e = origin.x
            moved = Dense(rows, e, difference(v, e, rows.A.dtype))
        half_ridge = 0.5 * rows.m * float(self.ridge[0])
        found, numbers = kernels.prox(origin.x, e, t, moved, what, half_ridge)
        told = kernels.told(numbers, work)
        if not origin.of_server:
            told = replace(told, value=None, margin=nothing)
        return Solved(_point(v, origin.x, found), None, told)

    @cached_property
    def kernels(self) -> Kernels | None:
        """Kernels that do all steps in one pass, if there are any for these rows."""
        if fits(self.rows):
            return Kernels(self.rows)
        return None

    def _in_columns(
        self, v: Any, s: float | DeviceArray, start: Any, solver: ProxSolver, bounds: Bounds
    ) -> Solved:
        """The same on all d coordinates of every client."""
        rows = self.rows
        xp = rows.xp
        steps = rows.cast(rows.zeros(rows.d) + s)
        V = xp.broadcast_to(_dense(v, rows), (rows.m, rows.d))
        U = xp.broadcast_to(_dense(start, rows), (rows.m, rows.d))
        h = Quadratic(1.0 / steps + rows.cast(self._ridge), V / steps)
        if isinstance(solver, GradientProx):
            a = self._step(solver, float(xp.max(steps)), bounds)
            U = column_steps.gradient_steps(rows, h, U, a * steps, solver.steps)
            work = (solver.steps + 1, 0, 0)
        else:
            U = column_steps.newton(rows, h, U)
            work = (1, 1, 1)
        r = steps * h.gradient(rows, U)[0]
        square = xp.sum(r * r / steps, axis=1, dtype=xp.float64) * xp.max(steps)
        errors = xp.sqrt(square) / (1.0 + float(xp.min(steps)) * float(self.ridge.min()))
        origin = _origin(v, start)
        if not isinstance(v, BlockVector) or origin is None:
            return Solved(U, errors, self._told(errors, None, origin, work))
        point = BlockVector.moved(origin.x, self._dense(U, origin.x))
        told = self._told(errors, rows.product(origin.x), origin, work)
        return Solved(point, errors, told)

    def _step(self, solver: GradientProx, s: float, bounds: Bounds) -> float | DeviceArray:
        """The inner step, a number or (m, 1)."""
        if isinstance(solver.step, int | float):
            return float(solver.step)
        ell, L = bounds()
        if solver.step == "backtracking" or not bool(self.rows.xp.all(self.rows.xp.isfinite(L))):
            raise InputError(
                "GradientProx by backtracking has no device path: pass step=, or use NewtonProx"
            )
        if solver.step == "paper" and solver.curvature is not None:
            return inner_step(s, solver.curvature, solver.curvature)
        if solver.step == "paper":
            return self.rows.cast(inner_step(s, ell, L))[:, None]
        return self.rows.cast(1.0 / (1.0 + s * L))[:, None]

    def _image(self, v: Any) -> DeviceArray:
        """A_jv_j, (m, n)."""
        rows = self.rows
        if not isinstance(v, BlockVector):
            return rows.product(v)
        t, displacement = v.displacement
        if displacement is None:
            return rows.product(v.common)
        if isinstance(displacement, Spanned):
            return rows.product(v.common + t * displacement.e) + t * rows.row_products(
                displacement.c
            )
        return rows.product(v.dense())

    def _displacement(self, v: Any, x: DeviceArray, u: Combination) -> Displacement:
        """u_j - x."""
        rows = self.rows
        e = None
        c = u.w
        if v is None:
            e = (u.beta - 1.0) * x
        elif isinstance(u.alpha, float) and not _rows_of_its_own(v):
            shift = v
            if isinstance(v, BlockVector):
                t, displacement = v.displacement
                shift = v.common
                if isinstance(displacement, Spanned):
                    shift = shift + t * displacement.e
                    c = c + (u.alpha * t) * displacement.c
            e = u.alpha * shift + (u.beta - 1.0) * x
        if e is None:
            kept = u.alpha * _dense(v, rows) + (u.beta - 1.0) * rows.cast(x)
            array = kept + rows.adjoint(c)
            return Dense(rows, rows.total(array), array)
        total = rows.m * e + rows.adjoint_total(c)
        spanned = Spanned(rows, total, e, Coefficients((1.0, c)))
        return replace(spanned, square=lambda: squares(rows, spanned.dense()))

    def _dense(self, U: DeviceArray, x: DeviceArray) -> Displacement:
        array = U - self.rows.cast(x)
        return Dense(self.rows, self.rows.total(array), array)

    def _dense_residual(
        self, v: Any, x: DeviceArray, alpha: float | DeviceArray, beta: float | DeviceArray
    ) -> DeviceArray:
        """αv_j + βx, (m, d)."""
        return alpha * _dense(v, self.rows) + beta * self.rows.cast(x)

    def _norms(self, U: DeviceArray) -> DeviceArray:
        xp = self.rows.xp
        return xp.sqrt(xp.sum(U * U, axis=1, dtype=xp.float64))

    def _told(
        self,
        errors: DeviceArray | None,
        product: DeviceArray | None,
        origin: Origin | None,
        work: tuple[int, int, int],
    ) -> Told:
        """What the host may read: by what the pass has computed of A_jx, F(x) among it."""
        rows = self.rows
        xp = rows.xp
        none = rows.zeros()
        error = none if errors is None else xp.max(errors)
        margin = none
        value = none
        known = False
        if product is not None and origin is not None and origin.of_server:
            known = True
            ridge = 0.5 * rows.m * xp.sum(self._ridge * origin.x * origin.x)
            value = xp.sum(rows.values(rows.predictor(product))) + ridge
            margin = _least_margin(rows, product)
        numbers = Numbers(xp.stack([error, margin, value]))
        has_classes = known and rows.phi.classifies
        return Told(
            rows.m,
            numbers.number(0),
            numbers.number(1) if has_classes else nothing,
            numbers.number(2) if known else None,
            work,
        )


def _origin(v: Any, start: Any) -> Origin | None:
    """The server's x and the start, as far as a question shows them; None if it does not."""
    if start is v:
        if isinstance(v, BlockVector):
            return Origin(v.common, 1.0, 0.0, of_server=False)
        return Origin(v, 1.0, 0.0) if v.ndim == 1 else None
    if not isinstance(start, BlockVector):
        return Origin(start, 0.0, 1.0) if start.ndim == 1 else None
    if not isinstance(v, BlockVector):
        return None
    both = v + start  # 2x, where v = 2x - z and the solver starts at z
    if both.displacement[1] is not None:
        return None
    return Origin(0.5 * both.common, -1.0, 2.0)


def _rows_of_its_own(v: Any) -> bool:
    """Whether v is m·d numbers."""
    if isinstance(v, BlockVector):
        return isinstance(v.displacement[1], Dense)
    return bool(v.ndim == 2)


def _dense(v: Any, rows: DeviceRows) -> DeviceArray:
    """v as (m, d) or (d,), in the precision of the rows."""
    if isinstance(v, BlockVector):
        return v.dense()
    return rows.cast(v)


def _point(v: Any, x: DeviceArray, displacement: Displacement) -> Any:
    """The answer in the form of the question."""
    if not isinstance(v, BlockVector) and v.ndim == 2:
        return displacement.dense() + x
    return BlockVector.moved(x, displacement)


def _least_margin(rows: DeviceRows, product: DeviceArray) -> DeviceArray:
    """1 if min_i b_i a_iᵀx > 0 over all rows, else -1, in float64."""
    xp = rows.xp
    margins = rows.b * product
    if rows.w is not None:
        margins = xp.where(rows.w > 0, margins, xp.ones_like(margins))
    least = xp.astype(xp.min(margins), xp.float64)
    return xp.where(least > 0, xp.ones_like(least), -xp.ones_like(least))
