"""How far the arithmetic of the design can have moved a fit from that of the numbers in the files.

A certificate is about the problem that the clients hold: columns that were centred, scaled and
combined in float64. Each of these numbers is off by a few roundings of the terms that it is the sum
of, which shows where large terms nearly cancel.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.questions import ProofScalars
from fedsplit.regression.server.inference import inverse

ROUNDING = np.finfo(np.float64).eps / 2.0

SUMMATION = 16.0
"""Roundings in sums over the rows of a client, which are added up pairwise or in blocks."""

EVALUATION = 32.0
"""Roundings in offsets, targets, means and slopes, in units of the predictor."""


class Design(NamedTuple):
    """How the columns of the rounds were formed.

    Attributes
    ----------
    whiten : (r, r) array
        What the r scaled columns that are not aliased were multiplied by; the identity if by
        nothing.
    precise : bool
        Whether that was done in twice the working precision.
    copies : int
        How many coefficients each column has.
    """

    whiten: Array
    precise: bool
    copies: int

    def errors(self, H: Array) -> Array:
        """√Σ wφ''E², (d,), of the errors E in each column, in roundings; H is Σ wφ'' y yᵀ."""
        sizes = np.sqrt(np.diag(H))
        if self.precise:
            return np.asarray(2.0 * sizes)
        r = len(self.whiten)
        inverse = np.linalg.inv(self.whiten)
        # two for centring and scaling, and one for each term of the sum
        terms = 2.0 + np.count_nonzero(self.whiten, axis=0)
        found = []
        for c in range(self.copies):
            block = H[c * r : (c + 1) * r, c * r : (c + 1) * r]
            scaled = np.sqrt(np.maximum(np.diag(inverse.T @ block @ inverse), 0.0))
            found.append(terms * (scaled @ np.abs(self.whiten)))
        return np.asarray(np.maximum(np.concatenate(found), 2.0 * sizes))


def gradient_error(
    design: Design, H: Array, x: Array, scalars: ProofScalars, weight: float
) -> float:
    """A bound on the error of the gradient at x in the norm of H⁻¹; nan if H is singular.

    With errors E in the columns Y, slopes φ' and curvatures φ'', the gradient is off by
    Eᵀwφ' + Yᵀwφ''Ex. The second term is no longer than Ex is in the norm of wφ''; the first is at
    most √Σ wφ''E² · √Σ wφ'²/φ'' in each entry, by Cauchy's inequality. The last sum is taken to be
    the deviance, or the weight of all rows where that is larger. Sums, slopes and targets are off
    by a few roundings of their own.

    Parameters
    ----------
    design : Design
    H : (d, d) array
        The Hessian at x.
    x : (d,) array
    scalars : ProofScalars
    weight : float
        Of all rows, where φ = 1; 0 for targets with a unit.
    """
    sizes = np.sqrt(np.diag(H))
    if not np.isfinite(H).all() or (sizes == 0).any():
        return math.nan
    correlated = np.abs(inverse(H / np.outer(sizes, sizes)))
    deviance = max(0.0, 2.0 * float(np.sum(scalars.value - scalars.floor)))
    residual = math.sqrt(max(deviance, weight))
    errors = design.errors(H)
    relative = errors / sizes
    fitted = math.sqrt(max(0.0, float(x @ H @ x)))
    parts = [
        np.abs(x) @ (errors + len(x) * sizes),
        EVALUATION * sizes.max() + 4.0 * residual,
        residual * math.sqrt(relative @ correlated @ relative),
        SUMMATION * (residual + fitted) * math.sqrt(correlated.sum()),
    ]
    return ROUNDING * float(sum(parts))


def conversion_error(terms: Array, x: Array, origin: Array) -> Array:
    """A bound on what the way back to the units of the files adds to every coefficient, (q,).

    Parameters
    ----------
    terms : (q, d) array
        The sizes of the terms whose sums x is multiplied by.
    x : (d,) array
    origin : (q,) array
        What is added then.
    """
    found: Array = ROUNDING * ((len(x) + 5.0) * (terms @ np.abs(x)) + np.abs(origin))
    return found
