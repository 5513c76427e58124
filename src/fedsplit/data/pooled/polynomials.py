"""``poly(x, k)``: polynomials that are orthogonal over the rows of all clients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsplit.arrays import Array
from fedsplit.data.pooled.agreement import mean_and_deviation
from fedsplit.data.pooled.column_statistics import GramMatrix
from fedsplit.data.pooled.function import PooledFunction, State, numbered
from fedsplit.data.pooled.orthogonal_polynomials import POOR, Recurrence, condition
from fedsplit.dialogue import Dialogue

MOST_PASSES = 4
"""How often polynomials are made orthogonal at most; the second time is nearly always the last."""


@dataclass(frozen=True)
class Poly(PooledFunction):
    """R's ``poly(x, degree, raw)``: columns of degree 1 to k, each of norm 1; powers if raw."""

    degree: int = 1
    raw: bool = False

    def agreement(self) -> Dialogue[State] | None:
        return None if self.raw else self._agree()

    def _agree(self) -> Dialogue[State]:
        _, mean, deviation = yield from mean_and_deviation()
        found: Recurrence | None = Recurrence.legendre(self.degree)
        for _ in range(MOST_PASSES):
            if found is None:
                break
            gram = yield GramMatrix(mean, deviation, tuple(found.alpha), tuple(found.norm2))
            found = found.orthogonalised(gram)
            if condition(gram) < POOR and found is not None:
                return {
                    "center": [mean],
                    "scale": [deviation],
                    "alpha": found.alpha,
                    "norm2": found.norm2,
                }
        raise ValueError(
            f"its column has too few different values for degree {self.degree}: use a lower one"
        )

    def labels(self, state: State) -> list[str]:
        return numbered(self.degree)

    def values(self, x: Array, state: State) -> Array:
        if self.raw:
            powers: Array = x[:, None] ** np.arange(1, self.degree + 1)
            return powers
        [centre], [scale] = state["center"], state["scale"]
        return Recurrence(state["alpha"], state["norm2"]).values((x - centre) / scale)[:, 1:]
