"""The clients' costs f_j: their loss terms and their share of the ridge."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedsplit.arrays import Array, add_diagonal, dots, rmatvec, solve_rows
from fedsplit.errors import InputError
from fedsplit.losses.terms import QuadraticTerms, Terms, extreme_eigenvalues


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
        return self.terms.gradient(X) + self.ridge * X

    def hessian(self, X: Array) -> Array:
        return add_diagonal(self.terms.hessian(X), self.ridge)

    def solve(self, X: Array, D: Array, G: Array) -> Array:
        """(diag(D) + ∇²f_j(x_j))⁻¹ g_j."""
        with _Solvable():
            return self.terms.solve(X, D + self.ridge, G)

    def direction(self, X: Array, G: Array) -> Array:
        """∇²f_j(x_j)⁻¹ g_j, with a shift of 1e-10 of the largest diagonal entry that makes a singular ∇²f_j regular."""
        H = self.hessian(X)
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

    def decrement(self, X: Array, G: Array) -> tuple[Array, ...]:
        """f_j, gᵀH⁻¹g, λ_min(H), ℓ_j, the two concordances and a lower bound of f_j, with H = ∇²f_j(x_j)."""
        spectrum, Q = np.linalg.eigh(self.hessian(X))
        rounding = 4 * self.terms.d * np.finfo(np.float64).eps * spectrum[:, -1:]
        certain = np.where(spectrum > rounding, spectrum - rounding, np.nan)  # a lower bound of each eigenvalue
        mu = np.where(np.isnan(certain[:, 0]), 0.0, certain[:, 0])
        q = np.sum(np.square(rmatvec(Q, G)) / certain, axis=1)
        norm, leverage = self.terms.concordance(Q / np.sqrt(certain)[:, None, :])
        q, leverage = np.where(np.isnan(q), np.inf, q), np.where(np.isnan(leverage), np.inf, leverage)
        return self.value(X), q, mu, self.bounds[0], norm, leverage, self.terms.floor()

    def bounds_at(self, X: Array) -> tuple[Array, Array]:
        """The extreme eigenvalues of ∇²f_j(x_j)."""
        return extreme_eigenvalues(self.hessian(X))
