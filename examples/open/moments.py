"""Mean and covariance of FedAvg's iterates on least squares, by a recursion that is exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fedsplit as fs


class Moments(NamedTuple):
    """The distribution of x to second order: its mean, (d,), and covariance, (d, d)."""

    mean: NDArray[Any]
    covariance: NDArray[Any]

    def through(self, M: NDArray[Any], c: NDArray[Any]) -> Moments:
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

    A: NDArray[Any]
    b: NDArray[Any]
    w: NDArray[Any]
    H: NDArray[Any]
    c: NDArray[Any]
    s: float
    batch: int

    def map(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """M and c of the affine map x ↦ Mx + c of a step with all rows."""
        return np.eye(len(self.c)) - self.s * self.H, self.s * self.c

    def step(self, x: Moments) -> Moments:
        """The moments after one step with a batch of its own."""
        moved = x.through(*self.map())
        return moved._replace(covariance=moved.covariance + self.s**2 * self.noise(x))

    def noise(self, x: Moments) -> NDArray[Any]:
        """E Cov(ĝ | x) = n²/B · (n - B)/(n - 1) · E[the covariance of a row's gradient], (d, d).

        A row's gradient is w_i r_i a_i with r_i = a_iᵀx - b_i; batches are drawn without
        replacement.
        """
        n = len(self.b)
        if self.batch >= n:
            return np.zeros_like(x.covariance)
        residual = self.A @ x.mean - self.b
        squares = residual**2 + np.einsum("ni,ij,nj->n", self.A, x.covariance, self.A)
        rows = self.A.T * (self.w**2 * squares) @ self.A / n
        weighted = self.A.T * self.w
        mean = weighted @ residual / n
        G = weighted @ self.A / n
        centred = rows - np.outer(mean, mean) - G @ x.covariance @ G.T
        spread: NDArray[Any] = n**2 / self.batch * (n - self.batch) / (n - 1.0) * centred
        return spread


def fedavg_moments(
    data: Sequence[Sequence[NDArray[Any]]],
    s: float,
    local_steps: int = 1,
    batch: int | None = None,
    share: float = 1.0,
    rounds: int | None = None,
    x0: NDArray[Any] | None = None,
    decay: float = 0.0,
    ridge: float | NDArray[Any] = 0.0,
    most_rounds: int = 100_000,
) -> Moments:
    """Mean and covariance of FedAvg's x on least squares, after some rounds or in the limit.

    Batches are drawn independently at each step, and clients independently in each round. The mean
    is that of FedGD, so its limit is ``fs.theory.fedgd_fixed_point``.

    Parameters
    ----------
    data : sequence
        A_j and b_j of each client, perhaps with weights and offsets, as ``fs.Problem`` takes them.
    s : float
        The first step.
    local_steps : int
        e.
    batch : int, optional
        B; None is all rows.
    share : float
        The share of the clients that is drawn in each round.
    rounds : int, optional
        None is until a round changes the moments by rounding alone.
    x0 : (d,) array, optional
        The start; zeros if None.
    decay : float
        The step in round t = 0, 1, … is s/(1 + decay·t); above 0 only with ``rounds``.
    ridge : float or (d,) array
        λ of the whole objective, as in ``fs.Problem``.
    most_rounds : int
        When to give up on a limit: a step this small for its curvature is a mistake.

    Raises
    ------
    fs.InputError
        If the moments grow without bound, or do not settle.
    """
    if decay > 0.0 and rounds is None:
        raise fs.InputError("falling steps settle in no number of rounds: pass rounds=")
    clients = [_client(own, len(data), ridge, s, batch) for own in data]
    d = clients[0].A.shape[1]
    drawn = max(1, round(share * len(clients)))
    x = Moments(np.zeros(d) if x0 is None else x0, np.zeros((d, d)))
    for t in range(most_rounds if rounds is None else rounds):
        before = x
        now = [replace(client, s=s / (1.0 + decay * t)) for client in clients]
        with np.errstate(over="ignore", invalid="ignore"):
            x = _round(now, drawn, local_steps, x)
        if not max(np.trace(x.covariance), np.abs(x.mean).max()) < 1e100:
            raise fs.InputError(f"the moments grow without bound: the step {s:g} is too large")
        if rounds is None and all(map(_settled, before, x)):
            return x
    if rounds is None:
        raise fs.InputError(f"the moments do not settle in {most_rounds:,} rounds: pass rounds=")
    return x


def _client(
    own: Sequence[NDArray[Any]],
    m: int,
    ridge: float | NDArray[Any],
    s: float,
    batch: int | None,
) -> _Client:
    A, b, *rest = own
    w = rest[0] if rest else np.ones(len(b))
    if len(rest) > 1:  # an offset
        b = b - rest[1]
    weighted = A.T * w
    H = weighted @ A + np.diag(np.broadcast_to(ridge, A.shape[1:]) / m)
    return _Client(A, b, w, H, weighted @ b, s, min(len(b), batch or len(b)))


def _settled(before: NDArray[Any], after: NDArray[Any]) -> bool:
    """Whether a round has changed an array by rounding alone."""
    return bool(np.abs(after - before).max() <= 1e-13 * np.abs(after).max())


def _round(clients: list[_Client], drawn: int, local_steps: int, x: Moments) -> Moments:
    """The moments after one round.

    Given x, clients' ends x_j are independent, with means m_j(x) = M_jx + c_j, and covariances N_j.
    The average over q of m clients, drawn without replacement, has the covariance
    Cov(m̄) + E ΣN_j/(mq) + (m - q)/(q(m - 1)) E Σ(m_j - m̄)(m_j - m̄)ᵀ/m.
    """
    m = len(clients)
    maps = [_power(*client.map(), local_steps) for client in clients]
    M = np.mean([own for own, _ in maps], axis=0)
    c = np.mean([shift for _, shift in maps], axis=0)
    mean = x.through(M, c)
    spread = np.zeros_like(x.covariance)
    for client, (own, shift) in zip(clients, maps, strict=True):
        end = x
        for _ in range(local_steps):
            end = client.step(end)
        spread += (end.covariance - x.through(own, shift).covariance) / (m * drawn)
        if drawn < m:
            away = x.through(own - M, shift - c)
            second = away.covariance + np.outer(away.mean, away.mean)
            spread += (m - drawn) / (drawn * (m - 1.0)) * second / m
    return mean._replace(covariance=mean.covariance + spread)


def _power(G: NDArray[Any], g: NDArray[Any], steps: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """M and c of the map x ↦ Gx + g, applied ``steps`` times."""
    M = np.eye(len(g))
    c = np.zeros_like(g)
    for _ in range(steps):
        M = G @ M
        c = G @ c + g
    return M, c
