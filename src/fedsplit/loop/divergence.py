"""Divergence: moves that grow without bound, or numbers that are none."""

from __future__ import annotations

import math

from fedsplit.arrays import Array, length


class Divergence:
    """Looks for signs of divergence in every round.

    They are a residual of 10⁹ times the first one; one of 1000 times the smallest at an objective
    that is above that of the start and does not fall, in ten rounds in a row; and numbers that are
    not finite.
    """

    def __init__(self, start: float) -> None:
        self._start = start
        self._first = math.nan
        self._smallest = math.inf
        self._before = math.nan  # the objective of the round before
        self._uphill = 0

    def sign(self, z: Array, residual: float, objective: float, value: float | None) -> str:
        """What shows that the run diverges; an empty text if nothing does.

        z is the iterate before the round, ``objective`` F(x) after it, nan if it is not known, and
        ``value`` Σ_j f_j(x), of which nan is a sign; None if it was not measured.
        """
        # With a residual of 0 nothing was changed, as by a line search: the next move is the first.
        if residual != 0.0:
            if not math.isfinite(self._first):
                # A run that starts at the optimum moves by rounding alone, which may well grow.
                self._first = max(residual, 1e-9 * max(1.0, length(z)))
            if not residual <= 1e9 * self._first:  # also where it is nan
                if not math.isfinite(residual):
                    return "the iterate is not finite"
                return f"the residual grew to {residual:.1e}"
            self._smallest = min(self._smallest, max(residual, 1e-9 * self._first))
            uphill = objective > self._start and residual > 1e3 * self._smallest
            # steps that were cut short and grow again while F falls lead back from where it rose
            uphill = uphill and not objective < self._before
            self._before = objective
            self._uphill = self._uphill + 1 if uphill else 0
            if self._uphill == 10:
                return f"the objective grew to {objective:.1e}"
        if value is not None and math.isnan(objective):
            return "the objective is not a number"
        return ""
