"""Losses of two classes, coded as b = -1 and b = 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedsplit.arrays import Array
from fedsplit.errors import InputError
from fedsplit.losses.linear import LinearLoss, LinearTerms, least
from fedsplit.losses.observations import Observations


@dataclass(frozen=True, eq=False)
class BinaryTerms(LinearTerms):
    """Terms of two classes, whose margin is min_i b_i a_iᵀx."""

    def margin(self, X: Array) -> Array:
        # offsets are excluded: they do not grow with x, so they separate nothing for ever
        return least(self.b * self._predicted(X)[0], self.w)


class BinaryLoss(LinearLoss):
    """A loss of the linear predictor of two classes: φ(η, b) falls where bη grows."""

    terms: ClassVar[type[LinearTerms]] = BinaryTerms

    def targets(self, data: Sequence[Observations]) -> Sequence[Observations]:
        """Labels as -1 and 1, whichever of the two codings all the clients use."""
        negative = next((j for j, (_, b, *_) in enumerate(data) if (b == -1).any()), None)
        low = 0
        if negative is not None:
            low = -1
        for j, (_, b, *_) in enumerate(data):
            wrong = np.flatnonzero((b != low) & (b != 1))
            if not wrong.size:
                continue
            label = b[wrong[0]]
            message = (
                f"client {j}, row {wrong[0]}: label {label:g}; labels must be {{-1, 1}}, or "
                "{0, 1}, or bool, the same at every client"
            )
            if label == 0:
                message += f" (client {negative} uses -1 and 1)"
            raise InputError(message)
        return [Observations(A, np.where(b == 1, 1.0, -1.0), w, o) for A, b, w, o in data]
