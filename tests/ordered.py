"""An ordered family as a contributor would add it: its loss, its family, and a line of the table.

Thresholds are a block of coefficients that belong to no column: P(b ≤ k) is 1/(1 + e^{η - θ_k}).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit, logit

from fedsplit.arrays import EPS, Array, Mask
from fedsplit.losses.observations import check_targets, read
from fedsplit.losses.systems import Latest
from fedsplit.losses.terms import Block, Terms
from fedsplit.regression.families import response
from fedsplit.regression.families.family import (
    CoefficientBlock,
    Family,
    Link,
    check_two,
    first_move,
    shares,
)

if TYPE_CHECKING:
    import pandas as pd

    from fedsplit.regression.client.plan import BasicPlan


@dataclass(frozen=True)
class CumulativeLogit:
    """-log(σ(u) - σ(l)), u = θ_b - η and l = θ_{b-1} - η, for b in {0, ..., K - 1}.

    It is log(1 + e^{-u}) + log(1 + e^l) + γ(u - l) with γ(s) = -log(1 - e^{-s}). The third
    derivative of γ over its second is -coth(s/2), which no number bounds. So below ``least`` its
    second derivative is continued by an exponential function. Where all gaps of a minimiser are
    above, it is that of the likelihood, since both are convex; everywhere there is a proof.

    Parameters
    ----------
    classes : int
    least : float
        The least gap between thresholds: about four times the share of a class.
    """

    classes: int
    least: float = 1e-3

    def stack(self, clients: Sequence[object], ridge: Array) -> tuple[int, list[Block]]:
        data = read(clients)
        check_targets(data, lambda b: (b < 0) | (b >= self.classes), "the place of a class")
        blocks = []
        for j, (A, b, w, o) in enumerate(data):
            thresholds = np.eye(self.classes - 1)
            own = b.astype(np.intp)
            has_upper, has_lower = own < self.classes - 1, own > 0
            upper = np.hstack([-A, thresholds[np.minimum(own, self.classes - 2)]])
            lower = np.hstack([-A, thresholds[np.maximum(own - 1, 0)]])
            fields = (upper, lower, w * has_upper, w * has_lower, w * (has_upper & has_lower), o)
            blocks.append(Block([j], OrderedTerms(self, *(each[None] for each in fields))))
        return data[0].A.shape[1] + self.classes - 1, blocks

    @property
    def steepness(self) -> float:
        """A bound on |γ'''|/γ''."""
        return float(1.0 / np.tanh(0.5 * self.least))

    def gap(self, s: Array) -> tuple[Array, Array, Array]:
        """γ and its first two derivatives."""
        inside = np.maximum(s, self.least)
        value = -np.log(-np.expm1(-inside))
        slope = -1.0 / np.expm1(inside)
        curvature = 0.25 / np.square(np.sinh(0.5 * inside))
        short, k = inside - s, self.steepness
        growth = np.expm1(k * short)
        value = value - slope * short + curvature * (growth - k * short) / k**2
        return value, slope - curvature * growth / k, curvature * (growth + 1.0)


@dataclass(frozen=True, eq=False)
class OrderedTerms(Terms):
    """The loss of one client, whose point has the coefficients of columns and then the thresholds.

    Attributes
    ----------
    upper, lower : (1, n, d) arrays
        What x is multiplied by in u and l.
    above, below, between : (1, n) arrays
        Weights of the three terms of each row: 0 where its class is the last, the first, or both.
    o : (1, n) array
        Offsets.
    """

    phi: CumulativeLogit
    upper: Array
    lower: Array
    above: Array
    below: Array
    between: Array
    o: Array

    @property
    def k(self) -> int:
        return 1

    @property
    def d(self) -> int:
        return int(self.upper.shape[2])

    def eta(self, X: Array) -> Array:
        return np.stack([self.upper[0] @ X[0] - self.o[0], self.lower[0] @ X[0] - self.o[0]])[None]

    def value(self, eta: Array) -> Array:
        upto, before = eta[0]
        gap = self._gap(upto, before)[0]
        total = self.above[0] @ np.logaddexp(0.0, -upto) + self.below[0] @ np.logaddexp(0.0, before)
        value = total + float(self.between[0] @ gap)
        return np.array([np.inf if np.isnan(value) else value])

    def _gap(self, upto: Array, before: Array) -> tuple[Array, Array, Array]:
        # first and last classes have no gap: any will do, beside a weight of 0
        return self.phi.gap(np.where(self.between[0] > 0, upto - before, 1.0))

    def _slopes(self, eta: Array) -> tuple[Array, Array]:
        upto, before = eta[0]
        gap = self.between[0] * self._gap(upto, before)[1]
        return gap - self.above[0] * expit(-upto), self.below[0] * expit(before) - gap

    def gradient(self, eta: Array) -> Array:
        by_upper, by_lower = self._slopes(eta)
        gradient: Array = by_upper @ self.upper[0] + by_lower @ self.lower[0]
        return gradient[None]

    def hessian(self, eta: Array) -> Array:
        upto, before = eta[0]
        U, L = self.upper[0], self.lower[0]
        weights = (
            self.above[0] * expit(upto) * expit(-upto),
            self.below[0] * expit(before) * expit(-before),
            self.between[0] * self._gap(upto, before)[2],
        )
        hessian: Array = sum(
            (B * w[:, None]).T @ B for B, w in zip((U, L, U - L), weights, strict=True)
        )
        return hessian[None]

    def concordance(self, W: Array | None) -> tuple[Array, Array]:
        norm = self._fastest(np.eye(self.d))
        return np.array([norm]), np.array([np.inf if W is None else self._fastest(W[0])])

    def spread(self, H: Array) -> Array:
        return np.array([self._fastest(H[0][:, None])])

    def _fastest(self, W: Array) -> float:
        """How fast the logarithm of a term's curvature changes at most along the columns of W."""
        U, L = self.upper[0], self.lower[0]
        steep = self.phi.steepness
        terms = ((U, self.above, 1.0), (L, self.below, 1.0), (U - L, self.between, steep))
        lengths = (
            factor * np.linalg.norm(B[w[0] > 0] @ W, axis=1).max(initial=0.0)
            for B, w, factor in terms
        )
        fastest = max(lengths)
        return np.inf if np.isnan(fastest) else float(fastest)

    def floor(self) -> Array:
        return np.zeros(1)

    def underdetermined(self) -> Mask:
        return np.array([self.upper.shape[1] < self.d])

    def gradient_error(self, X: Array, eta: Array, latest: Latest) -> Array:
        by_upper, by_lower = self._slopes(eta)
        lengths = np.linalg.norm(self.upper[0], axis=1)
        sizes = (np.abs(by_upper) + np.abs(by_lower)) * lengths
        return np.array([(self.upper.shape[1] + self.d + 16) * EPS * sizes.sum()])


def _probabilities(eta: Array) -> Array:
    """Of all K classes, (n, K), from θ_k - η, (n, K - 1)."""
    upto = np.hstack([np.zeros((len(eta), 1)), expit(eta), np.ones((len(eta), 1))])
    return np.diff(upto, axis=1)


@dataclass(frozen=True)
class OrderedFamily(Family):
    """b is at most class k with probability 1/(1 + e^{η - θ_k}); an intercept is in the θ."""

    name = "ordered"
    aliases = ("ordinal", "polr")
    link = Link(
        "logit",
        eta=lambda mu: logit(np.cumsum(mu)[:-1]),
        mean=_probabilities,
        slope=lambda eta: expit(eta) * expit(-eta),
    )
    target = "a class"
    absorbs = "a constant"
    information = "hessian"  # the observed one, as of R's polr
    classes = "several"

    def check_classes(self, column: str, levels: Sequence[str], named: bool) -> None:
        check_two(column, levels)

    def response(self, plan: BasicPlan, frame: pd.DataFrame, where: str) -> dict[str, Array]:
        return {"target": response.codes(plan, frame)}

    def loss(self, classes: int = 0, symmetric: bool = False) -> CumulativeLogit:
        return CumulativeLogit(classes)

    def blocks(self, labels: Sequence[object]) -> tuple[CoefficientBlock, ...]:
        names = tuple(f"{low}|{high}" for low, high in pairwise(labels))
        return CoefficientBlock(), CoefficientBlock(own=names, follows=1.0)

    def predictor(self, A: Array, x: Array, o: Array, unit: float = 1.0) -> Array:
        p = A.shape[1]
        eta: Array = x[p:] - (A @ x[:p] + o)[:, None]
        return eta

    def null_own(self, counts: Array) -> Array:
        return self.link.eta(counts / counts.sum())

    def log_likelihood(self, b: Array, eta: Array, w: Array, phi: float) -> Array:
        ends = np.full((len(eta), 1), np.inf)
        bounds = np.hstack([-ends, eta, ends])
        own = b.astype(np.intp)[:, None]
        before, upto = (np.take_along_axis(bounds, own + step, axis=1)[:, 0] for step in (0, 1))
        both = np.logaddexp(0.0, -upto) + np.logaddexp(0.0, before)
        logs: Array = w * (np.log(-np.expm1(before - upto)) - both)
        return logs

    def margins(self, A: Array, b: Array, directions: Array) -> tuple[Array, Array]:
        p = A.shape[1]
        rows = np.hstack([A, np.ones((len(A), 1))])
        least, most = np.full(len(b), np.inf), np.full(len(b), -np.inf)
        for k in range(directions.shape[1] - p):
            for mine, sign in ((b == k, 1.0), (b == k + 1, -1.0)):
                gain = first_move(
                    shares(
                        rows[mine],
                        sign * np.append(-way[:p], way[p + k]),
                        float(np.linalg.norm(way)),
                    )
                    for way in directions
                )
                least[mine] = np.minimum(least[mine], gain)
                most[mine] = np.maximum(most[mine], gain)
        return least, most
