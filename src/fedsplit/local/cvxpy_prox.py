"""The prox by CVXPY and Clarabel, as the paper computed it (extra ``cvx``)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import cvxpy as cp
import numpy as np

from fedsplit.arrays import Array
from fedsplit.errors import InputError
from fedsplit.local.solver import Proximal, Start, bounded
from fedsplit.losses.costs import Costs
from fedsplit.losses.cvxpy_loss import ONE_AT_A_TIME


@dataclass(frozen=True)
class CvxpyProx:
    """prox_{s f_j}(v_j) by an interior-point solver: general, slow, and accurate to about 1e-6.

    Each client's problem is compiled once and solved again with new parameters. It needs a loss
    that states its CVXPY expression, as the built-in ones and ``CvxpyLoss`` do.
    """

    start: ClassVar[Start] = "broadcast"

    def solve(self, costs: Costs, V: Array, s: float, start: Array) -> Proximal:
        U = np.empty_like(V)
        with ONE_AT_A_TIME:
            for j, v in enumerate(V):
                make = partial(ParametrisedProx, costs, j)
                problem = costs.latest.get((CvxpyProx, j), None, make)
                U[j] = problem.solve(v, s)
        return bounded(V, s, costs.at(U))


class ParametrisedProx:
    """argmin_u f_j(u) + ½‖ru - q‖², with the parameters r = s^{-½} and q = rv."""

    def __init__(self, costs: Costs, j: int) -> None:
        d = costs.terms.d
        self._u = cp.Variable(d)
        self._r = cp.Parameter(nonneg=True)
        self._q = cp.Parameter(d)
        cost = costs.terms.expression(cp, j, self._u)
        if cost is None:
            raise InputError(
                "CvxpyProx has no expression for this loss: "
                "use ExactProx or GradientProx, or give a CvxpyLoss"
            )
        ridge = 0.5 * cp.sum_squares(cp.multiply(np.sqrt(costs.ridge), self._u))
        proximity = 0.5 * cp.sum_squares(self._r * self._u - self._q)
        self._problem = cp.Problem(cp.Minimize(cost + ridge + proximity))

    def solve(self, v: Array, s: float) -> Array:
        """prox_{s f_j}(v), (d,)."""
        self._r.value = 1.0 / np.sqrt(s)
        self._q.value = self._r.value * v
        try:
            self._problem.solve(solver=cp.CLARABEL)
        except cp.SolverError:
            self._u.value = None
        if self._u.value is None:
            raise InputError(
                "CvxpyProx: Clarabel could not solve a client's prox: "
                "use ExactProx, or a smaller step"
            )
        return np.array(self._u.value)
