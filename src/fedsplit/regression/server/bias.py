"""Where methods that average local work would stop on the same data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import root

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.clients.stacked import QUIET
from fedsplit.errors import InputError
from fedsplit.methods.fedgd import AverageState, FedGD
from fedsplit.methods.fedprox import FedProx
from fedsplit.threads import one_blas_thread

AVERAGING = {"fedavg": FedGD, "fedprox": FedProx}

ACCURACY = 1e-6
"""A fixed point moves by less than this share of what the minimiser moves in one round."""

ATTEMPTS, ROUNDS = 10, 50
"""So many times, so many plain rounds and a quasi-Newton search."""


@dataclass(frozen=True)
class Bias:
    """Where a method would stop: its coefficients, and how far they are from the pooled ones in standard errors."""

    method: str
    coef: pd.Series
    standard_errors: pd.Series

    @property
    def worst(self) -> float:
        """The largest distance of a coefficient, in standard errors."""
        return float(self.standard_errors.abs().max())

    def __str__(self) -> str:
        name = str(self.standard_errors.abs().idxmax())
        return f"{self.method} would stop up to {self.worst:.3g} standard errors away ({name})"


def bias(
    clients: Clients,
    x: Array,
    back: Array,
    errors: Array,
    names: Sequence[str],
    method: str,
    **settings: Any,
) -> Bias:
    """The fixed point of an averaging method, compared with the minimiser x; ``back`` takes both to coefficients."""
    if method not in AVERAGING:
        raise InputError(f"method {method!r}: the bias is known of {', '.join(AVERAGING)}")
    defaults: dict[str, Any] = {"local_steps": 10} if method == "fedavg" else {}
    try:
        chosen = AVERAGING[method](**(defaults | settings))
    except TypeError:
        raise InputError(
            f"{method} takes step{' and local_steps' * (method == 'fedavg')}, not {settings}"
        ) from None
    with one_blas_thread(), np.errstate(**QUIET):
        stopped = _fixed_point(chosen, clients, x)
    away = back @ (stopped - x)
    return Bias(
        ", ".join([method, *(f"{name}={value}" for name, value in (defaults | settings).items())]),
        pd.Series(back @ stopped, index=list(names), name="coef"),
        pd.Series(away / errors, index=list(names), name="standard errors"),
    )


def _fixed_point(method: FedGD | FedProx, clients: Clients, x: Array) -> Array:
    """The fixed point nearest to x of one round, whose residual is small beside its distance from x."""
    s = method.start(clients, x).s

    def residual(point: Array) -> Array:
        after: Array = method.update(clients, AverageState(point, s)).x
        return after - point

    small = ACCURACY * max(float(np.linalg.norm(residual(x))), 1e-9 * float(np.linalg.norm(x)))
    now = x
    for _ in range(ATTEMPTS):
        for _ in range(ROUNDS):
            if np.linalg.norm(r := residual(now)) <= small:
                return now
            now = now + r
        jumped = np.asarray(root(residual, now, tol=1e-14).x)  # where plain rounds are slow
        now = jumped if np.linalg.norm(residual(jumped)) < np.linalg.norm(residual(now)) else now
    raise InputError(
        "no fixed point found: the method may diverge on this data, pass a smaller step"
    )
