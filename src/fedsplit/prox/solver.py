"""What a local solver is, and how far its answer can be from the prox."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

import numpy as np

from fedsplit.arrays import Array, dots
from fedsplit.losses.costs import Costs

Start = Literal["broadcast", "iterate", "argument"]
"""Where a local solver starts: the server's x, the client's z_j, or the prox argument v_j."""


class Proximal(NamedTuple):
    """Approximate proxes of k clients.

    Attributes
    ----------
    u : (k, d) array
        Row j approximates prox_{s f_j}(v_j).
    error : (k,) array
        Proved bounds on ‖u_j - prox_{s f_j}(v_j)‖; 0 where the prox is exact to rounding.
    gradient : (k, d) array or None
        ∇f_j(u_j), where the solver has computed it anyway.
    """

    u: Array
    error: Array
    gradient: Array | None = None


class ProxSolver(Protocol):
    """A local solver: a frozen value (a name and numbers), so that it can be told to a client anywhere."""

    @property
    def start(self) -> Start: ...

    def solve(self, costs: Costs, V: Array, s: float | Array, start: Array) -> Proximal:
        """Approximate prox_{s f_j}(v_j) = argmin_u f_j(u) + ½‖u - v_j‖²/s for every row of V, (k, d).

        s is a number or (d,); start is (k, d), or (d,) where all clients start at the same point.
        """


def with_bound(costs: Costs, V: Array, s: float | Array, U: Array) -> Proximal:
    """U as an answer, with its proved error and the gradient that the proof needs."""
    g = costs.gradient(U)
    return Proximal(U, distance_bound(costs, s, s * g + U - V), g)


def distance_bound(costs: Costs, s: float | Array, r: Array) -> Array:
    """A proved bound on the distance to the prox where the defect is r: ‖r‖/(1 + s ℓ_j).

    h_j is (1 + sℓ_j)-strongly convex. With a step for each coordinate the same holds in the norm ‖·‖_{1/s}.
    """
    ell, _ = costs.bounds
    return np.sqrt(np.max(s) * dots(r, r / s)) / (1.0 + np.min(s) * ell)
