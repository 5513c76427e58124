"""What an answer about a point x could disclose of single rows.

The Hessian at x is Σ_i D_i a_i a_iᵀ and the gradient Σ_i s_i a_i, with weights and slopes that
depend on x. A server may choose a point where those of one row are large beside all others: far
out, where only one row of a logistic model is near ½, the mean of one row of a Poisson model is
beyond that of all others, or one residual is within Huber's δ. So at each point that is asked about
and at each that is answered

- the rows √D_i a_i are to be no more concentrated than those of a design (see ``leverage``), and
  every direction that the rows have is to be one that some of them carry;
- no fewer than k rows are to have nearly all of Σ_i s_i², or of the squares of other parts of sums;
- |a_iᵀx + o_i| is bounded.

What is told at all points together, of all models, is looked at in ``slopes``. The answers about a
quadratic follow from its moments, wherever the point is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256

import numpy as np

from fedsplit.arrays import Array, unpacked
from fedsplit.clients.local_models import ModifiedScore
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.clients.stacked import StackedClients
from fedsplit.errors import InputError, RequestError
from fedsplit.losses.jeffreys import jeffreys
from fedsplit.regression.client.design import Design
from fedsplit.regression.client.guards.comparison import Comparison
from fedsplit.regression.client.guards.extremes import without_extremes
from fedsplit.regression.client.guards.leverage import Span
from fedsplit.regression.client.guards.matrices import Ledger
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.regression.client.guards.slopes import POINTS, Slopes, by_row
from fedsplit.regression.client.guards.told import (
    At,
    answered_at,
    asked_at,
    check_allowed,
    settled,
    slopes_of,
    unpadded,
    values_of,
    weights_of,
)
from fedsplit.regression.client.guards.told_sums import rounded_parts

WHAT = {"slopes": "the gradient", "values": "the value"}

METRIC = 4.0
"""How far V may be above the inverse of a client's own Hessian: Firth's correction sends the
inverse of the sum of all clients' Hessians at a point near by."""


class PointGuard:
    """Looks at every point that is asked about, before its answer leaves.

    Parameters
    ----------
    names : sequence of str
        Of the clients, in their order.
    clients : StackedClients
        Their costs.
    rules : Rules
    ledgers : sequence of Ledger
        At which points each client has answered, and how often it has told a steady radius.
    told : sequence of Slopes
        What the answers of each client at other points have told; they are added to.
    designs : sequence of Design
        The rows of each client that its terms are of.
    """

    def __init__(
        self,
        names: Sequence[str],
        clients: StackedClients,
        rules: Rules,
        ledgers: Sequence[Ledger],
        told: Sequence[Slopes],
        designs: Sequence[Design],
    ) -> None:
        self._rules = rules
        self._ledgers = ledgers
        self._told = told
        self._names = names
        self._indices = [design.row_ids for design in designs]
        self._terms = [unpadded(clients.terms_of(j)) for j in range(clients.m)]
        self._plain: dict[int, Span] = {}
        self._comparisons = [
            Comparison(design, each, rules) for design, each in zip(designs, told, strict=True)
        ]

    def ask(self, clients: StackedClients, question: CostQuestion, key: str) -> Answer:
        """The answer of clients to a question, if its points single out no rows."""
        check_allowed(question)
        question = settled(question)
        asked = asked_at(question)
        named = [at.point for at in asked] or question.points()
        self.count([point for point in named if point is not None], key)
        every = [self._check_points(j, asked) for j in range(len(self._terms))]
        answer = clients.ask(question)
        answered = answered_at(question, answer.parts)
        for j, vectors in enumerate(every):
            for kind, more in self._check_points(j, answered).items():
                vectors[kind] += more
            if isinstance(question, ModifiedScore):
                self._check_penalty(j, question, vectors)
            self.admit(j, vectors)
        parts = self.rounded(question, answer.parts)
        parts = without_extremes(question, parts, self._terms, self._ledgers)
        # how long it took, and how many steps, depends on single rows too
        nothing = np.zeros_like(answer.seconds)
        return answer._replace(parts=parts, seconds=nothing, work=np.zeros_like(answer.work))

    def rounded(self, question: CostQuestion, parts: Mapping[str, Array]) -> dict[str, Array]:
        """The parts of an answer without rounding errors."""
        return rounded_parts(question, parts, self._terms)

    def count(self, points: Sequence[Array], key: str) -> None:
        """Raise RequestError for more points than the rules allow; the same one is free."""
        new = {_digest(key, point) for point in points}
        for name, ledger in zip(self._names, self._ledgers, strict=True):
            own = [digest for digest in new if digest not in ledger]
            if own and ledger.total + len(own) > self._rules.points:
                raise RequestError(
                    f"client {name} has answered at {ledger.total} points, and its rules allow "
                    f"{self._rules.points}"
                )
            ledger.add_all(own)

    def check(self, told: Sequence[At]) -> None:
        """Raise InputError if what is told at points singles out rows of some client."""
        for j in range(len(self._terms)):
            self.admit(j, self._check_points(j, told))

    def _check_points(self, j: int, told: Sequence[At]) -> dict[str, list[Array]]:
        """The vectors over the rows of client j that are told, each of which is harmless itself."""
        terms = self._terms[j]
        vectors: dict[str, list[Array]] = {kind: [] for kind in POINTS}
        for at in told:
            X = np.broadcast_to(at.point, (len(self._terms), at.point.shape[-1]))
            eta = terms.eta(X[j : j + 1])
            self.check_size(j, eta)
            weights = weights_of(terms, eta)
            for each in weights:
                self.check_weights(j, each)
            if at.matrix:
                vectors["weights"] += weights
            if at.slope:
                vectors["slopes"] += slopes_of(terms, eta)
            if at.value:
                vectors["values"] += values_of(terms, eta)
        return vectors

    def check_size(self, j: int, eta: Array) -> None:
        """Raise InputError for predictors of client j that are too far out."""
        size = np.abs(eta).max(initial=0.0)
        if not size <= self._rules.predictor:
            self._refuse(j, f"|a_iᵀx + o_i| is {size:.3g}, above {self._rules.predictor:g}")

    def admit(self, j: int, vectors: Mapping[str, Sequence[Array]]) -> None:
        """Take note of vectors over the rows of client j, by kind, that are about to be told.

        Raises InputError if they, by themselves or with those of other points, single out rows.
        """
        for kind, what in WHAT.items():
            for each in vectors.get(kind, ()):
                self.check_shares(j, each, what)
        for kind in ("slopes", "weights"):
            alone = self._comparisons[j].found(kind, vectors.get(kind, ()))
            if alone is not None:
                self._refuse(
                    j,
                    "few rows carry the difference to another point in a direction "
                    f"({len(alone.rows)}, with a share of {alone.share:.6g})",
                )
        index = self._indices[j]
        columns = {kind: by_row(each, index) for kind, each in vectors.items() if each}
        if not columns:
            return
        spans = self._told[j].with_vectors(columns)
        most = self._rules.most_of_combinations
        for span in spans.values():
            found = span.concentrated(self._rules.smallest, most)
            if found is not None:
                self._refuse(
                    j,
                    "few rows are singled out together with earlier points "
                    f"({len(found.rows)}, with a share of {found.share:.6g})",
                )
        self._told[j].add(columns, spans)

    def check_shares(self, j: int, parts: Array, what: str) -> None:
        """Raise InputError if fewer than k rows have nearly all of the squares of parts, (n,)."""
        squares = np.square(parts)
        total = float(squares.sum())
        if total == 0.0:
            return
        few = largest_sum(squares, self._rules.smallest)
        if not few <= self._rules.most_leverage(len(squares)) * total:
            self._refuse(j, f"{what} is that of fewer than {self._rules.smallest} rows")

    def check_weights(self, j: int, weights: Array) -> None:
        """Raise InputError if fewer than k rows carry a direction of Σ_i D_i a_i a_iᵀ, (n,)."""
        plain = self._span(j)
        most = self._rules.most_leverage(len(weights))
        k = self._rules.smallest
        if not np.isfinite(weights).all():
            self._refuse(j, "the curvature is beyond float64")
        least = float(weights.min(initial=np.inf))
        few = largest_sum(plain.leverages, k)
        # D_i a_iᵀ(AᵀDA)⁻¹a_i ≤ (D_i/min D) h_i
        if least > 0 and float(weights.max()) * few <= most * least:
            return
        A = self._terms[j].A[0]
        span = Span().extended(np.sqrt(weights)[:, None] * A, np.arange(len(weights)))
        if span.rank < plain.rank:
            self._refuse(j, "no row carries a direction that its rows have")
        found = span.concentrated(k, most)
        if found is not None:
            self._refuse(
                j,
                f"{len(found.rows)} rows carry a direction alone (share {found.share:.6g}; rules "
                "largest_leverage, smallest_group)",
            )

    def _check_penalty(
        self, j: int, question: ModifiedScore, vectors: dict[str, list[Array]]
    ) -> None:
        """The same for the slopes of Firth's penalty, in which the server chooses a metric."""
        terms = self._terms[j]
        V = unpacked(question.metric)
        slopes, weights = jeffreys(terms, question.x[None], V).of_rows
        largest = np.linalg.eigvals(V @ terms.hessian(terms.eta(question.x[None]))[0]).real.max()
        if largest > METRIC:
            self._refuse(j, f"the metric is {largest:.3g} times the inverse of the Hessian")
        self.check_weights(j, weights[0])
        vectors["slopes"].append(slopes[0])
        if question.augmented:
            vectors["weights"].append(weights[0])

    def _span(self, j: int) -> Span:
        """That of a client's rows as they are."""
        if j not in self._plain:
            A = self._terms[j].A[0]
            self._plain[j] = Span().extended(A, np.arange(len(A)))
        return self._plain[j]

    def _refuse(self, j: int, why: str) -> None:
        raise InputError(f"client {self._names[j]}: at a point that was asked about, {why}")


def largest_sum(values: Array, k: int) -> float:
    """The sum of the largest values, of fewer than k rows."""
    return float(np.sort(values)[::-1][: k - 1].sum())


def _digest(key: str, point: Array) -> str:
    return sha256(key.encode() + np.ascontiguousarray(point).tobytes()).hexdigest()
