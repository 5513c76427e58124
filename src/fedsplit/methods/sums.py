"""Sums over all clients, for methods that need an answer from every one of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedsplit.arrays import EPS, Array
from fedsplit.clients.question import Answer
from fedsplit.clients.questions import Evaluate
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError
from fedsplit.methods.method import CurvatureBounds, curvatures


def total(name: str, answer: Answer) -> Array:
    """The sum of an answer's rows over all clients: without one of them it is that of another F."""
    if not answer.complete:
        raise _incomplete(name)
    summed: Array = answer.rows.sum(axis=0)
    return summed


def _incomplete(name: str) -> InputError:
    return InputError(
        f"{name} needs every client's answer in every round: use a method that takes "
        "partial participation, such as FedSplit"
    )


class Known(NamedTuple):
    """F and its gradient, (d,), at a point."""

    F: float
    g: Array

    def bounds(self, F: float, move: Array, s: float) -> bool:
        """Whether F after a move is at most what a curvature of 1/s allows, to rounding."""
        allowed = self.F + float(self.g @ move) + float(move @ move) / (2.0 * s)
        return bool(allowed + 16.0 * EPS * abs(self.F) >= F)


def evaluated(name: str, x: Array) -> Dialogue[Known]:
    """F and its gradient at x, from one question."""
    answer: Answer = yield Evaluate(x, margin=True)
    F = float(total(name, answer))
    gradient: Array = answer.parts["gradient"].sum(axis=0)
    return Known(F, gradient)


def total_curvature(name: str, x0: Array, m: int) -> Dialogue[CurvatureBounds]:
    """Σ_j ℓ_j and Σ_j L_j over all m clients, and whether they hold for every x or at x0 alone."""
    rows, everywhere = yield from curvatures(x0)
    if len(rows) < m:
        raise _incomplete(name)
    ell, L = rows.sum(axis=0).tolist()
    if not 0 < L < np.inf:
        raise InputError(f"{name}: no step follows from curvatures L_j of {L:g} in all: pass step=")
    return CurvatureBounds(ell, L, everywhere)
