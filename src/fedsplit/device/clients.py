"""Clients whose rows are on a device: questions answered by a few passes over stacked arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.clients.oracle import Clients
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.clients.questions import (
    Curvature,
    Descend,
    Evaluate,
    Gradient,
    Prox,
    Value,
)
from fedsplit.clients.stacked import StackedClients
from fedsplit.device.answers import DeviceAnswer, Told, exact, nothing
from fedsplit.device.backend import DeviceArray, to_host, vector
from fedsplit.device.blocks import BlockVector, Coefficients, Spanned
from fedsplit.device.curvature import bounds, bounds_at
from fedsplit.device.local import Local
from fedsplit.device.pooled import PooledTerms
from fedsplit.device.rows import DeviceRows
from fedsplit.errors import InputError
from fedsplit.losses.terms import Block


class DeviceClients(Clients):
    """m clients on a device; x is a (d,) array there, in float64.

    Parameters
    ----------
    rows : DeviceRows
    ridge : (d,) array
        λ/m, on the host.
    """

    on_device = True
    tells_values = True

    def __init__(self, rows: DeviceRows, ridge: Array) -> None:
        self.rows = rows
        self.ridge = ridge
        self.m = rows.m
        self.d = rows.d
        if rows.A.dtype == rows.xp.float32:
            self.rounded = "about the rows as rounded to float32"
        self._everyone: Mask = np.ones(self.m, dtype=bool)
        self._asked: Mask | None = None  # the last mask of all clients
        self._measured = (b"", 0.0)  # the last x of ``objective``, and F there
        xp = rows.xp
        self._present = xp.ones((self.m,), dtype=xp.bool, device=rows.device)
        self._answers: Mapping[type, Callable[[Any], DeviceAnswer]] = {
            Prox: self._prox,
            Descend: self._descend,
            Gradient: self._gradient,
            Value: self._value,
            Evaluate: self._evaluate,
            Curvature: self._curvature,
        }

    def ask(self, question: CostQuestion) -> Answer:
        answer = self._answers.get(type(question))
        if answer is None:
            raise InputError(
                f"{question.name()} has no device path: use FedSplit, FedGD, FedProx or "
                "FedSplitInformation, or clients that are not on a device"
            )
        return answer(question)

    def ask_some(self, question: CostQuestion, drawn: Mask) -> Answer:
        if drawn is not self._asked and not drawn.all():
            raise InputError(
                "participation below 1 has no device path: all clients on a device answer together"
            )
        self._asked = drawn  # looking through a million of them takes a while
        return self.ask(question)

    def vector(self, x: Array) -> DeviceArray:
        return vector(x, self.rows.A)

    def repeated(self, x: DeviceArray) -> BlockVector:
        return BlockVector(self.rows, ((1.0, x),))

    def objective(self, x: DeviceArray) -> float:
        # the end of a run is looked at twice, and each look reads all rows
        at = to_host(x).tobytes()
        if at != self._measured[0]:
            self._measured = at, self.local.objective(x)
        return self._measured[1]

    @cached_property
    def _pooled(self) -> StackedClients:
        terms = PooledTerms(self.rows)
        pooled = StackedClients(self.d, [Block([0], terms)], self.m * self.ridge)
        pooled.stands_for = self.m
        return pooled

    def pooled(self) -> StackedClients:
        return self._pooled

    def with_ridge(self, ridge: Array) -> DeviceClients:
        """The same data with another ridge, (d,), on the host; nothing is copied."""
        return DeviceClients(self.rows, ridge)

    @cached_property
    def local(self) -> Local:
        """The local solvers."""
        return Local(self.rows, self.ridge)

    @cached_property
    def _bounds(self) -> tuple[DeviceArray, DeviceArray]:
        ell, L = bounds(self.rows)
        return ell + float(self.ridge.min()), L + float(self.ridge.max())

    def _answer(self, parts: Mapping[str, Any], told: Told) -> DeviceAnswer:
        return DeviceAnswer.on_device(parts, self._present, self._everyone, told)

    def _prox(self, question: Prox) -> DeviceAnswer:
        if question.gradient:
            raise InputError("prox with gradients has no device path")
        start = question.v if question.start is None else question.start
        solved = self.local.prox(question.v, question.s, start, question.solver, self._bounds_now)
        parts: dict[str, Any] = {"point": solved.point}
        if solved.errors is not None:
            parts["error"] = solved.errors
        told = solved.told
        if self.ridge.any():  # which gives every cost a minimiser, whatever the margin
            told = replace(told, margin=nothing)
        return self._answer(parts, told)

    def _bounds_now(self) -> tuple[DeviceArray, DeviceArray]:
        return self._bounds

    def _descend(self, question: Descend) -> DeviceAnswer:
        if question.shift is not None:
            raise InputError("descent with a shift has no device path: use FedSplit or FedGD")
        solved = self.local.descend(question.x, question.step, question.steps)
        # the end of so many steps is what was asked for, and a margin was not
        return self._answer(
            {"point": solved.point}, replace(solved.told, error=exact, margin=nothing)
        )

    def _gradient(self, question: Gradient) -> DeviceAnswer:
        return self._answer({"gradient": self._gradients(question.x)}, Told(self.m, work=(1, 0, 0)))

    def _value(self, question: Value) -> DeviceAnswer:
        return self._answer({"value": self._values(question.x)}, Told(self.m))

    def _evaluate(self, question: Evaluate) -> DeviceAnswer:
        parts = {"value": self._values(question.x), "gradient": self._gradients(question.x)}
        return self._answer(parts, Told(self.m, work=(1, 0, 0)))

    def _curvature(self, question: Curvature) -> DeviceAnswer:
        found = self._bounds
        if question.x is not None:
            ell, L = bounds_at(self.rows, question.x)
            found = ell + float(self.ridge.min()), L + float(self.ridge.max())
        return self._answer({"bounds": self.rows.xp.stack(found, axis=1)}, Told(self.m))

    def _values(self, x: DeviceArray) -> DeviceArray:
        """f_j(x), (m,), in float64."""
        rows = self.rows
        ridge = 0.5 * rows.xp.sum(self.vector(self.ridge) * x * x)
        return rows.values(rows.predictor(rows.product(x))) + ridge

    def _gradients(self, x: DeviceArray) -> BlockVector:
        """∇f_j(x)."""
        rows = self.rows
        slopes = rows.slopes(rows.predictor(rows.product(x)))
        e = self.vector(self.ridge) * x
        total = rows.adjoint_total(slopes) + self.m * e
        moved = Spanned(rows, total, e, Coefficients((1.0, slopes)))
        return BlockVector.moved(rows.zeros(self.d), moved)
