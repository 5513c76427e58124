"""``poly(x, k)``: polynomials that are orthogonal over the rows of all clients."""

from __future__ import annotations

import numpy as np

from fedsplit.arrays import Array
from fedsplit.data.pooled.agreement import Asking, mean_and_deviation
from fedsplit.data.pooled.call_options import flag, whole
from fedsplit.data.pooled.column_statistics import MOST_DEGREE, GramMatrix
from fedsplit.data.pooled.function import Options, State
from fedsplit.data.pooled.orthogonal_polynomials import POOR, Recurrence, condition

MOST_PASSES = 4
"""How often polynomials are made orthogonal at most; the second time is nearly always the last."""


class Poly:
    """R's ``poly(x, degree, raw)``: columns of degree 1 to k, each of norm 1; powers if raw."""

    parameters = ("degree", "raw")

    def check(self, options: Options) -> None:
        self._degree(options)
        flag(options, "raw", False)

    def asking(self, options: Options) -> Asking | None:
        if flag(options, "raw", False):
            return None
        return self._asking(self._degree(options))

    def _asking(self, degree: int) -> Asking:
        _, mean, deviation = yield from mean_and_deviation()
        found: Recurrence | None = Recurrence.legendre(degree)
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
            f"its column has too few different values for degree {degree}: use a lower one"
        )

    def endings(self, options: Options, state: State) -> list[str]:
        return numbered(self._degree(options))

    def values(self, x: Array, options: Options, state: State) -> Array:
        if flag(options, "raw", False):
            powers: Array = x[:, None] ** np.arange(1, self._degree(options) + 1)
            return powers
        [centre], [scale] = state["center"], state["scale"]
        return Recurrence(state["alpha"], state["norm2"]).values((x - centre) / scale)[:, 1:]

    def report(self, options: Options, state: State) -> str:
        return ""

    def _degree(self, options: Options) -> int:
        return whole(options, "degree", 1, 1, MOST_DEGREE)


def numbered(width: int) -> list[str]:
    """The endings of so many columns, as in R: a single one has none."""
    if width == 1:
        return [""]
    return [str(i) for i in range(1, width + 1)]
