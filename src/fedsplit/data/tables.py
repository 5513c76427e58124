"""A client's data: named columns, of which only those that are asked for are read."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeAlias

import numpy as np
import pandas as pd

from fedsplit.arrays import Mask
from fedsplit.data.types import PLAIN, ColumnProfile, Reading, Type
from fedsplit.errors import InputError
from fedsplit.files import Stamp

Values: TypeAlias = Any
"""A column, an (n,) array or a categorical of pandas."""

DTYPES: Mapping[Type, type] = {
    "number": np.float64,
    "boolean": np.float64,
    "date": np.float64,
    "text": np.object_,
}
"""What the values of each type are in a frame."""


class Source(ABC):
    """One client's data.

    ``name`` is the client's: that of a file without its suffix, or as the user gave it. ``where``
    is what error messages call the data, usually the path of their file.
    """

    def __init__(
        self, name: str, where: str, path: Path | None = None, reading: Reading = PLAIN
    ) -> None:
        self.name = name
        self.where = where
        self.path = path
        self.reading = reading

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all columns in the table's order, as the user renames them."""

    @abstractmethod
    def columns(self, names: Iterable[str] | None = None) -> dict[str, ColumnProfile | None]:
        """Return what columns can be read as, in the table's order; by default all.

        Those that are not there are left out. None is for a column that cannot be read at all,
        such as one of lists.
        """

    @abstractmethod
    def take(self, wanted: Mapping[str, Type]) -> dict[str, Values]:
        """Read some columns, none of them one that cannot be read.

        A boolean can be read as the number 0 or 1, and everything as text: in the form of a level
        where the table has types, else as it is written.

        Numbers, booleans (0 and 1) and dates (days since 1970-01-01 UTC) are float64, NaN where
        missing. Text is objects, trimmed ``str`` and None where missing, or a categorical of such
        texts where the table has an order of them.

        A value that cannot be read as what is wanted raises RowError; a column that is absent, or
        has an infinite number, InputError.
        """

    def read(self, wanted: Mapping[str, Type]) -> pd.DataFrame:
        """Read these columns as a frame, in this order."""
        return to_frame(self.take(wanted))

    def notes(self) -> Sequence[str]:
        """Return what a user should know of how the data are read."""
        return ()

    def release(self) -> None:  # noqa: B027  # nothing, unless several clients have one table
        """Let go of columns that stay in memory for other clients of the same table."""


class Column(Protocol):
    """A column in memory, as its table has it."""

    def profile(self, reading: Reading) -> ColumnProfile | None:
        """Return what its values can be read as; None if they cannot be read at all."""
        ...

    def offers(self, kind: Type) -> bool:
        """Return whether the values can be had as this type, or have to be loaded for it."""
        ...

    def values(self, where: str, name: str, kind: Type, reading: Reading) -> Values:
        """Return the values as ``Source.take`` does; messages call them by table and column."""
        ...


class Table(Source):
    """Data whose columns are loaded one by one.

    A column that was looked at stays in memory until it is taken, which usually follows, or until
    its file has changed. What columns can be read as is remembered.
    """

    def __init__(
        self, name: str, where: str, path: Path | None = None, reading: Reading = PLAIN
    ) -> None:
        super().__init__(name, where, path, reading)
        self._in_file: dict[str, str] | None = None
        self._profiles: dict[str, ColumnProfile | None] = {}
        self._loaded: dict[str, Column] = {}
        self._stamp: Stamp | None = None

    @abstractmethod
    def _names(self) -> Sequence[str]:
        """Return the names of all columns in the table's order, as it has them."""

    @abstractmethod
    def _load(self, wanted: Mapping[str, Type | None]) -> Mapping[str, Column]:
        """Read columns, each to be taken as a type, or None to see what it can be read as.

        Others may be among what is returned, if reading them costs nothing.
        """

    def names(self) -> list[str]:
        return list(self._own_names())

    def columns(self, names: Iterable[str] | None = None) -> dict[str, ColumnProfile | None]:
        own = self._own_names()
        chosen = own.keys() if names is None else set(names)
        asked = [name for name in own if name in chosen]
        lacking = {name: None for name in asked if name not in self._profiles}
        if lacking:
            for name, column in self._columns(lacking).items():
                self._profiles[name] = column.profile(self.reading)
        return {name: self._profiles[name] for name in asked}

    def take(self, wanted: Mapping[str, Type]) -> dict[str, Values]:
        self._check(wanted)
        columns = self._columns(wanted)
        self._loaded = {}  # not to be held in memory beside what is made of it
        taken = {}
        for name, kind in wanted.items():
            values = columns.pop(name).values(self.where, name, kind, self.reading)
            infinite = kind != "text" and np.isinf(values)
            if np.any(infinite):
                place = f"column {name!r}, row {np.argmax(infinite) + 1}"
                fail(self.where, f"{place}: the number is infinite, correct it")
            taken[name] = values
        return taken

    def _check(self, names: Collection[str]) -> None:
        """Raise InputError if a column is absent, or cannot be read."""
        present = self._own_names()
        profiles = self.columns(names)
        for name in names:
            if name not in present:
                similar = difflib.get_close_matches(name, present, n=1)
                hint = f", did you mean {similar[0]!r}?" if similar else ","
                there = ", ".join(present)
                fail(self.where, f"there is no column {name!r}{hint} there are {there}")
            if profiles[name] is None:
                what = "nested, or of a type that is neither number, boolean, text nor date"
                fail(self.where, f"column {name!r} is {what}: convert it")

    def _own_names(self) -> Mapping[str, str]:
        """Return the table's own name of each column, by the name that the user gives it."""
        if self._in_file is None:
            names = list(self._names())
            check_names(self.where, names)
            rename = self.reading.rename
            if absent := [name for name in rename if name not in names]:
                fail(self.where, f"rename: there is no column {absent[0]!r} in the file")
            renamed = [rename.get(name, name) for name in names]
            check_names(self.where, renamed)
            self._in_file = dict(zip(renamed, names, strict=True))
        return self._in_file

    def _columns(self, wanted: Mapping[str, Type | None]) -> dict[str, Column]:
        """Return columns from memory, or else from the file."""
        stamp = self._stamp_now()
        if stamp != self._stamp:
            self._loaded = {}
        own = self._own_names()
        lacking: dict[str, Type | None] = {}
        for name, kind in wanted.items():
            column = self._loaded.get(own[name])
            if column is None or not (kind is None or column.offers(kind)):
                lacking[own[name]] = kind
        if lacking:
            self._loaded.update(self._load(lacking))
            if self._stamp_now() != stamp:
                fail(self.where, "the file was changed while it was read: wait until it is written")
        self._stamp = stamp
        return {name: self._loaded[own[name]] for name in wanted}

    def _stamp_now(self) -> Stamp | None:
        """Return the state of the file on the disk."""
        try:
            return None if self.path is None else Stamp.of(self.path)
        except OSError as error:
            fail(self.where, error.strerror or error)


def fail(where: str, reason: object) -> NoReturn:
    """Raise InputError with a message of one line."""
    raise InputError(one_line(where, reason)) from None


def one_line(where: str, reason: object) -> str:
    """Return a message of one line, which begins with what it is about."""
    longest = 250  # DuckDB's reasons can be pages long
    line = " ".join(str(reason).split())
    if len(line) > longest:
        line = line[: longest - 1] + "…"
    return f"{' '.join(where.split())}: {line}"


def check_names(where: str, names: Sequence[str]) -> None:
    """Raise InputError unless there are columns, each with a name of its own."""
    if not names:
        fail(where, "it has no columns")
    if "" in names:
        fail(where, f"column {names.index('') + 1} of {len(names)} has no name: name it")
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        fail(where, f"{count} columns are named {name!r}: rename all but one")


def is_missing(values: Values) -> Mask:
    """Return which values of a column, (n,), are missing: of numbers, or of a categorical."""
    missing: Mask = values.codes < 0 if isinstance(values, pd.Categorical) else np.isnan(values)
    return missing


def to_frame(columns: Mapping[str, Values]) -> pd.DataFrame:
    """Return columns as a frame without copying them."""
    # Made once, not for every column.
    index = pd.RangeIndex(max(map(len, columns.values()), default=0))
    numbered: dict[int, Any] = dict(enumerate(columns.values()))
    for place, values in numbered.items():
        if values.dtype == object:  # which pandas would convert to its own strings
            numbered[place] = pd.Series(values, index, dtype=object, copy=False)
    frame = pd.DataFrame(numbered, index, copy=False)
    frame.columns = _index_of(tuple(columns))
    return frame


@lru_cache(maxsize=256)
def _index_of(names: tuple[str, ...]) -> pd.Index:
    """Return the names of columns, which small clients mostly share, for pandas."""
    return pd.Index(names, dtype=object)
