"""Divergence: moves that grow without bound, or numbers that are none."""

from __future__ import annotations

import numpy as np

from fedsplit.arrays import Array, length


class Divergence:
    """Looks for signs of divergence in every round.

    They are a residual of 10⁹ times the first one; one of 1000 times the smallest at an objective
    above that of the start, in ten rounds in a row; and numbers that are not finite.

    Parameters
    ----------
    start : float
        F(x) at the start; nan if it is not known.
    """

    def __init__(self, start: float) -> None:
        self._start = start
        self._first = np.nan
        self._smallest = np.inf
        self._uphill = 0

    def sign(self, z: Array, residual: float, objective: float, measured: bool) -> str:
        """What shows that the run diverges; an empty text if nothing does.

        Parameters
        ----------
        z : array
            The method's own variable before the round.
        residual : float
            ‖z⁺ - z‖.
        objective : float
            F(x) after the round; nan if it is not known.
        measured : bool
            Whether the objective is the sum over all clients, so that nan is a sign.
        """
        if residual == 0.0:
            # Nothing was changed, as by a line search that is refused: the next move is the first.
            return self._unmeasurable(objective, measured)
        if not np.isfinite(self._first):
            # A run that starts at the optimum moves by rounding alone, which may well grow.
            self._first = max(residual, 1e-9 * max(1.0, length(z)))
        if not residual <= 1e9 * self._first:  # also where it is nan
            if not np.isfinite(residual):
                return "the iterate is not finite"
            return f"the residual grew to {residual:.1e}"
        self._smallest = min(self._smallest, max(residual, 1e-9 * self._first))
        if np.isnan(objective):
            return self._unmeasurable(objective, measured)
        if objective > self._start and residual > 1e3 * self._smallest:
            self._uphill += 1
        else:
            self._uphill = 0
        if self._uphill == 10:
            return f"the objective grew to {objective:.1e}"
        return ""

    def _unmeasurable(self, objective: float, measured: bool) -> str:
        if np.isnan(objective) and measured:
            return "the objective is not a number"
        return ""
