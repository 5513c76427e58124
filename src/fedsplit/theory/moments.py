"""Mean and covariance of stochastic methods on least squares, by recursions that are exact."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
"""A round that changes mean and covariance by a smaller share of their size is the last."""

HUGE = 1e100
"""Moments beyond this grow without bound."""

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
    decay: float = 0.0,
) -> Moments:
    """Mean and covariance of FedAvg's x on least squares, after some rounds or in the limit.

    Batches are drawn independently at each step, and clients independently in each round. The mean
    is that of FedGD, so its limit is ``fedgd_fixed_point``.

    Parameters
    ----------
    clients : StackedClients
        Of a ``Problem(LeastSquares(rows=True), ...)``.
    s : float
        The first step.
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
    decay : float
        The step in round t = 0, 1, … is s/(1 + decay·t); above 0 only with ``rounds``.

    Raises
    ------
    InputError
        If the costs are not least squares with rows, or the moments grow without bound, or do not
        settle.
    """
    _check(s, local_steps, batch, share, rounds, decay)
    each = _rows(clients, s, batch)
    drawn = max(1, round(share * clients.m))
    start = np.zeros(clients.d) if x0 is None else np.asarray(x0, dtype=np.float64)
    if start.shape != (clients.d,) or not np.isfinite(start).all():
        raise InputError(f"x0 must be {clients.d} finite numbers, its shape is {start.shape}")
    x = Moments(start, np.zeros((clients.d, clients.d)))
    for t in range(MOST_ROUNDS if rounds is None else rounds):
        before = x
        now = [replace(client, s=s / (1.0 + decay * t)) for client in each]
        with np.errstate(over="ignore", invalid="ignore"):
            x = _round(now, drawn, local_steps, x)
        if not max(np.trace(x.covariance), np.abs(x.mean).max()) < HUGE:
            raise InputError(f"the moments grow without bound: the step {s:g} is too large")
        if rounds is None and all(map(_settled, before, x)):
            return x
    if rounds is None:
        raise InputError(f"the moments do not settle in {MOST_ROUNDS:,} rounds: pass rounds=")
    return x


def _check(
    s: float, local_steps: int, batch: int | None, share: float, rounds: int | None, decay: float
) -> None:
    """Raise InputError unless these settings of ``fedavg_moments`` can be used."""
    number("s", s)
    count("local_steps", local_steps)
    if batch is not None:
        count("batch", batch)
    if number("share", share) > 1.0:
        raise InputError(f"share must be at most 1, not {share!r}")
    if rounds is not None:
        count("rounds", rounds, least=0)
    if number("decay", decay, strict=False) > 0.0 and rounds is None:
        raise InputError("falling steps settle in no number of rounds: pass rounds=")


def _settled(before: Array, after: Array) -> bool:
    """Whether a round has changed an array by rounding alone."""
    return bool(np.abs(after - before).max() <= SETTLED * np.abs(after).max())


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
