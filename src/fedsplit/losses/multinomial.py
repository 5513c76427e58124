"""Multinomial logistic regression: φ(η, b) = log Σ_c e^{η_c} - η_b over K classes, η_0 = 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import EPS, Array, Mask, norms
from fedsplit.checks import count
from fedsplit.errors import InputError
from fedsplit.losses.batches import Indices, Stacked
from fedsplit.losses.designs import Design
from fedsplit.losses.linear import least, longest
from fedsplit.losses.observations import check_columns, check_targets, read
from fedsplit.losses.stacking import stack_rows
from fedsplit.losses.terms import Block, Terms

Labels = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Multinomial:
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
    def mix(self) -> Array:
        """T, (K - 1, K - 1): the identity unless ``symmetric``."""
        others = self.classes - 1
        mix: Array = np.eye(others) + (np.sqrt(self.classes) - 1.0) / others * self.symmetric
        return mix

    def value(self, eta: Array, b: Array | Labels) -> Array:
        """φ of every observation: eta is (..., K - 1), b and the answer are (...)."""
        return _loss(np.moveaxis(eta, -1, 0), b)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw labels, (n,), for predictors eta of shape (n, K - 1)."""
        noise = rng.gumbel(size=(len(eta), self.classes))
        labels: Array = np.argmax(noise + all_classes(eta), axis=1).astype(np.float64)
        return labels

    def stack(self, clients: Sequence[object], ridge: Array) -> tuple[int, list[Block]]:
        data = read(clients)
        check_columns(data, ridge, self.classes - 1)
        check_targets(
            data,
            lambda b: (b < 0) | (b >= self.classes) | (b != np.floor(b)),
            f"a label 0, 1, ..., {self.classes - 1}",
        )
        for j, (*_, o) in enumerate(data):
            if o.any():
                raise InputError(f"client {j}: Multinomial takes no offset, leave it out")
        d = (self.classes - 1) * data[0].A.shape[1]

        def make(design: Design, b: Array, w: Array, _: Array) -> MultinomialTerms:
            return MultinomialTerms(self, design, b.astype(np.intp), w)

        return d, stack_rows(make, data, range(len(data)), d)


@dataclass(frozen=True, eq=False)
class MultinomialTerms(Terms):
    """Stacked terms of K classes.

    With the probabilities p_i of an observation over classes 1 to K - 1,
    ∇²f_j = Σ_i w_i T(diag(p_i) - p_i p_iᵀ)T ⊗ a_i a_iᵀ.

    Attributes
    ----------
    phi : Multinomial
        The loss.
    design : Design
        The rows of the k clients, with p columns, A.
    b, w : (k, n) arrays
        Labels and weights. Clients with fewer than n observations are padded by rows of weight
        zero.
    """

    phi: Multinomial
    design: Design
    b: Labels
    w: Array

    @property
    def classes(self) -> int:
        return self.phi.classes

    @property
    def k(self) -> int:
        return self.design.shape[0]

    @property
    def d(self) -> int:
        return (self.classes - 1) * self.design.shape[2]

    @property
    def A(self) -> Array:  # noqa: N802  # the paper's name
        """The rows as an array, (k, n, p), where they are not sparse."""
        return self.design.array

    @property
    def large(self) -> bool:
        return self.design.large

    @property
    def classifies(self) -> bool:
        return True

    @property
    def rank(self) -> int:
        return (self.classes - 1) * min(self.design.shape[1:])

    @property
    def stacked(self) -> Stacked:
        return Stacked(np.sum(self.w > 0, axis=1), self.w.shape[1])

    def subsample(self, rows: Indices, scale: Array) -> Self:
        at = np.arange(self.k)[:, None], rows
        design = self.design.chosen(rows)
        return replace(self, design=design, b=self.b[at], w=scale * self.w[at])

    def largest_row(self, eta: Array | None) -> Array:
        squares = np.square(self.design.lengths())
        largest: Array = self._steepest * np.max(self.w * squares, axis=1)
        return largest

    def underdetermined(self) -> Mask:
        few: Mask = np.sum(self.w > 0, axis=1) < self.design.shape[2]
        return few

    def eta(self, X: Array) -> Array:
        """The predictors of classes 1 to K - 1, (k, K - 1, n)."""
        coefficients = np.matmul(self.phi.mix, X.reshape(self.k, self.classes - 1, -1))
        by_class = [self.design.product(coefficients[:, c]) for c in range(self.classes - 1)]
        return np.stack(by_class, axis=1)

    def product(self, X: Array) -> Array:
        """The predictors: there is no offset."""
        return self.eta(X)

    def adjoint(self, R: Array) -> Array:
        """Aᵀr of every class, (k, d), for r of shape (k, K - 1, n)."""
        by_class = np.stack([self.design.adjoint(each) for each in np.swapaxes(R, 0, 1)], axis=1)
        g: Array = np.matmul(self.phi.mix, by_class).reshape(self.k, self.d)
        return g

    def value(self, eta: Array) -> Array:
        total = np.sum(self.w * _loss(np.swapaxes(eta, 0, 1), self.b), axis=1)
        return np.where(np.isnan(total), np.inf, total)

    def gradient(self, eta: Array) -> Array:
        return self.adjoint(self.slopes(eta))

    def row_lengths(self) -> Array:
        return self.design.lengths()

    def gradient_error(self, X: Array, eta: Array, lengths: Array | None) -> Array:
        # as for one predictor, with |slope| ≤ w and a curvature of at most w/2 for each class
        length = self.row_lengths() if lengths is None else lengths
        size = np.sqrt(self.classes) * self.w * length * (1.0 + length * norms(X)[:, None])
        total: Array = np.sqrt(self.classes) * np.sum(size, axis=1)
        error: Array = (length.shape[1] + self.d + 16) * EPS * total
        return error

    def slopes(self, eta: Array) -> Array:
        """∂φ_i/∂η_ic times w_i, (k, K - 1, n)."""
        p, rest = _probabilities(np.swapaxes(eta, 0, 1))
        slopes = np.empty_like(eta)
        for c in range(1, self.classes):
            # that of the own class, p - 1, from 1 - p: it keeps its digits where p is near 1
            slopes[:, c - 1] = self.w * np.where(self.b == c, -rest[c], p[c])
        return slopes

    def hessian(self, eta: Array) -> Array:
        p, rest = (each[1:] for each in _probabilities(np.swapaxes(eta, 0, 1)))
        others = self.classes - 1
        columns = self.design.shape[2]
        H = np.empty((self.k, others, columns, others, columns))
        for c in range(others):
            H[:, c, :, c] = self.design.scaled(np.sqrt(self.w * p[c] * rest[c])).gram()
            for e in range(c):
                H[:, c, :, e] = -self.design.gram_between(self.w * p[c] * p[e])
                H[:, e, :, c] = np.swapaxes(H[:, c, :, e], 1, 2)
        if self.phi.symmetric:
            H = np.einsum("ac,kcpeq,eb->kapbq", self.phi.mix, H, self.phi.mix, optimize=True)
        return H.reshape(self.k, self.d, self.d)

    def diagonal(self, eta: Array) -> Array:
        weights = np.sqrt(np.sum(np.square(self._class_root(eta)), axis=2))
        others = range(self.classes - 1)
        return np.concatenate([self.design.scaled(weights[:, :, c]).squares() for c in others], 1)

    def times(self, eta: Array) -> Callable[[Array], Array]:
        p = np.swapaxes(_probabilities(np.swapaxes(eta, 0, 1))[0][1:], 0, 1)
        weighted = self.w[:, None, :] * p

        def product(U: Array) -> Array:
            a = self.product(U)
            return self.adjoint(weighted * (a - np.sum(p * a, axis=1, keepdims=True)))

        return product

    def largest(self, eta: Array) -> Array:
        if self.rank < self.d or self.large:
            return self.root(eta).largest()
        return super().largest(eta)

    def bounds(self) -> tuple[Array, Array]:
        weighted = self.design.scaled(np.sqrt(self.w))
        return np.zeros(self.k), self._steepest * weighted.largest()

    def convexity(self) -> Array:
        return np.zeros(self.k)

    def concordance(self, W: Array | None) -> tuple[Array, Array]:
        # The third derivative is at most the second times the range of a_iᵀh_c over the classes c
        # of an observation i. With ‖h‖ ≤ 1 the range is at most √2‖a_i‖, reached by two classes.
        norm = longest(self.design.lengths(), self.w)
        if not self._is_binary:
            norm = np.sqrt(2.0) * norm
        if W is None:
            return norm, np.full(self.k, np.inf)
        roots = np.matmul(self.phi.mix, W.reshape(self.k, self.classes - 1, -1)).reshape(*W.shape)
        of_others = np.moveaxis(roots.reshape(self.k, self.classes - 1, -1, W.shape[2]), 1, 0)
        of_class = [np.zeros(()), *of_others]
        between = [self.design.within(V - U) for U, V in combinations(of_class, 2)]
        ranges = [longest(np.linalg.norm(each, axis=2), self.w) for each in between]
        leverage = np.max(ranges, axis=0)
        return norm, np.where(np.isnan(leverage), np.inf, leverage)

    def spread(self, H: Array) -> Array:
        eta = self.eta(H)
        highest = np.maximum(np.max(eta, axis=1), 0.0)
        lowest = np.minimum(np.min(eta, axis=1), 0.0)
        ranges: Array = np.max(np.where(self.w > 0, highest - lowest, 0.0), axis=1)
        return ranges

    def floor(self) -> Array:
        return np.zeros(self.k)

    def margin(self, eta: Array) -> Array:
        by_class = np.swapaxes(eta, 0, 1)
        right = _own(by_class, self.b)
        wrong = np.where(self.b == 0, -np.inf, 0.0)
        for c, each in enumerate(by_class, start=1):
            wrong = np.maximum(wrong, np.where(self.b == c, -np.inf, each))
        return least(right - wrong, self.w)

    def expression(self, cp: Any, j: int, u: Any) -> Any:
        A = self.design.matrix(j)
        coefficients = self.phi.mix @ cp.reshape(u, (self.classes - 1, A.shape[1]), order="C")
        eta = cp.hstack([np.zeros((A.shape[0], 1)), A @ coefficients.T])
        own = cp.sum(cp.multiply(np.eye(self.classes)[self.b[j]], eta), axis=1)
        return cp.sum(cp.multiply(self.w[j], cp.log_sum_exp(eta, axis=1) - own))

    @property
    def _steepest(self) -> float:
        """A bound on the curvature of φ.

        The eigenvalues of diag(p) - ppᵀ are at most max_c 2p_c(1 - p_c) ≤ ½ by Gershgorin, also in
        orthonormal coordinates of all K predictors; for K = 2 it is the number p_1(1 - p_1).
        """
        if self._is_binary:
            return 0.25
        return 0.5

    @property
    def _is_binary(self) -> bool:
        """Whether x is the coefficients of one predictor, as in logistic regression."""
        return self.classes == 2 and not self.phi.symmetric

    def root(self, eta: Array) -> Design:
        return self.design.crossed(self._class_root(eta))

    def _class_root(self, eta: Array) -> Array:
        """√w_i RT of every observation, (k, n, K - 1, K - 1), with RᵀR = diag(p) - ppᵀ.

        R = (I - uuᵀ/(1 + √p_0)) diag(u), with u = √p over classes 1 to K - 1.
        """
        both = _probabilities(np.swapaxes(eta, 0, 1))
        p, rest = (np.moveaxis(each, 0, -1) for each in both)
        reference = np.sqrt(p[:, :, :1])
        p = p[:, :, 1:]
        rest = rest[:, :, 1:]
        R = -np.sqrt(p)[:, :, :, None] * (p / (1.0 + reference))[:, :, None, :]
        np.einsum("kncc->knc", R)[...] = np.sqrt(p) * (rest + reference) / (1.0 + reference)
        root: Array = np.matmul(np.sqrt(self.w)[:, :, None, None] * R, self.phi.mix)
        return root


def all_classes(eta: Array) -> Array:
    """The predictors of all classes, that of the reference being 0: (..., K - 1) -> (..., K)."""
    return np.concatenate([np.zeros((*eta.shape[:-1], 1)), eta], axis=-1)


def _own(eta: Array, b: Labels | Array) -> Array:
    """The predictor of each observation's own class: (K - 1, ...), (...) -> (...)."""
    own = np.zeros(b.shape)
    for c, each in enumerate(eta, start=1):
        own = np.where(b == c, each, own)
    return own


def _loss(eta: Array, b: Labels | Array) -> Array:
    """log Σ_c e^{η_c} - η_b of every observation: (K - 1, ...), (...) -> (...)."""
    own = _own(eta, b)
    # the sum is e^largest (1 + rest), without the term of the class that is the largest: log1p
    # keeps the digits of a tiny loss
    largest = np.zeros_like(own)
    rest = np.zeros_like(own)
    for c, each in enumerate([np.zeros_like(own), *eta]):
        largest, rest = _add(largest, rest, each - own, b != c)
    loss: Array = largest + np.log1p(rest)
    return loss


def _add(
    largest: Array, rest: Array, eta: Array, counts: Mask | bool = True
) -> tuple[Array, Array]:
    """e^largest (1 + rest) + e^eta in the same form, where it ``counts``."""
    share = np.exp(-np.abs(eta - largest)) * counts
    grows = eta > largest
    rest = np.where(grows, (1.0 + rest) * share, rest + share)
    return np.maximum(largest, eta), rest


def _probabilities(eta: Array) -> tuple[Array, Array]:
    """p_c and 1 - p_c of all K classes, both with all their digits: (K - 1, ...) -> (K, ...)."""
    largest: Array = np.zeros(eta.shape[1:])
    others: Array = np.zeros(eta.shape[1:])
    for each in eta:
        largest, others = _add(largest, others, each)
    p = np.empty((len(eta) + 1, *eta.shape[1:]))
    p[0] = np.exp(-largest)
    p[1:] = np.exp(eta - largest)
    p /= 1.0 + others
    # 1 - p cancels where p is near 1, which only the largest one can be
    rest = np.where(p > 0.5, others / (1.0 + others), 1.0 - p)
    return p, rest
