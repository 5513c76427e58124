"""Sums over rows under rules: rounded, and recorded, where they are made.

What a client answers about its cost is made of a few sums over its rows: values, gradients and
Hessians at points. Here these come from rows that round each sum (see ``clients.rounding``) and
record which one it was. So every answer follows from rounded sums, and the ledger has what was
summed, whatever the question does with it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array, dots, extreme_eigenvalues, matvec, norms
from fedsplit.clients.local_models import LocalModel, ModifiedScore
from fedsplit.clients.question import Answer, CostQuestion, Part
from fedsplit.clients.questions import (
    BatchCurvature,
    Curvature,
    Decrement,
    Descend,
    Direction,
    Evaluate,
    Gradient,
    Information,
    Line,
    Margin,
    Overview,
    Prox,
    StochasticDescend,
    Trials,
    Value,
)
from fedsplit.clients.rounding import rounded, rounded_products
from fedsplit.clients.stacked import StackedClients
from fedsplit.errors import RequestError
from fedsplit.local.newton import ExactProx
from fedsplit.losses.costs import Costs, parabola
from fedsplit.losses.designs import DenseDesign
from fedsplit.losses.least_squares import LeastSquares, QuadraticTerms
from fedsplit.losses.linear import LinearTerms, RowTerms
from fedsplit.losses.multinomial import MultinomialTerms
from fedsplit.losses.observations import Observations, check_columns, chunks, read
from fedsplit.losses.terms import Block, Terms
from fedsplit.regression.client.guards.rules import NO_DIRECTIONS
from fedsplit.statistic import RowSum

if TYPE_CHECKING:
    from fedsplit.problem import Problem

ALLOWED: set[type[CostQuestion]] = {
    Curvature,
    Decrement,
    Descend,
    Direction,
    Evaluate,
    Gradient,
    Information,
    Line,
    LocalModel,
    ModifiedScore,
    Overview,
    Prox,
    Trials,
    Value,
}
"""The questions whose answers are made of nothing but the sums that rows under rules record."""


def at_named_points(question: CostQuestion) -> CostQuestion:
    """A question under rules: its answer depends on the points alone that are named by it or its
    answer.

    A solver that stops early discloses the gradient and the Hessian at its start and on its way: a
    prox is solved to rounding from v, whatever the start. A local model is that at x, as in
    Newton's method; where else its point is would depend on the Hessian at x, and on whether all
    margins are positive. Questions that rules never answer raise RequestError.
    """
    match question:
        case Margin():
            raise RequestError(NO_DIRECTIONS)
        case Descend(steps=steps) if steps > 1:
            raise RequestError("its rules allow one gradient step per question")
        case StochasticDescend() | BatchCurvature():  # a small batch tells a row
            raise RequestError(
                "its rules allow questions about all rows alone, not about minibatches"
            )
        case Prox(solver=solver):
            # what a solver that stops early answers depends on points that it does not name
            if solver != ExactProx():
                raise RequestError("its rules allow a prox by ExactProx() alone")
            return replace(question, start=None)
        case LocalModel():
            return replace(question, reach=0.0)
    return question


def points_alone(question: CostQuestion, parts: Mapping[str, Array]) -> list[CostQuestion] | None:
    """Questions at fixed points that disclose what a question and its answer do.

    None if there are none: then it is not stated what is disclosed.
    """
    match question:
        case Prox(solver=ExactProx()):  # others disclose something of their way
            return [Gradient(parts["point"])]
        case LocalModel(hessian=True):
            at = parts["point"]
            return [replace(question, reach=0.0), Gradient(at), Information(at)]
    return [question] if type(question) in ALLOWED - {Prox} else None


@dataclass(frozen=True)
class GradientSize(CostQuestion):
    """∇f_j(x) without a ridge, and the most that its entries could be."""

    x: Array

    parts: ClassVar = {"gradient": Part(("d",)), "most": Part(("d",))}

    def answer(self, costs: Costs, x: Array) -> Mapping[str, Array]:
        terms = costs.terms
        assert isinstance(terms, WatchedTerms)
        eta = terms.eta(x)
        return {"gradient": terms.gradient(eta), "most": terms.most(eta)}


def rounded_again(question: CostQuestion, answer: Answer, watched: StackedClients) -> Answer:
    """An answer with parts that tell no more than the gradient there.

    A prox is u = v - s∇f(u); the slope of Firth's penalty is as small as a server's metric.
    """
    if not isinstance(question, Prox | ModifiedScore):
        return answer
    parts = dict(answer.parts)
    most = watched.ask(
        GradientSize(question.x if isinstance(question, ModifiedScore) else parts["point"])
    ).parts["most"]
    told = {name: rounded(parts[name], most) for name in {"slope", "gradient"} & parts.keys()}
    if isinstance(question, Prox):
        point = question.v - rounded(question.v - parts["point"], question.s * most)
        error = parts["error"] + norms(point - parts["point"])
        told |= {"point": point, "error": error, "margin": np.full_like(error, np.nan)}
    return answer._replace(parts=parts | told)


@dataclass
class Watch:
    """How sums over rows are made for one question, and which ones were."""

    rounds: bool = False  # whether sums are rounded
    # called with the number of a client and its predictors at a point
    check: Callable[[int, Array], None] = lambda j, eta: None
    # whether the radius of a ball in which a client's Hessian is constant may leave it
    radius: Callable[[int], bool] = lambda j: True
    _sums: dict[int, list[RowSum]] = field(default_factory=dict)

    def add(
        self,
        clients: NDArray[np.intp],
        used: Array,
        left: Array,
        right: Array | None = None,
        weights: Array | None = None,
    ) -> None:
        """Record sums of some clients, each (k, n, …), over rows whose weights are not 0."""
        sizes = np.count_nonzero(used, axis=1).tolist()  # padding comes last
        for at, (j, n) in enumerate(zip(clients.tolist(), sizes, strict=True)):
            r, w = (None if each is None else each[at, :n] for each in (right, weights))
            self._sums.setdefault(j, []).append(RowSum(left[at, :n], r, w))

    def of(self, j: int) -> list[RowSum]:
        """The sums over the rows of client j."""
        return self._sums.get(j, [])

    def clients(self, problem: Problem, m: int) -> StackedClients | None:
        """The clients of a problem with rows that are watched, as part of m in all.

        None if its costs are no sums over rows.
        """
        blocks = []
        for own, terms in problem.blocks:
            if not isinstance(terms, LinearTerms | MultinomialTerms):
                return None
            rows = WatchedRows(terms.A, self, np.asarray(own, dtype=np.intp), terms.w)
            others = terms.b, terms.w, terms.o
            if isinstance(terms, LinearTerms):
                blocks.append(Block(own, WatchedLinear(terms.phi, rows, *others)))
            else:
                blocks.append(Block(own, WatchedMultinomial(terms.phi, rows, *others)))
        share = np.broadcast_to(problem.ridge / m, (problem.d,))
        return StackedClients(problem.d, blocks, share)


@dataclass(frozen=True, eq=False)
class WatchedRows(DenseDesign):
    """Rows of which sums are recorded, and rounded relative to the most that they could be."""

    watch: Watch
    clients: NDArray[np.intp]  # (k,): whose rows they are
    used: Array  # (k, n): 0 for padding
    root: Array | None = None  # (k, n): what the rows are multiplied by

    def __getitem__(self, clients: list[int] | slice) -> WatchedRows:
        return WatchedRows(
            self.array[clients], self.watch, self.clients[clients], self.used[clients]
        )

    def scaled(self, weights: Array) -> WatchedRows:
        return replace(self, root=weights)

    def most(self, R: Array) -> Array:
        """The most that the entries of ``adjoint`` could be, (k, d)."""
        return norms(R)[:, None] * np.sqrt(super().squares())

    def adjoint(self, R: Array) -> Array:
        self.watch.add(self.clients, self.used, R[:, :, None], self.array)
        found = super().adjoint(R)
        return rounded(found, self.most(R)) if self.watch.rounds else found

    def gram(self) -> Array:
        root = np.ones_like(self.used) if self.root is None else self.root
        self.watch.add(self.clients, self.used, self.array, weights=np.square(root))
        found = DenseDesign(root[:, :, None] * self.array).gram()
        return rounded_products(found) if self.watch.rounds else found

    def squares(self) -> Array:
        diagonals: Array = np.einsum("kii->ki", self.gram())
        return diagonals

    def _unrecorded(self, *_: Any) -> NoReturn:
        raise RequestError("its rules allow no answer from sums that are not recorded")

    inner = chosen = crossed = _unrecorded  # type: ignore[assignment]


class WatchedTerms(RowTerms):
    """Terms that are made of recorded sums alone, without numbers of single rows.

    A server that may choose the units or the point finds where a power of two changes. Sums of
    squares take the place of maxima: they follow from the moments.
    """

    design: WatchedRows

    # a system by rows is no function of sums over them
    rank = RowTerms.d
    classifies = False

    def eta(self, X: Array) -> Array:
        found = super().eta(X)
        for j, own, used in zip(self.design.clients.tolist(), found, self.w > 0, strict=True):
            self.design.watch.check(j, own[..., used])
        return found

    def value(self, eta: Array) -> Array:
        # values keep their digits: near an optimum a search needs the last ones, and the rounding
        # errors of single rows are below those of their sum
        rows = self.row_values(eta)[:, :, None]
        self.design.watch.add(self.design.clients, self.w, rows, np.ones_like(rows))
        return super().value(eta)

    def values(self, start: Array, end: Array, shares: Sequence[float]) -> Array:
        """The parabola by the values at both ends, and by the slope at the last one."""
        slopes, way = (each.reshape(self.k, -1) for each in (self.slopes(end), end - start))
        slope = rounded(dots(slopes, way), norms(slopes) * norms(way))
        # the values are those that the ends have been asked for
        return parabola(super().value(start), super().value(end), slope, shares)

    def most(self, eta: Array) -> Array:
        """The most that the entries of the gradients could be, (k, d)."""
        slopes = self.slopes(eta).reshape(self.k, -1)
        columns = np.sqrt(DenseDesign.squares(self.design))
        return np.tile(norms(slopes)[:, None] * columns, self.phi.predictors)

    def diagonal(self, eta: Array) -> Array:
        return Terms.diagonal(self, eta)

    def times(self, eta: Array) -> Callable[[Array], Array]:
        return Terms.times(self, eta)

    def bounds(self) -> tuple[Array, Array]:
        low, high = self.phi.curvature_range
        if (low, high) == (0.0, np.inf):
            return super().bounds()
        ell, L = extreme_eigenvalues(self.design.scaled(np.sqrt(self.w)).gram())
        return low * ell, high * L

    def concordance(self, W: Array | None) -> tuple[Array, Array]:
        norm, leverage = super().concordance(None)
        if self.bend in (0.0, np.inf):
            return norm, leverage
        return self.bend * np.sqrt(DenseDesign.squares(self.design).sum(axis=1)), leverage

    def spread(self, H: Array) -> Array:
        known = super().spread(H)
        moved = norms(self.product(H).reshape(self.k, -1))
        usual = (known > 0) & np.isfinite(known)
        spread: Array = np.where(usual, self.bend * moved, known)
        return spread

    @property
    @abstractmethod
    def bend(self) -> float:
        """By how much the Hessian changes at most where the predictor moves by 1."""

    def steady(self, X: Array, eta: Array) -> Array:
        radii = super().steady(X, eta)
        pairs = zip(self.design.clients.tolist(), radii.tolist(), strict=True)
        may = [r in (0.0, np.inf) or self.design.watch.radius(j) for j, r in pairs]
        return np.where(may, radii, 0.0)


class WatchedLinear(WatchedTerms, LinearTerms):
    """Those of one predictor."""

    @property
    def bend(self) -> float:
        return self.phi.concordance


class WatchedMultinomial(WatchedTerms, MultinomialTerms):
    """Those of several classes."""

    bend = math.sqrt(2.0)


class RoundedLeastSquares(LeastSquares):
    """Least squares in which every answer follows from rounded sums, wherever it is asked."""

    def stack(self, clients: Sequence[object], ridge: Array) -> tuple[int, list[Block]]:
        data = read(clients)
        check_columns(data, ridge)
        d = data[0].A.shape[1]
        blocks = []
        for own in chunks(range(len(data)), 8 * d * d):
            sums = [_rounded_sums(data[j]) for j in own]
            blocks.append(Block(own, RoundedTerms(*map(np.array, zip(*sums, strict=True)))))
        return d, blocks


@dataclass(frozen=True, eq=False)
class RoundedTerms(QuadraticTerms):
    """f = ½eᵀHe + gᵀe + f(u), with e = x - u and numbers that were rounded."""

    H: Array  # (k, d, d)
    # (k, d): the point, and ∇f(u)
    u: Array
    g: Array
    f: Array  # (k,): f(u)

    @property
    def k(self) -> int:
        return len(self.H)

    @property
    def d(self) -> int:
        return int(self.H.shape[1])

    def value(self, eta: Array) -> Array:
        E = eta - self.u
        return dots(E, 0.5 * matvec(self.H, E) + self.g) + self.f

    def gradient(self, eta: Array) -> Array:
        return matvec(self.H, eta - self.u) + self.g

    def hessian(self, eta: Array) -> Array:
        return self.H.copy()


def _rounded_sums(rows: Observations) -> tuple[Array, Array, Array, Array]:
    """H, u, g and f of one client."""
    A, b, w = np.asarray(rows.A), rows.b - rows.o, rows.w
    root = np.sqrt(w)[:, None] * A
    H = rounded_products(root.T @ root)
    columns = np.sqrt(np.diagonal(H))
    length = np.sqrt(w @ np.square(b))
    c = rounded(A.T @ (w * b), length * columns)
    # the expansion point has to follow from rounded sums as well
    d = len(H)
    u = np.linalg.solve(H + 1e-10 * np.trace(H) / d * np.eye(d), c)
    r = A @ u - b
    f = rounded(np.asarray(0.5 * (w @ np.square(r))), np.square(length))
    # residuals that are small beside the target are told with no more digits: those that are left
    # of a perfect fit are rounding errors
    residual = max(np.sqrt(2.0 * max(float(f), 0.0)), 2.0**-4 * length)
    g = rounded(A.T @ (w * r), residual * columns)
    return H, u, g, f
