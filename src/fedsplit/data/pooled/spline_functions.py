"""``bs(x, ...)`` and ``ns(x, ...)``: splines whose knots are written, or agreed by all clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedsplit.arrays import Array
from fedsplit.data.pooled.agreement import Asking, spread
from fedsplit.data.pooled.call_options import flag, is_given, numbers, whole
from fedsplit.data.pooled.function import Options, State
from fedsplit.data.pooled.knots import constants
from fedsplit.data.pooled.polynomials import numbered
from fedsplit.data.pooled.splines import CUBIC, Spline

MOST_COLUMNS = 50
"""Of a spline."""

MOST_DEGREE = 10

BOUNDARY = "Boundary.knots"


@dataclass(frozen=True)
class SplineFunction:
    """R's ``bs(x, df, knots, degree, intercept, Boundary.knots)``, or ``ns`` without a degree.

    Attributes
    ----------
    natural : bool
        Whether it is ``ns``: cubic, and straight at both ends.
    """

    natural: bool

    @property
    def parameters(self) -> tuple[str, ...]:
        if self.natural:
            return ("df", "knots", "intercept", BOUNDARY)
        return ("df", "knots", "degree", "intercept", BOUNDARY)

    def check(self, options: Options) -> None:
        if self._inner(options) < 0:
            raise ValueError(f"df must be {self._width_without_knots(options)} or more")
        knots = self._written(options)
        if is_given(options, BOUNDARY):
            _check_inside(knots or [], numbers(options, BOUNDARY))

    def asking(self, options: Options) -> Asking | None:
        if is_given(options, BOUNDARY) and self._written(options) is not None:
            return None
        return self._asking(options)

    def _asking(self, options: Options) -> Asking:
        found = yield from spread()
        knots = self._written(options)
        if knots is None:
            knots = found.quantiles(self._inner(options))
        boundary = found.boundary
        if is_given(options, BOUNDARY):
            boundary = numbers(options, BOUNDARY)
        _check_inside(knots, boundary)
        return {"knots": knots, "boundary": boundary}

    def endings(self, options: Options, state: State) -> list[str]:
        return numbered(self._width_without_knots(options) + self._inner(options))

    def values(self, x: Array, options: Options, state: State) -> Array:
        knots: Sequence[float] = self._written(options) or []
        if state:
            knots, boundary = state["knots"], state["boundary"]
        else:
            boundary = numbers(options, BOUNDARY)
        intercept = flag(options, "intercept", False)
        spline = Spline(knots, boundary, self._degree(options), intercept)
        if self.natural:
            return spline.natural(x)
        return spline.b_splines(x)

    def report(self, options: Options, state: State) -> str:
        if not state:
            return ""
        knots = ""
        if state["knots"]:
            knots = f"knots={constants(state['knots'])}, "
        return f"{knots}{BOUNDARY}={constants(state['boundary'])}"

    def _written(self, options: Options) -> list[float] | None:
        """The knots between those of the boundary, None if they have to be agreed."""
        if is_given(options, "knots"):
            return numbers(options, "knots")
        if self._inner(options) == 0:
            return []
        return None

    def _inner(self, options: Options) -> int:
        """How many knots there are between those of the boundary."""
        if is_given(options, "knots"):
            return len(numbers(options, "knots"))
        if not is_given(options, "df"):
            return 0
        return whole(options, "df", 0, 1, MOST_COLUMNS) - self._width_without_knots(options)

    def _width_without_knots(self, options: Options) -> int:
        intercept = flag(options, "intercept", False)
        if self.natural:
            return 1 + intercept
        return self._degree(options) + intercept

    def _degree(self, options: Options) -> int:
        return whole(options, "degree", CUBIC, 1, MOST_DEGREE)


def beyond_boundary(x: Array, options: Options) -> bool:
    """Return whether a value lies beyond boundary knots that are written, of which R warns."""
    if not is_given(options, BOUNDARY):
        return False
    lower, upper = numbers(options, BOUNDARY)
    return bool(((x < lower) | (x > upper)).any())


def _check_inside(knots: Sequence[float], boundary: Sequence[float]) -> None:
    """Raise ValueError unless there are two boundary knots, and the others lie between them."""
    if len(boundary) != 2 or boundary[0] == boundary[1]:
        raise ValueError(f"{BOUNDARY} must be two numbers, as in {BOUNDARY}=c(0, 10)")
    if len(knots) > MOST_COLUMNS:
        raise ValueError(f"it has {len(knots)} knots, more than {MOST_COLUMNS}")
    lower, upper = boundary
    if any(not lower < knot < upper for knot in knots):
        raise ValueError(
            f"the knots {constants(knots)} must lie between {lower:.12g} and {upper:.12g}, "
            f"which {BOUNDARY} can change"
        )
