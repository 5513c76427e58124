"""Multinomial logistic regression: φ(η, b) = log Σ_c e^{η_c} - η_b over K classes, η_0 = 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from fedsplit.arrays import EPS, Array, norms
from fedsplit.checks import count
from fedsplit.errors import InputError
from fedsplit.losses.designs import Design
from fedsplit.losses.linear import RowLoss, RowTerms
from fedsplit.losses.observations import Observations, check_targets
from fedsplit.losses.systems import Latest
from fedsplit.losses.terms import Terms


@dataclass(frozen=True)
class Multinomial(RowLoss):
    """f_j(x) = Σ_i w_i (log Σ_c exp(η_ic) - η_{i,b_i}), η_ic = a_iᵀx_c, for b in {0, ..., K - 1}.

    Class 0 is the reference, x_0 = 0. x is the (K - 1, p) matrix of the other classes'
    coefficients, row by row: first all p of class 1. No predictor overflows. ℓ_j = 0 and
    L_j = λ_max(A_jᵀW_jA_j)/2, for two classes half of that.

    A ridge on x depends on which class is the reference. With ``symmetric`` the other classes'
    coefficients are Tx, T = I + (√K - 1)/(K - 1) 11ᵀ. Then ‖x‖² is the sum of ‖β_c‖² over the
    centred coefficients β_c of all K classes, Σ_c β_c = 0.

    Parameters
    ----------
    classes : int
        K, the same at every client; a client need not have seen all of them.
    symmetric : bool
        Whether x treats all classes alike.
    """

    classes: int
    symmetric: bool = False

    def __post_init__(self) -> None:
        count("Multinomial: classes", self.classes, least=2)

    @property
    def predictors(self) -> int:  # type: ignore[override]  # it depends on the classes
        return self.classes - 1

    @property
    def is_binary(self) -> bool:
        """Whether x is the coefficients of one predictor, as in logistic regression."""
        return self.classes == 2 and not self.symmetric

    @property
    def curvature_range(self) -> tuple[float, float]:  # type: ignore[override]  # the same
        """0, and a bound on the eigenvalues of diag(p) - ppᵀ.

        They are at most max_c 2p_c(1 - p_c) ≤ ½ by Gershgorin, also in orthonormal coordinates of
        all K predictors; for K = 2 it is the number p_1(1 - p_1).
        """
        return 0.0, 0.25 if self.is_binary else 0.5

    @property
    def terms(self) -> Callable[[Design, Array, Array, Array], Terms]:
        return partial(MultinomialTerms, self)

    @property
    def mix(self) -> Array:
        """T, (K - 1, K - 1): the identity unless ``symmetric``."""
        others = self.predictors
        result: Array = np.eye(others) + (np.sqrt(self.classes) - 1.0) / others * self.symmetric
        return result

    def value(self, eta: Array, b: Array) -> Array:
        """φ of every observation: eta is (..., K - 1), b and the answer are (...)."""
        return _loss(np.moveaxis(eta, -1, 0), b)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw labels, (n,), for predictors eta of shape (n, K - 1)."""
        noise = rng.gumbel(size=(len(eta), self.classes))
        result: Array = np.argmax(noise + all_classes(eta), axis=1).astype(np.float64)
        return result

    def targets(self, data: Sequence[Observations]) -> Sequence[Observations]:
        check_targets(
            data,
            lambda b: (b < 0) | (b >= self.classes) | (b != np.floor(b)),
            f"a label 0, 1, ..., {self.classes - 1}",
        )
        for j, (*_, o) in enumerate(data):
            if o.any():
                raise InputError(f"client {j}: Multinomial takes no offset, leave it out")
        return data


@dataclass(frozen=True, eq=False)
class MultinomialTerms(RowTerms):
    """Stacked terms of K classes, with predictors of classes 1 to K - 1, (k, K - 1, n).

    With the probabilities p_i of an observation over classes 1 to K - 1,
    ∇²f_j = Σ_i w_i T(diag(p_i) - p_i p_iᵀ)T ⊗ a_i a_iᵀ.
    """

    phi: Multinomial

    classifies = True

    def eta(self, X: Array) -> Array:
        return self.product(X)  # there is no offset

    def product(self, X: Array) -> Array:
        coefficients = np.matmul(self.phi.mix, X.reshape(self.k, self.phi.predictors, -1))
        by_class = map(self.design.product, np.swapaxes(coefficients, 0, 1))
        return np.stack(list(by_class), axis=1)

    def adjoint(self, R: Array) -> Array:
        by_class = np.stack(list(map(self.design.adjoint, np.swapaxes(R, 0, 1))), axis=1)
        result: Array = np.matmul(self.phi.mix, by_class).reshape(self.k, self.d)
        return result

    def row_values(self, eta: Array) -> Array:
        return self.w * _loss(np.swapaxes(eta, 0, 1), self.b)

    def gradient_error(self, X: Array, eta: Array, latest: Latest) -> Array:
        # as for one predictor, with |slope| ≤ w and a curvature of at most w/2 for each class
        length = latest.get("row lengths", None, self.design.lengths)
        size = self.w * length * (1.0 + length * norms(X)[:, None])
        total: Array = self.phi.classes * np.sum(size, axis=1)
        result: Array = (length.shape[1] + self.d + 16) * EPS * total
        return result

    def slopes(self, eta: Array) -> Array:
        p, rest = _probabilities(np.swapaxes(eta, 0, 1))
        own = self.b == np.arange(1.0, self.phi.classes)[:, None, None]
        # that of the own class, p - 1, from 1 - p: it keeps its digits where p is near 1
        return np.swapaxes(self.w * np.where(own, -rest[1:], p[1:]), 0, 1)

    def curvature(self, eta: Array) -> Array:
        return self.phi.curvature_range[1] * self.w

    def hessian(self, eta: Array) -> Array:
        p, rest = (each[1:] for each in _probabilities(np.swapaxes(eta, 0, 1)))
        others, columns = self.phi.predictors, self.design.shape[2]
        # by blocks of two classes: the rows of ``root`` are K - 1 times as many, and as long
        H = np.empty((self.k, others, columns, others, columns))
        for c in range(others):
            H[:, c, :, c] = self.design.scaled(np.sqrt(self.w * p[c] * rest[c])).gram()
            for e in range(c):
                between = -self.design.scaled(np.sqrt(self.w * p[c] * p[e])).gram()
                H[:, c, :, e] = H[:, e, :, c] = between
        if self.phi.symmetric:
            H = np.einsum("ac,kcpeq,eb->kapbq", self.phi.mix, H, self.phi.mix, optimize=True)
        return H.reshape(self.k, self.d, self.d)

    def times(self, eta: Array) -> Callable[[Array], Array]:
        p = np.swapaxes(_probabilities(np.swapaxes(eta, 0, 1))[0][1:], 0, 1)
        weighted = self.w[:, None, :] * p

        def product(U: Array) -> Array:
            a = self.product(U)
            return self.adjoint(weighted * (a - np.sum(p * a, axis=1, keepdims=True)))

        return product

    def concordance(self, W: Array | None) -> tuple[Array, Array]:
        # The third derivative is at most the second times the range of a_iᵀh_c over the classes c
        # of an observation i. With ‖h‖ ≤ 1 the range is at most √2‖a_i‖, reached by two classes.
        norm = self.longest(self.design.lengths())
        if not self.phi.is_binary:
            norm = np.sqrt(2.0) * norm
        if W is None:
            return norm, np.full(self.k, np.inf)
        shape = self.k, self.phi.predictors
        roots = np.matmul(self.phi.mix, W.reshape(*shape, -1)).reshape(*shape, -1, W.shape[2])
        of_class = [np.zeros(()), *np.moveaxis(roots, 1, 0)]
        between = [self.design.within(V - U) for U, V in combinations(of_class, 2)]
        ranges = [self.longest(np.linalg.norm(each, axis=2)) for each in between]
        leverage = np.max(ranges, axis=0)
        return norm, np.where(np.isnan(leverage), np.inf, leverage)

    def spread(self, H: Array) -> Array:
        eta = self.eta(H)
        # the predictor of the reference is 0, and does not move
        highest = np.maximum(np.max(eta, axis=1), 0.0)
        lowest = np.minimum(np.min(eta, axis=1), 0.0)
        return self.longest(highest - lowest)

    def floor(self) -> Array:
        return np.zeros(self.k)

    def margin(self, eta: Array) -> Array:
        every = all_classes(np.swapaxes(eta, 0, 1), 0)
        own = self.b == np.arange(self.phi.classes)[:, None, None]
        wrong = np.max(np.where(own, -np.inf, every), axis=0)
        return self.least(np.sum(np.where(own, every, 0.0), axis=0) - wrong)

    def expression(self, cp: Any, j: int, u: Any) -> Any:
        A = self.design.matrix(j)
        coefficients = self.phi.mix @ cp.reshape(u, (self.phi.predictors, A.shape[1]), order="C")
        eta = cp.hstack([np.zeros((A.shape[0], 1)), A @ coefficients.T])
        own = cp.sum(cp.multiply(np.eye(self.phi.classes)[self.b[j].astype(np.intp)], eta), axis=1)
        return cp.sum(cp.multiply(self.w[j], cp.log_sum_exp(eta, axis=1) - own))

    def root(self, eta: Array) -> Design:
        # √w_i RT of every observation, with RᵀR = diag(p) - ppᵀ:
        # R = (I - uuᵀ/(1 + √p_0)) diag(u), with u = √p over classes 1 to K - 1
        both = _probabilities(np.swapaxes(eta, 0, 1))
        # a product with √p instead of diag(p) - ppᵀ itself, whose differences would cancel
        p, rest = (np.moveaxis(each, 0, -1) for each in both)
        reference = np.sqrt(p[:, :, :1])
        p = p[:, :, 1:]
        rest = rest[:, :, 1:]
        R = -np.sqrt(p)[:, :, :, None] * (p / (1.0 + reference))[:, :, None, :]
        np.einsum("kncc->knc", R)[...] = np.sqrt(p) * (rest + reference) / (1.0 + reference)
        return self.design.crossed(np.matmul(np.sqrt(self.w)[:, :, None, None] * R, self.phi.mix))


def all_classes(eta: Array, axis: int = -1) -> Array:
    """The predictors of all classes, that of the reference being 0: K - 1 numbers -> K."""
    return np.concatenate([np.zeros_like(eta.take([0], axis)), eta], axis)


def _shares(eta: Array) -> tuple[Array, Array, Array]:
    """The largest of K predictors, the e^{η_c - largest}, and their sum without the largest, 1.

    What is added to 1 later keeps its digits.
    """
    largest: Array = np.max(eta, axis=0)
    shares = np.exp(eta - largest)
    top = shares == 1.0  # one class, or several that are equal
    others: Array = np.sum(shares * ~top, axis=0) + (np.sum(top, axis=0) - 1.0)
    return largest, shares, others


def _loss(eta: Array, b: Array) -> Array:
    """log Σ_c e^{η_c} - η_b of every observation: (K - 1, ...), (...) -> (...)."""
    every = all_classes(eta, 0)
    # relative to the own class: log1p keeps the digits of a tiny loss
    largest, _, others = _shares(every - np.take_along_axis(every, b[None].astype(np.intp), axis=0))
    return largest + np.log1p(others)


def _probabilities(eta: Array) -> tuple[Array, Array]:
    """p_c and 1 - p_c of all K classes, both with all their digits: (K - 1, ...) -> (K, ...)."""
    _, shares, others = _shares(all_classes(eta, 0))
    p = shares / (1.0 + others)
    # 1 - p cancels where p is near 1, which only the largest one can be
    return p, np.where(shares == 1.0, others / (1.0 + others), 1.0 - p)
