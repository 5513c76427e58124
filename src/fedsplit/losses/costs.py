"""The clients' costs f_j: their loss terms plus their share of the ridge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from fedsplit.arrays import (
    Array,
    Mask,
    add_diagonal,
    dots,
    extreme_eigenvalues,
    rmatvec,
    solve_rows,
)
from fedsplit.errors import InputError
from fedsplit.losses.batches import Batch, Stacked
from fedsplit.losses.factors import FEW_STEPS, LANCZOS_STEPS, MANY, lanczos
from fedsplit.losses.large_decrement import LargeHessian
from fedsplit.losses.terms import Terms
from fedsplit.losses.work import counter

SINGULAR = (
    "I + s∇²f_j is singular to rounding: the step s is too large for this data, use a smaller one"
)


NO_ROWS = (
    "these clients keep no rows to draw a batch from: use LeastSquares(rows=True), or a loss of a "
    "linear predictor"
)

SHORT = 1.0
"""A way is short if the Hessians on it differ by a factor of e at most."""


@dataclass(frozen=True, eq=False)
class Costs:
    """f_j(x) = terms_j(x) + ½ Σ_i ridge_i x_i² for k stacked clients.

    Row j of every argument and of every answer belongs to client j; ``X`` and ``G`` are (k, d).
    Gradients, Hessians and factorisations are counted by ``losses.work.counter``.

    Attributes
    ----------
    terms : Terms
        The loss terms.
    ridge : (d,) array
        The ridge per client: that of the whole objective, already divided by all m clients.
    share : float
        The share of the rows that the terms are, by which gradients and Hessians are counted.
    cache : dict
        What a local solver derives from the costs alone, such as a compiled problem.
    """

    terms: Terms
    ridge: Array
    share: float = 1
    cache: dict[object, Any] = field(default_factory=dict, repr=False)

    def value(self, X: Array) -> Array:
        """f_j(x_j), (k,)."""
        return self.terms.value(X) + 0.5 * dots(X, self.ridge * X)

    def values(self, X: Array, Y: Array, G: Array, shares: Sequence[float]) -> Array:
        """f_j(x_j + t(y_j - x_j)) for every t of ``shares``, (k, len(shares)).

        On a short way they are those of the parabola through both ends with ∇f_j(y_j), the rows of
        G, as its slope: exact at t = 0 and 1, and for a quadratic everywhere.
        """
        way = Y - X
        short = self.terms.spread(way) <= SHORT
        near = parabola(self.value(X), self.value(Y), dots(G, way), shares)
        if short.all():
            return near
        ends = (Y - (1.0 - t) * way for t in shares)
        ridge = [0.5 * dots(U, self.ridge * U) for U in ends]
        exact = self.terms.values(X, Y, shares) + np.stack(ridge, axis=1)
        return np.where(short[:, None], near, exact)

    def gradient(self, X: Array) -> Array:
        """∇f_j(x_j), (k, d)."""
        counter.gradients += self.share
        return self.terms.gradient(X) + self.ridge * X

    def hessian(self, X: Array) -> Array:
        """∇²f_j(x_j), (k, d, d)."""
        counter.hessians += self.share
        return add_diagonal(self.terms.hessian(X), self.ridge)

    def batch(self, batch: Batch) -> Costs:
        """Unbiased estimates of the f_j from some of the clients' rows, with the whole ridge."""
        share = batch.rows.shape[1] / self.stacked.length
        return Costs(self.terms.subsample(batch.rows, batch.scale), self.ridge, share)

    @property
    def stacked(self) -> Stacked:
        """How many rows the clients have."""
        stacked = self.terms.stacked
        if stacked is None:
            raise InputError(NO_ROWS)
        return stacked

    def diagonal(self, X: Array) -> Array:
        """The diagonal of ∇²f_j(x_j), (k, d)."""
        return self.terms.diagonal(X) + self.ridge

    def margin(self, X: Array) -> Array:
        """How clearly x_j puts the worst observation in its class, (k,); nan without classes."""
        return self.terms.margin(X)

    def solve(self, X: Array, D: Array, G: Array) -> Array:
        """(diag(D) + ∇²f_j(x_j))⁻¹ g_j, (k, d)."""
        counter.hessians += self.share
        counter.factorisations += 1
        try:
            return self.terms.solve(X, D + self.ridge, G)
        except np.linalg.LinAlgError:
            raise InputError(SINGULAR) from None

    def direction(self, X: Array, G: Array) -> Array:
        """∇²f_j(x_j)⁻¹ g_j, (k, d), with a slight shift that makes a singular ∇²f_j regular."""
        if self.terms.large:
            top = np.max(self.diagonal(X), keepdims=True)
            return self.solve(X, np.broadcast_to(_shift(top)[0], X.shape[1:]), G)
        H = self.hessian(X)
        counter.factorisations += 1
        top = np.max(np.einsum("kii->ki", H), axis=1, keepdims=True)
        return solve_rows(add_diagonal(H, _shift(top)), G)

    def quadratic_prox(self, V: Array, s: float | Array) -> Array | None:
        """prox_{s f_j}(v_j) from one stored factor, (k, d); None unless every f_j is quadratic."""
        if not self.terms.minimised:
            return None
        try:
            return self.terms.minimise(1.0 / s + self.ridge, V * (1.0 / s))
        except np.linalg.LinAlgError:
            raise InputError(SINGULAR) from None

    @cached_property
    def bounds(self) -> tuple[Array, Array]:
        """ℓ_j and L_j of f_j, each (k,), that hold everywhere."""
        ell, L = self.terms.bounds()
        return ell + self.ridge.min(), L + self.ridge.max()

    @cached_property
    def convexity(self) -> Array:
        """ℓ_j of f_j, (k,), that holds everywhere."""
        ell: Array = self.terms.convexity() + self.ridge.min()
        return ell

    @cached_property
    def norm(self) -> Array:
        """The first of ``Terms.concordance``, (k,): how fast the Hessians can change."""
        return self.terms.concordance(None)[0]

    def batch_smoothness(self, batch: int, X: Array | None = None) -> Array:
        """The expected smoothness ℒ_j ≥ L_j of minibatches, (k,).

        E‖ĝ_j(x) - ĝ_j(y)‖² ≤ 2ℒ_j (f_j(x) - f_j(y) - ⟨∇f_j(y), x - y⟩).

        ĝ_j is the scaled gradient of a batch of B rows, drawn without replacement:
        ℒ = n(B - 1)/(B(n - 1)) L + (n - B)/(B(n - 1)) n max_i L_i with the L_i of single rows
        (Gower et al., 2019). It holds everywhere, or for the Hessians at X.
        """
        n = self.stacked.sizes.astype(np.float64)
        B = np.minimum(n, batch)
        L = self.bounds[1] if X is None else self.bounds_at(X)[1]
        single = self.terms.largest_row(X) + self.ridge.max() / n
        others = np.maximum(n - 1.0, 1.0)
        mixed = n * (B - 1.0) / (B * others) * L + (n - B) / (B * others) * n * single
        return np.where(n > B, np.maximum(L, mixed), L)

    def bounds_at(self, X: Array) -> tuple[Array, Array]:
        """The extreme eigenvalues of ∇²f_j(x_j), each (k,).

        With fewer observations than columns they are bounds, and where the terms are large.
        """
        counter.factorisations += 1
        if self.terms.large or self.terms.rank < self.terms.d:
            counter.hessians += 1
            L = self.terms.largest(X) + self.ridge.max()
            return np.full(L.shape, self.ridge.min()), L
        return extreme_eigenvalues(self.hessian(X))

    def extremes_at(self, X: Array) -> tuple[Array, Array]:
        """The same, but only about so where there are many coordinates: for a first step."""
        k, d = X.shape
        if d <= MANY:
            return self.bounds_at(X)
        counter.hessians += 1
        steps = LANCZOS_STEPS
        if self.terms.large:
            steps = FEW_STEPS
        if self.terms.wide is not None:  # the same largest eigenvalue, with shorter vectors
            _, L = lanczos(self.terms.wide.times_in_rows(X), k, self.terms.rank, steps)
            return np.full(k, self.ridge.min()), L + self.ridge.max()
        ell, L = lanczos(self.terms.times(X), k, d, steps)
        if self.terms.rank < d:
            ell = np.zeros(k)
        return ell + self.ridge.min(), L + self.ridge.max()

    def decrement(self, X: Array, G: Array) -> tuple[Array, ...]:
        """The fields of ``ProofScalars`` at x_j, given the gradient g of the sum, each (k,)."""
        W = None
        if self.terms.large:
            q, mu = self._large_decrement(X, G)
        elif self.terms.rank < self.terms.d:
            q, mu = self._wide_decrement(X, G)
        else:
            q, mu, W = self._tall_decrement(X, G)
        norm, leverage = self.terms.concordance(W)
        ell = np.minimum(self.convexity, mu)
        return self.value(X), q, mu, ell, norm, leverage, self.terms.floor(), self.terms.steady(X)

    def _tall_decrement(self, X: Array, G: Array) -> tuple[Array, Array, Array]:
        """gᵀH⁻¹g, λ_min(H) and a root W of H⁻¹ = WWᵀ, with H = ∇²f_j(x_j)."""
        H = self.hessian(X)
        counter.factorisations += 1
        q, mu, W = inverse_norm(H, G)
        stated, L = self.bounds
        finite = np.isfinite(H).all(axis=(1, 2))
        refuted = finite & (stated > 2.0 * mu) & (stated > 1e-9 * L)
        if refuted.any():
            raise InputError(
                f"the loss states a curvature of at least {stated[refuted][0]:g} everywhere, but "
                "it is less at this point: correct the bound"
            )
        return q, mu, W

    def _wide_decrement(self, X: Array, G: Array) -> tuple[Array, Array]:
        """gᵀH⁻¹g and λ_min(H) with fewer observations than columns: λ_min(H) is the ridge."""
        counter.hessians += 1
        counter.factorisations += 1
        ridge = self.ridge.min()
        # With a smaller ridge than this, the small system has too few digits left.
        certain = ridge > 1e-8 * self.terms.largest(X)
        mu = np.where(certain, ridge, 0.0)
        if not certain.any():
            return np.full(mu.shape, np.inf), mu
        q = dots(G, self.solve(X, np.zeros(X.shape[1]), G))
        return np.where(certain, (1.0 + 1e-6) * q, np.inf), mu

    def _large_decrement(self, X: Array, G: Array) -> tuple[Array, Array]:
        """Bounds on gᵀH⁻¹g and λ_min(H) where H is too large to be held, one client per block."""
        counter.hessians += 1
        times = self.terms.times(X)
        H = LargeHessian(
            lambda U: times(U) + self.ridge * U,
            self.diagonal(X),
            self.ridge,
            float(self.terms.largest(X)[0] + self.ridge.max()),
        )
        q, mu = H.decrement(G[0])
        return np.array([q]), np.array([mu])


def _shift(top: Array) -> Array:
    """What makes a Hessian regular whose largest diagonal entry this is."""
    return np.where(top > 0, 1e-10 * top, 1.0)


def parabola(start: Array, end: Array, slope: Array, shares: Sequence[float]) -> Array:
    """Parabolas between given values, each (k,), with a given slope at the end, (k, len(shares)).

    ``shares`` are those of the way: 0 is the start and 1 the end.
    """
    left = 1.0 - np.array(shares)
    bend = start - end + slope
    values: Array = end[:, None] - left * slope[:, None] + left**2 * bend[:, None]
    return values


def inverse_norm(H: Array, G: Array) -> tuple[Array, Array, Array]:
    """gᵀH⁻¹g and λ_min(H) from eigenvalues that are proved not to be too large, and a root of H⁻¹.

    Parameters
    ----------
    H : (k, d, d) array
        Hessians, positive semidefinite up to rounding.
    G : (k, d) array
        One g for each H.

    Returns
    -------
    q : (k,) array
        gᵀH⁻¹g; inf where H is singular to rounding or not finite.
    mu : (k,) array
        λ_min(H); 0 there.
    W : (k, d, d) array
        H⁻¹ = WWᵀ; nan there.
    """
    finite: Mask = np.asarray(np.isfinite(H).all(axis=(1, 2)))
    H = np.where(finite[:, None, None], H, np.eye(H.shape[1]))
    # Scaled to a unit diagonal, so that different units of the columns are not taken for
    # singularity.
    diagonal = np.einsum("kii->ki", H)
    scale = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    spectrum, Q = np.linalg.eigh(scale[:, :, None] * H * scale[:, None, :])
    certain = np.where(finite[:, None], _less_rounding(spectrum), np.nan)
    lowest = _less_rounding(np.linalg.eigvalsh(H))[:, 0]
    # λ_min(H) is also at least λ_min of the scaled matrix times the least diagonal entry
    mu = np.fmax(lowest, certain[:, 0] * np.min(1.0 / scale**2, axis=1))
    q = np.sum(np.square(rmatvec(Q, scale * G)) / certain, axis=1)
    W = scale[:, :, None] * Q / np.sqrt(certain)[:, None, :]
    return np.where(np.isnan(q), np.inf, q), np.where(finite & ~np.isnan(mu), mu, 0.0), W


def _less_rounding(spectrum: Array) -> Array:
    """Eigenvalues minus what rounding may have added, (k, d); nan where nothing is left."""
    rounding = 4 * spectrum.shape[1] * np.finfo(np.float64).eps * spectrum[:, -1:]
    return np.where(spectrum > 2 * rounding, spectrum - rounding, np.nan)
