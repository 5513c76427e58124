"""Block vectors: one vector per client, which a method adds and multiplies without seeing them.

FedSplit's z, v and answers are a vector that all clients share plus displacements, and a
displacement is mostly in the span of a client's rows, e + A_jᵀc_j: n numbers per client and not d.
Sums of displacements are carried out only when somebody needs their rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fedsplit.device.backend import DeviceArray, combined, on_device
from fedsplit.device.rows import DeviceRows

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Displacement:
    """One vector δ_j per client, of which the sum over the clients is known.

    Attributes
    ----------
    rows : DeviceRows
    total : (d,) array
        Σ_j δ_j, in float64.
    square : callable or None
        Σ_j‖δ_j‖², if it came with the answer.
    """

    rows: DeviceRows
    total: DeviceArray
    square: Callable[[], float] | None = field(default=None, kw_only=True)

    def dense(self) -> DeviceArray:
        """The δ_j, (m, d)."""
        raise NotImplementedError

    def size(self) -> float:
        """Σ_j‖δ_j‖²; where it was not told, to the accuracy of a size."""
        if self.square is not None:
            return self.square()
        return self._size()

    def _size(self) -> float:
        return squares(self.rows, self.dense())


class Coefficients:
    """c = Σ_i t_i c⁽ⁱ⁾, (m, n), in the precision of the rows.

    The sum is carried out when it is needed, unless a kernel that reads the terms has done so.

    Parameters
    ----------
    terms : (float, (m, n) array)
        t_i and c⁽ⁱ⁾.
    """

    def __init__(self, *terms: tuple[float, DeviceArray]) -> None:
        self.terms: Sequence[tuple[float, DeviceArray]] = terms

    @property
    def array(self) -> DeviceArray:
        """c."""
        if len(self.terms) > 1:
            self.become(combined(self.terms))
        [(t, c)] = self.terms
        return c if t == 1.0 else t * c

    def become(self, c: DeviceArray) -> None:
        """Have the sum in the place of its terms."""
        self.terms = ((1.0, c),)


@dataclass(frozen=True, eq=False)
class Spanned(Displacement):
    """δ_j = e + A_jᵀc_j.

    Attributes
    ----------
    e : (d,) array
        In float64.
    coefficients : Coefficients
        c.
    both : (2, d) array or None
        e and the total as one array, if they came so: they are then added up as one.
    """

    e: DeviceArray
    coefficients: Coefficients
    both: DeviceArray | None = field(default=None, kw_only=True)

    @property
    def c(self) -> DeviceArray:
        """(m, n), in the precision of the rows."""
        return self.coefficients.array

    def dense(self) -> DeviceArray:
        return self.rows.adjoint(self.c) + self.rows.cast(self.e)

    def _size(self) -> float:
        # m‖e‖² + 2⟨e, Σ A_jᵀc_j⟩ + Σ c_jᵀK_jc_j
        rows = self.rows
        inner = rows.total(rows.xp.sum(self.c * rows.row_products(self.c), axis=1))
        crossed = rows.xp.sum(self.e * (2.0 * self.total - rows.m * self.e))
        return max(0.0, float(inner + crossed))


@dataclass(frozen=True, eq=False)
class Dense(Displacement):
    """δ_j as rows of an array, (m, d)."""

    array: DeviceArray

    def dense(self) -> DeviceArray:
        return self.array


def squares(rows: DeviceRows, dense: DeviceArray) -> float:
    """The sum of all squares of an array, (m, d)."""
    return float(rows.total(rows.xp.sum(dense * dense, axis=1)))


Terms = Sequence[tuple[float, Displacement]]


class _Sum:
    """Σ_i t_i δ⁽ⁱ⁾: carried out at most once, for all block vectors that share it."""

    def __init__(self, terms: Terms = ()) -> None:
        self.terms = terms
        self.done: Displacement | None = None
        if len(terms) == 1 and terms[0][0] == 1.0:
            self.done = terms[0][1]

    def carried_out(self) -> Displacement | None:
        """One displacement; None if there is none."""
        if self.done is None and self.terms:
            self.done = _added(self.terms)
        return self.done

    def beside(self, other: _Sum) -> Terms:
        """As one term if it is carried out, unless the other sum is one of its terms."""
        shared = any(each is other.done for _, each in self.terms)
        if self.done is None or shared or not other.terms:
            return self.terms
        return ((1.0, self.done),)


class BlockVector:
    """x_j = Σ_i u_i e⁽ⁱ⁾ + t Σ_i t_i δ⁽ⁱ⁾_j for m clients: sums, multiples, means and lengths.

    What two block vectors share cancels exactly in their difference.

    Parameters
    ----------
    rows : DeviceRows
    shared : sequence of (float, (d,) array)
        u_i and e⁽ⁱ⁾, in float64: the same for all clients.
    factor : float
        t.
    displacements : _Sum
    """

    __array_ufunc__ = None  # arrays leave operators to this class
    ndim = 2

    def __init__(
        self,
        rows: DeviceRows,
        shared: Sequence[tuple[float, DeviceArray]],
        factor: float = 1.0,
        displacements: _Sum | None = None,
    ) -> None:
        self.rows = rows
        self.shared = shared
        self.factor = factor
        self._sum = displacements or _Sum()

    @classmethod
    def moved(cls, x: DeviceArray, by: Displacement) -> BlockVector:
        """x + δ_j, for x that is (d,)."""
        return cls(by.rows, ((1.0, x),), 1.0, _Sum(((1.0, by),)))

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.m, self.rows.d

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return _NAMESPACE

    @property
    def common(self) -> DeviceArray:
        """What all clients share, (d,), in float64."""
        if not self.shared:
            return self.rows.zeros(self.rows.d)
        return combined(self.shared)

    @property
    def displacement(self) -> tuple[float, Displacement | None]:
        """t and δ with x_j = common + tδ_j; None if all x_j are the same."""
        return self.factor, self._sum.carried_out()

    def dense(self) -> DeviceArray:
        """The vectors, (m, d), in the precision of the rows."""
        factor, displacement = self.displacement
        e = self.rows.cast(self.common)
        if displacement is None:
            return self.rows.xp.broadcast_to(e, self.shape)
        return e + factor * displacement.dense()

    def mean(self) -> DeviceArray:
        """The mean over the clients, (d,), in float64."""
        factor, displacement = self.displacement
        if displacement is None:
            return self.common
        return combined([*self.shared, (factor / self.rows.m, displacement.total)])

    def norm(self) -> float:
        """√Σ_j‖x_j‖²."""
        terms = self._sum.terms
        if not self.shared and len(terms) == 1:  # its length may be known
            t, only = terms[0]
            return abs(self.factor * t) * math.sqrt(only.size())
        xp = self.rows.xp
        factor, displacement = self.displacement
        e = self.common
        square = self.rows.m * float(xp.sum(e * e))
        if displacement is not None:
            crossed = float(xp.sum(e * displacement.total))
            square += 2.0 * factor * crossed + factor**2 * displacement.size()
        return math.sqrt(max(square, 0.0))

    def __neg__(self) -> BlockVector:
        return -1.0 * self

    def __mul__(self, t: float) -> BlockVector:
        shared = [(t * u, e) for u, e in self.shared]
        return BlockVector(self.rows, shared, t * self.factor, self._sum)

    __rmul__ = __mul__

    def __add__(self, other: Any) -> BlockVector:
        if isinstance(other, BlockVector):
            shared = _merged([*self.shared, *other.shared])
            ours = self._sum.beside(other._sum)
            terms = [(self.factor * t, each) for t, each in ours]
            terms += [(other.factor * t, each) for t, each in other._sum.beside(self._sum)]
            return BlockVector(self.rows, shared, 1.0, _Sum(_merged(terms)))
        if on_device(other):
            shared = _merged([*self.shared, (1.0, other)])
            return BlockVector(self.rows, shared, self.factor, self._sum)
        return NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Any) -> BlockVector:
        if isinstance(other, BlockVector):
            return self + -1.0 * other
        if on_device(other):  # the array itself, not its negative: what is the same cancels
            shared = _merged([*self.shared, (-1.0, other)])
            return BlockVector(self.rows, shared, self.factor, self._sum)
        return NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return -self + other


def _merged(terms: Sequence[tuple[float, T]]) -> list[tuple[float, T]]:
    """Terms t_i a_i with the coefficients of the same a added up, and without zeros."""
    coefficients: dict[int, tuple[float, T]] = {}
    for t, term in terms:
        before, _ = coefficients.get(id(term), (0.0, term))
        coefficients[id(term)] = before + t, term
    return [(t, term) for t, term in coefficients.values() if t != 0.0]


def _added(terms: Sequence[tuple[float, Displacement]]) -> Displacement:
    """Σ_i t_i δ⁽ⁱ⁾ as one displacement, in the span of the rows if all of them are."""
    rows = terms[0][1].rows
    spanned = [(t, each) for t, each in terms if isinstance(each, Spanned)]
    c = Coefficients(*((t, each.c) for t, each in spanned))
    stacked = [(t, each.both) for t, each in spanned if each.both is not None]
    if len(stacked) == len(terms):
        both = combined(stacked)
        return Spanned(rows, both[1, :], both[0, :], c, both=both)
    total = combined([(t, each.total) for t, each in terms])
    if len(spanned) == len(terms):
        return Spanned(rows, total, combined([(t, each.e) for t, each in spanned]), c)
    return Dense(rows, total, combined([(t, each.dense()) for t, each in terms]))


class _Linalg:
    """``linalg`` of block vectors."""

    def vector_norm(self, x: BlockVector) -> float:
        return x.norm()


class _Namespace:
    """What methods and rounds use of the array API, for block vectors."""

    __name__ = "fedsplit.device.blocks"
    linalg = _Linalg()

    def mean(self, x: BlockVector, axis: int) -> DeviceArray:
        return x.mean()

    def sum(self, x: BlockVector, axis: int) -> DeviceArray:
        return x.rows.m * x.mean()


_NAMESPACE = _Namespace()
