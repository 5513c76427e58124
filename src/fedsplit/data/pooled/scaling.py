"""``scale(x)`` and ``center(x)``: by the mean and the standard deviation over all clients."""

from __future__ import annotations

from dataclasses import dataclass

from fedsplit.arrays import Array
from fedsplit.data.pooled.column_statistics import ColumnMoments
from fedsplit.data.pooled.function import PooledFunction, State, deviation_of
from fedsplit.dialogue import Dialogue


@dataclass(frozen=True)
class Scale(PooledFunction):
    """R's ``scale(x, center, scale)`` of one column.

    The mean is taken away, unless there is another centre, and what is left, v, is divided by
    √(Σ v²/(n - 1)), or by another scale.
    """

    centre: float | None
    scale: float | None

    def __post_init__(self) -> None:
        if self.scale == 0.0:
            raise ValueError("scale must not be 0")

    def agreement(self) -> Dialogue[State] | None:
        if self.centre is not None and self.scale is not None:
            return None
        return self._agree()

    def _agree(self) -> Dialogue[State]:
        n, mean, scatter = map(float, (yield ColumnMoments()))
        centre, scale = self.centre, self.scale
        if centre is None:
            centre = mean
        if scale is None:
            scale = deviation_of(n, mean, scatter + n * (mean - centre) ** 2)
        return {"center": [centre], "scale": [scale]}

    def values(self, x: Array, state: State) -> Array:
        centre, scale = self.centre, self.scale
        if state:
            [centre], [scale] = state["center"], state["scale"]
        if centre is None or scale is None:
            raise ValueError("its centre and scale have not been agreed")
        column: Array = ((x - centre) / scale)[:, None]
        return column
