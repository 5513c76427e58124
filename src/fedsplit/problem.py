"""A federated problem: a loss, the clients' data, a ridge."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.stacked import StackedClients
from fedsplit.errors import InputError, NoMinimiser
from fedsplit.losses.terms import Loss
from fedsplit.threads import one_blas_thread

NEWTON_STEPS = 100


class Problem:
    """Minimise F(x) = Σ_j f_j(x) + (λ/2)‖x‖², where f_j sums the loss over every observation of client j.

    Parameters
    ----------
    loss : Loss
        ``LeastSquares()``, ``Logistic()``, ``Poisson()``, ``Huber(delta)``, or one of your own.
    clients : sequence
        One (A, b) or (A, b, weights) a client: A is (n_j, d), b and weights are (n_j,). Sizes n_j may differ.
    ridge : float or (d,) array
        λ of the whole objective; each of the m clients carries λ/m.

    Attributes
    ----------
    clients : StackedClients
        The in-process clients, an oracle that ``solve`` asks.
    m, d : int
        The number of clients, and of coordinates of x.
    """

    def __init__(self, loss: Loss, clients: Sequence[object], ridge: float | Sequence[float] | Array = 0.0) -> None:
        self.loss = loss
        self.ridge = _check_ridge(ridge)
        with one_blas_thread():
            self.d, blocks = loss.stack(clients, self.ridge)
        if self.ridge.shape not in ((), (self.d,)):
            raise InputError(f"ridge must be a number or have {self.d} entries, its shape is {self.ridge.shape}")
        self.m = sum(len(block.clients) for block in blocks)
        self.clients = StackedClients(self.d, blocks, np.broadcast_to(self.ridge / self.m, (self.d,)))

    def objective(self, x: Array) -> float:
        """F(x), with the ridge."""
        return float(self.clients.value(self._point(x)).rows.sum())

    def gradient(self, x: Array) -> Array:
        """∇F(x), (d,)."""
        total: Array = self.clients.gradient(self._point(x)).rows.sum(axis=0)
        return total

    def solution(self) -> Array:
        """The pooled minimiser by Newton's method on F, one of them where it is not unique.

        It sees all the data at once: for tests and simulations only.
        """
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            return self._newton()

    def _newton(self) -> Array:
        x: Array = np.zeros(self.d)
        F, g = self.objective(x), self.gradient(x)
        best = np.inf
        for _ in range(NEWTON_STEPS):
            step = _least_norm_solve(self.clients.pooled_information(x), g)
            size = float(np.linalg.norm(step))
            if size <= 1e-9 * (1.0 + float(np.linalg.norm(x))) and size > 0.5 * best:
                return x
            best = min(best, size)
            x, F = self._line_search(x, F, step, float(g @ step))
            g = self.gradient(x)
        raise NoMinimiser(
            f"no minimiser found in {NEWTON_STEPS} Newton steps: the objective may fall forever "
            "(separable classes, for instance); add a ridge"
        )

    def _line_search(self, x: Array, F: float, step: Array, slope: float) -> tuple[Array, float]:
        slack = 16 * np.finfo(np.float64).eps * abs(F)
        for halvings in range(60):
            t = 0.5**halvings
            trial = x - t * step
            value = self.objective(trial)
            if value <= F - 1e-4 * t * slope + slack:
                return trial, value
        return x, F

    def _point(self, x: Array) -> Array:
        x = np.asarray(x, dtype=np.float64)
        if x.shape != (self.d,):
            raise InputError(f"x must have shape ({self.d},), not {x.shape}")
        return x


def _check_ridge(ridge: float | Sequence[float] | Array) -> Array:
    try:
        values = np.asarray(ridge, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"ridge must be a number or one number a column, not {ridge!r}") from None
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise InputError(f"ridge must be finite and not below zero, not {ridge!r}")
    return values


def _least_norm_solve(H: Array, g: Array) -> Array:
    """A solution of H step = g; H is scaled to a unit diagonal, so that bad scaling does not pass for singularity."""
    scale = np.sqrt(np.maximum(np.diag(H), np.finfo(np.float64).tiny))
    eigenvalues, Q = np.linalg.eigh(H / scale / scale[:, None])
    kept = eigenvalues > H.shape[0] * np.finfo(np.float64).eps * eigenvalues[-1]
    coordinates = np.where(kept, (Q.T @ (g / scale)) / np.where(kept, eigenvalues, 1.0), 0.0)
    step: Array = (Q @ coordinates) / scale
    return step
