"""The default local solver: as many Newton steps as the round needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedsplit.arrays import Array
from fedsplit.checks import number
from fedsplit.losses.costs import Costs
from fedsplit.prox.exact import newton
from fedsplit.prox.expansion import Expansion, in_metric
from fedsplit.prox.krylov import Krylov, preconditioner
from fedsplit.prox.local import Local, descend
from fedsplit.prox.solver import Proximal, Start
from fedsplit.prox.span import Span


@dataclass(frozen=True)
class NewtonProx:
    """prox_{s f_j}(v_j) to an accuracy relative to its distance from the server's x.

    Newton steps from x until ‖∇h_j(u)‖ ≤ ratio·‖u - x‖, with h_j = s f_j + ½‖· - v_j‖², in the norm
    of the step where each coordinate has its own. As the rounds converge, u goes to x and the error
    to zero: little work per round, and no error floor. Quadratic costs are solved exactly, by one
    stored factor.

    Parameters
    ----------
    ratio : float
        The relative accuracy.
    """

    ratio: float = 0.01

    start: ClassVar[Start] = "broadcast"
    per_coordinate: ClassVar[bool] = True  # s may be (d,)

    def __post_init__(self) -> None:
        number("NewtonProx: ratio", self.ratio)

    def solve(self, costs: Costs, V: Array, s: float | Array, start: Array) -> Proximal:
        exact = costs.quadratic_prox(V, s)
        if exact is not None:
            return Proximal(exact, np.zeros(exact.shape[0]))
        terms = costs.terms.predictors
        if terms is None:
            return newton(costs, V, s, start, self.ratio)
        h = Expansion.near(costs, terms, np.broadcast_to(start, V.shape), V, s)
        local = _local(costs, h)
        size = np.sqrt(in_metric(h.D, h.X)) + np.sqrt(in_metric(h.D, V))
        at, residual = descend(local, local.start(), size, self.ratio)
        # h is strongly convex in the metric D
        return Proximal(h.X + local.delta(at), residual / np.sqrt(np.min(h.D)))


def _local(costs: Costs, h: Expansion) -> Local:
    """By the rows where they are few, else by the columns."""
    rows = costs.terms.wide
    if rows is None:
        return Krylov(h, preconditioner(costs, h.D, h.eta.shape[-1]))
    return Span.of(h, rows)
