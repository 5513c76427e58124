"""The paper's random problems (§2.3, §4), seeded: the clients' data, and the parameter that it was drawn from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.errors import InputError


class Ensemble(NamedTuple):
    """One (A_j, b_j) a client, and the true parameter."""

    clients: list[tuple[Array, Array]]
    x_true: Array


def isotropic(m: int = 25, d: int = 100, n: int = 500, noise: float = 0.25, seed: int = 0) -> Ensemble:
    """Least squares with Gaussian designs: A_j has N(0, 1) entries, b_j = A_j x_0 + N(0, noise I), x_0 ~ N(0, I)."""
    rng = _generator(m, d, n, seed)
    x_true = rng.standard_normal(d)
    return Ensemble([_respond(rng.standard_normal((n, d)), x_true, noise, rng) for _ in range(m)], x_true)


def spiked(m: int = 10, d: int = 100, n: int = 400, kappa: float = 10.0, noise: float = 1.0, seed: int = 0) -> Ensemble:
    """Least squares with A_j = U_j Λ V_j: singular values (√κ, 1, …, 1), Haar-random orthogonal U_j and V_j (§4.3).

    Every H_j = A_jᵀA_j has condition number κ. Only the first d columns of U_j matter, so U_j is n×d.
    """
    rng = _generator(m, d, n, seed)
    if n < d or kappa < 1:
        raise InputError(f"the spiked ensemble needs n >= d and kappa >= 1, not n={n}, d={d}, kappa={kappa:g}")
    x_true = rng.standard_normal(d)
    singular_values = np.ones(d)
    singular_values[0] = np.sqrt(kappa)

    def design() -> Array:
        return (haar(n, d, rng) * singular_values) @ haar(d, d, rng)

    return Ensemble([_respond(design(), x_true, noise, rng) for _ in range(m)], x_true)


def logistic(m: int = 10, d: int = 100, n: int = 1000, scale: float = 1.0, seed: int = 0) -> Ensemble:
    """Logistic regression (§4.2): a_ij ~ N(0, I), P(b_ij = 1) = 1/(1 + exp(-a_ijᵀx_0)), x_0 ~ N(0, scale I)."""
    rng = _generator(m, d, n, seed)
    x_true = np.sqrt(scale) * rng.standard_normal(d)

    def client() -> tuple[Array, Array]:
        A = rng.standard_normal((n, d))
        return A, np.where(rng.logistic(size=n) < A @ x_true, 1.0, -1.0)

    return Ensemble([client() for _ in range(m)], x_true)


def haar(n: int, d: int, rng: np.random.Generator) -> Array:
    """The first d columns of a uniformly random n×n orthogonal matrix: a thin QR, the signs of diag R fixed."""
    Q, R = np.linalg.qr(rng.standard_normal((n, d)))
    columns: Array = Q * np.sign(np.diag(R))
    return columns


def _respond(A: Array, x_true: Array, noise: float, rng: np.random.Generator) -> tuple[Array, Array]:
    return A, A @ x_true + np.sqrt(noise) * rng.standard_normal(A.shape[0])


def _generator(m: int, d: int, n: int, seed: int) -> np.random.Generator:
    if min(m, d, n) < 1:
        raise InputError(f"an ensemble needs at least one client, column and row, not m={m}, d={d}, n={n}")
    return np.random.default_rng(seed)
