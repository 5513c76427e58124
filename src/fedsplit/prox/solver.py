"""What a local solver is, and how far its answer can be from the prox."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

import numpy as np

from fedsplit.arrays import Array, dots
from fedsplit.losses.costs import Costs

Start = Literal["broadcast", "iterate", "argument"]
"""Where a local solver starts: the server's x, the client's z_j, or the prox argument v_j."""


class Proximal(NamedTuple):
    """Approximate proxes u_j of k clients, and proved bounds on ‖u_j - prox_{s f_j}(v_j)‖."""

    u: Array
    error: Array


class ProxSolver(Protocol):
    """A local solver: a frozen value (a name and numbers), so that it can be told to a client anywhere."""

    @property
    def start(self) -> Start: ...

    def solve(self, costs: Costs, V: Array, s: float | Array, start: Array) -> Proximal:
        """Approximate prox_{s f_j}(v_j) = argmin_u f_j(u) + ½‖u - v_j‖²/s for every row of V, (k, d).

        s is a number or (d,); start is (k, d), or (d,) where all clients start at the same point.
        """


def defect(costs: Costs, V: Array, s: float | Array, U: Array) -> Array:
    """s∘∇f_j(u_j) + u_j - v_j: the gradient of h_j = s f_j + ½‖· - v_j‖², zero at the prox."""
    return s * costs.gradient(U) + U - V


def distance_bound(costs: Costs, s: float | Array, r: Array) -> Array:
    """A proved bound on the distance to the prox where the defect is r: ‖r‖/(1 + s ℓ_j).

    h_j is (1 + sℓ_j)-strongly convex. With a step for each coordinate the same holds in the norm ‖·‖_{1/s}.
    """
    ell, _ = costs.bounds
    return np.sqrt(np.max(s) * dots(r, r / s)) / (1.0 + np.min(s) * ell)
