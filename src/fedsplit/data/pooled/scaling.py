"""``scale(x)`` and ``center(x)``: by the mean and the standard deviation over all clients."""

from __future__ import annotations

import math

from fedsplit.arrays import Array
from fedsplit.data.pooled.agreement import Asking, check_varies, moments
from fedsplit.data.pooled.call_options import number_or_flag
from fedsplit.data.pooled.function import Options, State


class Scale:
    """R's ``scale(x, center, scale)`` of one column.

    ``scale=TRUE`` divides by √(Σ v²/(n - 1)), where v are the values less the centre, if any.
    """

    parameters = ("center", "scale")

    def check(self, options: Options) -> None:
        if self._fixed(options, "scale", 1.0) == 0.0:
            raise ValueError("scale must not be 0")
        self._fixed(options, "center", 0.0)

    def asking(self, options: Options) -> Asking | None:
        centre = self._fixed(options, "center", 0.0)
        scale = self._fixed(options, "scale", 1.0)
        if centre is None or scale is None:
            return self._asking(centre, scale)
        return None

    def _asking(self, centre: float | None, scale: float | None) -> Asking:
        n, mean, scatter = yield from moments()
        if centre is None:
            centre = mean
        if scale is None:
            scale = math.sqrt((scatter + n * (mean - centre) ** 2) / max(n - 1.0, 1.0))
            check_varies(mean, scale)
        return {"center": [centre], "scale": [scale]}

    def endings(self, options: Options, state: State) -> list[str]:
        return [""]

    def values(self, x: Array, options: Options, state: State) -> Array:
        centre = self._fixed(options, "center", 0.0)
        scale = self._fixed(options, "scale", 1.0)
        if centre is None or scale is None:
            [centre], [scale] = state["center"], state["scale"]
        found: Array = ((x - centre) / scale)[:, None]
        return found

    def report(self, options: Options, state: State) -> str:
        return ""

    def _fixed(self, options: Options, name: str, neutral: float) -> float | None:
        """A number that is written, ``neutral`` for FALSE, None for TRUE: to be agreed."""
        value = number_or_flag(options, name)
        if value is True:
            return None
        if value is False:
            return neutral
        return value


class Center:
    """``center(x)``: the column less its mean."""

    parameters = ()

    def check(self, options: Options) -> None:
        pass

    def asking(self, options: Options) -> Asking:
        _, mean, _ = yield from moments()
        return {"center": [mean]}

    def endings(self, options: Options, state: State) -> list[str]:
        return [""]

    def values(self, x: Array, options: Options, state: State) -> Array:
        [centre] = state["center"]
        found: Array = (x - centre)[:, None]
        return found

    def report(self, options: Options, state: State) -> str:
        return ""
