"""Clients in this process: stacked arrays, answered by a few batched operations per block."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array, Mask, repeated
from fedsplit.clients.oracle import Clients
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.losses.costs import Costs
from fedsplit.losses.terms import Block
from fedsplit.threads import each

QUIET: dict[str, Any] = {"over": "ignore", "invalid": "ignore"}
"""For ``np.errstate``: a cost beyond float64 is +inf, which line searches reject and ``solve``
notices, so no warning is needed."""

Index: TypeAlias = slice | NDArray[np.intp]


class StackedClients(Clients):
    """The clients of a problem. Points are (d,), the same for all clients, or (m, d)."""

    def __init__(self, d: int, blocks: Sequence[Block], ridge: Array) -> None:
        self.d = d
        self.m = sum(len(block.clients) for block in blocks)
        self._blocks = [(_index(block.clients), Costs(block.terms, ridge)) for block in blocks]
        self.hessians = all(block.terms.gradients_per_hessian == 0 for block in blocks)
        # of clients that were asked without the others: their factorisations are worth keeping
        self._single: dict[int, Costs] = {}
        self._everyone: Mask = np.ones(self.m, dtype=bool)

    def with_ridge(self, ridge: Array) -> StackedClients:
        """Clients with these data and another ridge, (d,); nothing is copied."""
        other = copy(self)  # whatever else it has is of the data alone
        other._blocks = [(at, Costs(costs.terms, ridge)) for at, costs in self._blocks]
        other._single = {}
        return other

    @np.errstate(**QUIET)
    def ask(self, question: CostQuestion) -> Answer:
        if len(self._blocks) > 1:
            return self._answer(question, self._blocks, self._everyone)
        # one block has all clients in order: its answer is that of all
        began = time.perf_counter()
        [(_, costs)] = self._blocks
        costs = costs.counted()
        points = [self._rows(getattr(question, name)) for name in question.vectors]
        parts = question.answer(costs, *points)
        shared = np.array([(time.perf_counter() - began) / self.m])
        seconds = np.ndarray((self.m,), shared.dtype, shared, 0, (0,))  # one number m times
        return Answer(dict(parts), self._everyone, seconds, costs.work.each(self.m))

    def ask_some(self, question: CostQuestion, drawn: Mask) -> Answer:
        if drawn.all():
            return self.ask(question)
        return self._answer(question, self._drawn(drawn), drawn)

    def objective(self, x: Array) -> float | None:
        if len(self._blocks) > 1:
            return super().objective(x)
        # measured in every round, and so without an answer around it
        [(_, costs)] = self._blocks
        return float(np.add.reduce(costs.at(repeated(x, self.m)).value))

    def _answer(
        self, question: CostQuestion, blocks: Sequence[tuple[Index, Costs]], present: Mask
    ) -> Answer:
        """The answer of the clients in these blocks, who are those present."""
        began = time.perf_counter()
        points = [self._rows(point) for point in question.points()]
        # memory that nobody writes to costs nothing: matrices may be refused by their size below
        shapes = question.shapes(self.d)
        parts: dict[str, Array] = {
            name: np.empty((self.m, *shape)) for name, shape in shapes.items()
        }
        work = np.zeros((self.m, 3))

        def answer(block: tuple[Index, Costs]) -> None:
            at, costs = block
            costs = costs.counted()
            own = [None if point is None else point[at] for point in points]
            asked = question
            if question.streams is not None:
                asked = question.share(at)
            for name, rows in asked.answer(costs, *own).items():
                parts[name][at] = rows
            work[at] = costs.work.each(1)

        with np.errstate(**QUIET):
            each(answer, blocks)
        for part in parts.values():
            part[~present] = np.nan
        shared = (time.perf_counter() - began) / max(1, int(present.sum()))
        return Answer(parts, present, np.where(present, shared, np.nan), work)

    def _drawn(self, drawn: Mask) -> list[tuple[Index, Costs]]:
        """Blocks of the clients drawn alone."""
        blocks: list[tuple[Index, Costs]] = []
        for at, costs in self._blocks:
            places = np.arange(self.m)[at]
            rows = np.flatnonzero(drawn[at])
            # up to this size stacking anew is faster; above, factorisations are worth keeping
            if len(rows) == len(places):  # all of the block: as it is
                blocks.append((at, costs))
            elif self.d <= 64 and len(rows):
                terms = costs.terms.take(rows.tolist())
                blocks.append((places[rows], Costs(terms, costs.ridge)))
            else:
                for row in rows.tolist():
                    j = int(places[row])
                    if j not in self._single:
                        terms = costs.terms.take(slice(row, row + 1))  # without a copy
                        self._single[j] = Costs(terms, costs.ridge)
                    blocks.append((slice(j, j + 1), self._single[j]))
        return blocks

    def pooled_information(self, x: Array) -> Array:
        """Σ_j ∇²f_j(x), (d, d), without holding all the Hessians at once."""
        total = np.zeros((self.d, self.d))  # d² numbers, where all the Hessians are m·d²
        for _, costs in self._blocks:
            total = total + costs.hessian(repeated(x, costs.terms.k)).sum(axis=0)
        return total

    def pooled_products(self, x: Array) -> tuple[Callable[[Array], Array], Array]:
        """The product with Σ_j ∇²f_j(x), (1, d) -> (1, d), and its diagonal, (d,)."""
        diagonal = np.zeros(self.d)
        products = []  # Evaluations, which keep what a product needs
        for _, costs in self._blocks:
            at = costs.at(repeated(x, costs.terms.k))
            diagonal += at.diagonal().sum(axis=0)
            products.append(at)

        def times(U: Array) -> Array:
            total = np.zeros_like(U)
            for at in products:
                total += at.times(repeated(U[0], len(at.X))).sum(axis=0)
            return total

        return times, diagonal

    def _rows(self, point: Array | None) -> Array | None:
        """A point as one row per client, without a copy."""
        if point is None or point.ndim == 2:
            return point
        return repeated(np.ascontiguousarray(point), self.m)


def _index(clients: Sequence[int]) -> Index:
    """The clients' rows: neighbours as a slice, which NumPy reads without a copy."""
    first = clients[0]
    last = clients[-1]
    if list(clients) == list(range(first, last + 1)):
        return slice(first, last + 1)
    return np.array(clients)
