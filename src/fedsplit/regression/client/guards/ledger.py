"""Everything that a client has disclosed of its rows: which sums, and what can rest on one row."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsplit import files
from fedsplit.arrays import Array
from fedsplit.errors import StateError
from fedsplit.regression.client.guards.leverage import Span, by_row, of_size_one

HIGH = 0.9
"""A leverage above this is reported: a yes or no of the row is guessed with more than 93 %."""

LARGEST = 2**25
"""Numbers in a basis of all disclosed vectors; with more, leverages are computed by blocks."""

BLOCK = 2**13
"""Rows of a block."""

SHORTEST = 1e-8
"""By blocks, directions that are shorter, relative to the longest, are left out; the leverages of
the others are within 1e-4."""


class RowSum(NamedTuple):
    """Sums over rows that are disclosed: Σ_i w_ik, Σ_i w_ik l_ij, or Σ_i w_ik l_ij r_im.

    Attributes
    ----------
    rows : (n,) array of int
        The numbers of the rows; one that comes twice has two terms.
    weights : (n, k) array
    left : (n, p) array or None
    symmetric : bool
        Whether products of every two columns of ``left`` are summed.
    """

    rows: NDArray[np.intp]
    weights: Array
    left: Array | None = None
    symmetric: bool = False

    @property
    def number(self) -> int:
        """How many sums these are."""
        k = int(self.weights.shape[1])
        p = 1 if self.left is None else int(self.left.shape[1])
        return k * p * (p + 1) // 2 if self.symmetric else k * p

    def vectors(self, chosen: NDArray[np.bool_] | slice = slice(None)) -> Array:
        """The vectors whose sums these are, at some rows, (m, number), by powers of two."""
        found = of_size_one(self.weights)[chosen]
        if self.left is None:
            return found
        left = of_size_one(self.left)[chosen]
        factors = left
        if self.symmetric:
            first, second = np.triu_indices(left.shape[1])
            factors = left[:, first] * left[:, second]
        products: Array = np.einsum("ik,ij->ikj", found, factors).reshape(len(found), -1)
        return products


class DisclosureLedger:
    """The vectors over a client's rows whose sums were disclosed, by question.

    Parameters
    ----------
    folder : Path, optional
        Where they are kept, so that they outlive the process: a numbered file for each question,
        and the arrays by the hashes of their contents.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._arrays: dict[str, Any] = {}
        self._entries: dict[str, list[list[str | bool]]] = {}
        self._tags: dict[str, list[str]] = {}
        # The basis of the first so many entries.
        self._basis: tuple[int, Span] = 0, Span()
        if folder is not None and folder.is_dir():
            for number in range(len(list(folder.glob("*.json")))):
                self._read(folder / _name(number))

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def tags(self) -> set[str]:
        """What questions counted as."""
        return {tag for tags in self._tags.values() for tag in tags}

    def count(self, tag: str) -> int:
        """How many questions of a kind there were."""
        return sum(tag in tags for tags in self._tags.values())

    def add(self, key: str, sums: Sequence[RowSum], tags: Sequence[str] = ()) -> None:
        """Record what is about to be disclosed; the same question is recorded once.

        Parameters
        ----------
        key : str
            Fingerprint of the question and the rows.
        sums : sequence of RowSum
        tags : sequence of str
            What the question counts as.
        """
        if key in self:
            return
        entry: list[list[str | bool]] = [
            [
                self._kept(each.rows),
                self._kept(each.weights),
                "" if each.left is None else self._kept(each.left),
                each.symmetric,
            ]
            for each in sums
        ]
        if self._folder is not None:
            # what cannot be written is not remembered either: it is not disclosed
            about = json.dumps({"key": key, "sums": entry, "tags": list(tags)})
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.write_private(self._folder / _name(len(self)), about)
        self._entries[key] = entry
        self._tags[key] = list(tags)

    def in_words(self) -> str:
        """The leverages for the owner; empty where they take long."""
        sums = [each for entry in self._entries.values() for each in self._sums(entry)]
        if _numbers(sums) > LARGEST:
            return ""
        h = self.leverages()
        return (
            f"of {len(h)} rows {int((h > HIGH).sum())} have a leverage above {HIGH:g} in all that "
            f"was disclosed (largest {h.max(initial=0.0):.4f}): who keeps the answers could "
            "compute numbers that rest on one of them"
        )

    def leverages(self, more: Sequence[RowSum] = ()) -> Array:
        """h of every row, (n,); with ``more``, as if that were disclosed too."""
        sums = [each for entry in self._entries.values() for each in self._sums(entry)]
        if _numbers([*sums, *more]) > LARGEST:
            return by_blocks([*sums, *more])
        known, span = self._basis
        for entry in list(self._entries.values())[known:]:
            for each in self._sums(entry):
                span = span.extended(each.vectors(), each.rows)
        self._basis = len(self), span
        for each in more:
            span = span.extended(each.vectors(), each.rows)
        return span.leverages

    def _sums(self, entry: list[list[str | bool]]) -> Iterator[RowSum]:
        for rows, weights, left, symmetric in entry:
            factors = self._array(str(left)) if left else None
            numbers = self._array(str(rows)).astype(np.intp)
            yield RowSum(numbers, self._array(str(weights)), factors, bool(symmetric))

    def _kept(self, array: Array | NDArray[np.intp]) -> str:
        """The name of an array, which is kept under it."""
        content = io.BytesIO()
        np.save(content, np.ascontiguousarray(array), allow_pickle=False)
        name = sha256(content.getvalue()).hexdigest()
        if self._folder is None:
            if name not in self._arrays:
                self._arrays[name] = array.astype(array.dtype)
            return name
        path = self._folder / f"{name}.npy"
        if not path.exists():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.write_private(path, content.getvalue())
        return name

    def _array(self, name: str) -> Array:
        if self._folder is None:
            known: Array = self._arrays[name]
            return known
        path = self._folder / f"{name}.npy"
        try:
            content = path.read_bytes()
            if sha256(content).hexdigest() != name:
                raise ValueError
        except (OSError, ValueError):
            raise _damaged(path) from None
        found: Array = np.load(io.BytesIO(content), allow_pickle=False)
        return found

    def _read(self, path: Path) -> None:
        """Read a file that keeps what a question disclosed; a part of it would be an amnesty."""
        try:
            about = json.loads(path.read_bytes())
            key, sums, tags = about["key"], about["sums"], about["tags"]
        except (OSError, ValueError, KeyError, TypeError):
            raise _damaged(path) from None
        self._entries[key] = sums
        self._tags[key] = tags


def _rows(sums: Sequence[RowSum]) -> int:
    """How many rows there are."""
    return 1 + max((int(each.rows.max(initial=-1)) for each in sums), default=-1)


def _numbers(sums: Sequence[RowSum]) -> int:
    """How many numbers the vectors of all sums have."""
    return _rows(sums) * sum(each.number for each in sums)


def by_blocks(sums: Sequence[RowSum]) -> Array:
    """h of every row, (n,), from the R of a QR by blocks of rows: U is never in memory whole."""
    n = _rows(sums)

    def blocks() -> Iterator[tuple[slice, Array]]:
        for first in range(0, n, BLOCK):
            last = min(first + BLOCK, n)
            parts = []
            for each in sums:
                chosen = (each.rows >= first) & (each.rows < last)
                rows = each.rows[chosen] - first
                parts.append(by_row(each.vectors(chosen), rows, last - first))
            yield slice(first, last), np.hstack(parts)

    R: Array = np.zeros((0, sum(each.number for each in sums)))
    for _, U in blocks():
        R = np.asarray(np.linalg.qr(np.vstack([R, U]), mode="r"))
    lengths = np.linalg.norm(R, axis=0)
    lengths[lengths == 0] = 1.0
    _, sizes, V = np.linalg.svd(R / lengths)
    some = sizes > SHORTEST * sizes.max(initial=0.0)
    whiten = V[: len(sizes)][some].T / sizes[some] / lengths[:, None]
    h: Array = np.zeros(n)
    for rows, U in blocks():
        h[rows] = np.square(U @ whiten).sum(axis=1)
    return h


def _name(number: int) -> str:
    return f"{number:06d}.json"


def _damaged(path: Path) -> StateError:
    return StateError(
        f"{path}: this record of what was disclosed is missing or cannot be read, so that nothing "
        "is answered: restore it from a backup"
    )
