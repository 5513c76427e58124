"""Clients whose rows are on a device: the questions that all clients answer, in a few passes."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from fedsplit.arrays import Array, Mask, on_device, placed, to_host
from fedsplit.clients.oracle import Clients, everyone
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.clients.questions import Curvature, Prox, Reflection
from fedsplit.clients.stacked import QUIET, StackedClients
from fedsplit.device.backend import DeviceArray, within_memory
from fedsplit.device.kernels import VALUES, Kernels, Pass, Planner
from fedsplit.device.pooled import PooledTerms
from fedsplit.device.rows import DeviceRows
from fedsplit.errors import InputError
from fedsplit.local.gradient import GradientProx
from fedsplit.local.newton import ExactProx
from fedsplit.losses.costs import Costs
from fedsplit.losses.least_squares import LeastSquares
from fedsplit.losses.terms import Block


class DeviceClients(Clients):
    """m clients on a device, with points (d,) or (m, d) there.

    Answers are in float64, those of kernels in float32.

    Parameters
    ----------
    rows : DeviceRows
    ridge : (d,) array
        λ/m, on the host.
    fused : bool
        Whether kernels answer what they can; otherwise everything takes the plain path.
    to_host : bool
        Whether questions come from the host, and answers go there.
    """

    on_device = True
    hessians = True

    def __init__(
        self, rows: DeviceRows, ridge: Array, fused: bool = True, to_host: bool = False
    ) -> None:
        self.rows = rows
        self.ridge = ridge
        self.fused = fused
        self.to_host = to_host
        self.m = rows.m
        self.d = rows.d
        if rows.in_float32:
            self.rounded = "about the rows as rounded to float32"
        self._everyone: Mask = everyone(self.m)
        self._ridge = placed(ridge, rows.A)
        # rows that fit in one piece are converted once, and what is derived of them is kept
        parts = list(rows.parts())
        self._whole = Costs(rows.terms(parts[0]), self._ridge) if len(parts) == 1 else None
        if self._whole is None:
            # a measurement reads all rows, which is most of the time of a round
            self.measured_every = 20

    def with_ridge(self, ridge: Array) -> DeviceClients:
        """The same data with another ridge, (d,), on the host; nothing is copied."""
        return DeviceClients(self.rows, ridge, self.fused, self.to_host)

    def answering_to_host(self) -> DeviceClients:
        """The same clients, for a method whose own arithmetic is on the host."""
        other = copy(self)
        other.to_host = True
        return other

    def vector(self, x: Array) -> DeviceArray:
        return to_host(x) if self.to_host else placed(x, self.rows.A)

    def pooled(self) -> StackedClients:
        return self._pooled

    @cached_property
    def _pooled(self) -> StackedClients:
        pooled = StackedClients(self.d, [Block([0], PooledTerms(self.rows))], self.m * self.ridge)
        pooled.stands_for = self.m
        return pooled

    def objective(self, x: Array) -> float | None:
        if self._kernels is None:
            return self.pooled().objective(to_host(x))
        value = self._kernels.run(Pass(VALUES, placed(x, self.rows.A)))[-1]
        return value + 0.5 * self.m * float(self.ridge @ to_host(x) ** 2)

    def ask(self, question: CostQuestion) -> Answer:
        began = time.perf_counter()
        if isinstance(question, Prox | Reflection):
            _check_solver(question.solver)
        points = {
            name: self._placed(point)
            for name, point in zip(question.vectors, question.points(), strict=True)
        }
        what = f"the answer of {self.m:,} clients to {question.name()}"
        with within_memory(what), np.errstate(**QUIET):
            answer = self._answered(replace(question, **points), began)  # type: ignore[type-var]
        if not self.to_host:
            return answer
        parts = {name: to_host(part) for name, part in answer.parts.items()}
        summary = answer.summary
        if summary is not None:
            summary = summary._replace(mean=to_host(summary.mean))
        return answer._replace(parts=parts, summary=summary)

    def _placed(self, point: Any) -> DeviceArray | None:
        """A point on the device: rows that are there in float32 stay so."""
        if point is None or (on_device(point) and point.ndim == 2):
            return point
        return placed(point, self.rows.A)

    def _answered(self, question: CostQuestion, began: float) -> Answer:
        """The answer to a question whose points are on the device: by a kernel, if there is one."""
        at = None if self._planner is None else self._planner.plan(question)
        if at is not None and self._kernels is not None:
            rows, summary, _ = self._kernels.run(at)
            return self._fused(question, rows, summary, began)
        answers = []
        work = []
        for part in self.rows.parts():
            costs = self._whole or Costs(self.rows.terms(part), self._ridge)
            costs = costs.counted()
            asked = question
            if question.streams is not None:
                asked = question.seeded(question.streams[part])
            own = [self._own(point, part) for point in question.points()]
            answers.append(asked.answer(costs, *own))
            work.append(costs.work.each(part.stop - part.start))
        seconds = np.full(self.m, (time.perf_counter() - began) / self.m)
        parts = {name: self._joined([each[name] for each in answers]) for name in answers[0]}
        return Answer(parts, self._everyone, seconds, np.concatenate(work))

    def _own(self, point: DeviceArray | None, part: slice) -> DeviceArray | None:
        """A point as one row for each of some clients, in float64."""
        if point is None:
            return None
        xp = self.rows.xp
        if point.ndim == 1:
            return xp.broadcast_to(point, (part.stop - part.start, self.d))
        return xp.astype(point[part, :], xp.float64, copy=False)

    def _joined(self, arrays: Sequence[DeviceArray]) -> DeviceArray:
        return arrays[0] if len(arrays) == 1 else self.rows.xp.concat(arrays)

    def _fused(self, question: CostQuestion, rows: Any, summary: Any, began: float) -> Answer:
        """The answer of a kernel: of errors and margins it has the worst, for every client."""
        if not self.rows.phi.classifies or self.ridge.any():
            summary = summary._replace(margin=math.nan)
        parts = dict.fromkeys(question.answer_parts(), rows)
        for name in ("error", "margin"):
            if name in parts:
                parts[name] = np.broadcast_to(getattr(summary, name), (self.m,))
        none = np.zeros(0)  # a million numbers that are the same would take longer than the round
        return Answer(parts, self._everyone, none, none, summary)

    @cached_property
    def _kernels(self) -> Kernels | None:
        return Kernels(self.rows) if self.fused and Kernels.fit(self.rows) else None

    @cached_property
    def _planner(self) -> Planner | None:
        """What kernels can answer; None if there are none, or each coordinate has its own ridge."""
        if self._kernels is None or (self.ridge != self.ridge[0]).any():
            return None
        quadratic = isinstance(self.rows.phi, LeastSquares)
        return Planner(quadratic, float(self.ridge[0]), self._bounds)

    def _bounds(self) -> tuple[DeviceArray, DeviceArray]:
        return self._known_bounds

    @cached_property
    def _known_bounds(self) -> tuple[DeviceArray, DeviceArray]:
        bounds = self._answered(Curvature(), time.perf_counter()).rows
        return bounds[:, 0], bounds[:, 1]


def _check_solver(solver: object) -> None:
    """Raise InputError unless a local solver is written over the array API."""
    if not isinstance(solver, ExactProx | GradientProx):
        raise InputError(
            f"{type(solver).__name__} has no device path: use ExactProx or GradientProx"
        )
