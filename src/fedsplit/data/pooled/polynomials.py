"""``poly(x, k)``: polynomials that are orthogonal over the rows of all clients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsplit.arrays import Array
from fedsplit.data.pooled.column_statistics import GramMatrix
from fedsplit.data.pooled.function import PooledFunction, State, mean_and_deviation, numbered
from fedsplit.data.pooled.orthogonal_polynomials import Recurrence, condition
from fedsplit.dialogue import Dialogue


@dataclass(frozen=True)
class Poly(PooledFunction):
    """R's ``poly(x, degree, raw)``: columns of degree 1 to k, each of norm 1; powers if raw."""

    degree: int = 1
    raw: bool = False

    def agreement(self) -> Dialogue[State] | None:
        return None if self.raw else self._agree()

    def _agree(self) -> Dialogue[State]:
        _, mean, deviation = yield from mean_and_deviation()
        p: Recurrence | None = Recurrence.legendre(self.degree)
        for _ in range(4):  # the second time is nearly always the last
            if p is None:
                break
            gram = yield GramMatrix(mean, deviation, tuple(p.alpha), tuple(p.norm2))
            p = p.orthogonalised(gram)
            # A Gram matrix in poor condition gives polynomials that are orthogonal only roughly.
            if condition(gram) < 1e3 and p is not None:
                known = {"center": [mean], "scale": [deviation]}
                return {**known, "alpha": p.alpha, "norm2": p.norm2}
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
