"""When models of different ages lead nowhere: signs of it, and the way back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.penalties.penalty import Penalty

LEAP = 1e6
"""A step is no step if by the models F falls by this many times what it can fall."""

WORSE = 1e-9
"""Costs are above those of the start if by more than this share, which is not rounding."""

PATIENCE = 12
"""Answers of every client after which a run should have ended: most take three to six."""


class AsynchronousProgress(NamedTuple):
    """What the server knows of the way so far.

    Attributes
    ----------
    start : (d,) array
        Where the run began, which is what everybody was asked about first.
    values : (m,) array
        f_j there.
    answers : (m,) array
        How many answers each client has given.
    """

    start: Array
    values: Array
    answers: Array

    @classmethod
    def none(cls, m: int, x0: Array) -> AsynchronousProgress:
        return cls(x0, np.zeros(m), np.zeros(m, dtype=int))

    def updated(self, values: Array, present: Mask) -> AsynchronousProgress:
        """The progress after answers with f_j at the x of their questions, (m,)."""
        first = present & (self.answers == 0)
        return AsynchronousProgress(
            self.start, np.where(first, values, self.values), self.answers + present
        )

    def is_astray(
        self, at: Array, values: Array, floor: Array, gain: float, penalty: Penalty | None
    ) -> bool:
        """Whether the run goes nowhere.

        Signs of it are a step that no cost can reward, costs that are above those of the start
        where clients were asked last, or not finite, and a run that takes too long.

        Parameters
        ----------
        at : (m, d) array
            What each client was asked about last.
        values, floor : (m,) arrays
            f_j there, and a lower bound on f_j.
        gain : float
            By how much F falls with the next step, as the models have it.
        penalty : Penalty or None
        """
        heard = self.answers > 0
        before = float(self.values[heard].sum())
        room = before - float(floor[heard].sum())
        now = float(values[heard].sum())
        if penalty is not None:
            now += float(np.mean([penalty.value(x) - penalty.value(self.start) for x in at[heard]]))
        worse = now > before + WORSE * float(np.abs(self.values[heard]).sum())
        leap = not gain <= LEAP * room
        return bool(leap or worse or not np.isfinite(now) or self.answers.min() >= PATIENCE)
