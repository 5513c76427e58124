"""Clients whose rows are on a device: the questions that all clients answer, in a few passes."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
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
from fedsplit.device.rows import DeviceRows, PooledTerms
from fedsplit.errors import InputError
from fedsplit.local.gradient import GradientProx
from fedsplit.local.newton import ExactProx
from fedsplit.losses.costs import Costs
from fedsplit.losses.least_squares import LeastSquares
from fedsplit.losses.terms import Block


class DeviceClients(Clients):
    """m clients on a device, with points (d,) or (m, d) there; ``ridge`` is λ/m, (d,), on the host.

    Answers are in float64, those of kernels in float32. With ``fused``, kernels answer what they
    can; otherwise everything takes the plain path. With ``to_host`` questions come from the host,
    and answers go there.
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
            self.measured_every = 50
        self._latest: tuple[bytes, float] = (b"", math.nan)  # F where it was measured last

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
        here = to_host(x)
        if self._kernels is None:
            return self.pooled().objective(here)
        # the last x of a run is measured in its last round, for its result and for its origin
        if self._latest[0] != here.tobytes():
            at = Pass(VALUES, placed(x, self.rows.A))
            value = self._kernels.read(at, self._kernels.begin(at)[1])[1]
            value += 0.5 * self.m * float(self.ridge @ here**2)
            self._latest = (here.tobytes(), value)
        return self._latest[1]

    def ask(self, question: CostQuestion) -> Answer:
        began = time.perf_counter()
        if isinstance(question, Prox | Reflection):
            solver = question.solver
            if not isinstance(solver, ExactProx | GradientProx):  # not over the array API
                name = type(solver).__name__
                raise InputError(f"{name} has no device path: use ExactProx or GradientProx")
        points = {name: self._placed(getattr(question, name)) for name in question.vectors}
        if any(getattr(question, name) is not point for name, point in points.items()):
            question = replace(question, **points)  # type: ignore[type-var]  # all are dataclasses
        with within_memory(lambda: f"the answer of {self.m:,} clients to {question.name()}"):
            answer = self._answered(question, began)
        if not self.to_host:
            return answer
        parts = {name: to_host(part) for name, part in answer.parts.items()}
        summary = answer.summary
        if summary is not None:
            summary = summary._replace(mean=to_host(summary.mean))
        return answer._replace(parts=parts, summary=summary)

    def _placed(self, point: Any) -> DeviceArray | None:
        """A point on the device: rows that are there in float32 stay so."""
        if point is None:
            return None
        if on_device(point) and (point.ndim == 2 or point.dtype == self._ridge.dtype):
            return point
        return placed(point, self.rows.A)

    def _answered(self, question: CostQuestion, began: float) -> Answer:
        """The answer to a question whose points are on the device: by a kernel, if there is one."""
        at = None if self._planner is None else self._planner.plan(question)
        if at is not None and self._kernels is not None:
            return self._fused(question, at, self._kernels)
        with np.errstate(**QUIET):
            return self._plain(question, began)

    def _plain(self, question: CostQuestion, began: float) -> Answer:
        """The answer by the losses and solvers of this process, over the array API."""
        answers: list[Mapping[str, DeviceArray]] = []
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
        parts = dict(answers[0])
        if len(answers) > 1:
            parts = {name: self.rows.xp.concat([each[name] for each in answers]) for name in parts}
        return Answer(parts, self._everyone, seconds, np.concatenate(work))

    def _own(self, point: DeviceArray | None, part: slice) -> DeviceArray | None:
        """A point as one row for each of some clients, in float64."""
        if point is None:
            return None
        xp = self.rows.xp
        if point.ndim == 1:
            return xp.broadcast_to(point, (part.stop - part.start, self.d))
        return xp.astype(point[part, :], xp.float64, copy=False)

    def _fused(self, question: CostQuestion, at: Pass, kernels: Kernels) -> Answer:
        """The answer of a kernel: of errors and margins it has the worst, for every client."""
        rows, found = kernels.begin(at)
        # all that can be done while the device computes, which waits for this process otherwise
        parts: dict[str, DeviceArray] = dict.fromkeys(question.answer_parts(), rows)
        worst = np.empty((2, 1))
        for name, number in zip(("error", "margin"), worst, strict=True):
            if name in parts:
                parts[name] = np.broadcast_to(number, (self.m,))
        none = np.zeros(0)  # a million numbers that are the same would take longer than the round
        summary, _ = kernels.read(at, found)
        if self.ridge.any() or not self.rows.phi.classifies:  # a ridge bounds x in any case
            summary = summary._replace(margin=math.nan)
        worst[:, 0] = summary.error, summary.margin
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
        """ℓ_j and L_j, each (m,)."""
        bounds = self._answered(Curvature(), time.perf_counter()).rows
        return bounds[:, 0], bounds[:, 1]
