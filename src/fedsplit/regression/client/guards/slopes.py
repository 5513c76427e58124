"""What the answers at all points have told, as vectors over the rows of a client.

A gradient is Σ_i s_i a_i, a Hessian Σ_i D_i a_i a_iᵀ and a value Σ_i φ_i, where slopes s, weights D
and values φ depend on the point. A server that knows them at several points knows them for every
combination of these vectors, whatever the model was that they were told of: sums of exponentials
are taken apart by Prony's method, and the mixed difference of four gradients is that of the rows
which two conditions share. So

- the span of those of each kind obeys the rule for columns (see ``leverage``), with a limit of its
  own;
- a vector is compared with each earlier one of its kind, d = s - s', and with the combination of
  those nearest to it that equals it on most rows, or on most of those of a condition or level.
  What is told of d is Σ_i d_i a_i, and for weights Σ_i d_i a_i a_iᵀ: so the rows |d_i| a_i obey the
  same rule.

Every vector counts, however little it differs from others: float64 has 16 digits, so that a
difference of 1e-8 is known to 8 of them. Only rounding is left out.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from fedsplit import files
from fedsplit.arrays import Array
from fedsplit.errors import StateError
from fedsplit.regression.client.guards.leverage import Found, Span

KINDS = ("slopes", "weights", "values")

NOISE = 1e-13
"""The part of a difference of two numbers, relative to them, that is rounding."""

NEAREST = 24
"""A combination of so many earlier vectors is searched for: those nearest in direction."""

SOME = 1_000
"""About so many rows are enough to find such a combination."""

ZERO = 1e-6
"""A smaller share of the largest difference is none."""

HOPELESS, ALIKE = 4, 1e-2
"""After so many steps a good part of the differences is below this share of the largest one, or
never will be."""

STEPS = 10
"""Of weighted least squares, in which the least difference that counts is a tenth each time."""

MOST_PRODUCTS = 2**22
"""At most so many products of two columns are kept, (n, p²): of some rows, if there are more."""


class Slopes:
    """The vectors over all rows of a client that its answers at points have told.

    Parameters
    ----------
    folder : Path, optional
        Where each addition is a file, so that they outlive the process.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._told: dict[str, Array] = {kind: np.zeros((0, 0)) for kind in KINDS}
        self._spans = {kind: Span() for kind in KINDS}
        self._files = 0
        if folder is not None and folder.is_dir():
            for path in sorted(folder.glob("[0-9]*.npz")):
                vectors = _read(path)
                self._take(vectors, self.with_vectors(vectors))

    def with_vectors(self, vectors: Mapping[str, Array]) -> dict[str, Span]:
        """The spans with more vectors, each (n, q), by kind."""
        return {
            kind: self._spans[kind].extended(columns, np.arange(len(columns)))
            for kind, columns in vectors.items()
        }

    def earlier(self, kind: str, index: NDArray[np.intp]) -> Array:
        """The vectors of a kind at some rows, (n, q): zero where they were told of other rows."""
        told = self._told[kind]
        known = index < len(told)
        found = np.zeros((len(index), told.shape[1]))
        found[known] = told[index[known]]
        return found

    def add(self, vectors: Mapping[str, Array], spans: Mapping[str, Span]) -> None:
        """Keep vectors over all rows, each (n, q), by kind, and the spans with them.

        They are on disk before they are told.
        """
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            content = io.BytesIO()
            np.savez(content, allow_pickle=False, **vectors)
            files.write_private(self._folder / f"{self._files:06d}.npz", content.getvalue())
        self._take(vectors, spans)

    def _take(self, vectors: Mapping[str, Array], spans: Mapping[str, Span]) -> None:
        self._spans |= spans
        for kind, columns in vectors.items():
            told = self._told[kind]
            n = max(len(told), len(columns))
            both = np.zeros((n, told.shape[1] + columns.shape[1]))
            both[: len(told), : told.shape[1]] = told
            both[: len(columns), told.shape[1] :] = columns
            self._told[kind] = both
        self._files += 1


def _read(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as vectors:
            return {kind: vectors[kind] for kind in vectors.files}
    except (ValueError, EOFError, BadZipFile):
        raise StateError(
            f"{path}: this record of what was disclosed cannot be read, so that nothing is "
            "answered: restore it from a backup"
        ) from None


def by_row(columns: Sequence[Array], index: NDArray[np.intp]) -> Array:
    """Vectors over the rows of a design as columns over all rows: those of a group are added."""
    found = np.zeros((int(index.max(initial=-1)) + 1, len(columns)))
    for place, column in enumerate(columns):
        np.add.at(found[:, place], index, column)
    return found


class Differences:
    """Whether few rows carry a direction of Σ_i d_i² a_i a_iᵀ, for differences d of two vectors.

    Parameters
    ----------
    plain : Span
        That of the rows of a design, with its orthonormal columns Q.
    rare : (n, m) array
        The columns that are zero in most rows: conditions and levels.
    k, most
        Fewer than k rows may have at most this share.
    """

    def __init__(self, plain: Span, rare: Array, k: int, most: float) -> None:
        n, p = plain.Q.shape
        self._rare = rare
        self._plain = plain
        self._k = k
        self._most = most
        # if every row has at most this, no k - 1 of them have more than ``most``
        self._each = most / max(k - 1, 1)
        # a Gram matrix of some rows is a lower bound on that of all
        self._some = slice(0, n, max(1, n * p * p // MOST_PRODUCTS))
        rows = plain.Q[self._some]
        self._products = np.einsum("ij,il->ijl", rows, rows).reshape(len(rows), p * p)

    def found(self, vector: Array, earlier: Array) -> Found | None:
        """Rows that a difference of a vector, (n,), and one of the earlier, (n, q), is told of."""
        differences = _differences(vector, earlier)
        for at in self._suspects(np.square(differences)).tolist():
            found = self._carried(differences[:, at])
            if found is not None:
                return found
        nearest = _nearest(vector, earlier)
        found = self._carried(_sparsest(vector, nearest))
        for column in self._rare.T:
            if found is not None:
                break
            found = self._within(column, vector, nearest)
        return found

    def _within(self, column: Array, vector: Array, earlier: Array) -> Found | None:
        """Rows in which a vector differs from a combination, among those of one column, (n,)."""
        rows = np.flatnonzero(column)
        own = column[rows]
        squares = np.square(_sparsest(own * vector[rows], own[:, None] * earlier[rows]))
        few = np.argsort(-squares)[: self._k - 1]
        share = float(squares[few].sum() / max(squares.sum(), np.finfo(np.float64).tiny))
        if share <= self._most:
            return None
        return Found(rows[few].tolist(), share)

    def _suspects(self, squares: Array) -> NDArray[np.intp]:
        """The columns of d², (n, q), that the Gram matrices of some rows do not prove harmless."""
        p = self._plain.rank
        grams = (self._products.T @ squares[self._some]).T.reshape(-1, p, p)
        least = np.linalg.eigvalsh(grams)[:, 0]
        sizes = squares * self._plain.leverages[:, None]
        # d_i² q_iᵀG⁻¹q_i ≤ d_i² h_i/λ_min(G)
        harmless = sizes.max(axis=0) <= self._each * least
        left = np.flatnonzero(~harmless & squares.any(axis=0))
        regular = left[least[left] > NOISE * np.trace(grams[left], axis1=1, axis2=2)]
        if len(self._products) == len(squares) and len(regular):
            inverses = np.linalg.inv(grams[regular]).reshape(-1, p * p)
            leverages = squares[:, regular] * (self._products @ inverses.T)
            harmless[regular] = leverages.max(axis=0) <= self._each
        suspects: NDArray[np.intp] = left[~harmless[left]]
        return suspects

    def _carried(self, difference: Array) -> Found | None:
        """Fewer than k rows that have most of a direction of Σ_i d_i² a_i a_iᵀ."""
        if not difference.any():
            return None
        rows = np.abs(difference)[:, None] * self._plain.Q
        gram = rows.T @ rows
        least = float(np.linalg.eigvalsh(gram)[0])
        if least > NOISE * float(np.trace(gram)):
            sizes = np.square(difference) * self._plain.leverages
            large = rows[sizes > self._each * least]
            whitened = solve_triangular(np.linalg.cholesky(gram), large.T, lower=True)
            if np.square(whitened).sum(axis=0).max(initial=0.0) <= self._each:
                return None
        return Span().extended(rows, np.arange(len(rows))).concentrated(self._k, self._most)


def _some(n: int) -> slice:
    return slice(0, n, max(1, n // SOME))


def _sparsest(vector: Array, earlier: Array) -> Array:
    """A vector, (n,), less the combination of earlier ones, (n, q), that equals it on most rows.

    That is the one with the least sum of absolute differences, found by weighted least squares.
    Zero if there is no such combination.
    """
    Q = Span().extended(earlier, np.arange(len(earlier))).Q
    rest = vector - Q @ (Q.T @ vector)
    rest = rest - Q @ (Q.T @ rest)
    size = float(np.linalg.norm(rest))
    if size <= NOISE * float(np.linalg.norm(vector)):
        return np.zeros_like(vector)
    rest = rest / size
    rows = Q[_some(len(rest))]
    target = rest[_some(len(rest))]
    tiny = np.finfo(np.float64).eps
    c = np.zeros(Q.shape[1])
    for step in range(STEPS):
        left = np.abs(target - rows @ c)
        if step == HOPELESS and (left <= ALIKE * left.max()).mean() < 0.4:
            return np.zeros_like(vector)
        weights = 1.0 / np.maximum(left, 10.0**-step / len(rest))
        gram = rows.T @ (weights[:, None] * rows)
        shift = tiny * np.trace(gram) * np.eye(len(c))
        c = np.linalg.solve(gram + shift, rows.T @ (weights * target))
    sparse: Array = rest - Q @ c
    zero = np.abs(sparse) <= ZERO * np.abs(sparse).max()
    # any vector can be met on as many rows as there are others, which means nothing
    if zero.sum() - len(c) < 0.5 * len(zero):
        return np.zeros_like(vector)
    return np.where(zero, 0.0, sparse)


def _differences(vector: Array, earlier: Array) -> Array:
    """The difference of a vector, (n,), and each earlier one, (n, q), at length 1."""
    differences = vector[:, None] - earlier
    rounding = np.abs(differences) <= NOISE * (np.abs(vector)[:, None] + np.abs(earlier))
    differences[rounding] = 0.0
    sizes = np.sqrt(np.einsum("ij,ij->j", differences, differences))
    found: Array = differences / np.where(sizes > 0, sizes, 1.0)
    return found


def _nearest(vector: Array, earlier: Array) -> Array:
    """The earlier vectors, (n, q), that have the directions nearest to a vector's, (n,)."""
    sizes = np.linalg.norm(earlier, axis=0)
    cosines = np.abs(vector @ earlier) / np.where(sizes > 0, sizes, 1.0)
    nearest: Array = earlier[:, np.argsort(-cosines)[:NEAREST]]
    return nearest
