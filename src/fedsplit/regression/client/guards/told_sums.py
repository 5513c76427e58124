"""The answers of a client under rules, as sums without rounding errors (see ``clients.sums``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedsplit.arrays import Array, matvec, packed, unpacked
from fedsplit.clients.question import CostQuestion
from fedsplit.clients.sums import rounded, rounded_products, rounded_total
from fedsplit.losses.least_squares import GramTerms, LeastSquares
from fedsplit.losses.observations import read
from fedsplit.losses.terms import Block
from fedsplit.regression.client.design import Design, Moments
from fedsplit.regression.client.guards.told import RowTerms, slopes_of, values_of

MATRICES = ("hessian", "hessian_at_x", "augmented")
VALUES = ("value", "values", "value_at_0")

RESIDUAL = 2.0**-4
"""Residuals that are smaller beside the target are not told with more digits: those that are left
of a perfect fit are rounding errors."""


def rounded_moments(rows: Design, moments: Moments) -> Moments:
    """The moments of a design."""
    w, S = moments.weight, moments.scatter
    sizes = np.sqrt(np.diag(S) / w + np.square(moments.mean))
    net = rows.b - rows.o - moments.net_mean
    spread = float(np.sqrt(rows.w @ np.square(net)))
    cross = moments.cross
    if len(cross):
        cross = rounded(cross, spread * np.sqrt(np.diag(S)))
    size = np.sqrt(moments.target_scatter / w + moments.target_mean**2)
    net_size = np.sqrt(spread**2 / w + moments.net_mean**2)
    return moments._replace(
        weight=rounded_total(w),
        mean=rounded(moments.mean, sizes),
        scatter=rounded_products(S),
        target_mean=float(rounded(np.array(moments.target_mean), size)),
        target_scatter=rounded_total(moments.target_scatter),
        log_exposed=rounded_total(moments.log_exposed, 1.0),
        floor=rounded_total(moments.floor),
        net_mean=float(rounded(np.array(moments.net_mean), net_size)),
        cross=cross,
    )


class RoundedLeastSquares(LeastSquares):
    """Least squares in which every answer follows from rounded sums, wherever it is asked."""

    def stack(self, clients: Sequence[object], ridge: Array) -> tuple[int, list[Block]]:
        d, blocks = super().stack(clients, ridge)
        lengths = np.array([np.sqrt(w @ np.square(b - o)) for _, b, w, o in read(clients)])
        for at, (own, terms) in enumerate(blocks):
            if isinstance(terms, GramTerms):
                blocks[at] = Block(own, rounded_terms(terms, lengths[list(own)]))
        return d, blocks


def rounded_terms(terms: GramTerms, lengths: Array) -> GramTerms:
    """The terms of clients whose targets have these lengths, (k,)."""
    H = rounded_products(terms.H)
    columns = np.sqrt(np.diagonal(H, axis1=1, axis2=2))
    c = rounded(terms.c, lengths[:, None] * columns)
    # the expansion point has to follow from rounded sums as well
    shifts = 1e-10 * np.trace(H, axis1=1, axis2=2) / terms.d
    u = np.linalg.solve(H + shifts[:, None, None] * np.eye(terms.d), c[:, :, None])[:, :, 0]
    f = rounded(terms.value(u), np.square(lengths))
    residuals = np.maximum(np.sqrt(2.0 * np.maximum(f, 0.0)), RESIDUAL * lengths)
    g = rounded(terms.gradient(u), residuals[:, None] * columns)
    return replace(terms, H=H, c=matvec(H, u) - g, u=u, g=g, f=f)


def rounded_parts(
    question: CostQuestion, parts: Mapping[str, Array], terms: Sequence[RowTerms]
) -> dict[str, Array]:
    """The values, gradients and Hessians of an answer at a point x, one of each client."""
    found = dict(parts)
    for name in MATRICES:
        if name in found:
            found[name] = _rounded_matrices(found[name])
    x = getattr(question, "x", found.get("point", np.zeros(0)))
    at = {"slope": x, "gradient": found.get("point", x)}
    for name in at.keys() & found.keys():
        found[name] = rounded(found[name], _bounds(terms, at[name]))
    for name in VALUES:
        if name in found:
            sizes = np.array([_size(each, X) for each, X in _each(terms, x)])
            most = np.maximum(np.abs(found[name]).T, sizes).T
            found[name] = rounded(found[name], most)
    return found


def _rounded_matrices(matrices: Array) -> Array:
    if matrices.ndim == 2:
        return packed(rounded_products(unpacked(matrices)))
    return rounded_products(matrices)


def _each(terms: Sequence[RowTerms], x: Array) -> list[tuple[RowTerms, Array]]:
    """Each client's terms, with its row of x, (1, d)."""
    X = np.broadcast_to(x, (len(terms), x.shape[-1]))
    return [(each, X[j : j + 1]) for j, each in enumerate(terms)]


def _bounds(terms: Sequence[RowTerms], x: Array) -> Array:
    """The most that the entries of each client's gradient could be, (m, d)."""
    found = []
    for each, X in _each(terms, x):
        slopes = np.linalg.norm(slopes_of(each, each.eta(X)))
        columns = np.linalg.norm(each.A[0], axis=0)
        found.append(slopes * np.tile(columns, X.shape[1] // len(columns)))
    return np.array(found)


def _size(terms: RowTerms, X: Array) -> float:
    """Σ_i |φ_i| at a point."""
    return float(np.abs(values_of(terms, terms.eta(X))).sum())
