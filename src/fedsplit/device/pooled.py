"""All clients on a device as one, whose cost is the sum of theirs, in float64.

Certificates and methods that need sums alone ask this one client: what the losses compute of some
rows at a time is added up, and only the sums reach the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from fedsplit.arrays import Array, Mask, extreme_eigenvalues, placed, to_host
from fedsplit.device.backend import DeviceArray
from fedsplit.device.rows import DeviceRows
from fedsplit.losses.linear import LinearTerms
from fedsplit.losses.systems import Latest
from fedsplit.losses.terms import Terms


@dataclass(frozen=True, eq=False)
class PooledTerms(Terms):
    """Σ_j f_j without the ridge, as the terms of one client whose points are on the host."""

    rows: DeviceRows
    # what holds at every point, and takes a pass over the rows
    latest: Latest = field(default_factory=Latest, repr=False)

    @property
    def k(self) -> int:
        return 1

    @property
    def d(self) -> int:
        return self.rows.d

    @property
    def classifies(self) -> bool:
        return self.rows.phi.classifies

    def value(self, eta: Array) -> Array:
        return self._added(lambda terms, X: terms.value(terms.eta(X)), eta)

    def gradient(self, eta: Array) -> Array:
        return self._added(lambda terms, X: terms.gradient(terms.eta(X)), eta)

    def hessian(self, eta: Array) -> Array:
        return self._added(lambda terms, X: terms.hessian(terms.eta(X)), eta)

    def values(self, start: Array, end: Array, shares: Sequence[float]) -> Array:
        def along(terms: LinearTerms, X: Any, Y: Any) -> Any:
            return terms.values(terms.eta(X), terms.eta(Y), shares)

        return self._added(along, start, end)

    def underdetermined(self) -> Mask:
        return np.array([self.rows.m * self.rows.n < self.d])

    def bounds(self) -> tuple[Array, Array]:
        low, high = self.rows.phi.curvature_range
        if np.isinf(high):
            return super().bounds()
        # those of the sum do not follow from those of its parts
        gram = self._added(lambda terms: terms.design.scaled(terms.w**0.5).gram())
        ell, L = extreme_eigenvalues(gram)
        return low * ell, high * L

    def convexity(self) -> Array:
        # the usual case, without eigenvalues
        return np.zeros(1) if self.rows.phi.curvature_range[0] == 0.0 else super().convexity()

    def concordance(self, W: Array | None) -> tuple[Array, Array]:
        norm = self.latest.get("norm", None, self._norm)
        if W is None:
            return norm, np.full(1, np.inf)
        return norm, self._folded(np.maximum, lambda terms, root: terms.concordance(root)[1], W)

    def _norm(self) -> Array:
        return self._folded(np.maximum, lambda terms: terms.concordance(None)[0])

    def spread(self, H: Array) -> Array:
        return self._folded(np.maximum, lambda terms, X: terms.spread(X), H)

    def floor(self) -> Array:
        return self.latest.get("floor", None, lambda: self._added(lambda terms: terms.floor()))

    def steady(self, X: Array, eta: Array) -> Array:
        return self._folded(np.minimum, lambda terms, Y: terms.steady(Y, terms.eta(Y)), X)

    def margin(self, eta: Array) -> Array:
        return self._folded(np.minimum, lambda terms, X: terms.margin(terms.eta(X)), eta)

    def _added(self, of: Callable[..., DeviceArray], *points: Array) -> Array:
        """The sum of what some rows have, on the host; it is added up on the device."""
        return to_host(reduce(lambda total, part: total + part, self._each(of, points)))

    def _folded(
        self, fold: Callable[[Array, Array], Array], of: Callable[..., DeviceArray], *points: Array
    ) -> Array:
        """The largest or least of what some rows have, on the host."""
        return reduce(fold, map(to_host, self._each(of, points)))

    def _each(self, of: Callable[..., DeviceArray], points: Sequence[Array]) -> Iterator[Any]:
        """What the rows have, some of them at a time."""
        there = [placed(X, self.rows.A) for X in points]
        for part in self.rows.parts():
            yield of(self.rows.terms(part, pooled=True), *there)
