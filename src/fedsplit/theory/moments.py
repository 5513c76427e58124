"""Mean and covariance of stochastic methods on least squares, by recursions that are exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.checks import count, number
from fedsplit.clients.stacked import StackedClients
from fedsplit.errors import InputError
from fedsplit.losses.least_squares import LeastSquares
from fedsplit.losses.linear import LinearTerms
from fedsplit.theory.paper import quadratics

SETTLED = 1e-13
"""A round that changes the second moments by a smaller share of their size is the last."""

MOST_ROUNDS = 100_000


class Moments(NamedTuple):
    """The distribution of x to second order.

    Attributes
    ----------
    mean : (d,) array
    covariance : (d, d) array
    """

    mean: Array
    covariance: Array

    def through(self, M: Array, c: Array) -> Moments:
        """The moments of Mx + c."""
        return Moments(M @ self.mean + c, M @ self.covariance @ M.T)


@dataclass(frozen=True)
class _Client:
    """One client's least squares ½Σ_i w_i(a_iᵀx - b_i)² + ½xᵀ(H - AᵀWA)x, and its batches.

    Attributes
    ----------
    A, b, w : (n, d), (n,) and (n,) arrays
    H, c : (d, d) and (d,) arrays
        Of f_j(x) = ½xᵀHx - cᵀx + const, with the ridge.
    s : float
        The step.
    batch : int
        B, at most n.
    """

    A: Array
    b: Array
    w: Array
    H: Array
    c: Array
    s: float
    batch: int

    def step(self, x: Moments) -> Moments:
        """The moments after one step with a batch of its own."""
        moved = x.through(np.eye(len(self.c)) - self.s * self.H, self.s * self.c)
        return moved._replace(covariance=moved.covariance + self.s**2 * self.noise(x))

    def noise(self, x: Moments) -> Array:
        """E Cov(ĝ | x) = n²/B · (n - B)/(n - 1) · E[the covariance of a row's gradient], (d, d).

        A row's gradient is w_i r_i a_i with r_i = a_iᵀx - b_i; batches are drawn without
        replacement.
        """
        n = len(self.b)
        if self.batch >= n:
            return np.zeros_like(self.H)
        residual = self.A @ x.mean - self.b
        squares = residual**2 + np.einsum("ni,ij,nj->n", self.A, x.covariance, self.A)
        rows = self.A.T * (self.w**2 * squares) @ self.A / n
        weighted = self.A.T * self.w
        mean = weighted @ residual / n
        G = weighted @ self.A / n
        centred = rows - np.outer(mean, mean) - G @ x.covariance @ G.T
        spread: Array = n**2 / self.batch * (n - self.batch) / (n - 1.0) * centred
        return spread


def fedavg_moments(
    clients: StackedClients,
    s: float,
    local_steps: int = 1,
    batch: int | None = None,
    share: float = 1.0,
    rounds: int | None = None,
    x0: Array | None = None,
) -> Moments:
    """Mean and covariance of FedAvg's x on least squares, after some rounds or in the limit.

    Batches are drawn independently at each step, and clients independently in each round. The mean
    is that of FedGD, so its limit is ``fedgd_fixed_point``.

    Parameters
    ----------
    clients : StackedClients
        Of a ``Problem(LeastSquares(rows=True), ...)``.
    s : float
        The constant step.
    local_steps : int
        e.
    batch : int, optional
        B; None is all rows.
    share : float
        The share of the clients that is drawn in each round.
    rounds : int, optional
        None is until the moments settle.
    x0 : (d,) array, optional
        The start; zeros if None.

    Raises
    ------
    InputError
        If the costs are not least squares with rows, or the covariance grows without bound.
    """
    number("s", s)
    count("local_steps", local_steps)
    each = _rows(clients, s, batch)
    drawn = max(1, round(share * clients.m))
    start = np.zeros(clients.d) if x0 is None else x0
    x = Moments(start, np.zeros((clients.d, clients.d)))
    for _ in range(rounds or MOST_ROUNDS):
        before = x
        x = _round(each, drawn, local_steps, x)
        if not np.isfinite(x.covariance).all() or np.trace(x.covariance) > 1e100:
            raise InputError(f"the covariance grows without bound: the step {s:g} is too large")
        moved = np.abs(x.covariance - before.covariance).max() + np.abs(x.mean - before.mean).max()
        if rounds is None and moved <= SETTLED * (np.abs(x.covariance).max() + SETTLED):
            break
    return x


def _round(each: list[_Client], drawn: int, local_steps: int, x: Moments) -> Moments:
    """The moments after one round.

    Given x, clients' ends x_j are independent, with means m_j(x) = M_jx + c_j, and covariances N_j.
    The average over q of m clients, drawn without replacement, has the covariance
    Cov(m̄) + E ΣN_j/(mq) + (m - q)/(q(m - 1)) E Σ(m_j - m̄)(m_j - m̄)ᵀ/m.
    """
    m = len(each)
    maps = [_power(client, local_steps) for client in each]
    M = np.stack([own for own, _ in maps])
    c = np.stack([shift for _, shift in maps])
    mean = x.through(M.mean(axis=0), c.mean(axis=0))
    spread = np.zeros_like(x.covariance)
    for client, (own, shift) in zip(each, maps, strict=True):
        end = x
        for _ in range(local_steps):
            end = client.step(end)
        spread += (end.covariance - x.through(own, shift).covariance) / (m * drawn)
        if drawn < m:
            away = x.through(own - M.mean(axis=0), shift - c.mean(axis=0))
            second = away.covariance + np.outer(away.mean, away.mean)
            spread += (m - drawn) / (drawn * (m - 1.0)) * second / m
    return mean._replace(covariance=mean.covariance + spread)


def _power(client: _Client, steps: int) -> tuple[Array, Array]:
    """M and c of the affine map of so many steps with all rows."""
    G = np.eye(len(client.c)) - client.s * client.H
    M = np.eye(len(client.c))
    c = np.zeros_like(client.c)
    for _ in range(steps):
        M = G @ M
        c = G @ c + client.s * client.c
    return M, c


def _rows(clients: StackedClients, s: float, batch: int | None) -> list[_Client]:
    """Every client's rows without padding."""
    H, c = quadratics(clients)
    found = []
    for j in range(clients.m):
        terms = clients.terms_of(j)
        if not isinstance(terms, LinearTerms) or not isinstance(terms.phi, LeastSquares):
            raise InputError("moments are for least squares with rows: use LeastSquares(rows=True)")
        n = int(terms.stacked.sizes[0])
        own = terms.A[0, :n], terms.b[0, :n] - terms.o[0, :n], terms.w[0, :n]
        found.append(_Client(*own, H[j], c[j], s, min(n, batch or n)))
    return found
