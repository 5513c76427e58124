"""What CVXPY computes (extra ``cvx``): a loss given as an expression, and the paper's prox."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np

from fedsplit.arrays import Array
from fedsplit.errors import InputError
from fedsplit.local.solver import Proximal, Start, bounded
from fedsplit.losses.costs import Costs
from fedsplit.losses.custom import CustomLoss, CustomTerms, stack_custom
from fedsplit.losses.terms import Block

ONE_AT_A_TIME = Lock()
"""Held while CVXPY is used: it counts variables in a global and keeps values in them."""


@dataclass(frozen=True)
class CvxpyLoss:
    """f_j(x) = ``build(x, data_j)``, an expression that is convex by CVXPY's rules.

    It must also be differentiable. Values and gradients are CVXPY's own, exact to rounding;
    Hessians are differences of gradients. With ``CvxpyProx`` the prox is solved from the expression
    itself.

    Parameters
    ----------
    build : callable
        ``build(x, data) -> cvxpy.Expression``: a scalar in the variable x of shape (d,).
    d : int
        The dimension of x.
    """

    build: Callable[[Any, Any], Any]
    d: int

    exact_hessian: ClassVar[bool] = False

    def stack(self, clients: Sequence[object], ridge: Array) -> tuple[int, list[Block]]:
        costs = [Expression(self, j, data) for j, data in enumerate(clients)]
        return stack_custom(CvxpyTerms(CustomLoss(_value, _gradient, self.d), costs))


class CvxpyTerms(CustomTerms):
    """The expressions of k clients, which a prox can use as they are."""

    def expression(self, cp: Any, j: int, u: Any) -> Any:
        return self.data[j].of(u)


class Expression:
    """One client's cost, as an expression in a variable of its own."""

    def __init__(self, loss: CvxpyLoss, j: int, data: object) -> None:
        self._build = loss.build
        self._data = data
        self.x = cp.Variable(loss.d)
        self.cost = self.of(self.x)
        if not isinstance(self.cost, cp.Expression):
            raise InputError(
                f"client {j}: build must return a CVXPY expression, it returned {self.cost!r}"
            )
        if not self.cost.is_scalar() or not self.cost.is_convex():
            raise InputError(
                f"client {j}: the expression must be scalar and convex by CVXPY's rules, "
                f"which {self.cost} is not"
            )

    def of(self, x: Any) -> Any:
        """The client's cost as an expression in the variable x."""
        return self._build(x, self._data)


def _value(x: Array, expression: Expression) -> float:
    with ONE_AT_A_TIME:
        expression.x.value = x
        return float(expression.cost.value)


def _gradient(x: Array, expression: Expression) -> Array:
    with ONE_AT_A_TIME:
        expression.x.value = x
        # without x, the expression is constant
        gradient = expression.cost.grad.get(expression.x)
        return np.zeros(x.size) if gradient is None else gradient.toarray()[:, 0]


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
