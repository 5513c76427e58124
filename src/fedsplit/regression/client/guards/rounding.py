"""The answers of a client under rules: sums without rounding errors (see ``clients.sums``), and no
numbers of single rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedsplit.arrays import Array, dots, matvec, packed, unpacked
from fedsplit.clients.local_models import WAY, LocalModel
from fedsplit.clients.question import CostQuestion
from fedsplit.clients.questions import Descend, Direction, Overview, Prox, Trials
from fedsplit.clients.sums import rounded, rounded_products
from fedsplit.losses.costs import parabola
from fedsplit.losses.least_squares import LeastSquares, QuadraticTerms, ReducedTerms
from fedsplit.losses.linear import LinearTerms
from fedsplit.losses.multinomial import MultinomialTerms
from fedsplit.losses.observations import Observations, is_sparse, read
from fedsplit.losses.terms import Block
from fedsplit.regression.client.guards.points import RowTerms, slopes_of


class RoundedLeastSquares(LeastSquares):
    """Least squares in which every answer follows from rounded sums, wherever it is asked."""

    def stack(self, clients: Sequence[object], ridge: Array) -> tuple[int, list[Block]]:
        d, blocks = super().stack(clients, ridge)
        data = read(clients)
        for at, (own, terms) in enumerate(blocks):
            if isinstance(terms, ReducedTerms):
                blocks[at] = Block(own, rounded_terms([data[j] for j in own]))
        return d, blocks


@dataclass(frozen=True, eq=False)
class RoundedTerms(QuadraticTerms):
    """f = ½eᵀHe + gᵀe + f(u), with e = x - u and numbers that were rounded.

    Attributes
    ----------
    H : (k, d, d) array
    u, g : (k, d) arrays
        The point, and ∇f(u).
    f : (k,) array
        f(u).
    """

    H: Array
    u: Array
    g: Array
    f: Array

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


def rounded_terms(data: Sequence[Observations]) -> RoundedTerms:
    """The terms of clients with these rows; sums over rows are the nearest to the exact ones."""
    parts = [
        _rounded_sums(np.asarray(A.toarray() if is_sparse(A) else A), b - o, w)
        for A, b, w, o in data
    ]
    return RoundedTerms(*(np.array(part) for part in zip(*parts, strict=True)))


def _rounded_sums(A: Array, b: Array, w: Array) -> tuple[Array, Array, Array, Array]:
    """H, u, g and f of one client."""
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


def rounded_parts(
    question: CostQuestion, parts: Mapping[str, Array], terms: Sequence[RowTerms]
) -> dict[str, Array]:
    """The gradients, Hessians and steps of an answer, one of each client.

    Values keep their digits: near an optimum a search needs the last ones, and the rounding errors
    of single rows are below those of their sum.
    """
    found = dict(parts) | _rounded_points(question, parts, terms)
    for name in ("hessian", "hessian_at_x", "augmented"):
        if name in found:
            found[name] = _rounded_matrices(found[name])
    x = getattr(question, "x", parts.get("point", np.zeros(0)))
    at = {"slope": x, "gradient": parts.get("point", x)}
    for name in at.keys() & found.keys():
        found[name] = rounded(found[name], _bounds(terms, at[name]))
    return found


def _rounded_points(
    question: CostQuestion, parts: Mapping[str, Array], terms: Sequence[RowTerms]
) -> dict[str, Array]:
    """Points that tell a gradient, or the solution of a system with a Hessian."""
    match question:
        case Prox(v=v, s=s):
            # u = v - s∇f(u)
            point = v - rounded(v - parts["point"], s * _bounds(terms, parts["point"]))
            moved = np.linalg.norm(point - parts["point"], axis=1)
            return {"point": point, "error": parts["error"] + moved}
        case Descend(x=x, step=step):
            return {"point": x - rounded(x - parts["point"], step * _bounds(terms, x))}
        case LocalModel(x=x, hessian=True):
            diagonal = np.diagonal(unpacked(parts["hessian"]), axis1=1, axis2=2)
            return {"point": x + _rounded_step(parts["point"] - x, diagonal)}
        case Direction(x=x):
            return {"direction": _rounded_step(parts["direction"], _diagonals(terms, x))}
        case Overview():
            return {"diagonal": rounded(parts["diagonal"], parts["diagonal"])}
        case Trials(x=x, second=second, third=third, reference=reference):
            points = [point for point in (x, second, third) if point is not None]
            bounds = np.stack([_bounds(terms, point) for point in points], axis=1)
            diagonals = _diagonals(terms, x if reference is None else reference)
            found = {name: rounded(parts[name], parts[name]) for name in {"trace"} & parts.keys()}
            found["gradients"] = rounded(parts["gradients"], bounds)
            return found | {"step": _rounded_step(parts["step"], diagonals)}
    return {}


@np.errstate(invalid="ignore", divide="ignore")
def _rounded_step(steps: Array, diagonals: Array) -> Array:
    """Steps, (m, d), relative to their lengths where the Hessians have these diagonals."""
    sizes = np.sqrt(np.maximum(diagonals, 0.0))
    return rounded(steps, np.linalg.norm(sizes * steps, axis=1, keepdims=True) / sizes)


def _diagonals(terms: Sequence[RowTerms], x: Array) -> Array:
    """Those of the clients' Hessians at x, (m, d)."""
    return np.array([each.diagonal(each.eta(X))[0] for each, X in _each(terms, x)])


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


STEADY = "steady"


def without_extremes(
    question: CostQuestion,
    parts: Mapping[str, Array],
    terms: Sequence[RowTerms],
    may_disclose: Callable[[int], bool],
) -> dict[str, Array]:
    """The parts without numbers of single rows, and without values at points of no statement.

    A server that may choose the units or the point finds where a power of two changes. Sums of
    squares take the place of maxima: they follow from the moments.

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
