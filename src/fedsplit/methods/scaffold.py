"""SCAFFOLD: local gradient steps, corrected by control variates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.checks import count
from fedsplit.clients.oracle import Clients
from fedsplit.methods.method import check_settings, choose_step


class ScaffoldState(NamedTuple):
    """The server's x, (d,), the control variates c_j as rows of c, (m, d), and the local step s.

    At a fixed point c_j = ∇f_j(x).
    """

    x: Array
    c: Array
    s: float

    @property
    def iterate(self) -> Array:
        return self.x - self.s * self.c


@dataclass(frozen=True)
class SCAFFOLD:
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

    settles: ClassVar[bool] = True
    state_type: ClassVar[type[ScaffoldState]] = ScaffoldState
    hazard: ClassVar[str] = "local_steps times the step is well above 1/L*: pass a smaller step"

    def __post_init__(self) -> None:
        check_settings("SCAFFOLD", step=self.step)
        count("SCAFFOLD: local_steps", self.local_steps)

    def start(self, clients: Clients, x0: Array) -> ScaffoldState:
        xp = array_namespace(x0)
        s = choose_step(self.step, lambda _, L: 1.0 / (self.local_steps * L), clients, x0)
        return ScaffoldState(x0, xp.zeros((clients.m, clients.d), dtype=x0.dtype), s)

    def update(self, clients: Clients, state: ScaffoldState) -> ScaffoldState:
        x, c_local, s = state
        xp = array_namespace(c_local)
        path = self.local_steps * s
        c = xp.mean(c_local, axis=0)
        y = clients.descend(x, s, self.local_steps, c - c_local).rows_or(x - path * c)
        return ScaffoldState(xp.mean(y, axis=0), c_local - c + (x - y) / path, s)
