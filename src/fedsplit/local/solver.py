"""What a local solver is, and how far its answer can be from the prox."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, Protocol

from fedsplit.arrays import EPS, Array, dots, namespace, norms
from fedsplit.losses.batches import Streams
from fedsplit.losses.costs import Costs, Evaluation

Start = Literal["broadcast", "iterate", "argument"]
"""Where a local solver starts: the server's x, the client's z_j, or the prox argument v_j."""


class Proximal(NamedTuple):
    """Approximate proxes of k clients."""

    u: Array  # (k, d): row j approximates prox_{s f_j}(v_j)
    # (k,): proved bounds on ‖u_j - prox_{s f_j}(v_j)‖, rounding included, or estimates where a
    # solver says so
    error: Array
    gradient: Array | None = None  # (k, d): ∇f_j(u_j), if the solver has computed it anyway


class ProxSolver(Protocol):
    """A local solver: a frozen value, a name and numbers, that can be sent to any client."""

    @property
    def start(self) -> Start:
        """Where it starts."""

    def solve(self, costs: Costs, V: Array, s: float | Array, start: Array) -> Proximal:
        """Approximate prox_{s f_j}(v_j) = argmin_u f_j(u) + ½‖u - v_j‖²/s for k clients.

        Parameters
        ----------
        costs : Costs
            The f_j.
        V : (k, d) array
            The prox arguments v_j.
        s : float or (d,) array
            The step, one for all coordinates or one for each.
        start : (d,) or (k, d) array
            The point to start from, one for all clients or one for each.
        """


class StochasticSolver(ProxSolver, Protocol):
    """A local solver that draws: it takes the clients' random seeds beside the rest."""

    @property
    def draws(self) -> bool:
        """True."""

    def solve(
        self,
        costs: Costs,
        V: Array,
        s: float | Array,
        start: Array,
        streams: Streams | None = None,
    ) -> Proximal:
        """Approximate prox_{s f_j}(v_j) for k clients.

        ``streams`` is (k,), one seed for each client, or None for the same seed for all; the others
        are those of ``ProxSolver.solve``.
        """


def bounded(V: Array, s: float | Array, at: Evaluation) -> Proximal:
    """The answer u_j with its proved error, (‖r_j‖ + its rounding)/(1 + s ℓ_j).

    r_j = s∇f_j(u_j) + u_j - v_j is the gradient of h_j = s f_j + ½‖· - v_j‖², which is (1 +
    sℓ_j)-strongly convex and has its minimum at the prox. With a step for each coordinate the same
    holds in the norm ‖·‖_{1/s}. ``at`` has the costs at the u_j.
    """
    U = at.X
    g = at.gradient
    r = s * g + U - V
    least, top = extremes(s)
    size = (top * dots(r, r / s)) ** 0.5
    rounding = math.sqrt(top / least) * (
        top * at.gradient_error() + 4 * EPS * (norms(U) + norms(V))
    )
    return Proximal(U, (size + rounding) / (1.0 + least * at.costs.convexity), g)


def extremes(s: float | Array) -> tuple[float, float]:
    """The smallest and the largest step."""
    if isinstance(s, float):
        return s, s
    xp = namespace(s)
    return float(xp.min(s)), float(xp.max(s))
