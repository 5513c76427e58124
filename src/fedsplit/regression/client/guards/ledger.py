"""Everything that a client has disclosed of its rows: which sums, and what can rest on one row.

Let U be vectors over n rows whose sums were disclosed. A reader knows the sum of every combination
w = Uc as well. Of the square of any such w, row i has at most the share

    w_i² ≤ h_i ‖w‖²,    h_i = u_iᵀ(UᵀU)⁻¹u_i,

and rows S together at most Σ_{i in S} h_i. At h_i = 1 some combination is a number of row i alone.
h only grows as more is disclosed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf

from fedsplit.arrays import Array
from fedsplit.errors import InputError
from fedsplit.statistic import RowSum


class Span:
    """The span of vectors over rows, by an orthonormal basis Q, (n, r), that is extended.

    ``leverages`` has h, (n,): the diagonal of QQᵀ.
    """

    def __init__(self, Q: Array | None = None) -> None:
        if Q is None:
            Q = np.zeros((0, 0))
        self.Q = Q
        self.leverages: Array = np.einsum("ij,ij->i", Q, Q)

    @property
    def rank(self) -> int:
        """How many independent columns there are."""
        return int(self.Q.shape[1])

    def extended(self, columns: Array, rows: NDArray[np.intp]) -> Span:
        """The span with more columns, (m, q), which are zero outside of their rows, (m,).

        Rows beyond those known so far are new; columns of one row that comes twice are added.
        """
        n = max(len(self.Q), int(rows.max(initial=-1)) + 1)
        C = by_row(of_size_one(columns), rows, n)
        C = C[:, C.any(axis=0)]
        C /= np.sqrt(np.einsum("ij,ij->j", C, C))
        Q = np.zeros((n, self.rank))
        Q[: len(self.Q)] = self.Q
        return Span(_extended(Q, C))

    def with_sums(self, sums: Sequence[Disclosed]) -> Span:
        """The span with the vectors of more sums."""
        return reduce(
            lambda span, each: span.extended(each.scaled().vectors(), each.rows), sums, self
        )


def by_row(columns: Array, rows: NDArray[np.intp], n: int) -> Array:
    """Columns over n rows, (n, q), of which some rows have these entries; the others have zeros."""
    found = np.zeros((n, columns.shape[1]))
    if (rows[:-1] < rows[1:]).all():
        found[rows] = columns
    else:
        np.add.at(found, rows, columns)
    return found


def of_size_one(columns: Array) -> Array:
    """Columns, (n, q), by powers of two whose largest entries are about 1: squares stay numbers.

    An entry that is not finite raises InputError.
    """
    largest = np.abs(columns).max(axis=0, initial=0.0)
    if not np.isfinite(largest).all():
        raise InputError("a column has a number that is not finite")
    _, exponents = np.frexp(largest)
    # 2^1074 is beyond float64
    found: Array = columns * np.ldexp(1.0, -np.maximum(exponents, -1000))
    return found


def _less(C: Array, Q: Array) -> Array:
    """Columns without their part in a span; twice, so that nothing is left but rounding."""
    if Q.shape[1] == 0:
        return C
    C = C - Q @ (Q.T @ C)
    left: Array = C - Q @ (Q.T @ C)
    return left


def _extended(Q: Array, C: Array) -> Array:
    """An orthonormal basis of the span of Q, which is one, and of columns of length at most 1.

    The columns that are far from dependent come first, by Cholesky factors of their Gram matrix,
    which is several times as fast as a QR with pivoting; then what is left of the others.
    """
    while True:
        C = _less(C, Q)
        # sums are rounded to 2⁻⁴⁴ of the lengths of what is multiplied, which hides a shorter part
        C = C[:, np.sqrt(np.einsum("ij,ij->j", C, C)) > 1e-12]
        if C.shape[1] == 0:
            return Q
        gram = C.T @ C
        # together, as long as a tenth of each is outside of the span of the others: the factor of
        # their Gram matrix loses two digits then
        _, order, rank, _ = dpstrf(gram, tol=0.1**2 * gram.diagonal().max())
        chosen = order[:rank] - 1
        new = _by_cholesky(_less(_by_cholesky(C[:, chosen]), Q))
        Q = np.hstack([Q, new])
        C = np.delete(C, chosen, axis=1)


def _by_cholesky(C: Array) -> Array:
    """An orthonormal basis of independent columns."""
    found: Array = C @ np.linalg.inv(np.linalg.cholesky(C.T @ C)).T
    return found


HIGH = 0.9
"""A leverage above this is reported: a yes or no of the row is guessed with more than 93 %."""

LARGEST = 2**25
"""Numbers in a basis of what was disclosed; beyond it, leverages are computed by blocks."""

BLOCK = 2**13
"""Rows of a block."""


class Disclosed(NamedTuple):
    """Sums over rows that are disclosed."""

    rows: NDArray[np.intp]  # (n,): the numbers of the rows; one that comes twice has two terms
    sums: RowSum

    @property
    def number(self) -> int:
        """How many vectors over the rows are summed."""
        p = self.sums.left.shape[1]
        right = self.sums.right
        return int(p * (p + 1) // 2 if right is None else p * right.shape[1])

    def scaled(self) -> Disclosed:
        """What is multiplied by powers of two, so that products stay numbers."""
        left, right, weights = self.sums.left, self.sums.right, self.sums.weights
        return Disclosed(
            self.rows,
            RowSum(
                of_size_one(left),
                None if right is None else of_size_one(right),
                None if weights is None else of_size_one(weights[:, None])[:, 0],
            ),
        )

    def vectors(self, chosen: NDArray[np.bool_] | slice = slice(None)) -> Array:
        """The vectors whose sums these are, at some rows, (m, number)."""
        left = self.sums.left[chosen]
        if self.sums.right is None:
            first, second = np.triu_indices(left.shape[1])
            found = left[:, first] * left[:, second]
        else:
            right = self.sums.right[chosen]
            found = np.einsum("ij,ik->ijk", left, right).reshape(len(left), self.number)
        if self.sums.weights is not None:
            found = self.sums.weights[chosen, None] * found
        return np.asarray(found)


class Basis(NamedTuple):
    """A basis of what the first entries of a ledger disclosed, by their keys."""

    keys: tuple[str, ...] = ()
    span: Span = Span()


class DisclosureLedger:
    """The vectors over a client's rows whose sums were disclosed, by question."""

    basis = Basis()

    def __init__(self) -> None:
        self._arrays: dict[str, Any] = {}
        self._entries: dict[str, list[list[str]]] = {}
        self._tags: dict[str, list[str]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def count(self, tag: str) -> int:
        """How many questions of a kind there were."""
        return sum(tag in tags for tags in self._tags.values())

    def add(self, key: str, disclosed: Sequence[Disclosed], tags: Sequence[str] = ()) -> None:
        """Record what is about to be disclosed; the same question is recorded once.

        ``key`` is the fingerprint of the question and the rows, ``tags`` what the question counts
        as.
        """
        if key in self:
            return
        entry = [
            [
                "" if array is None else self._kept(array)
                for array in (rows, sums.left, sums.right, sums.weights)
            ]
            for rows, sums in disclosed
        ]
        self._entries[key] = entry
        self._tags[key] = list(tags)

    def in_words(self, persons: NDArray[np.intp] | None = None) -> str:
        """High leverages for the owner, in a sentence; empty if there are none."""
        if self._size(self._new()) > LARGEST:
            return "how much of all that was disclosed can rest on one row takes long to compute"
        h = self.leverages(persons=persons)
        high = int((h > HIGH).sum())
        if not high:
            return ""
        what = "rows" if persons is None else "persons"
        return (
            f"{high:,} of {len(h):,} {what} {'has' if high == 1 else 'have'} a leverage above "
            f"{HIGH:g} in all that was disclosed: whoever keeps the answers could compute numbers "
            "that rest on one of them"
        )

    def leverages(
        self, more: Sequence[Disclosed] = (), persons: NDArray[np.intp] | None = None
    ) -> Array:
        """h of every row, (n,), as if ``more`` was disclosed too.

        ``persons``, (N,), says whose row each is, of all rows that the client has; h is then that
        of the rows of a person together, at most.
        """
        h = self._of_rows(more)
        if persons is None:
            return h
        rows = np.zeros(max(len(persons), len(h)))
        rows[: len(h)] = h
        # rows that came after the column was read are persons of their own
        others = np.arange(len(rows) - len(persons)) + persons.max(initial=-1) + 1
        return np.bincount(np.concatenate([persons, others]), rows).astype(np.float64)

    def _of_rows(self, more: Sequence[Disclosed]) -> Array:
        new = self._new()
        if self._size([*new, *more]) > LARGEST:
            return by_blocks([*self._read(self._entries), *more])
        self.basis = Basis(tuple(self._entries), self.basis.span.with_sums(new))
        return self.basis.span.with_sums(more).leverages

    def _size(self, more: Sequence[Disclosed]) -> int:
        """How many numbers a basis with more vectors has at most."""
        n = max(_rows(more), len(self.basis.span.Q))
        # no more vectors are independent than there are rows, however many were disclosed
        return n * min(n, self.basis.span.rank + sum(each.number for each in more))

    def _new(self) -> list[Disclosed]:
        """What the entries disclosed that came after the basis was made."""
        keys, known = tuple(self._entries), self.basis.keys
        if keys[: len(known)] != known:  # an answer with some of them was never recorded
            self.basis, known = Basis(), ()
        return self._read(keys[len(known) :])

    def _read(self, keys: Iterable[str]) -> list[Disclosed]:
        return [each for key in keys for each in self._read_entry(self._entries[key])]

    def _read_entry(self, entry: list[list[str]]) -> Iterator[Disclosed]:
        for names in entry:
            rows, left, right, weights = (self._array(name) if name else None for name in names)
            assert rows is not None  # which have always a name
            assert left is not None
            yield Disclosed(rows.astype(np.intp), RowSum(left, right, weights))

    def _kept(self, array: Array | NDArray[np.intp]) -> str:
        """The name of a copy of an array, which many questions may have in common."""
        content = np.ascontiguousarray(array)
        name = f"{array.shape} {sha256(content.data).hexdigest()}"
        if name not in self._arrays:
            self._arrays[name] = content.copy()
        return name

    def _array(self, name: str) -> Array:
        known: Array = self._arrays[name]
        return known


def _rows(sums: Sequence[Disclosed]) -> int:
    """How many rows there are."""
    return 1 + max((int(each.rows.max(initial=-1)) for each in sums), default=-1)


def by_blocks(sums: Sequence[Disclosed]) -> Array:
    """h of every row, (n,), from Gram matrices of blocks of rows: U is never in memory whole."""
    n = _rows(sums)
    # once: what a block has to be multiplied by depends on all rows
    sums = [each.scaled() for each in sums]

    def blocks() -> Iterator[tuple[slice, Array]]:
        for first in range(0, n, BLOCK):
            last = min(first + BLOCK, n)
            parts = []
            for each in sums:
                chosen = (each.rows >= first) & (each.rows < last)
                rows = each.rows[chosen] - first
                parts.append(by_row(each.vectors(chosen), rows, last - first))
            yield slice(first, last), np.hstack(parts)

    def eigen(T: Array) -> tuple[Array, Array]:
        """The eigenvalues and eigenvectors of TᵀUᵀUT, or of DUᵀUD where T is D's diagonal."""
        gram = np.zeros((T.shape[-1], T.shape[-1]))
        for _, U in blocks():
            C = U * T if T.ndim == 1 else U @ T
            gram += C.T @ C
        sizes, V = np.linalg.eigh(gram)
        return sizes, V

    largest = np.max([np.abs(U).max(axis=0) for _, U in blocks()], axis=0)
    largest[largest == 0] = 1.0
    lengths = np.sqrt(sum(np.square(U / largest).sum(axis=0) for _, U in blocks()))
    T = 1.0 / (largest * np.maximum(lengths, 1.0))
    # A Gram matrix has half of the digits. The first one makes directions of up to 1e-6 of the
    # longest as long as the others, so that the second has the digits of those down to 1e-11.
    sizes, V = eigen(T)
    T = T[:, None] * (V / np.sqrt(np.maximum(sizes, 1e-12 * sizes.max(initial=0.0))))
    sizes, V = eigen(T)
    some = sizes > 1e-10
    T = T @ (V[:, some] / np.sqrt(sizes[some]))
    h: Array = np.zeros(n)
    for rows, U in blocks():
        h[rows] = np.square(U @ T).sum(axis=1)
    return h
