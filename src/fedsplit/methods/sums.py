"""Sums over all clients, for methods that need an answer from every one of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import EPS, Array
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.clients.questions import Evaluate
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError
from fedsplit.methods.method import CurvatureBounds, curvatures


def total(name: str, answer: Answer) -> Array:
    """The sum of an answer's rows over all clients: without one of them it is that of another F."""
    require_complete(name, answer)
    summed: Array = answer.rows.sum(axis=0)
    return summed


def require_complete(name: str, answer: Answer) -> None:
    """Raise InputError unless every client has answered a method that needs them all."""
    if not answer.complete:
        raise InputError(
            f"{name} needs every client's answer in every round: use a method that takes "
            "partial participation, such as FedSplit"
        )


def answers(question: CostQuestion, wait: bool = True, most: float = math.inf) -> Dialogue[Answer]:
    """The answers to a question, which is asked again until everyone has answered, if ``wait``.

    Who is drawn goes through a shuffled list of all clients before it is shuffled again, so that a
    client may be asked twice before everyone was asked once, but not three times: who has not
    answered then is absent. After ``most`` questions the answers are those that there are.
    """
    answer: Answer = yield question
    times = answer.present.astype(np.int64)
    asked = 1
    while wait and not answer.complete and (times <= 2).all() and asked <= most:
        later: Answer = yield question
        answer = answer.joined(later)
        times += later.present
        asked += 1
    return answer


class FirstOrder(NamedTuple):
    """F and its gradient, (d,), at a point."""

    F: float
    g: Array

    def bounds(self, F: float, move: Array, s: float) -> bool:
        """Whether F after a move is at most what a curvature of 1/s allows, to rounding."""
        # a quadratic of curvature 1/s above F, which proves that F falls with the step s
        allowed = self.F + float(self.g @ move) + float(move @ move) / (2.0 * s)
        return bool(allowed + 16.0 * EPS * abs(self.F) >= F)


def evaluated(name: str, x: Array, wait: bool = False) -> Dialogue[FirstOrder]:
    """F and its gradient at x, from one question; if ``wait``, until all have answered it."""
    # the margin costs nothing, and shows at once where classes are separable
    answer = yield from answers(Evaluate(x, margin=True), wait)
    F = float(total(name, answer))
    gradient: Array = answer.parts["gradient"].sum(axis=0)
    return FirstOrder(F, gradient)


def total_curvature(name: str, x0: Array) -> Dialogue[CurvatureBounds]:
    """Σ_j ℓ_j and Σ_j L_j, and whether they hold for every x or at x0 alone."""
    answer, everywhere = yield from curvatures(x0)
    require_complete(name, answer)
    rows = answer.rows
    ell, L = rows.sum(axis=0).tolist()
    if not 0 < L < np.inf:
        raise InputError(f"{name}: no step follows from curvatures L_j of {L:g} in all: pass step=")
    return CurvatureBounds(ell, L, everywhere)
