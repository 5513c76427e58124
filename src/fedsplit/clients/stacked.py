"""Clients in this process: stacked arrays, answered by a few batched operations per block."""

from __future__ import annotations

import time
from collections.abc import Sequence
from copy import copy
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array, repeated
from fedsplit.clients.oracle import Clients
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.losses.costs import Costs
from fedsplit.losses.terms import Block, Terms
from fedsplit.losses.work import counter
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
        self.hessians = all(block.terms.exact_hessian for block in blocks)
        self._present = np.ones(self.m, dtype=bool)

    def with_ridge(self, ridge: Array) -> StackedClients:
        """The same data with another ridge, (d,); nothing is copied."""
        other = copy(self)
        other._blocks = [(at, Costs(costs.terms, ridge)) for at, costs in self._blocks]
        return other

    def ask(self, question: CostQuestion) -> Answer:
        began = time.perf_counter()
        points = [self._rows(point) for point in question.points()]
        parts: dict[str, Array] = {
            name: np.empty((self.m, *part.shape_for(self.d)))
            for name, part in question.answer_parts().items()
        }
        work = np.zeros((self.m, 3))

        def answer(block: tuple[Index, Costs]) -> None:
            at, costs = block
            before = counter.read()
            own = [None if point is None else point[at] for point in points]
            told = question.answer(costs, *own)
            for whole, rows in zip(parts.values(), told, strict=True):
                whole[at] = rows
            after = counter.read()
            work[at] = [now - then for now, then in zip(after, before, strict=True)]

        with np.errstate(**QUIET):
            each(answer, self._blocks)
        seconds = np.full(self.m, (time.perf_counter() - began) / self.m)
        return Answer(parts, self._present, seconds, work)

    def terms_of(self, j: int) -> Terms:
        """The terms of client j alone."""
        for at, costs in self._blocks:
            places = np.arange(self.m)[at].tolist()
            if j in places:
                if len(places) == 1:
                    return costs.terms
                return costs.terms.take([places.index(j)])
        raise IndexError(j)

    def pooled_information(self, x: Array) -> Array:
        """Σ_j ∇²f_j(x), (d, d), without holding all the Hessians at once."""
        total = np.zeros((self.d, self.d))
        for at, costs in self._blocks:
            k = len(self._present[at])
            total = total + costs.hessian(repeated(x, k)).sum(axis=0)
        return total

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
