"""The clients that a user's data names: files, folders, frames, and TOML files that list clients.

In a list there is one table ``[clients.NAME]`` for each, with a ``path`` or a ``query``, and with
how its data are read where that differs from the others. A table ``[types]`` says what columns are
read as, and ``[reading]`` how all files are read.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsplit.data.files.formats import READERS, open_table, suffix_of
from fedsplit.data.files.opening import is_toml, read_toml
from fedsplit.data.files.sql import QueryTable
from fedsplit.data.frames import FrameTable, as_pandas
from fedsplit.data.tables import Source, Values, fail
from fedsplit.data.types import PLAIN, ColumnProfile, Reading, Type
from fedsplit.errors import InputError


class SharedTable:
    """A table of a number of rows, which belong to several clients, with notes on how it was split.

    The columns read last stay in memory, because all clients read the same ones in turn.
    """

    def __init__(self, table: Source, length: int, notes: Sequence[str]) -> None:
        self.table = table
        self.notes = notes
        self._length = length
        self._last: tuple[dict[str, Type], dict[str, Values]] | None = None

    def take(self, wanted: Mapping[str, Type], rows: NDArray[np.intp]) -> dict[str, Values]:
        """Read some rows of some columns."""
        if self._last is None or self._last[0] != wanted:
            values = self.table.take(wanted)
            if any(len(each) != self._length for each in values.values()):
                fail(self.table.where, "the file has changed since it was first read: start again")
            self._last = dict(wanted), values
        # Copies: the caller may change what it gets.
        return {column: self._last[1][column][rows] for column in wanted}

    def release(self) -> None:
        """Let go of the columns in memory."""
        self._last = None


class GroupSource(Source):
    """The rows of a shared table that have one value in its group column: the client's name."""

    def __init__(self, name: str, shared: SharedTable, rows: NDArray[np.intp]) -> None:
        super().__init__(name, shared.table.where)
        self._shared = shared
        self._rows = rows

    def names(self) -> list[str]:
        return self._shared.table.names()

    def columns(self, names: Iterable[str] | None = None) -> dict[str, ColumnProfile | None]:
        return self._shared.table.columns(names)

    def take(self, wanted: Mapping[str, Type]) -> dict[str, Values]:
        return self._shared.take(wanted, self._rows)

    def notes(self) -> Sequence[str]:
        return [*self._shared.table.notes(), *self._shared.notes]

    def release(self) -> None:
        self._shared.release()


def sources(
    data: object, group: str | None = None, reading: Reading = PLAIN, missing: str = "drop"
) -> list[Source]:
    """Return one source per client.

    Parameters
    ----------
    data : str, PathLike, DataFrame, list or dict
        A file, a folder, a glob pattern, a list of clients in TOML, a frame as ``as_pandas`` takes
        it, a list of these, or a dict from names to files and frames.
    group : str, optional
        A column of the only file or DataFrame, each of whose values is a client.
    missing : {"drop", "fail"}
        Whether rows without a group, which belong to no client, are left out or refused.
    """
    named = list(_sources(data, reading))
    if not named:
        raise InputError("there is no client: name a file, a folder or a DataFrame")
    if group is not None:
        if len(named) > 1:
            raise InputError(
                f"group {group!r} splits one file or DataFrame, there are {len(named)}: name one"
            )
        return list(_split(named[0], group, missing))
    seen: dict[str, str] = {}
    for source in named:
        where = source.where
        try:
            source.name.encode()
        except UnicodeEncodeError:  # of a file whose name was written in another encoding
            raise InputError(
                f"{where!r}: its name is not UTF-8: rename it, or give it a name in a dict"
            ) from None
        if source.name in seen:
            raise InputError(
                f"two clients are named {source.name!r}, {seen[source.name]} and {where}: "
                "rename one, or give each a name in a TOML file or a dict"
            )
        seen[source.name] = where
    return named


def _sources(data: object, reading: Reading, place: int = 0) -> Iterator[Source]:
    """Yield the clients of what a user names; a frame is named after its place in a list."""
    match data:
        case Mapping():
            for name, item in data.items():
                if not isinstance(name, str) or not name:
                    raise InputError(f"a client's name must be text, not {name!r}")
                yield _named(name, item, reading)
        case list() | tuple():
            several = [each for i, item in enumerate(data) for each in _sources(item, reading, i)]
            if not any(isinstance(each, FrameTable) for each in several):
                # As the shell expands a pattern, or as a folder has them, files are in one order.
                several.sort(key=lambda source: name_order(source.name))
            yield from several
        case str() | os.PathLike():
            paths = data_files(data)
            lists = [path for path in paths if is_toml(path)]
            for path in lists:
                yield from ClientList(path).clients(reading)
            files = [open_table(path, reading) for path in paths if path not in lists]
            yield from sorted(files, key=lambda source: name_order(source.name))
        case _:
            frame = as_pandas(data)
            if frame is None:
                raise InputError(
                    "data must be a file, a folder, a DataFrame, or a list or dict of these, "
                    f"not {type(data).__name__}"
                )
            yield FrameTable(f"client {place}", frame, reading)


def name_order(name: str) -> tuple[list[int | str], str]:
    """Return what clients are sorted by: their names, with numbers in them as numbers."""
    parts: list[int | str] = list(re.split("([0-9]+)", name))
    parts[1::2] = map(int, parts[1::2])
    return parts, name


def _named(name: str, item: object, reading: Reading, folder: Path | None = None) -> Source:
    """Return a frame or one file as the client of this name."""
    if isinstance(item, str | os.PathLike):
        paths = data_files(item, folder)
        if len(paths) != 1:
            what = f"{os.fspath(item)} is {len(paths)} files"
            raise InputError(f"{name}: {what}, name one per client")
        return open_table(paths[0], reading, name)
    frame = as_pandas(item)
    if frame is None:
        what = type(item).__name__
        raise InputError(f"{name}: expected a file or a DataFrame, not {what}")
    return FrameTable(name, frame, reading)


def _split(source: Source, group: str, missing: str) -> Iterator[GroupSource]:
    """Yield one client per value of the column, in the order of their names."""
    where = source.where
    # As text, because large whole numbers are not distinct as float64.
    labels = np.asarray(source.take({group: "text"})[group], dtype=object)
    codes, names = pd.factorize(labels)
    absent = int(np.sum(codes < 0))
    what = f"{absent} of {len(labels)} rows have no {group!r}"
    if absent and missing == "fail":
        fail(where, f"{what}: fill them, or leave them out by missing='drop'")
    if not len(names):
        fail(where, f"there is no row with a {group!r} to split into clients")
    # A stable sort keeps the rows of each client in the order of the file; those of nobody, whose
    # code is -1, come first.
    ends = np.cumsum(np.bincount(codes + 1, minlength=len(names) + 1))[:-1]
    rows = np.split(np.argsort(codes, kind="stable"), ends)[1:]
    notes = [f"{what} in the data that were split, and are left out; missing='fail' refuses them"]
    shared = SharedTable(source, len(labels), notes if absent else [])
    for j in sorted(range(len(names)), key=lambda j: name_order(names[j])):
        yield GroupSource(names[j], shared, rows[j])


def data_files(item: str | os.PathLike[Any], folder: Path | None = None) -> list[Path]:
    """Return the files that a path names, at least one.

    A path names a file, the data files in a folder, or those that match a glob pattern; a name that
    exists is not read as a pattern. A relative path starts at ``folder``, or where we are.
    """
    text = os.fspath(item)
    if not isinstance(text, str) or not text or "\0" in text:
        fail(repr(text), "is not the name of a file")
    # A URL, which DuckDB or pandas might try to open.
    if re.match(r"\w[\w+.-]*:/", text):
        fail(text, "only local files can be read, download it first")
    path = Path(text) if folder is None else folder / text
    try:
        if path.is_dir():
            inside = [each for each in path.iterdir() if each.is_file() and suffix_of(each)]
            paths = sorted(each for each in inside if not each.name.startswith("."))
        elif os.path.lexists(path):
            paths = [path]
        else:
            matches = glob.glob(str(path))  # noqa: PTH207  # Path.glob takes no absolute pattern
            paths = [Path(each) for each in sorted(matches)]
    except OSError as error:
        fail(str(path), error.strerror or error)
    if not paths and path.is_dir():
        fail(str(path), f"no file in the folder ends in one of {', '.join(READERS)}")
    if not paths:
        fail(str(path), "there is no such file or folder, and no file matches it as a pattern")
    most = 5000  # somebody has named the wrong folder
    if len(paths) > most:
        fail(
            str(path),
            f"is {len(paths):,} files, more than {most:,} clients: put their rows into one file "
            "with a column of clients, which group names",
        )
    return paths


OPTIONS = {field.name for field in fields(Reading)}
"""What a list can say about how files are read, for all clients or for one."""

ENTRY_FORM = 'write [clients.NAME] and below it path = "FILE" or query = "SELECT …"'


class ClientList:
    """A TOML file that lists clients, which is checked as far as it is asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._where = str(path)
        self._content = read_toml(path)
        known = {"clients", "types", "reading"}
        what = "only [clients.NAME], [types] and [reading] are read"
        _check_keys(self._where, self._content, known, what)

    def clients(self, common: Reading) -> Iterator[Source]:
        """Yield the clients in the order of the file; each is checked only when it is its turn.

        All are read by the codes and names of ``common``, of the list and of their own entry; the
        decimal mark and the dates of an entry come before those of the others.
        """
        self.types()  # which are checked before anything is read
        common = common.joined(self.reading())
        clients = self._table("clients")
        if not clients:
            fail(self._where, f"there is no client: {ENTRY_FORM}")
        for name, entry in clients.items():
            yield self._client(name, f"{self._where}, client {name}", entry, common)

    def types(self) -> dict[str, Type]:
        """Return the types that columns are declared to have."""
        types = self._table("types")
        for column, kind in types.items():
            if kind not in get_args(Type):
                known = ", ".join(get_args(Type))
                fail(self._where, f"[types]: {column} must be one of {known}, not {_shown(kind)}")
        return types

    def reading(self) -> Reading:
        """Return how the files are read."""
        table = self._table("reading")
        where = f"{self._where}: [reading]"
        _check_keys(where, table, OPTIONS, f"there are {', '.join(sorted(OPTIONS))}")
        return _reading(where, table)

    def _table(self, name: str) -> dict[str, Any]:
        table = self._content.get(name, {})
        if not isinstance(table, dict):
            fail(self._where, f"{name} must be a table, as in [{name}]")
        return table

    def _client(self, name: str, where: str, entry: object, common: Reading) -> Source:
        """Return the client of an entry."""
        if not name or not isinstance(entry, dict):
            fail(where, ENTRY_FORM)
        what = f"a client has path or query, and {', '.join(sorted(OPTIONS))}"
        _check_keys(where, entry, {"path", "query"} | OPTIONS, what)
        named = sorted(entry.keys() & {"path", "query"})
        if len(named) != 1:
            has = "both" if named else "neither"
            fail(where, f"a client has either path or query, this one has {has}")
        [key] = named
        value = entry[key]
        if not isinstance(value, str) or not value.strip():
            fail(where, f"{key} must be text in quotes, not {_shown(value)}")
        if key == "query" and (options := sorted(entry.keys() & {"decimal", "dates"})):
            fail(
                where,
                f"{options[0]} is for files: in a query say it to DuckDB, as in "
                "read_csv('x.csv', decimal_separator=',', dateformat='%d/%m/%Y')",
            )
        joined = common.joined(_reading(where, entry))
        reading = replace(joined, decimal=entry.get("decimal", common.decimal))
        if key == "query":
            return QueryTable(name, where, value, self._path.absolute().parent, reading)
        return _named(name, value, reading, self._path.parent)


def declared(data: object) -> tuple[dict[str, Type], Reading]:
    """Return the types of columns, and how files are read, as the lists among a user's data say."""
    types: dict[str, Type] = {}
    reading = PLAIN
    for item in data if isinstance(data, list | tuple) else [data]:
        if isinstance(item, str | os.PathLike) and is_toml(Path(os.fspath(item))):
            listed = ClientList(Path(os.fspath(item)))
            types |= listed.types()
            reading = reading.joined(listed.reading())
    return types, reading


def _check_keys(where: str, table: Mapping[str, Any], known: Set[str], what: str) -> None:
    if unknown := sorted(table.keys() - known):
        fail(where, f"unknown key {unknown[0]!r}: {what}")


def _reading(where: str, options: Mapping[str, Any]) -> Reading:
    """Return how files are read, from a table of the list; InputError if it cannot be."""
    codes = options.get("na", [])
    if not isinstance(codes, list) or not all(isinstance(code, str) for code in codes):
        fail(where, f"na must be a list of texts, as in ['-9'], not {_shown(codes)}")
    for key in ("decimal", "dates"):
        if not isinstance(options.get(key, ""), str):
            fail(where, f"{key} must be text in quotes, not {_shown(options[key])}")
    names = options.get("rename", {})
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        fail(
            where,
            "rename must be a table from names in the file to names in the model, as in "
            f"{{ alter = 'age' }}, not {_shown(names)}",
        )
    try:
        return Reading(tuple(codes), options.get("decimal", "."), options.get("dates", ""), names)
    except InputError as error:
        fail(where, error)


def _shown(value: object) -> str:
    """Return a value of the file for a message; one may be nested too deeply to be shown."""
    try:
        return repr(value)
    except RecursionError:
        return "what it is"
