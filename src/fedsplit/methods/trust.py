"""When the server takes an accelerated step, and when it goes back to plain ones."""

from __future__ import annotations

import math
from typing import NamedTuple

from fedsplit.arrays import Array

TRIALS = 5
"""The first accelerated steps, whose residuals set the scale of what is allowed later."""


class Best(NamedTuple):
    """The round with the smallest residual of those in which all clients answered.

    Attributes
    ----------
    residual : float
        Infinite before there is one.
    z : (m, d) array
        The plain method's next z from there, in the coordinates x/scale.
    s : float
        The step at that time.
    low, high : (m,) array
        Each client's extreme curvatures as they were known then.
    """

    residual: float
    z: Array
    s: float
    low: Array
    high: Array


class Trust(NamedTuple):
    """How far the run has earned accelerated steps.

    Attributes
    ----------
    best : Best
        Where to go back to.
    early : float
        The largest residual of the first rounds.
    taken : int
        The number of accelerated steps.
    reach : float
        The running maximum of ‖Δx‖ in the coordinates x/scale, halved each round.
    falls : int
        How often the run went back or started anew.
    pause : int
        For how many more rounds it is to be plain.
    """

    best: Best
    early: float = 0.0
    taken: int = 0
    reach: float = 0.0
    falls: int = 0
    pause: int = 0

    def observe(self, residual: float) -> Trust:
        """After a round with this residual."""
        early = self.early
        if self.taken < TRIALS:
            early = max(early, residual)
        return self._replace(early=early, pause=max(0, self.pause - 1))

    def allows(self, residual: float) -> bool:
        """Whether the residual is small enough for the n-th accelerated step: 10·early/n^1.1.

        The sum of what is allowed is finite: either the residual goes to zero, or the plain method,
        which converges, takes over for good.
        """
        bound = 10.0 * self.early / (self.taken + 1) ** 1.1
        return self.pause == 0 and bool(residual <= bound)

    @property
    def longest(self) -> float:
        """The longest move of x/scale for an accelerated step: 10 times the latest moves."""
        return 10.0 * self.reach or math.inf

    def rejects(self, residual: float) -> bool:
        """Whether the run goes back to its best round: the residual is 15 times the one there."""
        return not (residual <= 15.0 * self.best.residual or self.taken < TRIALS)

    def fall_back(self) -> Trust:
        """After going back: 1, 2, 4, … and at most 32 plain rounds follow."""
        return self._replace(falls=self.falls + 1, pause=min(2**self.falls, 32))

    def misjudged(self, s: float, better: float) -> bool:
        """Whether the step s is wrong by 100 times, so that trust starts anew (at most 6 times)."""
        return self.falls < 6 and not s / 100.0 <= better <= s * 100.0

    def restart(self) -> Trust:
        """With another step, at which earlier residuals mean nothing."""
        best = self.best._replace(residual=math.inf)
        return self._replace(best=best, early=0.0, taken=0, falls=self.falls + 1)
