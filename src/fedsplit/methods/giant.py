"""GIANT: approximate Newton steps from the clients' local Newton directions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from fedsplit.arrays import EPS, Array
from fedsplit.clients.question import Answer
from fedsplit.clients.questions import Direction, Gradient, Line
from fedsplit.dialogue import Dialogue
from fedsplit.methods.method import StepMethod, total

TRIAL_STEPS = (*(2.0**k for k in range(4, -27, -1)), 0.0)
"""The candidate steps of a line search; the last is no step."""


class GiantState(NamedTuple):
    """The state of GIANT."""

    # (d,): the server's x and the gradient of F there
    x: Array
    g: Array
    # (d,): the direction; 0 until it is known. ``iterate`` is x + p, which stands still only if p
    # is 0
    p: Array
    s: float  # the last step along a direction
    phase: Literal["gradient", "direction", "line"]  # which question is next


@dataclass(frozen=True)
class GIANT(StepMethod[GiantState]):
    """Globally improved approximate Newton (Wang et al., 2018).

    p = -(1/m) Σ_j (m∇²f_j(x))⁻¹∇F(x), then a line search. Each m f_j stands for F, so p is close to
    Newton's if the clients are alike and have many more observations than columns; otherwise it is
    only a descent direction. An iteration is three rounds of O(d) floats: the gradient, the local
    directions, the line search. The first gradient is set-up. Every client must answer in every
    round.
    """

    unanimous = True
    state_type = GiantState

    def start(self, x0: Array, m: int) -> Dialogue[GiantState]:
        return (yield from self.update(GiantState(x0, 0.0 * x0, 0.0 * x0, 1.0, "gradient")))

    def update(self, state: GiantState) -> Dialogue[GiantState]:
        x, g, p, s, phase = state
        if phase == "gradient":
            return GiantState(x, total("GIANT", (yield Gradient(x))), 0.0 * x, s, "direction")
        if phase == "direction":
            answer: Answer = yield Direction(x, g)
            # each m f_j stands for F, and the directions are averaged
            p = -total("GIANT", answer) / len(answer.present) ** 2
            return GiantState(x, g, p, s, "line")
        t = yield from _search(x, p, s)
        if t > 0:
            return GiantState(x + t * p, g, p, t, "gradient")
        # No step goes down: the next search goes on where this one ended.
        return GiantState(x, g, TRIAL_STEPS[-2] * p, s, "line")

    def iterate(self, state: GiantState) -> Array:
        return state.x + state.p


def _search(x: Array, p: Array, usual: float) -> Dialogue[float]:
    """The t of ``TRIAL_STEPS`` with the least F(x + tp), or 0 if that is not below F(x).

    Where several are equal to rounding, it is the one nearest to ``usual``.
    """
    answer: Answer = yield Line(x, p, np.array(TRIAL_STEPS))
    F = total("GIANT", answer)
    F = np.where(np.isnan(F), np.inf, F)
    best = int(F.argmin())
    rounding = 16.0 * EPS * float(np.abs(answer.rows[:, best]).sum())
    equal = [
        t for t, value in zip(TRIAL_STEPS, F, strict=True) if t > 0 and value <= F[best] + rounding
    ]
    return min(equal, key=lambda t: abs(math.log(t / usual)), default=0.0)
