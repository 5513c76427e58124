"""A loss of one's own: any convex function, given by its value and gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from fedsplit.arrays import EPS, Array
from fedsplit.checks import count
from fedsplit.errors import InputError
from fedsplit.losses.terms import Block, Terms


@dataclass(frozen=True)
class CustomLoss:
    """f_j(x) = value(x, data_j) for a convex, differentiable function of your own.

    What you state here is taken as proved: certificates are only as true as ``curvature``,
    ``concordance`` and ``floor``.

    Parameters
    ----------
    value : callable
        ``value(x, data) -> float``; x is (d,), data is this client's item of the list of clients.
    gradient : callable
        ``gradient(x, data) -> (d,)``.
    d : int
        The dimension of x.
    hessian : callable, optional
        ``hessian(x, data) -> (d, d)``. Without it, central differences of the gradient are used:
        2d gradients for each Hessian, so prefer ``GradientProx`` when d is large.
    curvature : callable, optional
        ``curvature(data) -> (ell, L)``: bounds on the Hessian's eigenvalues that hold everywhere.
    concordance : callable or float, optional
        ``concordance(data) -> c``, or one c for all clients, such that the third derivative is at
        most c times the second: |D³f_j(x)[h, u, u]| ≤ c‖h‖ D²f_j(x)[u, u] everywhere; 0 if f_j is
        quadratic. With it, a ``Certificate`` needs no strong convexity.
    floor : callable or float, optional
        ``floor(data) -> float``, or one number for all clients: a lower bound on f_j.
    """

    value: Callable[[Array, Any], float]
    gradient: Callable[[Array, Any], Array]
    d: int
    hessian: Callable[[Array, Any], Array] | None = None
    curvature: Callable[[Any], tuple[float, float]] | None = None
    concordance: Callable[[Any], float] | float = np.inf
    floor: Callable[[Any], float] | float = -np.inf

    @property
    def exact_hessian(self) -> bool:
        """Whether there is a ``hessian``."""
        return self.hessian is not None

    def stack(self, clients: Sequence[object], ridge: Array) -> tuple[int, list[Block]]:
        if not isinstance(clients, Iterable):
            raise InputError(
                "clients must be a list with one item of data per client, not "
                f"{type(clients).__name__}"
            )
        return stack_custom(CustomTerms(self, list(clients)))


def stack_custom(terms: CustomTerms) -> tuple[int, list[Block]]:
    """All clients in one block, once what is stated and the value at x = 0 have been checked."""
    count("CustomLoss: d", terms.d)
    if not terms.data:
        raise InputError("there is no client: pass a list with one item of data per client")
    zero = np.zeros((terms.k, terms.d))
    value = terms.value(zero)
    gradient = terms.gradient(zero)
    floor = terms.floor()
    terms.concordance(None)
    for j, (f, g, least) in enumerate(zip(value, gradient, floor, strict=True)):
        if np.isnan(f) or np.isnan(g).any():
            raise InputError(f"client {j}: the value or the gradient at x = 0 is not a number")
        if f < least:
            raise InputError(f"client {j}: floor is {least:g}, but the value at x = 0 is {f:g}")
    return terms.d, [Block(range(terms.k), terms)]


@dataclass(frozen=True, eq=False)
class CustomTerms(Terms):
    """The user's function at every client, one call after the other."""

    phi: CustomLoss  # the user's functions
    data: Sequence[Any]  # what each of the k clients holds

    @property
    def k(self) -> int:
        return len(self.data)

    @property
    def d(self) -> int:
        return self.phi.d

    @property
    def gradients_per_hessian(self) -> int:
        return 0 if self.phi.exact_hessian else 2 * self.d

    def value(self, eta: Array) -> Array:
        pairs = enumerate(zip(eta, self.data, strict=True))
        return np.array([_numbers("value", j, self.phi.value(*pair), ()) for j, pair in pairs])

    def gradient(self, eta: Array) -> Array:
        return np.stack([self._gradient(j, x) for j, x in enumerate(eta)])

    def hessian(self, eta: Array) -> Array:
        hessians = [self._hessian(j, x) for j, x in enumerate(eta)]
        return np.stack([0.5 * (H + H.T) for H in hessians])

    def _hessian(self, j: int, x: Array) -> Array:
        if self.phi.hessian is not None:
            return _numbers("hessian", j, self.phi.hessian(x, self.data[j]), (self.d, self.d))
        # central differences are most accurate at about the cube root of rounding
        h = np.cbrt(EPS) * np.maximum(1.0, np.abs(x))
        rows = [self._gradient(j, x + e) - self._gradient(j, x - e) for e in np.diag(h)]
        result: Array = np.stack(rows) / (2 * h[:, None])
        return result

    def bounds(self) -> tuple[Array, Array]:
        if self.phi.curvature is None:
            return super().bounds()
        try:
            stated = [self.phi.curvature(data) for data in self.data]
            ell, L = np.array(stated, dtype=np.float64).reshape(self.k, 2).T
        except (TypeError, ValueError):
            raise InputError(
                "curvature must return two numbers, ell and L, for each client"
            ) from None
        for j in np.flatnonzero(~((ell >= 0) & (ell <= L)))[:1]:
            raise InputError(
                f"client {j}: curvature must be 0 <= ell <= L, not ({ell[j]:g}, {L[j]:g})"
            )
        return ell, L

    def concordance(self, W: Array | None) -> tuple[Array, Array]:
        c = self._stated("concordance", self.phi.concordance)
        for j in np.flatnonzero(~(c >= 0))[:1]:
            raise InputError(f"client {j}: concordance must be at least 0, not {c[j]:g}")
        # In the norm of W⁻¹ a bound would be c times the norm of W, which is never the better one:
        # the server divides the first bound by the square root of the whole Hessian's least
        # eigenvalue, and that is at least as large as this client's.
        return c, np.full(self.k, np.inf)

    def floor(self) -> Array:
        return self._stated("floor", self.phi.floor)

    def take(self, rows: list[int] | slice) -> Self:
        places = range(self.k)[rows] if isinstance(rows, slice) else rows
        return replace(self, data=[self.data[i] for i in places])

    def _stated(self, name: str, stated: Callable[[Any], float] | float) -> Array:
        """What the loss states for each client, by a function of its data or for all, (k,)."""
        try:
            each = [stated(data) if callable(stated) else stated for data in self.data]
            numbers = np.array([float(number) for number in each])
        except (TypeError, ValueError):
            raise InputError(f"{name} must be a number, or a function of the data to one") from None
        for j in np.flatnonzero(np.isnan(numbers))[:1]:
            raise InputError(f"client {j}: {name} is not a number")
        return numbers

    def _gradient(self, j: int, x: Array) -> Array:
        return _numbers("gradient", j, self.phi.gradient(x, self.data[j]), (self.d,))


def _numbers(name: str, j: int, answer: object, shape: tuple[int, ...]) -> Array:
    """What the user's function returned for client j, once it is known to be of this shape."""
    array = np.asarray(answer)
    if array.shape != shape or array.dtype.kind not in "biuf":
        wanted = f"shape {shape}" if shape else "a number"
        raise InputError(
            f"client {j}: {name} must return {wanted}, "
            f"it returned {array.dtype} of shape {array.shape}"
        )
    return array.astype(np.float64, copy=False)
