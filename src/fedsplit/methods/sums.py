"""Sums over all clients, for methods that need an answer from every one of them."""

from __future__ import annotations

from typing import NamedTuple

from fedsplit.arrays import EPS, Array, namespace
from fedsplit.clients.question import Answer
from fedsplit.clients.questions import Curvature, Evaluate
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


def curvatures(name: str, x0: Array) -> Dialogue[tuple[Array, bool]]:
    """ℓ_j and L_j, (m, 2), and whether they hold for every x, or at x0 alone."""
    rows = complete(name, (yield Curvature()))
    xp = namespace(rows)
    everywhere = bool(xp.all(xp.isfinite(rows)))
    if not everywhere:
        rows = complete(name, (yield Curvature(x0)))
    largest = float(xp.max(rows[:, 1]))
    if not (bool(xp.all(xp.isfinite(rows))) and largest > 0):
        raise InputError(
            f"{name}: no step follows from curvatures L_j up to {largest:g}: pass step="
        )
    return rows, everywhere
