"""Scaffnew: a random number of local gradient steps between communications (ProxSkip)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.checks import count, number
from fedsplit.clients.oracle import Clients
from fedsplit.errors import InputError
from fedsplit.methods.gd import curvatures
from fedsplit.methods.method import check_step

RAREST = 0.01
"""The smallest default probability: a hundred local steps a round on average."""

LONGEST = 10
"""No round has more than this many times the mean number of local steps, a chance of e⁻¹⁰."""


class ScaffnewState(NamedTuple):
    """The server's x, the control variates h_j as rows of h (∇f_j(x) at a fixed point), s, p and the round."""

    x: Array
    h: Array
    s: float
    p: float
    round: int

    @property
    def iterate(self) -> Array:
        return self.x - self.s * self.h


@dataclass(frozen=True)
class Scaffnew:
    """Scaffnew (Mishchenko et al., 2022): gradient steps with control variates, averaged with probability p after each.

    A round is what lies between two averages: a geometric number of steps x_j ← x_j - s(∇f_j(x_j) - h_j) from x_j = x,
    then x ← mean(x_j) and h_j ← h_j + (p/s)(x - x_j). The number depends on the seed and the round alone, and is at
    most 10/p. Its fixed points minimise F. A client that does not answer stays at x_j = x.

    Parameters
    ----------
    step : float, optional
        s. None is 1/L*.
    probability : float, optional
        p, in (0, 1]. None is 1/√κ with κ = L*/ℓ*, but at least 0.01.
    seed : int
        The seed of the numbers of local steps.
    """

    step: float | None = None
    probability: float | None = None
    seed: int = 0

    settles: ClassVar[bool] = True
    state_type: ClassVar[type[ScaffnewState]] = ScaffnewState

    def __post_init__(self) -> None:
        check_step("Scaffnew", self.step)
        count("Scaffnew: seed", self.seed, least=0)
        if self.probability is not None and number("Scaffnew: probability", self.probability) > 1.0:
            raise InputError(f"Scaffnew: probability must be at most 1, not {self.probability!r}")

    @property
    def hazard(self) -> str:
        return "the step is above 2/L*: pass a smaller step"

    def start(self, clients: Clients, x0: Array) -> ScaffnewState:
        xp = array_namespace(x0)
        s, p = self.step, self.probability
        if s is None or p is None:
            rows = curvatures("Scaffnew", clients, x0)
            ell, L = float(xp.min(rows[:, 0])), float(xp.max(rows[:, 1]))
            s = 1.0 / L if s is None else s
            p = max(RAREST, math.sqrt(ell / L)) if p is None else p
        return ScaffnewState(x0, xp.zeros((clients.m, clients.d), dtype=x0.dtype), s, p, 0)

    def update(self, clients: Clients, state: ScaffnewState) -> ScaffnewState:
        x, h, s, p, k = state
        xp = array_namespace(h)
        steps = min(int(np.random.default_rng([self.seed, k]).geometric(p)), math.ceil(LONGEST / p))
        x_local = clients.descend(x, s, steps, -h).rows_or(x)
        x = xp.mean(x_local, axis=0)
        return ScaffnewState(x, h + (p / s) * (x - x_local), s, p, k + 1)
