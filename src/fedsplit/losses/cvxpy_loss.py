"""A loss given as a CVXPY expression (extra ``cvx``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import cvxpy as cp
import numpy as np

from fedsplit.arrays import Array
from fedsplit.errors import InputError
from fedsplit.losses.custom import CustomLoss
from fedsplit.losses.terms import Block


@dataclass(frozen=True)
class CvxpyLoss:
    """f_j(x) = the CVXPY expression ``build(x, data_j)``, convex by CVXPY's rules and differentiable.

    Parameters
    ----------
    build : callable
        ``build(x, data) -> cvxpy.Expression``: a scalar in the variable x of shape (d,).
    d : int
        The dimension of x.

    Values and gradients are CVXPY's own, exact to rounding; Hessians are differences of gradients. With ``CvxpyProx``
    the prox is solved from the expression itself.
    """

    build: Callable[[Any, Any], Any]
    d: int

    def stack(self, clients: Sequence[object], ridge: Array) -> tuple[int, list[Block]]:
        loss = CustomLoss(_value, _gradient, self.d)
        return loss.stack([Expression(self, j, data) for j, data in enumerate(clients)], ridge)


class Expression:
    """One client's expression in a variable of its own."""

    def __init__(self, loss: CvxpyLoss, j: int, data: object) -> None:
        self._build, self._data = loss.build, data
        self.x = cp.Variable(loss.d)
        self.cost = self.of(self.x)
        if not isinstance(self.cost, cp.Expression):
            raise InputError(
                f"client {j}: build must return a CVXPY expression, it returned {self.cost!r}"
            )
        if not self.cost.is_scalar() or not self.cost.is_convex():
            raise InputError(
                f"client {j}: the expression must be scalar and convex by CVXPY's rules: {self.cost}"
            )

    def of(self, x: Any) -> Any:
        """The same cost as an expression in another variable."""
        return self._build(x, self._data)


ONE_AT_A_TIME = Lock()
"""CVXPY counts its variables in a global and keeps values in them, so expressions are used one at a time."""


def _value(x: Array, expression: Any) -> float:
    with ONE_AT_A_TIME:
        expression.x.value = x
        return float(expression.cost.value)


def _gradient(x: Array, expression: Any) -> Array:
    with ONE_AT_A_TIME:
        expression.x.value = x
        gradients = expression.cost.grad
        if expression.x not in gradients:  # a constant
            return np.zeros(expression.x.size)
        gradient: Array = gradients[expression.x].toarray()[:, 0]
        return gradient
