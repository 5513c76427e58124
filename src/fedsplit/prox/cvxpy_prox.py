"""The prox by CVXPY and Clarabel, as the paper computed it (extra ``cvx``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np

from fedsplit.arrays import Array
from fedsplit.errors import InputError
from fedsplit.losses.costs import Costs
from fedsplit.losses.custom import CustomTerms
from fedsplit.losses.cvxpy_loss import ONE_AT_A_TIME, Expression
from fedsplit.losses.gamma import Gamma
from fedsplit.losses.huber import Huber
from fedsplit.losses.least_squares import GramTerms, LeastSquares
from fedsplit.losses.linear import LinearTerms
from fedsplit.losses.logistic import Logistic
from fedsplit.losses.multinomial import MultinomialTerms
from fedsplit.losses.poisson import Poisson
from fedsplit.losses.terms import Terms
from fedsplit.prox.solver import Proximal, Start, with_bound


@dataclass(frozen=True)
class CvxpyProx:
    """prox_{s f_j}(v_j) by an interior-point solver: general, slow, and accurate to about 1e-6.

    Each client's problem is compiled once and solved again with new parameters. Works for our losses and for
    ``CvxpyLoss``; a ``CustomLoss`` has no expression to hand to CVXPY.
    """

    start: ClassVar[Start] = "broadcast"

    def solve(self, costs: Costs, V: Array, s: float | Array, start: Array) -> Proximal:
        with ONE_AT_A_TIME:
            U = np.stack([_compiled(costs, j).solve(v, s) for j, v in enumerate(V)])
        return with_bound(costs, V, s, U)


class _Problem:
    """argmin_u f_j(u) + ½‖r∘u - q‖², with the parameters r = s^{-½} and q = r∘v."""

    def __init__(self, cost: Any, u: cp.Variable) -> None:
        self.u, self.r, self.q = u, cp.Parameter(u.size, nonneg=True), cp.Parameter(u.size)
        proximity = 0.5 * cp.sum_squares(cp.multiply(self.r, u) - self.q)
        self.problem = cp.Problem(cp.Minimize(cost + proximity))

    def solve(self, v: Array, s: float | Array) -> Array:
        self.r.value = np.broadcast_to(1.0 / np.sqrt(s), v.shape)
        self.q.value = self.r.value * v
        try:
            self.problem.solve(solver=cp.CLARABEL)
        except cp.SolverError:
            self.u.value = None
        if self.u.value is None:
            raise InputError(
                "CvxpyProx: Clarabel could not solve a client's prox: use ExactProx, or a smaller step"
            )
        u: Array = np.array(self.u.value)
        return u


def _compiled(costs: Costs, j: int) -> _Problem:
    problem = costs.cache.get((CvxpyProx, j))
    if not isinstance(problem, _Problem):
        u = cp.Variable(costs.terms.d)
        ridge = 0.5 * cp.sum_squares(cp.multiply(np.sqrt(costs.ridge), u))
        problem = costs.cache[CvxpyProx, j] = _Problem(_cost(costs.terms, j, u) + ridge, u)
    return problem


def _cost(terms: Terms, j: int, u: cp.Variable) -> Any:
    """Client j's terms as a CVXPY expression in u."""
    if isinstance(terms, GramTerms):
        e = u - terms.u[j]
        return 0.5 * cp.quad_form(e, cp.psd_wrap(terms.H[j])) + terms.g[j] @ e
    if isinstance(terms, LinearTerms):
        eta, b, w = terms.A[j] @ u + terms.o[j], terms.b[j], terms.w[j]
        match terms.phi:
            case LeastSquares():
                return 0.5 * cp.sum(cp.multiply(w, cp.square(eta - b)))
            case Logistic():
                return cp.sum(cp.multiply(w, cp.logistic(-cp.multiply(b, eta))))
            case Poisson():
                return cp.sum(cp.multiply(w, cp.exp(eta) - cp.multiply(b, eta)))
            case Gamma():
                return cp.sum(cp.multiply(w, eta + cp.multiply(b, cp.exp(-eta))))
            case Huber(delta):
                return 0.5 * cp.sum(cp.multiply(w, cp.huber(eta - b, delta)))
    if isinstance(terms, MultinomialTerms):
        A, w = terms.A[j], terms.w[j]
        coefficients = terms.phi.mix @ cp.reshape(u, (terms.classes - 1, A.shape[1]), order="C")
        eta = cp.hstack([np.zeros((len(A), 1)), A @ coefficients.T])
        own = cp.sum(cp.multiply(np.eye(terms.classes)[terms.b[j]], eta), axis=1)
        return cp.sum(cp.multiply(w, cp.log_sum_exp(eta, axis=1) - own))
    if isinstance(terms, CustomTerms) and isinstance(own := terms.data[j], Expression):
        return own.of(u)
    raise InputError(
        "CvxpyProx has no expression for this loss: use ExactProx or GradientProx, or give a CvxpyLoss"
    )
