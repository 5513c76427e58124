"""FedSplit with noise on its messages, as for privacy, beside the errors of an inexact prox."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from fedsplit.arrays import Array
from fedsplit.checks import number
from fedsplit.theory.paper import contraction


def noise_bound(kappa: float, distance: float, noise: float, errors: ArrayLike) -> Array:
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
    rho = _contraction(kappa)
    number("noise", noise, strict=False)
    bounds = [number("distance", distance, strict=False)]
    for error in np.ravel(errors).tolist():
        number("errors: each", error, strict=False)
        bounds.append(math.hypot(rho * bounds[-1] + 2.0 * error, 2.0 * noise))
    return np.array(bounds)


def noise_floor(kappa: float, noise: float, error: float = 0.0) -> float:
    """The limit of ``noise_bound`` squared, for the same error c in every round.

    Without errors it is 4b²/(1 - ρ²) = b²(√κ + 1)²/√κ, with equality if every client's costs are
    spiked; errors of the same size that are not random can add up to b²(√κ + 1)², √κ times more.

    It bounds E‖x - x*‖² too. For quadratic costs and noise of covariance (b²/d)I that is at most
    1/m of it: the map is linear, TTᵀ ≼ ρ²I, and so the covariance of z is at most a multiple of the
    identity, of which x takes the mean over the clients.

    Parameters
    ----------
    kappa : float
    noise : float
        b.
    error : float
        c.
    """
    rho = _contraction(kappa)
    number("noise", noise, strict=False)
    number("error", error, strict=False)
    # the positive root of D² = (ρD + 2c)² + 4b²
    slack = 1.0 - rho**2
    half = 2.0 * rho * error / slack
    constant = 4.0 * (error**2 + noise**2) / slack
    return (half + math.sqrt(half**2 + constant)) ** 2


def _contraction(kappa: float) -> float:
    """ρ of a κ that is checked."""
    return contraction(number("kappa", kappa, least=1.0, strict=False))
