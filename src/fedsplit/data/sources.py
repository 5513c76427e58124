"""Who the clients are: what a user names, as one source of data a client."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from fedsplit.data.frames import FrameTable
from fedsplit.data.paths import READERS, paths, suffix
from fedsplit.data.queries import QueryTable
from fedsplit.data.table import Table, check_file, fail
from fedsplit.errors import InputError


class Source(Protocol):
    """One client's data."""

    @property
    def name(self) -> str:
        """The client's name: a file's name without its ending, a group's value, or a key."""
        ...

    def columns(self) -> dict[str, str]:
        """Each column's kind: number, boolean, text, date or other."""
        ...

    def read(self, columns: Sequence[str]) -> pd.DataFrame:
        """These columns, in this order: numbers and booleans (0 and 1) as float64, text and dates as str.

        Missing is NaN, or None. An infinite number is refused.
        """
        ...


@dataclass
class TableSource:
    """One table as one client."""

    name: str
    where: str
    table: Table

    def columns(self) -> dict[str, str]:
        return dict(self._kinds)

    def read(self, columns: Sequence[str]) -> pd.DataFrame:
        wanted = {column: self.kind(column) for column in columns}
        frame = self.table.take(wanted)
        for column, kind in wanted.items():
            if kind == "number" and (infinite := np.isinf(frame[column].to_numpy())).any():
                fail(
                    self.where,
                    f"column {column!r}, row {infinite.argmax() + 1}: the number is infinite, correct it",
                )
        return frame

    def kind(self, column: str) -> str:
        """The kind of a column that is there and can be read."""
        if column not in self._kinds:
            near = difflib.get_close_matches(column, self._kinds, n=1)
            hint = f", did you mean {near[0]!r}?" if near else ","
            fail(
                self.where,
                f"there is no column {column!r}{hint} there are {', '.join(self._kinds)}",
            )
        if (kind := self._kinds[column]) == "other":
            fail(
                self.where,
                f"column {column!r} is nested, mixed or of a type that is not number, text or date: convert it",
            )
        return kind

    def labels(self, column: str) -> np.ndarray[Any, Any]:
        """A column as text, whatever its kind."""
        self.kind(column)
        values: np.ndarray[Any, Any] = self.table.take({column: "text"})[column].to_numpy()
        return values

    @cached_property
    def _kinds(self) -> dict[str, str]:
        return self.table.kinds()


@dataclass
class Split:
    """One table that several clients share; the columns that were read last are kept for the next client."""

    source: TableSource
    length: int
    last: tuple[list[str], pd.DataFrame] | None = None

    def read(self, columns: Sequence[str], rows: np.ndarray[Any, Any]) -> pd.DataFrame:
        """Some rows of some columns."""
        if self.last is None or self.last[0] != list(columns):
            frame = self.source.read(columns)
            if len(frame) != self.length:
                fail(self.source.where, "the file has changed since it was first read: start again")
            self.last = list(columns), frame
        return self.last[1].iloc[rows].reset_index(drop=True)


@dataclass
class GroupSource:
    """The rows of a shared table that have one value in its group column."""

    name: str
    split: Split = field(repr=False)
    rows: np.ndarray[Any, Any] = field(repr=False)

    def columns(self) -> dict[str, str]:
        return self.split.source.columns()

    def read(self, columns: Sequence[str]) -> pd.DataFrame:
        return self.split.read(columns, self.rows)


def sources(data: object, group: str | None = None) -> list[Source]:
    """One source a client, from what the user names.

    Parameters
    ----------
    data
        A file, a folder, a glob pattern, a TOML file with a table ``[clients.NAME]`` of a ``path`` or a ``query`` each,
        a DataFrame, a list of these, or a dict from names to files and DataFrames.
    group
        A column of the one file or DataFrame, each of whose values is a client.
    """
    found = list(_gather(data))
    if not found:
        raise InputError("there is no client: name a file, a folder or a DataFrame")
    if group is not None:
        if len(found) > 1:
            raise InputError(
                f"group {group!r} splits one file or DataFrame, there are {len(found)}: name one"
            )
        return list(_split(found[0], group))
    seen: dict[str, str] = {}
    for source in found:
        if source.name in seen:
            raise InputError(
                f"two clients are named {source.name!r}, {seen[source.name]} and {source.where}: "
                "rename one, or give each a name in a TOML file or a dict"
            )
        seen[source.name] = source.where
    return list(found)


def _gather(data: object) -> Iterator[TableSource]:
    if isinstance(data, Mapping):
        for name, item in data.items():
            if not isinstance(name, str) or not name:
                raise InputError(f"a client's name must be text, not {name!r}")
            yield _named(name, item)
    elif isinstance(data, list | tuple):
        for i, item in enumerate(data):
            yield from (
                [_named(f"client {i}", item)] if isinstance(item, pd.DataFrame) else _gather(item)
            )
    elif isinstance(data, pd.DataFrame):
        yield _named("client 0", data)
    elif isinstance(data, str | os.PathLike):
        for path in paths(data):
            yield from _toml(path) if path.suffix.lower() == ".toml" else [_file(path)]
    else:
        raise InputError(
            f"data must be a file, a folder, a DataFrame, or a list or dict of these, not {type(data).__name__}"
        )


def _named(name: str, item: object, folder: Path | None = None) -> TableSource:
    """A frame or one file, under this name."""
    if isinstance(item, pd.DataFrame):
        return TableSource(name, name, FrameTable(name, item))
    if not isinstance(item, str | os.PathLike):
        raise InputError(f"{name}: expected a file or a DataFrame, not {type(item).__name__}")
    found = paths(item, folder)
    if len(found) != 1:
        raise InputError(f"{name}: {os.fspath(item)} is {len(found)} files, name one a client")
    return _file(found[0], name)


def _file(path: Path, name: str | None = None) -> TableSource:
    end = suffix(path)
    if end is None:
        fail(
            str(path),
            f"this kind of file cannot be read, its name must end in one of {', '.join(READERS)}",
        )
    stem = path.name[: -len(end)]
    where = str(path) if name in (None, stem) else f"{name} ({path})"
    return TableSource(name or stem, where, READERS[end](where, path.absolute()))


def _toml(path: Path) -> Iterator[TableSource]:
    """The clients of a TOML file, one for each table ``[clients.NAME]``."""
    where = str(path)
    check_file(where, path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        fail(where, error.strerror or error)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        fail(where, f"is not TOML: {error}")
    clients = content.get("clients")
    if not isinstance(clients, dict) or not clients:
        fail(
            where,
            'there is no client: write [clients.NAME] and below it path = "FILE" or query = "SELECT …"',
        )
    if unknown := sorted(content.keys() - {"clients"}):
        fail(where, f"unknown key {unknown[0]!r}: only [clients.NAME] is read")
    for name, entry in clients.items():
        yield _entry(path, name, entry)


def _entry(path: Path, name: str, entry: object) -> TableSource:
    where = f"{path}, client {name}"
    if not name or not isinstance(entry, dict):
        fail(where, 'write [clients.NAME] and below it path = "FILE" or query = "SELECT …"')
    if unknown := sorted(entry.keys() - {"path", "query"}):
        fail(where, f"unknown key {unknown[0]!r}: a client has path or query")
    if len(entry) != 1:
        fail(
            where,
            "a client has either path or query, this one has " + ("both" if entry else "neither"),
        )
    [(key, value)] = entry.items()
    if not isinstance(value, str) or not value.strip():
        fail(where, f"{key} must be text in quotes, not {value!r}")
    if key == "query":
        return TableSource(name, where, QueryTable(where, value, path.absolute().parent))
    return _named(name, value, path.parent)


def _split(source: TableSource, group: str) -> Iterator[GroupSource]:
    """One client a value of the column, in order: of numbers where they are numbers, else of text."""
    labels = source.labels(group)
    missing = sum(label is None for label in labels)
    if missing:
        fail(
            source.where,
            f"{missing} of {len(labels)} rows have no {group!r}: fill them, or leave them out",
        )
    if not len(labels):
        fail(source.where, "there is no row to split into clients")
    codes, names = pd.factorize(labels)
    rows = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
    ordered = float if source.kind(group) == "number" else str
    shared = Split(source, len(labels))
    for j in sorted(range(len(names)), key=lambda j: ordered(names[j])):
        yield GroupSource(names[j], shared, rows[j])
