"""How far the arithmetic of the design can have moved a fit from that of the numbers in the files.

A certificate is about the problem that the clients hold: columns that were computed, centred,
scaled and combined in float64. Each of these numbers is off by a few roundings of the terms that it
is the sum of, which shows where large terms nearly cancel.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.questions import ProofScalars
from fedsplit.data.pooled.function import State
from fedsplit.regression.client.design import products_among
from fedsplit.regression.server.coordinates import Coordinates
from fedsplit.regression.server.pool import Pool
from fedsplit.regression.server.problem import inverse

ROUNDING = np.finfo(np.float64).eps / 2.0

SUMMATION = 16.0
"""Roundings in sums over the rows of a client, which are added up pairwise or in blocks."""

EVALUATION = 32.0
"""Roundings in offsets, targets, means and slopes, in units of the predictor."""


FUNCTION = 4
"""Roundings of a function such as ``log`` or ``scale``, relative to its value."""

FACTORS = re.compile(r":(?![^(\[{]*[)\]}])")
"""Between the factors of a term, and not inside of one."""

OPERATIONS = re.compile(r"[-+*/^]")


class Evaluation(NamedTuple):
    """How far the entries of the p columns of a design are off, since they were computed.

    Attributes
    ----------
    roundings : (p,) array
        Of the entry itself, which differ from row to row.
    shifts : (p,) array
        Of numbers beside it, such as the mean that ``scale`` subtracts, in units of the column.
    shared : (p, p) array
        Column k is off by shared[j, k] times column j in every row, in roundings: a mean that is
        off moves the coefficient of another column, or the intercept, and nothing else.
    """

    roundings: Array
    shifts: Array
    shared: Array


def evaluation_of(pool: Pool, state: Mapping[str, State], coordinates: Coordinates) -> Evaluation:
    """The rounding of products, powers and functions, by the names of columns.

    Parameters
    ----------
    pool : Pool
    state : mapping of str to State
        Of functions of all rows, by their text.
    coordinates : Coordinates
    """
    factors = [FACTORS.split(name) for name in pool.names]
    if pool.intercept is not None:
        factors[pool.intercept] = []
    kept = np.flatnonzero(coordinates.columns).tolist()
    places = {frozenset(factors[k]): k for k in kept}
    p = len(factors)
    roundings, shifts, shared = np.zeros(p), np.zeros(p), np.zeros((p, p))
    for k, own in enumerate(factors):
        # a category has ones and zeros, and a column that is quoted is no operation
        computed = [each for each in own if not each.endswith(("]", "`"))]
        operations = len(OPERATIONS.findall("".join(computed)))
        functions = FUNCTION * sum(each.count("(") for each in computed)
        roundings[k] = max(0, len(computed) - 1) + operations + functions
        for at, each in enumerate(own):
            agreed = state.get(each, {})
            if "center" not in agreed:
                continue
            [centre], [scale] = agreed["center"], agreed.get("scale", [1.0])
            shift = SUMMATION * abs(centre / scale)
            shared[k, k] += SUMMATION  # of the scale
            others = own[:at] + own[at + 1 :]
            other = places.get(frozenset(others))
            if other is not None:
                shared[other, k] += shift
                continue
            singles = [places.get(frozenset([factor])) for factor in others]
            sizes = [pool.sizes[k] if single is None else pool.sizes[single] for single in singles]
            shifts[k] += shift * math.prod(sizes)
    if coordinates.precise:  # then products of two columns have all their digits
        pairs = products_among(pool.names)
        exact = [roundings[i] + roundings[j] for i, j in pairs.values()]
        roundings[list(pairs)] = exact
    return Evaluation(roundings, shifts, shared)


def column_errors(coordinates: Coordinates, evaluation: Evaluation, H: Array) -> Array:
    """√Σ wφ''E², (d,), of the errors E in each column, in roundings; H is Σ wφ'' y yᵀ."""
    sizes = np.sqrt(np.diag(H))
    r = int(coordinates.columns.sum())
    kept = coordinates.columns
    whiten: Array = np.eye(r) if coordinates.whiten is None else coordinates.whiten[kept]
    unwhiten = np.linalg.inv(whiten)
    # two for centring and scaling, and one for each term of the sum
    terms = 2.0 + np.count_nonzero(whiten, axis=0)
    # an entry is its scaled one and the centre, both in units of the scale
    centre, scale, *_ = coordinates.scaling
    far = (evaluation.roundings * np.abs(centre / scale) + evaluation.shifts / scale)[kept]
    errors = []
    for c in range(coordinates.predictors):
        block = H[c * r : (c + 1) * r, c * r : (c + 1) * r]
        scaled = np.sqrt(np.maximum(np.diag(unwhiten.T @ block @ unwhiten), 0.0))
        combined = np.zeros(r) if coordinates.precise else terms * (scaled @ np.abs(whiten))
        # no column that is centred is longer than that of ones by much, if there is one
        computed = evaluation.roundings[kept] * scaled + far * scaled.max()
        errors.append(combined + computed @ np.abs(whiten))
    errors.append(np.zeros(coordinates.own))
    return np.asarray(np.maximum(np.concatenate(errors), 2.0 * sizes))


def gradient_error(
    coordinates: Coordinates,
    evaluation: Evaluation,
    H: Array,
    x: Array,
    scalars: ProofScalars,
    weight: float,
) -> float:
    """A bound on the error of the gradient at x in the norm of H⁻¹; nan if H is singular.

    With errors E in the columns Y, slopes φ' and curvatures φ'', the gradient is off by
    Eᵀwφ' + Yᵀwφ''Ex. The second term is no longer than Ex is in the norm of wφ''; the first is at
    most √Σ wφ''E² · √Σ wφ'²/φ'' in each entry, by Cauchy's inequality. The last sum is taken to be
    the deviance, or the weight of all rows where that is larger. Sums, slopes and targets are off
    by a few roundings of their own.

    Parameters
    ----------
    coordinates : Coordinates
    evaluation : Evaluation
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
    errors = column_errors(coordinates, evaluation, H)
    relative = errors / sizes
    fitted = math.sqrt(max(0.0, float(x @ H @ x)))
    parts = [
        np.abs(x) @ (errors + len(x) * sizes),
        EVALUATION * sizes.max() + 4.0 * residual,
        residual * math.sqrt(relative @ correlated @ relative),
        SUMMATION * (residual + fitted) * math.sqrt(correlated.sum()),
    ]
    return ROUNDING * float(sum(parts))


def conversion_error(coordinates: Coordinates, evaluation: Evaluation, x: Array) -> Array:
    """A bound on what rounding adds to every coefficient but by the gradient, (q,).

    It is that of the way back to the units of the files, and of numbers that all rows share.
    """
    # the sizes of the terms whose sums x is multiplied by
    terms = np.abs(coordinates.unscaling) @ np.abs(coordinates.basis)
    if coordinates.precise:
        terms = np.abs(coordinates.back)
    added = (len(x) + 5.0) * (terms @ np.abs(x)) + np.abs(coordinates.origin)
    of_columns = coordinates.predictors * len(coordinates.columns)
    coef = np.abs(coordinates.coefficients(x))[:of_columns].reshape(coordinates.predictors, -1)
    added[:of_columns] += (coef @ evaluation.shared.T).ravel()
    return ROUNDING * np.asarray(added)
