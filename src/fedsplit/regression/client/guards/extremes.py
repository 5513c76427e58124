"""Parts of an answer that are numbers of single rows, or more than the points disclose.

A server that may choose the units or the point finds where a power of two changes. Sums of squares
take the place of maxima: they follow from the moments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedsplit.arrays import Array, dots
from fedsplit.clients.local_models import WAY, LocalModel
from fedsplit.clients.question import CostQuestion
from fedsplit.losses.costs import parabola
from fedsplit.losses.linear import LinearTerms
from fedsplit.losses.multinomial import MultinomialTerms
from fedsplit.regression.client.guards.points import RowTerms

STEADY = "steady"


def without_extremes(
    question: CostQuestion,
    parts: Mapping[str, Array],
    terms: Sequence[RowTerms],
    may_disclose: Callable[[int], bool],
) -> dict[str, Array]:
    """The parts without numbers of single rows, and without values at points of no statement.

    ``may_disclose`` says of a client whether the radius of a ball of constant Hessians may leave.
    """
    found = dict(parts)
    factors = np.array([_concordance(each) for each in terms])
    if "margin" in found:
        found["margin"] = np.full_like(found["margin"], np.nan)
    if "leverage" in found:
        found["leverage"] = np.where(found["leverage"] == 0, 0.0, np.inf)
    if "norm" in found:
        lengths = np.array([np.linalg.norm(each.A[0]) for each in terms])
        found["norm"] = _scaled(found["norm"], factors * lengths)
    if "spread" in found:
        found["spread"] = _scaled(found["spread"], factors * _moves(question, parts, terms))
    if STEADY in found:
        radii = found[STEADY].tolist()
        kept = [r if r in (0.0, np.inf) or may_disclose(j) else 0.0 for j, r in enumerate(radii)]
        found[STEADY] = np.array(kept)
    if isinstance(question, LocalModel) and question.before is not None:
        found["values"] = _on_the_way(question.x - question.before, parts)
    return found


def _on_the_way(way: Array, parts: Mapping[str, Array]) -> Array:
    """Values between two points that follow from what is told at these two, (m, len(WAY))."""
    values = parts["values"]
    told = np.isfinite(values[:, [0, -1]]).all(axis=1, keepdims=True)
    slope = dots(parts["slope"], np.broadcast_to(way, parts["slope"].shape))
    return np.where(told, parabola(values[:, -1], values[:, 0], slope, WAY), values[:, :1])


def _moves(question: CostQuestion, parts: Mapping[str, Array], terms: Sequence[RowTerms]) -> Array:
    """√Σ_i (a_iᵀh)² for the way h of each client."""
    x = getattr(question, "x")  # noqa: B009  # of the questions that have this part
    to = parts.get("point", getattr(question, "before", x))
    ways = np.broadcast_to(x - to, (len(terms), x.shape[-1]))
    predictors = [each.product(ways[j : j + 1]) for j, each in enumerate(terms)]
    return np.array([np.linalg.norm(each) for each in predictors])


def _scaled(told: Array, instead: Array) -> Array:
    """``instead`` where a bound is told that is neither zero nor infinite."""
    return np.where((told == 0) | np.isinf(told), told, instead)


def _concordance(terms: RowTerms) -> float:
    """By how much the Hessian changes at most where the predictor moves by 1."""
    match terms:
        case LinearTerms(phi=phi):
            return phi.concordance
        case MultinomialTerms():
            return float(np.sqrt(2.0))
