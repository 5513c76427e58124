"""Gaussian noise on FedSplit's messages: clients that add it, and how far it leads astray."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import fedsplit as fs


class NoisyClients(fs.Clients):
    """Clients whose proxes have noise n_j ~ N(0, (b²/d)I) added, independent in every answer.

    This is to study how noise acts on a method. Answers to other questions are as they are, and
    the noise follows from a seed: it protects nobody.

    Parameters
    ----------
    clients : Clients
    noise : float
        b, the root of E‖n_j‖².
    seed : int
    """

    def __init__(self, clients: fs.Clients, noise: float, seed: int) -> None:
        super().__init__(clients)
        self._scale = noise / math.sqrt(self.d)
        self._rng = np.random.default_rng(seed)

    def ask(self, question: Any) -> fs.Answer:
        answer = super().ask(question)
        if not isinstance(question, fs.questions.Prox):
            return answer
        noise = self._scale * self._rng.standard_normal((self.m, self.d))
        return answer._replace(parts=answer.parts | {"point": answer.parts["point"] + noise})


def noise_bound(kappa: float, distance: float, noise: float, errors: ArrayLike) -> NDArray[Any]:
    """A bound on D_t = √(E‖z^t - z*‖²/m) at the start and after each of T rounds, (T + 1,).

    A client answers with prox_{s f_j}(v_j) + c_j + n_j, where ‖c‖ ≤ √m c is the error of its local
    solver, and n_j is noise: independent, of mean zero, E‖n_j‖² = b². Then z⁺ = T(z) + 2(c + n),
    and as the noise is independent of everything before it,

        D⁺² ≤ (ρD + 2c)² + 4b²,   ρ = 1 - 2/(√κ + 1).

    Without noise this is the paper's master theorem.

    Parameters
    ----------
    kappa : float
        κ = L*/ℓ*, with s = 1/√(ℓ*L*).
    distance : float
        D at the start.
    noise : float
        b.
    errors : (T,) array
        c in each round.
    """
    rho = fs.theory.contraction(kappa)
    bounds = [distance]
    for error in np.ravel(errors).tolist():
        bounds.append(math.hypot(rho * bounds[-1] + 2.0 * error, 2.0 * noise))
    return np.array(bounds)


def noise_floor(kappa: float, noise: float, error: float = 0.0) -> float:
    """The limit of ``noise_bound`` squared, for the same error c in every round.

    Without errors it is 4b²/(1 - ρ²) = b²(√κ + 1)²/√κ, with equality if every client's costs are
    spiked; errors of the same size that are not random can add up to b²(√κ + 1)², √κ times more.

    It bounds E‖x - x*‖² too. For quadratic costs and noise of covariance (b²/d)I that is at most
    1/m of it: the map is linear, TTᵀ ≼ ρ²I, and so the covariance of z is at most a multiple of the
    identity, and x is the mean of z over the clients.

    Parameters
    ----------
    kappa : float
    noise : float
        b.
    error : float
        c.
    """
    rho = fs.theory.contraction(kappa)
    # the positive root of D² = (ρD + 2c)² + 4b²
    slack = 1.0 - rho**2
    half = 2.0 * rho * error / slack
    constant = 4.0 * (error**2 + noise**2) / slack
    return (half + math.sqrt(half**2 + constant)) ** 2
