"""The clients' costs f_j: their loss terms plus their share of the ridge."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from fedsplit.arrays import (
    EPS,
    Array,
    DeviceFactors,
    Factors,
    Mask,
    Metric,
    add_diagonal,
    dots,
    extreme_eigenvalues,
    inverse_norm,
    metric_times,
    namespace,
    norms,
    on_host,
    to_host,
    zero_rows,
)
from fedsplit.errors import InputError
from fedsplit.losses.batches import Batch, Stacked
from fedsplit.losses.designs import extremes
from fedsplit.losses.systems import ByProducts, LargeHessian, Latest, Solver, conjugate_gradients
from fedsplit.losses.terms import Terms


@dataclass
class Work:
    """What one client has computed; clients stacked in one block compute the same, together.

    Not counted: function values, margins, the diagonal of a Hessian, the bounds ℓ_j and L_j that
    are computed once, and what CVXPY does inside.
    """

    # evaluations of ∇f_j, those of a Hessian by finite differences among them. A minibatch counts
    # as its share of the rows, so this is the number of passes over the data
    gradients: float = 0
    hessians: float = 0  # evaluations of ∇²f_j, or of a matrix B with BᵀB = ∇²f_j
    # factorisations of a matrix made from a Hessian: a linear system, an inverse, or eigenvalues. A
    # factor that is stored, as for quadratic costs, counts only when it is made
    factorisations: int = 0

    def each(self, k: int) -> Array:
        """The work of k clients, (k, 3)."""
        own = np.array([self.gradients, self.hessians, self.factorisations], dtype=np.float64)
        return np.ndarray((k, 3), own.dtype, own, 0, (0, own.strides[0]))  # one row k times


@dataclass(frozen=True, eq=False)
class Costs:
    """f_j(x) = terms_j(x) + ½ Σ_i ridge_i x_i² for k stacked clients.

    Row j of every argument and of every answer belongs to client j; ``X`` and ``G`` are (k, d).
    """

    terms: Terms  # the loss terms
    # (d,): the ridge per client: that of the whole objective, already divided by all m clients
    ridge: Array
    # the share of the rows that the terms are, by which gradients and Hessians are counted
    share: float = 1
    # what is derived from the terms and the ridge alone
    latest: Latest = field(default_factory=Latest, repr=False)
    # what has been computed with these costs, or for the question that they were ``counted`` for
    work: Work = field(default_factory=Work, repr=False)

    def counted(self) -> Costs:
        """These costs for one question, with a count of work that begins at zero."""
        counted = object.__new__(Costs)  # every question comes here, and __init__ takes longer
        counted.__dict__.update(self.__dict__, work=Work())
        return counted

    def at(self, X: Array) -> Evaluation:
        """The costs at one point of each client, (k, d)."""
        return Evaluation(self, X)

    def value(self, X: Array) -> Array:
        """f_j(x_j), (k,)."""
        return self.at(X).value

    def gradient(self, X: Array) -> Array:
        """∇f_j(x_j), (k, d)."""
        return self.at(X).gradient

    def hessian(self, X: Array) -> Array:
        """∇²f_j(x_j), (k, d, d), not to be written to."""
        return self.at(X).hessian

    def batch(self, batch: Batch) -> Costs:
        """Unbiased estimates of the f_j from some of the clients' rows, with the whole ridge."""
        # padding counts as rows do: all clients of a block compute the same
        share = batch.rows.shape[1] / self.stacked.length
        return Costs(self.terms.subsample(*batch), self.ridge, share, work=self.work)

    @property
    def stacked(self) -> Stacked:
        """How many rows the clients have."""
        stacked = self.terms.stacked
        if stacked is None:
            raise InputError(
                "these clients keep no rows to draw a batch from: use LeastSquares(rows=True), or "
                "a loss of a linear predictor"
            )
        return stacked

    @property
    def bounds(self) -> tuple[Array, Array]:
        """ℓ_j and L_j of f_j, each (k,), that hold everywhere."""

        def make() -> tuple[Array, Array]:
            ell, L = self.terms.bounds()
            return ell + self.least_ridge, L + self.most_ridge

        return self.latest.get("bounds", None, make)

    @property
    def convexity(self) -> Array:
        """ℓ_j of f_j, (k,), that holds everywhere."""
        return self.latest.get("convexity", None, lambda: self.terms.convexity() + self.least_ridge)

    @property
    def least_ridge(self) -> float:
        """The smallest entry of the ridge."""
        return float(namespace(self.ridge).min(self.ridge))

    @property
    def most_ridge(self) -> float:
        """The largest entry of the ridge."""
        return float(namespace(self.ridge).max(self.ridge))

    @property
    def norm(self) -> Array:
        """The first of ``Terms.concordance``, (k,): how fast the Hessians can change."""
        return self.latest.get("norm", None, lambda: self.terms.concordance(None)[0])

    @property
    def value_at_origin(self) -> Array:
        """f_j(0), (k,)."""
        zeros = zero_rows(self.ridge, self.terms.k)
        return self.latest.get("value at origin", None, lambda: self.value(zeros))

    def minimiser(self, M: Metric, V: Array) -> tuple[Array, Array | None] | None:
        """argmin_u f_j(u) + ½‖u - v_j‖²_M, (k, d), in closed form, if the f_j are quadratic.

        With it a bound on its error, (k,), or None where the residual has to give one. The inverse
        of ∇²f_j + M is stored for the latest M.
        """
        if not self.terms.quadratic or self.terms.large:
            return None
        key = M if isinstance(M, float) else (M.shape, to_host(M).tobytes())
        inverse, g, error, least = self.latest.get("inverse", key, lambda: self._stored(M))
        Q = metric_times(M, V)
        U = inverse.solve(Q - g)  # ∇f_j(u) + M(u - v) = 0 with ∇f_j(u) = g + Hu
        return U, None if error is None else error * norms(Q / inverse.sizes) + least

    def _stored(self, M: Metric) -> tuple[Any, Array, Array | None, Array | float]:
        """The inverse of ∇²f_j + M, ∇f_j(0), and the error of solutions, if it is known.

        That is a share of the right side's length, and so much for ∇f_j(0).
        """
        zero = self.counted().at(zero_rows(self.ridge, self.terms.k))
        inverse = zero.factor(M).inverted()
        self.work.factorisations += 1
        if not isinstance(inverse, Factors):
            return inverse, zero.gradient, None, 0.0
        error = inverse.forward_error
        return inverse, zero.gradient, error, error * norms(zero.gradient / inverse.sizes)

    def batch_smoothness(self, batch: int, X: Array | None = None) -> Array:
        """The expected smoothness ℒ_j ≥ L_j of minibatches, (k,), everywhere, or for Hessians at X.

        E‖ĝ_j(x) - ĝ_j(y)‖² ≤ 2ℒ_j (f_j(x) - f_j(y) - ⟨∇f_j(y), x - y⟩) with the scaled gradient ĝ_j
        of a batch of B rows, drawn without replacement: ℒ = n(B - 1)/(B(n - 1)) L + (n - B)/(B(n -
        1)) n max_i L_i with the L_i of single rows (Gower et al., 2019).
        """
        n = self.stacked.sizes.astype(np.float64)
        B = np.minimum(n, batch)
        bounds, eta = self.bounds, None
        if X is not None:
            at = self.at(X)
            bounds, eta = at.bounds(), at.eta
        L = to_host(bounds[1])
        single = to_host(self.terms.largest_row(eta)) + self.most_ridge / n
        mixed = (n * (B - 1.0) * L + (n - B) * n * single) / (B * np.maximum(n - 1.0, 1.0))
        # without a bound on L_j there is none on ℒ_j, and 0·inf in ``mixed``
        return np.where((n > B) & np.isfinite(L), np.maximum(L, mixed), L)


class Evaluation:
    """The costs at one point of each client: value, gradient and Hessian, each computed once."""

    def __init__(self, costs: Costs, X: Array, eta: Array | None = None) -> None:
        self.costs = costs
        self.X = X
        self._eta = eta

    @property
    def eta(self) -> Array:
        """``Terms.eta`` of the points."""
        if self._eta is None:
            self._eta = self.costs.terms.eta(self.X)
        return self._eta

    @cached_property
    def value(self) -> Array:
        """f_j(x_j), (k,)."""
        return self.costs.terms.value(self.eta) + 0.5 * dots(self.X, self.costs.ridge * self.X)

    @cached_property
    def gradient(self) -> Array:
        """∇f_j(x_j), (k, d)."""
        self.costs.work.gradients += self.costs.share
        return self.costs.terms.gradient(self.eta) + self.costs.ridge * self.X

    @cached_property
    def hessian(self) -> Array:
        """∇²f_j(x_j), (k, d, d), not to be written to."""
        return self._new_hessian()

    def _new_hessian(self, shift: float | Array = 0.0) -> Array:
        """∇²f_j(x_j) + diag(shift), (k, d, d), in a new array."""
        costs = self.costs
        costs.work.hessians += costs.share
        costs.work.gradients += costs.share * costs.terms.gradients_per_hessian
        return add_diagonal(costs.terms.hessian(self.eta), costs.ridge + shift)

    def merged(self, other: Evaluation, mask: Mask) -> Evaluation:
        """The costs at the points of ``other`` where ``mask``, (k,), at these points elsewhere."""
        xp = namespace(self.X)
        if xp.all(mask):
            return other
        if not xp.any(mask):
            return self
        X = xp.where(mask[:, None], other.X, self.X)
        own = xp.reshape(mask, (-1, *[1] * (self.eta.ndim - 1)))
        return Evaluation(self.costs, X, xp.where(own, other.eta, self.eta))

    def diagonal(self) -> Array:
        """The diagonal of ∇²f_j(x_j), (k, d)."""
        return self.costs.terms.diagonal(self.eta) + self.costs.ridge

    def margin(self) -> Array:
        """How clearly x_j puts the worst observation in its class, (k,); nan without classes."""
        classifies = self.costs.terms.classifies
        return self.costs.terms.margin(self.eta) if classifies else math.nan * self.X[:, 0]

    def steady(self) -> Array:
        """The radius of a ball around x_j in which ∇²f_j is constant, (k,)."""
        return self.costs.terms.steady(self.X, self.eta)

    def gradient_error(self) -> Array:
        """How far rounding may have moved ``gradient``, (k,)."""
        return self.costs.terms.gradient_error(self.X, self.eta, self.costs.latest)

    def times(self, U: Array) -> Array:
        """∇²f_j(x_j)u_j, (k, d)."""
        return self._product(U) + self.costs.ridge * U

    @cached_property
    def _product(self) -> Callable[[Array], Array]:
        return self.costs.terms.times(self.eta)

    def factor(self, M: Metric, regular: bool = True) -> Solver:
        """The inverse of ∇²f_j(x_j) + M.

        By conjugate gradients where the terms are large, by Woodbury's identity where there are
        fewer rows than columns, else by Cholesky factors. At M = 0 a singular Hessian has its
        pseudo-inverse. With M above 0 that is refused, unless ``regular`` is False.
        """
        costs = self.costs
        terms = costs.terms
        costs.work.factorisations += 1
        # a metric of full matrices is that of a model, which needs the Hessian by itself as well
        if not isinstance(M, float) and M.ndim > 1:
            return Factors(self.hessian + M, overwrite=True)
        if terms.large:
            costs.work.hessians += costs.share
            shift = M + 0.0 * costs.ridge

            def times(U: Array) -> Array:
                return self.times(U) + shift * U

            return ByProducts(times, self.diagonal() + shift)
        xp = namespace(self.X)
        if terms.rank < terms.d and xp.min(M + costs.ridge) > 0:
            costs.work.hessians += costs.share
            return terms.by_rows(self.eta, M + costs.ridge, costs.latest)
        shifted = self._new_hessian(M)
        if not on_host(shifted):
            return DeviceFactors(shifted)
        factors = Factors(shifted, overwrite=True)
        # The pseudo-inverse would forget v along the kernel. A Hessian beyond float64 is not the
        # step's fault.
        singular = factors.sizes[factors.singular]
        refused = regular and len(singular) and np.min(M) > 0
        if refused and np.isfinite(singular).all(axis=1).any():
            raise InputError(
                "I + s∇²f_j is singular to rounding: the step s is too large for this data, "
                "use a smaller one"
            )
        return factors

    def solve(self, M: Metric, G: Array) -> Array:
        """(∇²f_j(x_j) + M)⁻¹ g_j, (k, d)."""
        return self.factor(M).solve(G)

    def direction(self, G: Array) -> Array:
        """∇²f_j(x_j)⁻¹ g_j, (k, d), by conjugate gradients, which a singular ∇²f_j ends early.

        g is that of all clients: a client may have no curvature along a part of it.
        """
        self.costs.work.hessians += self.costs.share
        # a client with few rows would go far along directions that it knows little of
        return conjugate_gradients(self.times, G, self.diagonal(), 1e-10, flat=1e-3, most=500)

    def bounds(self) -> tuple[Array, Array]:
        """The extreme eigenvalues of ∇²f_j(x_j), each (k,).

        With fewer observations than columns they are bounds, and where the terms are large.
        """
        costs = self.costs
        costs.work.factorisations += 1
        # of fewer rows than columns the Hessian is singular: the ridge is the smallest eigenvalue
        if costs.terms.large or costs.terms.rank < costs.terms.d:
            costs.work.hessians += 1
            L = self._largest() + costs.most_ridge
            return costs.least_ridge + 0.0 * L, L
        return extreme_eigenvalues(self.hessian)

    def _largest(self) -> Array:
        """A bound on the largest eigenvalue of the terms' Hessians, without the ridge, (k,)."""
        return extremes(self.costs.terms.root(self.eta))[1]

    def values_from(self, before: Evaluation, shares: Sequence[float], short: float = 1.0) -> Array:
        """f_j on the way from another point to this one, (k, len(shares)); 1 is this one.

        On a way on which the Hessians differ by a factor of e^short at most, they are those of the
        parabola through both ends with the gradient at this one as its slope: exact at both ends,
        and for a quadratic everywhere.
        """
        way = self.X - before.X
        # two values and a slope instead of one value for each share, where that is as good
        near = parabola(before.value, self.value, dots(self.gradient, way), shares)
        is_short = self.costs.terms.spread(way) <= short
        if is_short.all():
            return near
        ends = (self.X - (1.0 - t) * way for t in shares)
        ridge = [0.5 * dots(U, self.costs.ridge * U) for U in ends]
        exact = self.costs.terms.values(before.eta, self.eta, shares) + np.stack(ridge, axis=1)
        return np.where(is_short[:, None], near, exact)

    def decrement(self, G: Array) -> dict[str, Array]:
        """The fields of ``ProofScalars`` at x_j, given the gradient g of the sum, each (k,)."""
        terms, costs = self.costs.terms, self.costs
        W = None  # without a root of H⁻¹ the leverage is not known
        if terms.large:  # one client per block, with an H that cannot be held
            costs.work.hessians += 1
            largest = float(self._largest()[0] + costs.most_ridge)
            hessian = LargeHessian(self.times, self.diagonal(), costs.ridge, largest)
            q, mu = (np.array([bound]) for bound in hessian.decrement(G[0]))
        elif terms.rank < terms.d:  # fewer observations than columns: λ_min(H) is the ridge
            # with a smaller ridge than this, the small system has too few digits left
            certain = costs.least_ridge > 1e-8 * self._largest()
            mu = np.where(certain, costs.least_ridge, 0.0)
            q = np.full(mu.shape, np.inf)
            if certain.any():
                q = np.where(certain, (1.0 + 1e-6) * dots(G, self.solve(0.0, G)), np.inf)
        else:
            q, mu, W = self._tall_decrement(G)
        norm, leverage = terms.concordance(W)
        return {
            "value": self.value,
            "q": q,
            "mu": mu,
            "ell": np.minimum(costs.convexity, mu),
            "norm": norm,
            "leverage": leverage,
            "floor": terms.floor(),
            "steady": self.steady(),
            "noise": self._noise(mu, W),
        }

    def _noise(self, mu: Array, W: Array | None) -> Array:
        """About how much rounding adds to ∇f_j, in the norm of H⁻¹ = WWᵀ; inf if H is singular.

        With the Hessian at hand, that of its entries, as in ``loop.certificate.Facts``: units of
        columns do not matter then.
        """
        if W is None:
            certain = np.where(mu > 0, mu, 1.0)
            return np.where(mu > 0, self.gradient_error() / np.sqrt(certain), np.inf)
        sizes = np.sqrt(np.einsum("kii->ki", self.hessian))
        inverse = sizes[:, :, None] * (W @ W.swapaxes(1, 2)) * sizes[:, None, :]
        deviance = np.maximum(2.0 * (self.value - self.costs.terms.floor()), 0.0)
        lengths = np.abs(sizes * self.X).sum(axis=1)
        lengths += np.sqrt(np.where(np.isfinite(deviance), deviance, 0.0))
        noise: Array = 4.0 * EPS * lengths * np.sqrt(np.abs(inverse).sum(axis=(1, 2)))
        return np.where(np.isnan(noise), np.inf, noise)

    def _tall_decrement(self, G: Array) -> tuple[Array, Array, Array]:
        """gᵀH⁻¹g, λ_min(H) and a root W of H⁻¹ = WWᵀ, with H = ∇²f_j(x_j)."""
        self.costs.work.factorisations += 1
        q, mu, W = inverse_norm(self.hessian, G)
        stated, L = self.costs.bounds
        finite = np.isfinite(self.hessian).all(axis=(1, 2))
        # a loss of the user's own may state a bound that is wrong: better no proof than a false one
        refuted = finite & (stated > 2.0 * mu) & (stated > 1e-9 * L)
        if refuted.any():
            raise InputError(
                f"the loss states a curvature of at least {stated[refuted][0]:g} everywhere, but "
                "it is less at this point: correct the bound"
            )
        return q, mu, W


def parabola(start: Array, end: Array, slope: Array, shares: Sequence[float]) -> Array:
    """Parabolas between given values, each (k,), with a given slope at the end, (k, len(shares)).

    ``shares`` are those of the way: 0 is the start and 1 the end.
    """
    left = 1.0 - np.array(shares)
    bend = start - end + slope
    return end[:, None] - left * slope[:, None] + left**2 * bend[:, None]
