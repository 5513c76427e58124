"""Which rows of two tables are the same, by keyed hashes of their values.

Without the key, which never leaves its folder, the hashes of likely values cannot be tried. The
hash of a row in some columns is the sum of those of its cells, modulo 2^64.

A row is the same as an earlier one also if a value was corrected, or if a column such as the time
of an export is another in every row: the sums of all other columns are about the same people. So
rows are compared in all columns, in all but one, and in each column that nearly identifies them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsplit.data.tables import Source

Hashes: TypeAlias = NDArray[np.uint64]
"""Of cells, (n, p), or of rows, (n,)."""


class Change(NamedTuple):
    """How one table differs from an earlier one.

    Attributes
    ----------
    came, gone : int
        Rows. One that was corrected has gone and come.
    """

    came: int
    gone: int

    def allowed(self, smallest: int) -> bool:
        """Whether the difference of sums discloses nothing of fewer rows than this."""
        if self == Change(0, 0):
            return True
        return self.came >= smallest and (self.gone == 0 or self.gone >= smallest)

    def __str__(self) -> str:
        rows = "rows"
        if self.came == 1:
            rows = "row"
        return f"{self.came} {rows} added, {self.gone} removed"


def column_names(source: Source) -> list[str]:
    """The columns that can be read, sorted."""
    return sorted(name for name, fit in source.columns().items() if fit is not None)


def cell_hashes(source: Source, columns: Sequence[str], key: bytes) -> Hashes:
    """The hash of each value, (n, p), whatever the format that it is written in."""
    frame = source.read(dict.fromkeys(columns, "text"))
    found = np.empty((len(frame), len(columns)), dtype=np.uint64)
    for j, name in enumerate(columns):
        codes, distinct = pd.factorize(frame[name])
        # the last form is that of a missing value, whatever stands for it in the file
        forms = [*map(_canonical, map(str, distinct)), "\x00"]  # whose code is -1
        start = blake2b(f"{name}\x1f".encode(), key=key, digest_size=8)
        found[:, j] = np.array([_digest(start.copy(), form) for form in forms], np.uint64)[codes]
    return found


def views(old: Hashes, new: Hashes) -> Iterator[tuple[Hashes, Hashes]]:
    """The hashes of the rows of two tables, in each set of columns in which they are compared.

    Parameters
    ----------
    old, new : (n, p) and (m, p) arrays
        Of the cells in the columns that both have. The first set is all of them.
    """
    whole = _sums(old), _sums(new)
    yield whole
    # columns identify rows if they have nearly as many distinct values as all together
    needed = [0.9 * len(pd.unique(each)) for each in whole]
    # a column that has kept fewer of its values does not say which rows are the same
    kept = [j for j in range(old.shape[1]) if _overlap(old[:, j], new[:, j]) >= 0.5]
    stable = _sums(old[:, kept]), _sums(new[:, kept])
    without_one = ((stable[0] - old[:, j], stable[1] - new[:, j]) for j in kept)
    alone = ((old[:, j], new[:, j]) for j in kept)
    for each in chain([stable], without_one, alone):
        if all(len(pd.unique(rows)) >= least for rows, least in zip(each, needed, strict=True)):
            yield each


def change(old: Hashes, new: Hashes) -> Change:
    """How many rows came and went."""
    places, values = pd.factorize(np.concatenate([old, new]))
    counts = [np.bincount(each, minlength=len(values)) for each in np.split(places, [len(old)])]
    more = counts[1] - counts[0]
    return Change(int(more[more > 0].sum()), -int(more[more < 0].sum()))


def matched(ids: NDArray[np.intp], new: Hashes, old: Hashes, known: NDArray[np.intp]) -> None:
    """Give rows without a number, -1, that of the same row of an earlier table, in place.

    Parameters
    ----------
    ids : (n,) array of int
        The numbers of the rows of the new table.
    new, old : arrays
        Hashes of the rows of both.
    known : (m,) array of int
        The numbers of the rows of the earlier one.
    """
    places = np.flatnonzero(ids < 0)
    free = np.flatnonzero(~np.isin(known, ids))
    there = pd.DataFrame({"row": new[places], "place": places})
    here = pd.DataFrame({"row": old[free], "number": known[free]})
    for each in (there, here):  # equal rows are paired in their order
        each["nth"] = each.groupby("row").cumcount()
    found = there.merge(here, on=["row", "nth"])
    ids[found["place"]] = found["number"]


def _sums(cells: Hashes) -> Hashes:
    rows: Hashes = cells.sum(axis=1, dtype=np.uint64)
    return rows


def _overlap(old: Hashes, new: Hashes) -> float:
    """Of the values of a column in the smaller table, the share that both have."""
    gone = change(old, new).gone
    return (len(old) - gone) / max(1, min(len(old), len(new)))


def _digest(start: blake2b, text: str) -> int:
    start.update(text.encode())
    return int.from_bytes(start.digest(), "little")


def _canonical(text: str) -> str:
    """A number in one form, so that a file that is written anew has the same rows."""
    try:
        return repr(float(text))
    except ValueError:
        return text
