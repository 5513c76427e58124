"""What a local solver is, how far its answer can be from the prox, and its line search."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from fedsplit.arrays import EPS, Array, Mask, Metric, dots, metric_times, namespace, norms
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


class ProxSolver(Protocol):
    """A local solver: a frozen value, a name and numbers, that can be sent to any client."""

    @property
    def start(self) -> Start:
        """Where it starts."""

    def solve(self, costs: Costs, V: Array, s: float, start: Array) -> Proximal:
        """Approximate prox_{s f_j}(v_j) = argmin_u f_j(u) + ½‖u - v_j‖²/s for k clients.

        V has the v_j, (k, d), and ``start`` the points to start from, (k, d), or (d,) for all.
        """


class StochasticSolver(ProxSolver, Protocol):
    """A local solver that draws: it takes the clients' random seeds beside the rest."""

    @property
    def draws(self) -> bool:
        """True."""

    def solve(
        self, costs: Costs, V: Array, s: float, start: Array, streams: Streams | None = None
    ) -> Proximal:
        """As in ``ProxSolver``; ``streams`` is (k,), or None for the same seed for all."""


def start_of(solver: ProxSolver, x: Array, z: Array) -> Array | None:
    """Where a solver starts, given the server's x and the z_j; None for the v_j."""
    return {"broadcast": x, "iterate": z, "argument": None}[solver.start]


def bounded(V: Array, s: float, at: Evaluation) -> Proximal:
    """The answer u_j with its proved error, (‖r_j‖ + its rounding)/(1 + s ℓ_j).

    r_j = s∇f_j(u_j) + u_j - v_j is the gradient of h_j = s f_j + ½‖· - v_j‖², which is (1 +
    sℓ_j)-strongly convex and has its minimum at the prox. ``at`` has the costs at the u_j.
    """
    U = at.X
    r = s * at.gradient + U - V
    rounding = s * at.gradient_error() + 4 * EPS * (norms(U) + norms(V))
    return Proximal(U, (norms(r) + rounding) / (1.0 + s * at.costs.convexity))


@dataclass(frozen=True, eq=False)
class Merit:
    """h_j(u) = f_j(u) + ½‖u - v_j‖²_M, which prox_{s f_j}(v_j) minimises if M = 1/s."""

    V: Array  # (k, d): the v_j
    M: Metric  # (d,), (d, d), (k, d, d): the metric

    def value(self, at: Evaluation) -> Array:
        """h_j(u_j), (k,); +inf where that is not a number."""
        E = at.X - self.V
        h = at.value + 0.5 * dots(E, metric_times(self.M, E))
        xp = namespace(h)
        result: Array = xp.where(xp.isnan(h), math.inf, h)
        return result

    def gradient(self, at: Evaluation) -> Array:
        """∇h_j(u_j), (k, d)."""
        return at.gradient + metric_times(self.M, at.X - self.V)


class Search(NamedTuple):
    """Where a line search ended."""

    at: Evaluation  # the costs at the points u_j
    h: Array  # (k,): their merit h_j(u_j)
    moved: Mask  # (k,): whether a step was taken


def backtrack(
    merit: Merit,
    at: Evaluation,
    h: Array,
    step: Array,
    slope: Array,
    decrease: float = 1e-4,
    halvings: int = 1100,
) -> Search:
    """Take u - t·step with the first t of 1, ½, ¼, … at which h falls by decrease·t·slope (Armijo).

    ``slope``, (k,), is ⟨∇h(u), step⟩, and h, (k,), the merit at u; a client whose slope is not
    positive stays where it is. A ``decrease`` of 1e-4 is customary for Newton's method, and ½ makes
    gradient steps as short as 1/L. ``halvings`` go from 1 to below the least float: a search ends
    long before, when a step moves nothing.

    A merit of +inf is a rejected step. If the change of h is lost in rounding, the same test is
    made on slopes, as for a quadratic: ⟨∇h(u - t·step), step⟩ ≥ -(1 - 2 decrease)·slope.
    """
    xp = namespace(h)
    seeking: Mask = slope > 0
    uphill = ~seeking
    step = xp.where(seeking[:, None], step, 0.0)  # also where it is not a number
    # h sums the values of many rows, each rounded
    rounding = 16 * EPS * xp.abs(h)
    start = at
    before = h
    t = xp.ones_like(h)
    for _ in range(halvings):
        # one evaluation of the whole block, whoever seeks: the rows of all are one array
        trial = start.costs.at(start.X - t[:, None] * step)
        value = merit.value(trial)
        least = xp.maximum(decrease * t * slope, rounding)
        # from a merit of +inf, any finite one is enough
        taken = seeking & (value <= xp.clip(before - least, None, sys.float_info.max))
        lost = seeking & ~taken & (xp.abs(value - before) < rounding)
        if xp.any(lost):
            flat = dots(merit.gradient(trial), step) >= -(1.0 - 2.0 * decrease) * slope
            taken = taken | (lost & flat)
        # whoever stays has a step of 0, so that an undivided block takes the trial as it is
        at = at.merged(trial, taken | uphill)
        h = xp.where(taken, value, h)
        seeking = seeking & ~taken
        if not xp.any(seeking):
            break
        t = xp.where(seeking, 0.5 * t, t)
        moves = xp.any(xp.abs(t[:, None] * step) > 1e-17 * xp.abs(start.X), axis=1)
        if not xp.any(seeking & moves):
            break
    return Search(at, h, ~uphill & ~seeking)
