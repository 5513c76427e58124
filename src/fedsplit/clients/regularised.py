"""Clients of a regularised problem, f_j(x) + (λ/2)‖x - x¹‖², by a change of the prox's arguments alone."""

from __future__ import annotations

from dataclasses import dataclass

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.clients.questions import Answer
from fedsplit.prox.solver import ProxSolver


@dataclass(frozen=True)
class RegularisedProx:
    """The prox of f_j + (λ/2)‖· - x¹‖², asked of clients who know only f_j.

    prox_{s(f + (λ/2)‖· - x¹‖²)}(v) = prox_{s' f}((v + sλx¹)/(1 + sλ)) with s' = s/(1 + sλ).
    """

    clients: Clients
    lam: float
    centre: Array

    def prox(self, v: Array, s: float | Array, start: Array, solver: ProxSolver) -> Answer:
        shrink = 1.0 / (1.0 + s * self.lam)
        return self.clients.prox(
            shrink * (v + s * self.lam * self.centre), shrink * s, start, solver
        )
