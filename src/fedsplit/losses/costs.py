"""The clients' costs f_j: their loss terms and their share of the ridge."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedsplit.arrays import Array, Mask, add_diagonal, dots, rmatvec, solve_rows
from fedsplit.errors import InputError
from fedsplit.losses.terms import QuadraticTerms, Terms, extreme_eigenvalues
from fedsplit.losses.work import counter


class _Solvable:
    """Says what to do where a system is singular to rounding."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, np.linalg.LinAlgError):
            raise InputError(
                "I + s∇²f_j is singular to rounding: the step s is too large for this data, use a smaller one"
            )


@dataclass(frozen=True, eq=False)
class Costs:
    """f_j(x) = terms_j(x) + ½ Σ_i ridge_i x_i² for k stacked clients; ridge is (d,), already divided by all m clients.

    ``cache`` is for what a local solver derives from the costs alone, such as a compiled problem.
    """

    terms: Terms
    ridge: Array
    cache: dict[object, object] = field(default_factory=dict, repr=False)

    def value(self, X: Array) -> Array:
        return self.terms.value(X) + 0.5 * dots(X, self.ridge * X)

    def gradient(self, X: Array) -> Array:
        counter.gradients += 1
        return self.terms.gradient(X) + self.ridge * X

    def hessian(self, X: Array) -> Array:
        counter.hessians += 1
        return add_diagonal(self.terms.hessian(X), self.ridge)

    def solve(self, X: Array, D: Array, G: Array) -> Array:
        """(diag(D) + ∇²f_j(x_j))⁻¹ g_j."""
        counter.hessians += 1
        counter.factorisations += 1
        with _Solvable():
            return self.terms.solve(X, D + self.ridge, G)

    def direction(self, X: Array, G: Array) -> Array:
        """∇²f_j(x_j)⁻¹ g_j, with a shift of 1e-10 of the largest diagonal entry that makes a singular ∇²f_j regular."""
        H = self.hessian(X)
        counter.factorisations += 1
        top = np.max(np.einsum("kii->ki", H), axis=1, keepdims=True)
        return solve_rows(add_diagonal(H, np.where(top > 0, 1e-10 * top, 1.0)), G)

    def quadratic_prox(self, V: Array, s: float | Array) -> Array | None:
        """prox_{s f_j}(v_j) from one stored factor, where every f_j is quadratic; None where it is not."""
        if not isinstance(self.terms, QuadraticTerms):
            return None
        with _Solvable():
            return self.terms.minimise(1.0 / s + self.ridge, V * (1.0 / s))

    @cached_property
    def bounds(self) -> tuple[Array, Array]:
        """ℓ_j and L_j of f_j, true everywhere."""
        ell, L = self.terms.bounds()
        return ell + self.ridge.min(), L + self.ridge.max()

    def bounds_at(self, X: Array) -> tuple[Array, Array]:
        """The extreme eigenvalues of ∇²f_j(x_j), or, with fewer observations than columns, bounds on them."""
        counter.factorisations += 1
        if self.terms.rank < self.terms.d:
            counter.hessians += 1
            L = self.terms.largest(X) + self.ridge.max()
            return np.full(L.shape, self.ridge.min()), L
        return extreme_eigenvalues(self.hessian(X))

    def diagonal(self, X: Array) -> Array:
        """The diagonal of ∇²f_j(x_j)."""
        return self.terms.diagonal(X) + self.ridge

    def margin(self, X: Array) -> Array:
        """By how much x_j classifies every observation right, (k,), nan where the loss has no classes."""
        return self.terms.margin(X)

    def decrement(self, X: Array, G: Array) -> tuple[Array, ...]:
        """The fields of ``Decrement``: f_j, gᵀH⁻¹g with H = ∇²f_j(x_j), λ_min(H), ℓ_j, how fast H changes, a floor."""
        q, mu, W = (
            self._wide_decrement(X, G) if self.terms.rank < self.terms.d else self._decrement(X, G)
        )
        norm, leverage = self.terms.concordance(W)
        ell = np.minimum(self.bounds[0], mu)
        return self.value(X), q, mu, ell, norm, leverage, self.terms.floor(), self.terms.steady(X)

    def _decrement(self, X: Array, G: Array) -> tuple[Array, Array, Array]:
        """gᵀH⁻¹g, λ_min(H) and a root W of H⁻¹."""
        H = self.hessian(X)
        counter.factorisations += 1
        q, mu, W = inverse_norm(H, G)
        claimed = self.bounds[0]
        refuted = (
            np.isfinite(H).all(axis=(1, 2))
            & (claimed > 2.0 * mu)
            & (claimed > 1e-9 * self.bounds[1])
        )
        if refuted.any():
            least = claimed[refuted][0]
            raise InputError(
                f"a cost claims a curvature of at least {least:g} everywhere and has less: correct that"
            )
        return q, mu, W

    def _wide_decrement(self, X: Array, G: Array) -> tuple[Array, Array, None]:
        """The same with fewer observations than columns, where H is as definite as the ridge, and no root is made."""
        ridge = self.ridge.min()
        counter.hessians += 1
        counter.factorisations += 1
        certain = ridge > 1e-8 * self.terms.largest(
            X
        )  # else the small system has too few digits left
        mu = np.where(certain, ridge, 0.0)
        if not certain.any():
            return np.full(mu.shape, np.inf), mu, None
        q = dots(G, self.solve(X, np.zeros(X.shape[1]), G))
        return np.where(certain, (1.0 + 1e-6) * q, np.inf), mu, None


def inverse_norm(H: Array, G: Array) -> tuple[Array, Array, Array]:
    """gᵀH⁻¹g, λ_min(H) and a root W of H⁻¹ for every H, (k, d, d), by eigenvalues that are surely not too large.

    inf, 0 and nan where H is singular to rounding or not finite. H is scaled to a unit diagonal first, so that units of
    the columns do not pass for singularity.
    """
    finite: Mask = np.asarray(np.isfinite(H).all(axis=(1, 2)))
    H = np.where(finite[:, None, None], H, np.eye(H.shape[1]))
    diagonal = np.einsum("kii->ki", H)
    scale = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    spectrum, Q = np.linalg.eigh(scale[:, :, None] * H * scale[:, None, :])
    certain = np.where(finite[:, None], _surely(spectrum), np.nan)
    lowest = _surely(np.linalg.eigvalsh(H))[:, 0]
    mu = np.fmax(lowest, certain[:, 0] * np.min(1.0 / scale**2, axis=1))
    q = np.sum(np.square(rmatvec(Q, scale * G)) / certain, axis=1)
    W = scale[:, :, None] * Q / np.sqrt(certain)[:, None, :]
    return np.where(np.isnan(q), np.inf, q), np.where(finite & ~np.isnan(mu), mu, 0.0), W


def _surely(spectrum: Array) -> Array:
    """Eigenvalues less what rounding may have added, (k, d); not a number where nothing is left."""
    rounding = 4 * spectrum.shape[1] * np.finfo(np.float64).eps * spectrum[:, -1:]
    return np.where(spectrum > 2 * rounding, spectrum - rounding, np.nan)
