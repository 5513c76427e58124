"""Where methods that average local work would stop on the same data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fedsplit.arrays import Array
from fedsplit.channels.members import Members
from fedsplit.clients.oracle import Clients
from fedsplit.clients.stacked import QUIET
from fedsplit.dialogue import converse
from fedsplit.errors import InputError, shown
from fedsplit.loop.conversation import Conversation
from fedsplit.methods.fedgd import AverageState, FedGD
from fedsplit.methods.fedprox import FedProx
from fedsplit.regression.server.federation import FitClients
from fedsplit.regression.server.problem import FitProblem
from fedsplit.threads import one_blas_thread


@dataclass(frozen=True)
class Bias:
    """How far the fixed point of a method is from the pooled fit.

    Attributes
    ----------
    method : str
        With its options.
    step : float
        The step size with which the method ran.
    params : Series
        The coefficients at the fixed point.
    standard_errors : Series
        Their distances from the pooled coefficients, in standard errors.
    """

    method: str
    step: float
    params: pd.Series
    standard_errors: pd.Series

    @property
    def worst(self) -> float:
        """The largest distance of a coefficient, in standard errors."""
        return float(self.standard_errors.abs().max())

    def __str__(self) -> str:
        name = str(self.standard_errors.abs().idxmax())
        return (
            f"{self.method}, step={self.step:.3g} would stop up to {self.worst:.3g} standard "
            f"errors away ({name})"
        )


@dataclass(frozen=True)
class ClientsAtHand:
    """A regression whose clients can be asked more at no price."""

    members: Members
    problem: FitProblem

    def bias(self, x: Array, coef: pd.Series, errors: Array, method: str, **settings: Any) -> Bias:
        """Compare the fixed point of an averaging method with the minimiser x, (d,).

        ``coef`` and ``errors`` are the d coefficients there, and their standard errors.
        """
        # the methods whose bias is known, with the options that they have beside ``step``
        averaging: dict[str, tuple[type[FedGD | FedProx], dict[str, Any]]] = {
            "fedgd": (FedGD, {"local_steps": 10}),
            "fedprox": (FedProx, {}),
        }
        if not isinstance(method, str) or method not in averaging:
            known = ", ".join(averaging)
            raise InputError(f"method {shown(method)}: the bias is known of {known}")
        kind, defaults = averaging[method]
        options = defaults | settings
        try:
            chosen = kind(**options)
        except TypeError:
            known = " and ".join(["step", *defaults])
            raise InputError(f"{method} takes {known}, not {settings}") from None
        clients, x, back = self.in_scaled_columns(x)
        with one_blas_thread(), np.errstate(**QUIET):
            conversation = Conversation(clients)
            step = converse(chosen.start(x, clients.m), conversation).s
            stopped = _fixed_point(chosen, conversation, x, step)
        away = back @ (stopped - x)
        return Bias(
            ", ".join([method, *(f"{name}={options[name]}" for name in defaults)]),
            step,
            coef + away,
            pd.Series(away / errors, index=coef.index, name="standard errors"),
        )

    def in_scaled_columns(self, x: Array) -> tuple[Clients, Array, Array]:
        """The problem as methods that average would be run on it, with columns not orthonormal.

        The clients of the columns that are not aliased, their coefficients at x, and what takes
        those to the units of the files.
        """
        problem = self.problem
        clients = FitClients(self.members, problem)
        clients.prepare()  # raises if the data have changed since
        if problem.settings.biased is not None:
            return clients, x, problem.back[problem.kept]
        whiten = None
        if not problem.kept.all():
            columns = problem.columns
            whiten = np.ascontiguousarray(np.eye(len(columns))[:, columns])
        frame = replace(problem.frame, whiten=whiten, precise=False)
        kept = problem.kept
        back = problem.unscaling[np.ix_(kept, kept)]
        scaled = FitClients(self.members, replace(problem, frame=frame))
        return scaled, (problem.basis @ x)[kept], back


def _fixed_point(method: FedGD | FedProx, conversation: Conversation, x: Array, s: float) -> Array:
    """The fixed point of one round near x, (d,), with the step s."""
    from scipy.optimize import root  # takes longer to import than a small fit

    def residual(point: Array) -> Array:
        after: Array = converse(method.update(AverageState(point, s)), conversation).x
        return after - point

    # a millionth of the move at x, or of x itself where x is all but a fixed point
    small = 1e-6 * max(float(np.linalg.norm(residual(x))), 1e-9 * float(np.linalg.norm(x)))
    now = x
    for _ in range(10):
        for _ in range(50):
            r = residual(now)
            if np.linalg.norm(r) <= small:
                return now
            now = now + r
        # plain rounds are slow where the method hardly contracts
        jumped = np.asarray(root(residual, now, tol=1e-14).x)
        if np.linalg.norm(residual(jumped)) < np.linalg.norm(residual(now)):
            now = jumped
    raise InputError(
        "no fixed point found: the method may diverge on this data, pass a smaller step"
    )
