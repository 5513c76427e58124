"""Clients in this process: stacked arrays, answered by a few batched operations a block."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array, repeated
from fedsplit.clients.oracle import Answer, Decrement
from fedsplit.losses.costs import Costs
from fedsplit.losses.terms import Block
from fedsplit.prox.solver import ProxSolver
from fedsplit.threads import each

QUIET: dict[str, Any] = {"over": "ignore", "invalid": "ignore"}
"""A cost beyond float64 is +inf, which line searches reject and ``solve`` notices: no warning is needed."""

Index: TypeAlias = slice | NDArray[np.intp]


class StackedClients:
    """The in-process Clients. Points are (d,), the same for all clients, or (m, d), one a client."""

    def __init__(self, d: int, blocks: Sequence[Block], ridge: Array) -> None:
        self.d = d
        self.m = sum(len(block.clients) for block in blocks)
        self._blocks = [(_index(block.clients), Costs(block.terms, ridge)) for block in blocks]
        self._present = np.ones(self.m, dtype=bool)
        self._exact = np.zeros(self.m)

    def with_ridge(self, ridge: Array) -> StackedClients:
        """The same data with another ridge, (d,); nothing is copied."""
        other = copy(self)
        other._blocks = [(at, Costs(costs.terms, ridge)) for at, costs in self._blocks]
        return other

    def prox(self, v: Array, s: float | Array, start: Array, solver: ProxSolver) -> Answer:
        began = time.perf_counter()
        v = self._rows(v)
        rows, error, margin = np.empty((self.m, self.d)), np.empty(self.m), np.empty(self.m)

        def answer(block: tuple[Index, Costs]) -> None:
            at, costs = block
            solved = solver.solve(costs, v[at], s, start[at] if start.ndim == 2 else start)
            rows[at] = solved.u
            error[at] = solved.error
            margin[at] = costs.margin(
                start[at] if start.ndim == 2 else repeated(start, costs.terms.k)
            )

        with np.errstate(**QUIET):
            each(answer, self._blocks)
        return self._answer(rows, error, began)._replace(margin=margin)

    def descend(self, x: Array, step: float, steps: int, shift: Array | None = None) -> Answer:
        def gradient_steps(costs: Costs, X: Array, C: Array | float = 0.0) -> Array:
            for _ in range(steps):
                X = X - step * (costs.gradient(X) + C)
            return X

        return self._ask(gradient_steps, x, (self.d,), *(() if shift is None else (shift,)))

    def gradient(self, x: Array) -> Answer:
        return self._ask(Costs.gradient, x, (self.d,))

    def value(self, x: Array) -> Answer:
        return self._ask(Costs.value, x, ())

    def evaluate(self, x: Array) -> Answer:
        return self._ask(
            lambda costs, X: np.column_stack([costs.value(X), costs.gradient(X)]), x, (1 + self.d,)
        )

    def curvature(self, x: Array | None = None) -> Answer:
        if x is None:
            return self._ask(
                lambda costs, _: np.stack(costs.bounds, axis=1), np.zeros(self.d), (2,)
            )
        return self._ask(lambda costs, X: np.stack(costs.bounds_at(X), axis=1), x, (2,))

    def diagonal(self, x: Array) -> Answer:
        def ends(costs: Costs, X: Array) -> Array:
            return np.column_stack([costs.diagonal(X), *costs.bounds_at(X)])

        return self._ask(ends, x, (self.d + 2,))

    def decrement(self, x: Array, g: Array) -> Answer:
        scalars = (len(Decrement._fields),)
        return self._ask(lambda costs, X, G: np.stack(costs.decrement(X, G), axis=1), x, scalars, g)

    def line(self, x: Array, direction: Array, t: Array) -> Answer:
        def along(costs: Costs, X: Array, P: Array) -> Array:
            return np.stack([costs.value(X + length * P) for length in t], axis=1)

        return self._ask(along, x, (len(t),), direction)

    def direction(self, x: Array, g: Array) -> Answer:
        return self._ask(Costs.direction, x, (self.d,), g)

    def margin(self, x: Array) -> Answer:
        return self._ask(Costs.margin, x, ())

    def information(self, x: Array) -> Answer:
        return self._ask(Costs.hessian, x, (self.d, self.d))

    def pooled_information(self, x: Array) -> Array:
        """Σ_j ∇²f_j(x), (d, d), without holding all the Hessians at once."""
        X = self._rows(x)
        total: Array = sum(
            (costs.hessian(X[at]).sum(axis=0) for at, costs in self._blocks),
            np.zeros((self.d, self.d)),
        )
        return total

    def _ask(
        self, question: Callable[..., Array], x: Array, shape: tuple[int, ...], *more: Array
    ) -> Answer:
        """One answer of the given shape from every client, block by block, to a question about x and more vectors."""
        began = time.perf_counter()
        given, rows = [self._rows(point) for point in (x, *more)], np.empty((self.m, *shape))

        def answer(block: tuple[Index, Costs]) -> None:
            at, costs = block
            rows[at] = question(costs, *(points[at] for points in given))

        with np.errstate(**QUIET):
            each(answer, self._blocks)
        return self._answer(rows, self._exact, began)

    def _rows(self, x: Array) -> Array:
        """A point of each client's own, or the same one for all."""
        return x if x.ndim == 2 else repeated(np.ascontiguousarray(x), self.m)

    def _answer(self, rows: Array, error: Array, began: float) -> Answer:
        return Answer(
            rows, self._present, error, np.full(self.m, (time.perf_counter() - began) / self.m)
        )


def _index(clients: Sequence[int]) -> Index:
    """Neighbours as a slice, which NumPy reads without a copy."""
    first, last = clients[0], clients[-1]
    return (
        slice(first, last + 1)
        if list(clients) == list(range(first, last + 1))
        else np.array(clients)
    )
