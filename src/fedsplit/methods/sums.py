"""Sums over all clients, for methods that need an answer from every one of them."""

from __future__ import annotations

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.question import Answer
from fedsplit.clients.questions import Curvature
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError


def complete(name: str, answer: Answer) -> Array:
    """The rows of an answer that every client gave: a sum without one of them is of another F."""
    if not answer.complete:
        raise InputError(
            f"{name} needs every client's answer in every round: use a method that takes "
            "partial participation, such as FedSplit"
        )
    return answer.rows


def total(name: str, answer: Answer) -> Array:
    """The sum of an answer's rows over all clients."""
    summed: Array = complete(name, answer).sum(axis=0)
    return summed


def curvatures(name: str, x0: Array) -> Dialogue[Array]:
    """ℓ_j and L_j, (m, 2); those at x0 if some L_j has no bound that holds for every x."""
    rows = complete(name, (yield Curvature()))
    if not np.isfinite(rows).all():
        rows = complete(name, (yield Curvature(x0)))
    largest = float(rows[:, 1].max())
    if not (np.isfinite(rows).all() and largest > 0):
        raise InputError(
            f"{name}: no step follows from curvatures L_j up to {largest:g}: pass step="
        )
    return rows
