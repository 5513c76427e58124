"""SCAFFOLD: local gradient steps, corrected by control variates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fedsplit.arrays import Array, column_means, zero_rows
from fedsplit.clients.question import Answer
from fedsplit.clients.questions import Descend
from fedsplit.dialogue import Dialogue
from fedsplit.methods.method import StepMethod, choose_step


class ScaffoldState(NamedTuple):
    """The server's x, (d,), the control variates c_j as rows of c, (m, d), and the local step s.

    At a fixed point c_j = ∇f_j(x).
    """

    x: Array
    c: Array
    s: float


@dataclass(frozen=True)
class SCAFFOLD(StepMethod[ScaffoldState]):
    """SCAFFOLD (Karimireddy et al., 2020), option II, with the server's step 1.

    K steps y_j ← y_j - s(∇f_j(y_j) - c_j + c) from y_j = x, with c = mean(c_j); then
    c_j ← c_j - c + (x - y_j)/(Ks), the mean gradient on the way, and x ← mean(y_j). Its fixed
    points minimise F. The c_j of an absent client stays, and c stands for its gradient.

    Parameters
    ----------
    step : float, optional
        s. None is 1/(K L*): the K steps together are one of length 1/L*, the scale of the paper's
        theorems.
    local_steps : int
        K.
    """

    step: float | None = None
    local_steps: int = 10

    device = "arrays"
    state_type = ScaffoldState
    hazard = "local_steps times the step is well above 1/L*: pass a smaller step"

    def start(self, x0: Array, m: int) -> Dialogue[ScaffoldState]:
        s = yield from choose_step(self.step, lambda _, L: 1.0 / (self.local_steps * L), x0)
        return ScaffoldState(x0, zero_rows(x0, m), s)

    def update(self, state: ScaffoldState) -> Dialogue[ScaffoldState]:
        x, c_local, s = state
        path = self.local_steps * s
        c = column_means(c_local)
        answer: Answer = yield Descend(x, s, self.local_steps, c - c_local)
        y = answer.rows_or(x - path * c)
        return ScaffoldState(column_means(y), c_local - c + (x - y) / path, s)

    def iterate(self, state: ScaffoldState) -> Array:
        return state.x - state.s * state.c
