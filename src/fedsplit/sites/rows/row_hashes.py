"""Which rows of two tables are the same, by keyed hashes of their values.

Without the key, which never leaves its folder, the hashes of likely values cannot be tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsplit.data.sources.client_data import Source

DIGEST_BYTES = 16

MISSING = "\x00"
"""In the place of a missing value, whatever stands for it in the file."""


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
        if self == UNCHANGED:
            return True
        return self.came >= smallest and (self.gone == 0 or self.gone >= smallest)

    def __str__(self) -> str:
        rows = "1 row" if self.came == 1 else f"{self.came} rows"
        return f"{rows} came, {self.gone} went"


UNCHANGED = Change(0, 0)


def column_names(source: Source) -> list[str]:
    """The columns that can be read, sorted."""
    return sorted(name for name, fit in source.columns().items() if fit is not None)


def row_hashes(source: Source, columns: Sequence[str], key: bytes) -> NDArray[np.uint8]:
    """The hash of each row, (n, 16), of its values in some columns, whatever their format."""
    frame = source.read(dict.fromkeys(columns, "text"))
    start = blake2b("\x1e".join(columns).encode(), key=key, digest_size=DIGEST_BYTES)
    digests = bytearray()
    for row in zip(*(_texts(frame[name]) for name in columns), strict=True):
        digest = start.copy()
        digest.update("\x1f".join(row).encode())
        digests += digest.digest()
    return np.frombuffer(bytes(digests), dtype=np.uint8).reshape(-1, DIGEST_BYTES)


def change(old: NDArray[np.uint8], new: NDArray[np.uint8]) -> Change:
    """How many rows came and went."""
    before = Counter(_keys(old))
    after = Counter(_keys(new))
    return Change((after - before).total(), (before - after).total())


def matched(
    ids: NDArray[np.intp], new: NDArray[np.uint8], old: NDArray[np.uint8], known: NDArray[np.intp]
) -> None:
    """Give rows without a number, -1, that of the same row of an earlier table, in place.

    Parameters
    ----------
    ids : (n,) array of int
        The numbers of the rows of the new table.
    new, old : arrays of uint8
        Hashes of the rows of both.
    known : (m,) array of int
        The numbers of the rows of the earlier one.
    """
    taken = set(ids.tolist())
    free: dict[bytes, list[int]] = {}
    for digest, number in zip(_keys(old), known.tolist(), strict=True):
        if number not in taken:
            free.setdefault(digest, []).append(number)
    for place, digest in enumerate(_keys(new)):
        if ids[place] < 0 and free.get(digest):
            ids[place] = free[digest].pop(0)


def _keys(hashes: NDArray[np.uint8]) -> list[bytes]:
    content = hashes.tobytes()
    return [content[at : at + DIGEST_BYTES] for at in range(0, len(content), DIGEST_BYTES)]


def _texts(values: pd.Series) -> list[str]:
    """The values in one form, so that a file that is written anew has the same rows."""
    codes, distinct = pd.factorize(values)
    forms: Any = np.array([*map(_canonical, map(str, distinct)), MISSING], dtype=object)
    return list(forms[codes])  # the code of a missing value is -1


def _canonical(text: str) -> str:
    try:
        return repr(float(text))
    except ValueError:
        return text
