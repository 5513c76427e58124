"""How clients code their rows, and the coordinates of the rounds."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from fedsplit.arrays import Array
from fedsplit.regression.client.design import Scaling
from fedsplit.regression.client.plan import Plan
from fedsplit.remote import codec


@dataclass(frozen=True)
class Coding:
    """How clients code their rows as numbers.

    Attributes
    ----------
    plan : Plan
        What all clients agreed on.
    strict : bool
        Whether to refuse answers that could disclose single rows.
    names : tuple of str
        The clients of the cohort that take part.
    """

    plan: Plan
    strict: bool
    names: tuple[str, ...]


@dataclass(frozen=True)
class Frame:
    """The coordinates of the rounds, and what a client's cost is in them.

    Attributes
    ----------
    scaling : Scaling
        Of the columns and the target.
    whiten : (p, r) array or None
        What the scaled columns are multiplied by, so that they are orthonormal over all clients, or
        so that r of them are left.
    delta : float
        Of Huber's loss, in the target's unit.
    symmetric : bool
        Whether the coefficients are those of all classes, centred.
    ridge : (d,) array
        Of the whole objective.
    precise : bool
        Whether the products with ``whiten`` are formed in twice the working precision, because
        large terms nearly cancel in them.
    """

    scaling: Scaling
    whiten: Array | None
    delta: float
    symmetric: bool
    ridge: Array
    precise: bool = False

    def without_ridge(self) -> Frame:
        """Everything that the data depend on."""
        return replace(self, ridge=np.zeros(0))


def key_of(coding: Coding, frame: Frame) -> str:
    """The name of what clients are prepared with, by its content."""
    return hashlib.sha256(codec.encode((coding, frame))).hexdigest()
