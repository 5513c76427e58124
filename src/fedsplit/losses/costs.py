"""The clients' costs f_j: their loss terms and their share of the ridge."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedsplit.arrays import Array, dots
from fedsplit.losses.terms import QuadraticTerms, Terms, extreme_eigenvalues


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
        H = self.terms.hessian(X)
        np.einsum("kii->ki", H)[...] += self.ridge
        return H

    def solve(self, X: Array, D: Array, G: Array) -> Array:
        """(diag(D) + ∇²f_j(x_j))⁻¹ g_j."""
        return self.terms.solve(X, D + self.ridge, G)

    def quadratic_prox(self, V: Array, s: float | Array) -> Array | None:
        """prox_{s f_j}(v_j) from one stored factor, where every f_j is quadratic; None where it is not."""
        if not isinstance(self.terms, QuadraticTerms):
            return None
        return self.terms.minimise(1.0 / s + self.ridge, V / s)

    @cached_property
    def bounds(self) -> tuple[Array, Array]:
        """ℓ_j and L_j of f_j, true everywhere."""
        ell, L = self.terms.bounds()
        return ell + self.ridge.min(), L + self.ridge.max()

    def bounds_at(self, X: Array) -> tuple[Array, Array]:
        """The extreme eigenvalues of ∇²f_j(x_j)."""
        return extreme_eigenvalues(self.hessian(X))
