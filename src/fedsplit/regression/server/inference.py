"""Standard errors from one exchange of the information matrix, and what each client brings to the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array

SINGULAR = 1e-13
"""An eigenvalue below this share of the largest may be nothing but rounding."""


class Contribution(NamedTuple):
    """One client's part in a fit.

    n : its rows.
    leverage : its share of the information, tr(H⁻¹H_j)/d; the shares sum to one.
    score : the length of its score in the norm of the covariance: how strongly it pulls against the others.
    shift : how far the coefficient that moves most would move without it, in standard errors, to first order.
    coefficient : which one that is.
    """

    client: str
    n: int
    leverage: float
    score: float
    shift: float
    coefficient: str


def inverse(H: Array) -> Array:
    """H⁻¹ of a positive definite H; all nan where it is singular to rounding, or nearly."""
    diagonal = np.diag(H)
    if not (np.isfinite(H).all() and (diagonal > 0).all()):
        return np.full(H.shape, np.nan)
    scale = 1.0 / np.sqrt(diagonal)  # so that units do not pass for singularity
    spectrum, Q = np.linalg.eigh(scale[:, None] * H * scale)
    if spectrum[0] <= SINGULAR * spectrum[-1]:
        return np.full(H.shape, np.nan)
    R: Array = scale[:, None] * Q / np.sqrt(spectrum)
    return R @ R.T


def sandwich(bread: Array, gradients: Array, n: int) -> Array | None:
    """The covariance that is right when rows of one client are alike: bread (Σ g_j g_jᵀ) bread, (d, d).

    Corrected for m clusters as usual, by m/(m - 1) · (n - 1)/(n - d); None with a single client.
    """
    m, d = gradients.shape
    if m < 2 or n <= d or np.isnan(bread).any():
        return None
    meat = gradients.T @ gradients
    covariance: Array = m / (m - 1) * (n - 1) / (n - d) * (bread @ meat @ bread)
    return covariance


def contributions(
    clients: Sequence[tuple[str, int]],
    gradients: Array,
    information: Array,
    H: Array,
    back: Array,
    names: Sequence[str],
    dispersion: float,
) -> list[Contribution]:
    """What each client brings, by its name and rows, from what it told at the solution, where H is that of all.

    ``back`` takes the coordinates of the rounds to the coefficients. Without client j the others' gradient is -g_j, so
    that the coefficients move by (H - H_j)⁻¹ g_j to first order.
    """
    V = inverse(H)
    dispersion = max(dispersion, np.finfo(np.float64).tiny)  # of a perfect fit it is zero
    errors = np.sqrt(dispersion * np.diag(back @ V @ back.T))
    found = []
    for (name, n), g, H_j in zip(clients, gradients, information, strict=True):
        move = (
            back @ (inverse(H - H_j) @ g) / errors
            if len(clients) > 1
            else np.full(len(names), np.nan)
        )
        most = int(np.argmax(np.abs(move))) if np.isfinite(move).all() else None
        found.append(
            Contribution(
                name,
                n,
                float(np.sum(V * H_j) / len(V)),
                float(np.sqrt(g @ V @ g / dispersion)),
                np.nan if most is None else float(move[most]),
                "" if most is None else names[most],
            )
        )
    return found
