"""Random problems: the paper's (§2.3, §4), and harder ones.

The same arguments give the same problem, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from scipy.linalg import qr

from fedsplit.arrays import Array
from fedsplit.device.draws import gaussian_rows, labels, sorted_by_label, with_noise
from fedsplit.errors import InputError
from fedsplit.threads import each, one_blas_thread


class Ensemble(NamedTuple):
    """The data of a random problem.

    Attributes
    ----------
    clients : list of (A_j, b_j), or StackedRows
        The observations of each client, (n, d) and (n,); those of all on a device.
    x_true : (d,) array
        The parameter x_0 that they were drawn from.
    """

    clients: Any
    x_true: Array


def isotropic(
    m: int = 25,
    d: int = 100,
    n: int = 500,
    noise: float = 0.25,
    seed: int = 0,
    device: str | None = None,
    dtype: str = "float64",
) -> Ensemble:
    """Least squares with Gaussian designs (§2.3): A_j has N(0, 1) entries, b_j = A_j x_0 + noise.

    Parameters
    ----------
    m, d, n : int
        Clients, coordinates, and observations per client.
    noise : float
        Variance of the noise; x_0 ~ N(0, I).
    seed : int
    device, dtype : str, optional
        As in ``Problem``: the rows are drawn there, and are others than NumPy's.
    """
    if device is not None:
        x_true = _parameter(seed, d, 1.0)
        return Ensemble(
            gaussian_rows((m, n, d), x_true, seed, device, dtype, with_noise(noise)), x_true
        )

    def client(rng: Generator, x_true: Array) -> tuple[Array, Array]:
        return _respond(rng.standard_normal((n, d)), x_true, noise, rng)

    return _draw(m, d, n, seed, 1.0, client)


def spiked(
    m: int = 10, d: int = 100, n: int = 400, kappa: float = 10.0, noise: float = 1.0, seed: int = 0
) -> Ensemble:
    """Least squares with A_j = U_j Λ V_j of singular values (√κ, 1, …, 1) (§4.3).

    U_j and V_j are uniformly random orthogonal matrices, so that every H_j = A_jᵀA_j has condition
    number κ.

    Parameters
    ----------
    m, d, n : int
        Clients, coordinates, and observations per client; n >= d.
    kappa : float
        The condition number.
    noise : float
        Variance of the noise; x_0 ~ N(0, I).
    seed : int
    """
    if n < d or not 1 <= kappa < np.inf:
        raise InputError(
            "the spiked ensemble needs n >= d and a finite kappa >= 1, "
            f"not n={n}, d={d}, kappa={kappa:g}"
        )

    def client(rng: Generator, x_true: Array) -> tuple[Array, Array]:
        U = haar(n, d, rng)  # only the first d columns matter
        V = haar(d, d, rng)
        U[:, 0] *= np.sqrt(kappa)
        return _respond(U @ V, x_true, noise, rng)

    return _draw(m, d, n, seed, 1.0, client)


def log_uniform(
    m: int = 10,
    d: int = 100,
    n: int = 400,
    kappa: float = 1e4,
    shared: bool = True,
    spread: float = 0.0,
    noise: float = 1.0,
    seed: int = 0,
) -> Ensemble:
    """Least squares whose H_j have eigenvalues from 1 to κ, evenly spaced in the logarithm.

    Parameters
    ----------
    m, d, n : int
        Clients, coordinates, and observations per client; n >= d.
    kappa : float
        The condition number of every client.
    shared : bool
        All clients have the same random eigenvectors, so that the pooled problem is as
        ill-conditioned as they are; otherwise each client has its own.
    spread : float
        Client j's own parameter is x_0 + N(0, spread I).
    noise : float
        Variance of the noise; x_0 ~ N(0, I).
    seed : int
    """
    if n < d or not 1 <= kappa < np.inf:
        raise InputError(
            "the log-uniform ensemble needs n >= d and a finite kappa >= 1, "
            f"not n={n}, d={d}, kappa={kappa:g}"
        )
    V = haar(d, d, np.random.default_rng([seed, 1]))
    roots = np.sqrt(np.geomspace(1.0, kappa, d))

    def client(rng: Generator, x_true: Array) -> tuple[Array, Array]:
        U = haar(n, d, rng)
        V_j = V if shared else haar(d, d, rng)
        x_j = x_true + np.sqrt(spread) * rng.standard_normal(d)
        return _respond(U * roots @ V_j.T, x_j, noise, rng)

    return _draw(m, d, n, seed, 1.0, client)


def badly_scaled(
    m: int = 10,
    d: int = 100,
    n: int = 400,
    decades: float = 6.0,
    noise: float = 1.0,
    seed: int = 0,
    device: str | None = None,
    dtype: str = "float64",
) -> Ensemble:
    """Least squares with Gaussian designs whose columns are in different units.

    Parameters
    ----------
    m, d, n : int
        Clients, coordinates, and observations per client.
    decades : float
        A column is N(0, 1) times a unit of 10^U(-decades/2, decades/2).
    noise : float
        Variance of the noise; x_0 ~ N(0, I).
    seed : int
    device, dtype : str, optional
        As in ``Problem``: the rows are drawn there, and are others than NumPy's.
    """
    units = 10.0 ** np.random.default_rng([seed, 1]).uniform(-decades / 2, decades / 2, size=d)
    if device is not None:
        x_true = _parameter(seed, d, 1.0)
        respond = with_noise(noise)
        rows = gaussian_rows((m, n, d), x_true, seed, device, dtype, respond, units)
        return Ensemble(rows, x_true)

    def client(rng: Generator, x_true: Array) -> tuple[Array, Array]:
        return _respond(rng.standard_normal((n, d)) * units, x_true, noise, rng)

    return _draw(m, d, n, seed, 1.0, client)


def logistic(
    m: int = 10,
    d: int = 100,
    n: int = 1000,
    scale: float = 1.0,
    seed: int = 0,
    device: str | None = None,
    dtype: str = "float64",
) -> Ensemble:
    """Logistic regression (§4.2): a_ij ~ N(0, I), P(b_ij = 1) = 1/(1 + exp(-a_ijᵀx_0)), else -1.

    Parameters
    ----------
    m, d, n : int
        Clients, coordinates, and observations per client.
    scale : float
        x_0 ~ N(0, scale I).
    seed : int
    device, dtype : str, optional
        As in ``Problem``: the rows are drawn there, and are others than NumPy's.
    """
    if device is not None:
        x_true = _parameter(seed, d, scale)
        return Ensemble(gaussian_rows((m, n, d), x_true, seed, device, dtype, labels), x_true)

    def client(rng: Generator, x_true: Array) -> tuple[Array, Array]:
        A = rng.standard_normal((n, d))
        return A, np.where(rng.logistic(size=n) < A @ x_true, 1.0, -1.0)

    return _draw(m, d, n, seed, scale, client)


def label_sorted(
    m: int = 10,
    d: int = 100,
    n: int = 1000,
    scale: float = 1.0,
    seed: int = 0,
    device: str | None = None,
    dtype: str = "float64",
) -> Ensemble:
    """The logistic ensemble with its observations sorted by label: most clients have one class.

    Parameters
    ----------
    m, d, n : int
        Clients, coordinates, and observations per client.
    scale : float
        x_0 ~ N(0, scale I).
    seed : int
    device, dtype : str, optional
        As in ``Problem``: the rows are drawn there, and are others than NumPy's.
    """
    clients, x_true = logistic(m, d, n, scale, seed, device, dtype)
    if device is not None:
        return Ensemble(sorted_by_label(clients), x_true)
    A = np.concatenate([A_j for A_j, _ in clients])
    b = np.concatenate([b_j for _, b_j in clients])
    order = np.argsort(b, kind="stable").reshape(m, n)
    return Ensemble([(A[rows], b[rows]) for rows in order], x_true)


def haar(n: int, d: int, rng: Generator) -> Array:
    """Return the first d columns of a uniformly random n×n orthogonal matrix, (n, d).

    The Q of a thin QR of a Gaussian matrix is uniform only after the signs of diag R are fixed.
    """
    Q, R = qr(rng.standard_normal((n, d)), mode="economic", overwrite_a=True, check_finite=False)
    columns: Array = Q * np.sign(np.diag(R))
    return columns


def _draw(
    m: int,
    d: int,
    n: int,
    seed: int,
    scale: float,
    client: Callable[[Generator, Array], tuple[Array, Array]],
) -> Ensemble:
    """Draw x_0 ~ N(0, scale I), and each client from a random stream of its own.

    So client j is the same for every m, and in whatever order the clients are drawn.
    """
    if min(m, d, n) < 1:
        raise InputError(
            f"an ensemble needs at least one client, column and row, not m={m}, d={d}, n={n}"
        )
    root = np.random.SeedSequence(seed)
    streams = [np.random.default_rng(child) for child in root.spawn(m)]
    x_true = _parameter(seed, d, scale)
    drawn: dict[int, tuple[Array, Array]] = {}

    def fill(j: int) -> None:
        drawn[j] = client(streams[j], x_true)

    with one_blas_thread():
        each(fill, range(m))
    return Ensemble([drawn[j] for j in range(m)], x_true)


def _parameter(seed: int, d: int, scale: float) -> Array:
    """x_0 ~ N(0, scale I), (d,)."""
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    x_true: Array = np.sqrt(scale) * rng.standard_normal(d)
    return x_true


def _respond(A: Array, x_true: Array, noise: float, rng: Generator) -> tuple[Array, Array]:
    return A, A @ x_true + np.sqrt(noise) * rng.standard_normal(A.shape[0])
