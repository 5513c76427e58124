"""Jeffreys' penalty ½ log det ∇²F, from rows that no two clients share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.errors import InputError
from fedsplit.losses.linear import LinearTerms
from fedsplit.losses.terms import Terms


class Jeffreys(NamedTuple):
    """What clients contribute to the penalty at x, given V, with leverages h_i = w_i φ''_i q_i."""

    # (k, d): ½ Σ_i w_i φ'''_i q_i a_i, where q_i = a_iᵀVa_i. Their sum over all clients is the
    # gradient of ½ log det ∇²F if V is the inverse of ∇²F, Firth's correction of the score
    slope: Array
    # makes Σ_i (w_i + h_i) φ''_i a_i a_iᵀ, (k, d, d): the Hessian as if every row came once more,
    # with the weight of its leverage
    information: Callable[[], Array]
    # (k,): ¼ Σ_i h_i q_i (φ'''_i/φ''_i)². If V is off by a share δ, the sum of the slopes is off by
    # at most δ√Σbend in the norm of (∇²F)⁻¹
    bend: Array


def jeffreys(terms: Terms, X: Array, V: Array) -> Jeffreys:
    """The contributions of stacked clients at the points X, (k, d), given V, (d, d).

    q_i is off by at most δq_i, and Σ_i w_i φ''_i (a_iᵀu)² ≤ 1 for u of unit length in the norm of
    ∇²F. By Cauchy's inequality ½ Σ_i w_i |φ'''_i| δq_i |a_iᵀu| is at most δ(¼ Σ_i w_i φ'''_i²
    q_i²/φ''_i)^½.
    """
    if not isinstance(terms, LinearTerms):
        raise InputError("Firth's correction is for losses of one linear predictor")
    eta = terms.eta(X)
    tilt = terms.phi.tilt(eta, terms.b)
    curvature = terms.phi.curvature(eta, terms.b)
    # a root of V, of which rounding may have made an eigenvalue negative
    spectrum, Q = np.linalg.eigh(V)
    root = Q * np.sqrt(np.maximum(spectrum, 0.0))
    images = terms.design.within(np.broadcast_to(root, (terms.k, *V.shape)))
    q = np.sum(np.square(images), axis=2)
    h = terms.w * curvature * q
    slopes = 0.5 * h * tilt
    weights = (terms.w + h) * curvature
    return Jeffreys(
        terms.adjoint(slopes),
        lambda: terms.design.scaled(np.sqrt(weights)).gram(),
        np.sum(0.25 * h * q * np.square(tilt), axis=1),
    )
