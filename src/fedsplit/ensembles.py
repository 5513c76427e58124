"""Random problems: the paper's (§2.3, §4), and harder ones.

The same arguments give the same problem, to the bit. Each is a ``Problem``, which ``solve`` takes
as it is, with its ``rows`` and the parameter ``x_true`` that they were drawn from.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.random import Generator
from scipy.linalg import qr

from fedsplit.arrays import Array, namespace, on_host
from fedsplit.device.backend import check_memory, floats, library
from fedsplit.device.placing import StackedRows
from fedsplit.errors import InputError
from fedsplit.losses.least_squares import LeastSquares
from fedsplit.losses.scalar import Logistic
from fedsplit.losses.terms import Loss
from fedsplit.problem import Problem
from fedsplit.threads import each, one_blas_thread

Rows: TypeAlias = tuple[Array, Array]
"""The observations of one client: A_j, (n, d), and b_j, (n,)."""

Respond: TypeAlias = Callable[[Any, Array], Array]
"""Draws targets from predictors, with a generator of NumPy's, or of CuPy's on a device."""


class Ensemble(Problem):
    """A random problem.

    Attributes
    ----------
    rows : list of (A_j, b_j), or StackedRows
        The observations of each client, (n, d) and (n,); those of all together on a device.
    x_true : (d,) array
        The parameter x_0 that they were drawn from.
    """

    def __init__(self, loss: Loss, rows: Any, x_true: Array) -> None:
        super().__init__(loss, rows)
        self.rows = rows
        self.x_true = x_true

    def part(self, clients: range) -> Self:
        """Some neighbouring clients with their rows."""
        other = super().part(clients)
        # without this, every process that gets a part would get the rows of all clients
        other.rows = self.rows[clients.start : clients.stop]
        return other


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
        Variance of the noise; x_0 ~ N(0, I). Without noise all clients share the minimiser x_0.
    seed : int
    device, dtype : str, optional
        As in ``Problem``: the rows are drawn there, and are others than NumPy's.
    """
    return _gaussian(LeastSquares(), (m, n, d), 1.0, seed, device, dtype, _add_noise(noise))


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
    x_true = _parameter(m, d, n, seed, 1.0)
    _check_spectrum("spiked", d, n, kappa)
    respond = _add_noise(noise)

    def client(rng: Generator) -> Rows:
        U = haar(n, d, rng)  # only the first d columns matter
        V = haar(d, d, rng)
        U[:, 0] *= np.sqrt(kappa)
        A = U @ V
        return A, respond(rng, A @ x_true)

    return Ensemble(LeastSquares(), _draw(m, seed, client), x_true)


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
    m, d, n, kappa, noise, seed
        As in ``spiked``.
    shared : bool
        All clients have the same random eigenvectors, so that the pooled problem is as
        ill-conditioned as they are; otherwise each client has its own.
    spread : float
        Client j's own parameter is x_0 + N(0, spread I).
    """
    x_true = _parameter(m, d, n, seed, 1.0)
    _check_spectrum("log-uniform", d, n, kappa)
    respond = _add_noise(noise)
    V = haar(d, d, np.random.default_rng([seed, 1]))
    roots = np.sqrt(np.geomspace(1.0, kappa, d))

    def client(rng: Generator) -> Rows:
        U = haar(n, d, rng)
        V_j = V if shared else haar(d, d, rng)
        x_j = x_true + np.sqrt(spread) * rng.standard_normal(d)
        A = U * roots @ V_j.T
        return A, respond(rng, A @ x_j)

    return Ensemble(LeastSquares(), _draw(m, seed, client), x_true)


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
    m, d, n, noise, seed, device, dtype
        As in ``isotropic``.
    decades : float
        A column is N(0, 1) times a unit of 10^U(-decades/2, decades/2).
    """
    units = 10.0 ** np.random.default_rng([seed, 1]).uniform(-decades / 2, decades / 2, size=d)
    respond = _add_noise(noise)
    return _gaussian(LeastSquares(), (m, n, d), 1.0, seed, device, dtype, respond, units)


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
    m, d, n, seed, device, dtype
        As in ``isotropic``.
    scale : float
        x_0 ~ N(0, scale I).
    """
    return _gaussian(Logistic(), (m, n, d), scale, seed, device, dtype, _draw_labels)


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

    The parameters are those of ``logistic``.
    """
    mixed = logistic(m, d, n, scale, seed, device, dtype)
    rows = mixed.rows
    A, b = map(np.stack, zip(*rows, strict=True)) if device is None else (rows.A, rows.b)
    order = b.reshape(-1).argsort(kind="stable")
    A, b = A.reshape(m * n, d)[order].reshape(m, n, d), b.reshape(-1)[order].reshape(m, n)
    rows = list(zip(A, b, strict=True)) if device is None else StackedRows(A, b)
    return Ensemble(Logistic(), rows, mixed.x_true)


def haar(n: int, d: int, rng: Generator) -> Array:
    """Return the first d columns of a uniformly random n×n orthogonal matrix, (n, d).

    The Q of a thin QR of a Gaussian matrix is uniform only after the signs of diag R are fixed.
    """
    Q, R = qr(rng.standard_normal((n, d)), mode="economic", overwrite_a=True, check_finite=False)
    result: Array = Q * np.sign(np.diag(R))
    return result


def _gaussian(
    loss: Loss,
    shape: tuple[int, int, int],
    scale: float,
    seed: int,
    device: str | None,
    dtype: str,
    respond: Respond,
    units: float | Array = 1.0,
) -> Ensemble:
    """Rows with N(0, 1) entries, times the units of their columns, and x_0 ~ N(0, scale I).

    ``shape`` is (m, n, d). On a device the numbers are others than NumPy's.
    """
    m, n, d = shape
    x_true = _parameter(m, d, n, seed, scale)

    def client(rng: Generator) -> Rows:
        A = units * rng.standard_normal((n, d))
        return A, respond(rng, A @ x_true)

    if device is None:
        return Ensemble(loss, _draw(m, seed, client), x_true)
    library(device)
    cupy = import_module("cupy")
    kind = np.dtype(floats(dtype))
    check_memory(kind.itemsize * m * n * (d + 1), f"an ensemble of {m:,} clients")
    rng = cupy.random.default_rng(seed)
    A, b = cupy.empty((m * n, d), dtype=kind), cupy.empty(m * n, dtype=kind)
    x, own = cupy.asarray(x_true, dtype=kind), cupy.asarray(units, dtype=kind)
    # more numbers at a time would need as many more as working memory
    rows = max(1, 2**24 // d)
    for first in range(0, m * n, rows):
        part = A[first : first + rows]
        part[...] = own * rng.standard_normal(part.shape, dtype=kind)
        b[first : first + rows] = respond(rng, part @ x)
    return Ensemble(loss, StackedRows(A.reshape(m, n, d), b.reshape(m, n)), x_true)


def _add_noise(noise: float) -> Respond:
    return lambda rng, eta: eta + np.sqrt(noise) * rng.standard_normal(eta.shape, eta.dtype)


def _draw_labels(rng: Any, eta: Array) -> Array:
    if on_host(eta):
        return np.where(rng.logistic(size=len(eta)) < eta, 1.0, -1.0)
    xp = namespace(eta)
    u = rng.random(eta.shape, dtype=eta.dtype)
    result: Array = xp.where(u * (1.0 + xp.exp(-eta)) < 1.0, 1.0, -1.0)
    return result


def _parameter(m: int, d: int, n: int, seed: int, scale: float) -> Array:
    """Draw x_0 ~ N(0, scale I), (d,), of an ensemble of this size."""
    if min(m, d, n) < 1:
        raise InputError(
            f"an ensemble needs at least one client, column and row, not m={m}, d={d}, n={n}"
        )
    result: Array = np.sqrt(scale) * np.random.default_rng(seed).standard_normal(d)
    return result


def _check_spectrum(name: str, d: int, n: int, kappa: float) -> None:
    """Raise InputError unless there are n×d matrices with this condition number."""
    if n < d or not 1 <= kappa < np.inf:
        raise InputError(
            f"the {name} ensemble needs n >= d and a finite kappa >= 1, "
            f"not n={n}, d={d}, kappa={kappa:g}"
        )


def _draw(m: int, seed: int, client: Callable[[Generator], Rows]) -> list[Rows]:
    """Draw each client from a random stream of its own.

    So client j is the same for every m, and in whatever order the clients are drawn.
    """
    streams = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(m)]
    drawn: dict[int, Rows] = {}

    def fill(j: int) -> None:
        drawn[j] = client(streams[j])

    with one_blas_thread():
        each(fill, range(m))
    return [drawn[j] for j in range(m)]
