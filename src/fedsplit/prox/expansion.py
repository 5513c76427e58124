"""A prox seen from where the solver starts: everything that changes is small near the optimum."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedsplit.arrays import Array, Mask, dots
from fedsplit.losses.costs import Costs
from fedsplit.losses.terms import Predictors
from fedsplit.losses.work import counter

SHARE = 1e-4
"""The share of the linear decrease that a step has to bring."""

HALVINGS = 60
"""After so many, a step is below the rounding of any start."""

ROUNDING = 16 * float(np.finfo(np.float64).eps)
"""A change of f_j below this share of it is lost in rounding."""


@dataclass(frozen=True)
class Expansion:
    """h_j(x_j + δ_j) - h_j(x_j), with h_j = f_j + ½‖· - v_j‖²/s and f_j a sum Φ_j over predictors.

    With e = Aδ, λ = Φ'(η) at the predictors η of x, D = 1/s + ridge and G = ∇h(x) it is

        Φ(η + e) - Φ(η) - ⟨λ, e⟩ + ⟨G, δ⟩ + ½ δᵀdiag(D)δ.

    Steps and their lengths need e and numbers only: no product with A. Arrays are of k clients.

    Attributes
    ----------
    terms : Predictors
    X : (k, d) array
    D : (d,) array
    eta, slopes : (k, n, ...) arrays
        η and λ.
    value : (k,) array
        Φ(η).
    G : (k, d) array
    """

    terms: Predictors
    X: Array
    D: Array
    eta: Array
    slopes: Array
    value: Array
    G: Array

    @classmethod
    def near(
        cls, costs: Costs, terms: Predictors, X: Array, V: Array, s: float | Array
    ) -> Expansion:
        """Around X, (k, d), or around 0 at clients to which that is the better start."""
        counter.gradients += 1
        eta = terms.eta(X)
        origin, at_origin = _origin(costs, terms)
        value = terms.total(eta)
        pull = costs.ridge * X
        way = X - V
        back = way / s
        h = value + 0.5 * dots(X, pull) + 0.5 * dots(way, back)
        # from a distant start, Newton needs many steps
        far = ~(h <= at_origin + 0.5 * dots(V, V / s))
        if far.any():
            X = np.where(far[:, None], 0.0, X)
            eta = np.where(stretched(far, eta), origin, eta)
            value = np.where(far, at_origin, value)
            pull = costs.ridge * X
            back = (X - V) / s
        D = np.broadcast_to(1.0 / np.asarray(s), X.shape[1:]) + costs.ridge
        slopes = terms.slopes(eta)
        G = terms.adjoint(slopes) + pull + back
        return cls(terms, X, D, eta, slopes, value, G)

    @cached_property
    def rounding(self) -> Array:
        """What rounding may change h_j by, (k,)."""
        rounding: Array = ROUNDING * np.abs(self.value)
        return rounding

    def take(self, rows: list[int]) -> Expansion:
        """That of some of the clients."""
        terms = self.terms.take(rows)
        own = (part[rows] for part in (self.eta, self.slopes, self.value, self.G))
        return Expansion(terms, self.X[rows], self.D, *own)

    def gradient(self, delta: Array, e: Array) -> Array:
        """∇h_j(x_j + δ_j), (k, d)."""
        counter.gradients += 1
        change = self.terms.slopes(self.eta + e) - self.slopes
        return self.G + self.D * delta + self.terms.adjoint(change)

    def lengths(self, e: Array, a: Array, slope: Array, square: Array) -> Array:
        """The first t_j of 1, ½, ¼, … at which h_j falls by enough along a step p; 0 if none does.

        If the change of h_j is lost in rounding, the test is made on slopes, as for a quadratic. A
        cost of +inf is a rejected step.

        Parameters
        ----------
        e, a : (k, n, ...) arrays
            Aδ and Ap.
        slope, square : (k,) arrays
            ⟨G + Dδ, p⟩ and pᵀdiag(D)p.
        """
        eta = self.eta + e
        across = _sums(self.slopes * a)
        downhill = slope
        here = self.value
        if e.any():  # not in the first step
            downhill = slope - across + _sums(self.terms.slopes(eta) * a)
            here = self.terms.total(eta)
        seeking = downhill < 0
        t = np.where(seeking, 1.0, 0.0)
        for _ in range(HALVINGS):
            there = eta + stretched(t, a) * a
            change = self.terms.total(there) - here + t * (slope - across) + 0.5 * t**2 * square
            lost = seeking & (np.abs(change) <= self.rounding)
            seeking = seeking & ~(change <= SHARE * t * downhill)
            if lost.any():
                turned = slope - across + t * square + _sums(self.terms.slopes(there) * a)
                seeking = seeking & ~(lost & (turned <= -(1.0 - 2.0 * SHARE) * downhill))
            if not seeking.any():
                break
            t = np.where(seeking, 0.5 * t, t)
        return np.where(seeking, 0.0, t)


def _origin(costs: Costs, terms: Predictors) -> tuple[Array, Array]:
    """The predictors of x = 0, and Φ_j there, (k,)."""
    if _origin not in costs.cache:
        eta = terms.eta(np.zeros((costs.terms.k, costs.terms.d)))
        costs.cache[_origin] = eta, terms.total(eta)
    origin: tuple[Array, Array] = costs.cache[_origin]
    return origin


def in_metric(D: Array, delta: Array) -> Array:
    """δ_jᵀdiag(D)δ_j, (k,)."""
    return dots(delta, D * delta)


def _sums(products: Array) -> Array:
    """The sums over a client's predictors: (k, n, ...) -> (k,)."""
    sums: Array = np.sum(products.reshape(len(products), -1), axis=1)
    return sums


def stretched(t: Array | Mask, a: Array) -> Any:
    """t, (k,), in the shape that multiplies a, (k, n, ...)."""
    return t.reshape(-1, *[1] * (a.ndim - 1))
