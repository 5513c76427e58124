"""What an answer about a point x could disclose of single rows.

The Hessian at x is Σ_i D_i a_i a_iᵀ and the gradient Σ_i s_i a_i, with weights and slopes that
depend on x. A server may choose a point where those of one row are large beside all others: far
out, where only one row of a logistic model is near ½, the mean of one row of a Poisson model is
beyond that of all others, or one residual is within Huber's δ. So at each point that is asked about
and at each that is answered

- the rows √D_i a_i are to be no more concentrated than those of a design (see ``leverage``), and
  every direction that the rows have is to be one that some of them carry;
- no fewer than k rows are to have nearly all of Σ_i s_i²;
- |a_iᵀx + o_i| is bounded.

Gradients at several points are Aᵀ(s(x_1), s(x_2), …): a combination of points may single out a row
where none of them does, as sums of exponentials are taken apart by Prony's method. So the span of
all slopes, and of all weights where matrices are told, has the same limit, without what is left of
them below FADED: as a fit converges, its points tell less and less that is new.

The answers about a quadratic follow from its moments, wherever the point is.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np

from fedsplit import files
from fedsplit.arrays import Array, unpacked
from fedsplit.clients.local_models import LocalModel, ModifiedScore
from fedsplit.clients.question import Answer, CostQuestion, Question
from fedsplit.clients.questions import Descend, Diagonal, Line, Margin, Prox
from fedsplit.clients.stacked import StackedClients
from fedsplit.errors import InputError, RequestError, StateError
from fedsplit.losses.jeffreys import penalty_parts
from fedsplit.losses.linear import LinearTerms
from fedsplit.losses.multinomial import MultinomialTerms
from fedsplit.losses.terms import Terms
from fedsplit.losses.two_classes import BinaryTerms
from fedsplit.prox.exact import ExactProx
from fedsplit.prox.inexact_newton import NewtonProx
from fedsplit.regression.client.guards.leverage import Found, Span
from fedsplit.regression.client.guards.matrices import Ledger
from fedsplit.regression.client.guards.rules import Rules

MOST_STEADY = 16
"""How often the radius of a ball of constant Hessians is told of the same rows: where it changes
along a line is a number of one row."""

STEADY = "steady"

SOLVERS = (ExactProx(), NewtonProx())
"""Those whose answer depends on the point that they find, and not on the way to it."""

FADED = 1e-4
"""A direction of which the vectors of several points have a smaller share is not told with digits
that would single out a row."""

NO_DIRECTIONS = "its rules allow no question about a direction of the server's choice"


RowTerms: TypeAlias = LinearTerms | MultinomialTerms
"""The terms of all losses that are not quadratic."""


def check_allowed(question: Question) -> None:
    """Raise RequestError for questions that rules never answer."""
    if isinstance(question, Margin):
        raise RequestError(NO_DIRECTIONS)
    if isinstance(question, Descend) and question.steps > 1:
        raise RequestError("its rules allow one gradient step per question")
    # what a solver that stops early answers depends on points that nobody has looked at
    if isinstance(question, Prox) and question.solver not in SOLVERS:
        raise RequestError("its rules allow a prox by ExactProx() or NewtonProx() alone")


def asked_at(question: CostQuestion) -> list[Array]:
    """The points that a question names, at which its answer tells of the costs."""
    match question:
        case Line(x=x, direction=direction, t=lengths):
            return [x + length * direction for length in lengths]
        case LocalModel(x=x, before=None):
            return [x]
        case LocalModel(x=x, before=before) if before is not None:
            return [x, before]
        case Prox(v=v, start=start):
            return [v if start is None else start]
        case Diagonal(x=x, origin=True):
            return [x, np.zeros_like(x)]
    point: Array | None = getattr(question, "x", None)
    if point is None:
        return []
    return [point]


class Slopes:
    """The span of the vectors over rows that answers at several points have told, (n, r).

    Each is scaled to length 1. Directions that they have less than ``FADED`` of are left out.

    Parameters
    ----------
    path : Path, optional
        A file that keeps it, so that it outlives the process.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._S: Array = np.zeros((0, 0))
        self._path = path
        if path is not None and path.exists():
            self._S = _read_slopes(path)

    def with_vectors(self, vectors: Sequence[Array]) -> Slopes:
        """The span with more vectors, each (n,)."""
        unit = [each / np.linalg.norm(each) for each in vectors if each.any()]
        found = Slopes()
        found._path = self._path
        found._S = self._S
        if unit:
            S = np.column_stack(unit)
            if self._S.size:
                S = np.hstack([self._S, S])
            squares, V = np.linalg.eigh(S.T @ S)
            found._S = S @ V[:, squares > FADED**2 * squares[-1]]
        return found

    def concentrated(self, k: int, most: float) -> Found | None:
        """Fewer than k rows on which some combination has more than a share of its square."""
        sizes = np.linalg.norm(self._S, axis=0)
        return Span(self._S / sizes).concentrated(k, most)

    def keep(self) -> None:
        """Write it to its file."""
        if self._path is not None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            content = io.BytesIO()
            np.save(content, self._S)
            files.write_private(self._path, content.getvalue())


def _read_slopes(path: Path) -> Array:
    try:
        found: Array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError):
        raise StateError(
            f"{path}: this record of what was disclosed cannot be read, so that nothing is "
            "answered: restore it from a backup"
        ) from None
    return found


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
    told : dict of str to Slopes
        By client, what its answers at other points have told; it is added to.
    """

    def __init__(
        self,
        names: Sequence[str],
        clients: StackedClients,
        rules: Rules,
        ledgers: Sequence[Ledger],
        told: dict[str, Slopes],
    ) -> None:
        self._rules = rules
        self._ledgers = ledgers
        self._told = told
        self._names = names
        self._terms = [_unpadded(clients.terms_of(j)) for j in range(clients.m)]
        self._plain: dict[int, Span] = {}

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

    def check(self, points: Sequence[Array], matrices: bool) -> None:
        """Raise InputError if a point, (d,) or (m, d), singles out rows of some client.

        Parameters
        ----------
        points : sequence of array
        matrices : bool
            Whether matrices are told there.
        """
        for point in points:
            X = np.broadcast_to(point, (len(self._terms), point.shape[-1]))
            for j, terms in enumerate(self._terms):
                self.check_predictor(j, terms.eta(X[j : j + 1]), matrices)

    def check_predictor(self, j: int, eta: Array, matrices: bool) -> None:
        """Raise InputError if rows of client j are singled out where their predictor is this."""
        size = np.abs(eta).max(initial=0.0)
        if not size <= self._rules.predictor:
            self._refuse(j, f"|a_iᵀx + o_i| is {size:.3g}, above {self._rules.predictor:g}")
        weights, slopes = _weights_and_slopes(self._terms[j], eta)
        for each in slopes:
            self.check_shares(j, each, "the gradient")
        for each in weights:
            self.check_weights(j, each)
        if matrices:
            slopes += weights
        self._check_together(j, slopes)

    def _check_together(self, j: int, vectors: Sequence[Array]) -> None:
        """Raise InputError if vectors, each (n,), single out rows with those of other points."""
        name = self._names[j]
        together = self._told[name].with_vectors(vectors)
        n = len(vectors[0])
        found = together.concentrated(self._rules.smallest, self._rules.most_leverage(n))
        if found is not None:
            self._refuse(
                j, f"{len(found.rows)} rows stand out of those before (share {found.share:.6g})"
            )
        together.keep()
        self._told[name] = together

    def check_shares(self, j: int, parts: Array, what: str) -> None:
        """Raise InputError if fewer than k rows have nearly all of the squares of parts, (n,)."""
        squares = np.square(parts)
        total = float(squares.sum())
        if total == 0.0:
            return
        few = np.sort(squares)[len(squares) - self._rules.smallest + 1 :]
        if not float(few.sum()) <= self._rules.most_leverage(len(squares)) * total:
            self._refuse(j, f"{what} is that of fewer than {self._rules.smallest} rows")

    def check_sum(self, j: int, parts: Array, what: str) -> None:
        """Raise InputError if fewer than k rows have nearly all of a sum of parts, (n,)."""
        self.check_shares(j, np.sqrt(np.abs(parts)), what)

    def check_weights(self, j: int, weights: Array) -> None:
        """Raise InputError if fewer than k rows carry a direction of Σ_i D_i a_i a_iᵀ, (n,)."""
        plain = self._span(j)
        most = self._rules.most_leverage(len(weights))
        k = self._rules.smallest
        if not np.isfinite(weights).all():
            self._refuse(j, "the curvature is beyond float64")
        least = float(weights.min(initial=np.inf))
        few = np.sort(plain.leverages)[len(weights) - k + 1 :].sum()
        # D_i a_iᵀ(AᵀDA)⁻¹a_i ≤ (D_i/min D) h_i
        if least > 0 and float(weights.max()) * few <= most * least:
            return
        A = self._rows(j)
        span = Span().extended(np.sqrt(weights)[:, None] * A, np.arange(len(weights)))
        if span.Q.shape[1] < plain.Q.shape[1]:
            self._refuse(j, "no row carries a direction that its rows have")
        found = span.concentrated(k, most)
        if found is not None:
            self._refuse(
                j,
                f"{len(found.rows)} rows carry a direction alone (share {found.share:.6g}; rules "
                "largest_leverage, smallest_group)",
            )

    def _span(self, j: int) -> Span:
        """That of a client's rows as they are."""
        if j not in self._plain:
            A = self._rows(j)
            self._plain[j] = Span().extended(A, np.arange(len(A)))
        return self._plain[j]

    def _rows(self, j: int) -> Array:
        rows: Array = self._terms[j].A[0]
        return rows

    def _refuse(self, j: int, why: str) -> None:
        raise InputError(f"client {self._names[j]}: at a point that was asked about, {why}")

    def ask(self, clients: StackedClients, question: CostQuestion, key: str) -> Answer:
        """The answer of clients to a question, if its points single out no rows."""
        check_allowed(question)
        asked = asked_at(question)
        self.count(asked, key)
        matrices = question.matrices > 0 or isinstance(question, Diagonal)
        self.check(asked, matrices)
        if isinstance(question, ModifiedScore):
            self._check_modified(question)
        answer = clients.ask(self._without_margin(question))
        if "point" in answer.parts:
            self.check([answer.parts["point"]], matrices)
        parts = self._without_extremes(question, answer.parts)
        # how long it took, and how many steps, depends on single rows too
        nothing = np.zeros_like(answer.seconds)
        return answer._replace(parts=parts, seconds=nothing, work=np.zeros_like(answer.work))

    def _without_margin(self, question: CostQuestion) -> CostQuestion:
        """A question in whose answer no point says whether all margins are positive.

        A classifier that can tell its classes apart stays where it is asked in the first question,
        and so does every classifier here.
        """
        classes = isinstance(self._terms[0], BinaryTerms | MultinomialTerms)
        if classes and isinstance(question, LocalModel) and question.metric is None:
            return replace(question, reach=0.0)
        return question

    def _check_modified(self, question: ModifiedScore) -> None:
        """The same for the slopes of Firth's penalty, in which the server chooses a metric."""
        for j, terms in enumerate(self._terms):
            slopes, weights = penalty_parts(terms, question.x[None], unpacked(question.metric))
            self.check_shares(j, slopes[0], "the slope of the penalty")
            self.check_weights(j, weights[0])

    def _without_extremes(
        self, question: CostQuestion, parts: Mapping[str, Array]
    ) -> dict[str, Array]:
        """The parts without numbers of single rows, even as powers of two.

        A server that may choose the units or the point finds where such a power changes. Sums of
        squares take the place of maxima: they follow from the moments.
        """
        found = dict(parts)
        if "margin" in found:
            found["margin"] = np.full_like(found["margin"], np.nan)
        if "leverage" in found:
            found["leverage"] = np.where(found["leverage"] == 0, 0.0, np.inf)
        if "norm" in found:
            lengths = [np.linalg.norm(self._rows(j)) for j in range(len(self._terms))]
            found["norm"] = _scaled(found["norm"], self._factors * np.array(lengths))
        if "spread" in found:
            found["spread"] = _scaled(found["spread"], self._spreads(question, parts))
        if "steady" in found:
            found["steady"] = self._steady(found["steady"])
        return found

    def _steady(self, radius: Array) -> Array:
        """The radii, as long as there have not been many."""
        told = radius.copy()
        for j, ledger in enumerate(self._ledgers):
            if 0 < radius[j] < np.inf and not ledger.spend(STEADY, MOST_STEADY):
                told[j] = 0.0
        return told

    def _spreads(self, question: CostQuestion, parts: Mapping[str, Array]) -> Array:
        """√Σ_i (a_iᵀh)² for the way h of each client, times the loss's constant."""
        x = getattr(question, "x")  # noqa: B009  # of the questions that have this part
        to = parts.get("point", getattr(question, "before", x))
        ways = np.broadcast_to(x - to, (len(self._terms), x.shape[-1]))
        predictors = [terms.product(ways[j : j + 1]) for j, terms in enumerate(self._terms)]
        lengths: Array = self._factors * np.array([np.linalg.norm(each) for each in predictors])
        return lengths

    @property
    def _factors(self) -> Array:
        """By how much the Hessian changes at most where the predictor moves by 1, (m,)."""
        return np.array([_concordance(terms) for terms in self._terms])


def _unpadded(terms: Terms) -> RowTerms:
    """The terms of one client without rows of weight zero."""
    own = cast(RowTerms, terms)
    used = own.w[0] > 0
    if used.all():
        return own
    rows = {
        name: getattr(own, name)[:, used] for name in ("A", "b", "w", "o") if hasattr(own, name)
    }
    return replace(own, **rows)


def _digest(key: str, point: Array) -> str:
    return sha256(key.encode() + np.ascontiguousarray(point).tobytes()).hexdigest()


def _scaled(told: Array, instead: Array) -> Array:
    """``instead`` where a bound is told that is neither zero nor infinite."""
    return np.where((told == 0) | np.isinf(told), told, instead)


def _concordance(terms: RowTerms) -> float:
    match terms:
        case LinearTerms(phi=phi):
            return phi.concordance
        case MultinomialTerms():
            return float(np.sqrt(2.0))


def _weights_and_slopes(terms: RowTerms, eta: Array) -> tuple[list[Array], list[Array]]:
    """The weights D_i of the matrices that are told, and the slopes, each (n,)."""
    match terms:
        case LinearTerms():
            return [terms.curvature(eta)[0]], [terms.slopes(eta)[0]]
        case MultinomialTerms(w=w, b=b):
            slopes = terms.slopes(eta.reshape(1, terms.classes - 1, -1))[0]
            own = b[0] == np.arange(1, terms.classes)[:, None]
            p = slopes / np.where(w[0] > 0, w[0], 1.0) + own
            p = np.clip(np.vstack([1.0 - p.sum(axis=0), p]), 0.0, 1.0)
            pairs = [(c, e) for c in range(terms.classes) for e in range(c)]
            return [w[0] * p[c] * p[e] for c, e in pairs], list(slopes)
