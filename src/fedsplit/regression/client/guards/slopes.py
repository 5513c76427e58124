"""What the answers at all points have told, as vectors over the rows of a client.

A gradient is Σ_i s_i a_i, a Hessian Σ_i D_i a_i a_iᵀ and a value Σ_i φ_i, where slopes s, weights D
and values φ depend on the point. A server that knows them at several points knows them for every
combination of these vectors, whatever the model was that they were told of: sums of exponentials
are taken apart by Prony's method, and the mixed difference of four gradients is that of the rows
which two conditions share. So

- the span of those of each kind obeys the rule for columns (see ``leverage``), with a limit of its
  own;
- a vector is compared with all others that multiply an a_i: slopes, weights, and what moments are
  sums of (see ``differences``).

Every vector counts, however little it differs from others: float64 has 16 digits, so that a
difference of 1e-8 is known to 8 of them. Only rounding is left out.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from fedsplit import files
from fedsplit.arrays import Array
from fedsplit.errors import StateError
from fedsplit.regression.client.guards.leverage import Span

POINTS = ("slopes", "weights", "values")

MOMENTS = "moments"
"""What multiplies a_i in sums that are told of a model as such: its rule is that of columns."""

KINDS = (*POINTS, MOMENTS)


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
        self._spans = {kind: Span() for kind in POINTS}
        self._known: set[str] = set()
        self._files = 0
        if folder is not None and folder.is_dir():
            for path in _numbered(folder):
                vectors = _read(path)
                self._take(vectors, self.with_vectors(vectors))

    def with_vectors(self, vectors: Mapping[str, Array]) -> dict[str, Span]:
        """The spans with more vectors at points, each (n, q), by kind."""
        return {
            kind: self._spans[kind].extended(columns, np.arange(len(columns)))
            for kind, columns in vectors.items()
            if kind in POINTS
        }

    def earlier(self, index: NDArray[np.intp]) -> Array:
        """All that multiplies an a_i, at some rows, (n, q): zero where it is told of others."""
        return np.column_stack(
            [_at(self._told[kind], index) for kind in ("slopes", "weights", MOMENTS)]
        )

    @property
    def points(self) -> bool:
        """Whether something was told at a point."""
        return any(self._told[kind].size for kind in POINTS)

    def has(self, vectors: Mapping[str, Array]) -> bool:
        """Whether all of these vectors are kept already."""
        return not any(self._new(kind, columns).size for kind, columns in vectors.items())

    def add(self, vectors: Mapping[str, Array], spans: Mapping[str, Span]) -> None:
        """Keep vectors over all rows, each (n, q), by kind, and the spans with them.

        They are on disk before they are told. The same ones are not kept again.
        """
        new = {kind: self._new(kind, columns) for kind, columns in vectors.items()}
        new = {kind: columns for kind, columns in new.items() if columns.shape[1]}
        if not new:
            return
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            content = io.BytesIO()
            np.savez(content, allow_pickle=False, **new)
            files.write_private(self._folder / _name(self._files), content.getvalue())
        self._take(new, spans)

    def _new(self, kind: str, columns: Array) -> Array:
        """Those of some vectors, (n, q), that are not kept yet."""
        digests = [_digest(kind, column) for column in columns.T]
        chosen = [
            at
            for at, digest in enumerate(digests)
            if digest not in self._known and digest not in digests[:at]
        ]
        return columns[:, chosen]

    def _take(self, vectors: Mapping[str, Array], spans: Mapping[str, Span]) -> None:
        self._spans |= spans
        for kind, columns in vectors.items():
            told = self._told[kind]
            n = max(len(told), len(columns))
            both = np.zeros((n, told.shape[1] + columns.shape[1]))
            both[: len(told), : told.shape[1]] = told
            both[: len(columns), told.shape[1] :] = columns
            self._told[kind] = both
            self._known |= {_digest(kind, column) for column in columns.T}
        self._files += 1


def _at(told: Array, index: NDArray[np.intp]) -> Array:
    """The rows of vectors with an index, (n, q); zero where there are none."""
    found = np.zeros((len(index), told.shape[1]))
    known = index < len(told)
    found[known] = told[index[known]]
    return found


def _digest(kind: str, column: Array) -> str:
    return sha256(kind.encode() + np.trim_zeros(column, "b").tobytes()).hexdigest()


def _name(number: int) -> str:
    return f"{number:06d}.npz"


def _numbered(folder: Path) -> list[Path]:
    """The files of a folder, each of which has the next number."""
    paths = sorted(folder.glob("[0-9]*.npz"))
    for number, path in enumerate(paths):
        if path.name != _name(number):
            raise StateError(
                f"{folder / _name(number)}: this record of what was disclosed is missing, so that "
                "nothing is answered: restore it from a backup"
            )
    return paths


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
