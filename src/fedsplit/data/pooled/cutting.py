"""``cut(x, breaks)``: a category of intervals, whose breaks are written, or agreed by all."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array
from fedsplit.data.pooled.agreement import Asking, spread
from fedsplit.data.pooled.call_options import flag, is_given, numbers, whole, words
from fedsplit.data.pooled.function import Options, State
from fedsplit.data.pooled.intervals import FEWEST_DIGITS, interval_labels, interval_of
from fedsplit.data.pooled.knots import constants

MOST_INTERVALS = 50


class Cut:
    """R's ``cut(x, breaks, labels, include.lowest, right, dig.lab)``.

    A number in place of the breaks asks for so many intervals of about equal width. The outer ones
    are open then, so that no row is outside.
    """

    parameters = ("breaks", "labels", "include.lowest", "right", "dig.lab")

    def check(self, options: Options) -> None:
        if not is_given(options, "breaks"):
            raise ValueError("it needs breaks, as in cut(x, c(0, 10, 20)), or how many intervals")
        count = self._count(options)
        if count > MOST_INTERVALS:
            raise ValueError(f"it has {count} intervals, more than {MOST_INTERVALS}")
        breaks = self._written(options)
        if breaks is not None and len(set(breaks)) < len(breaks):
            raise ValueError("a break is there twice")
        if is_given(options, "labels") and len(words(options, "labels")) != count:
            raise ValueError(f"it has {count} intervals, and needs as many labels")
        self._digits(options)
        for name in ("include.lowest", "right"):
            flag(options, name, True)

    def asking(self, options: Options) -> Asking | None:
        if self._written(options) is not None:
            return None
        return self._asking(self._count(options))

    def _asking(self, count: int) -> Asking:
        found = yield from spread()
        return {"breaks": found.even(count - 1)}

    def levels(self, options: Options, state: State) -> list[str]:
        if is_given(options, "labels"):
            return words(options, "labels")
        breaks = self._breaks(options, state)
        return interval_labels(breaks, *self._closed(options), self._digits(options))

    def codes(self, x: Array, options: Options, state: State) -> NDArray[np.intp]:
        return interval_of(x, self._breaks(options, state), *self._closed(options))

    def report(self, options: Options, state: State) -> str:
        if not state:
            return ""
        return f"breaks={constants(self._breaks(options, state))}"

    def _breaks(self, options: Options, state: State) -> list[float]:
        written = self._written(options)
        if written is not None:
            return written
        if "breaks" not in state:
            raise ValueError("its breaks have not been agreed")
        return [-math.inf, *state["breaks"], math.inf]

    def _written(self, options: Options) -> list[float] | None:
        """The breaks, None if they have to be agreed."""
        breaks = numbers(options, "breaks", infinite=True)
        if len(breaks) == 1:
            return None
        return breaks

    def _count(self, options: Options) -> int:
        """How many intervals there are."""
        breaks = self._written(options)
        if breaks is not None:
            return len(breaks) - 1
        return whole({"breaks": numbers(options, "breaks")[0]}, "breaks", 0, 2, MOST_INTERVALS)

    def _closed(self, options: Options) -> tuple[bool, bool]:
        """Whether intervals are closed on the right, and the lowest on both sides."""
        return flag(options, "right", True), flag(options, "include.lowest", False)

    def _digits(self, options: Options) -> int:
        return whole(options, "dig.lab", FEWEST_DIGITS, 1, 15)
