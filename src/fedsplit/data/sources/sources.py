"""The clients that a user's data names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from fedsplit.data.files.empty_file import EmptyFile, is_empty
from fedsplit.data.files.formats import READERS, suffix_of
from fedsplit.data.files.sql import QueryTable
from fedsplit.data.frames import FrameTable
from fedsplit.data.reading import PLAIN, Reading
from fedsplit.data.sources.client_data import GroupSource, SharedTable, Source, TableSource
from fedsplit.data.sources.client_list import ClientList, is_list
from fedsplit.data.sources.paths import data_files
from fedsplit.data.tables import Table, fail
from fedsplit.errors import InputError


def sources(data: object, group: str | None = None, reading: Reading = PLAIN) -> list[Source]:
    """Return one source per client.

    Parameters
    ----------
    data : str, PathLike, DataFrame, list or dict
        A file, a folder, a glob pattern, a TOML file with a table ``[clients.NAME]`` for each
        client that has a ``path`` or a ``query``, a DataFrame, a list of these, or a dict from
        names to files and DataFrames.
    group : str, optional
        A column of the only file or DataFrame, each of whose values is a client.
    reading : Reading, optional
        How files are read; a TOML file can add to it.
    """
    found = list(_tables(data, reading))
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
        where = source.table.where
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
    return list(found)


def _tables(data: object, reading: Reading) -> Iterator[TableSource]:
    match data:
        case Mapping():
            for name, item in data.items():
                if not isinstance(name, str) or not name:
                    raise InputError(f"a client's name must be text, not {name!r}")
                yield _named(name, item, reading)
        case list() | tuple():
            found = [each for i, item in enumerate(data) for each in _items(i, item, reading)]
            if not any(isinstance(item, pd.DataFrame) for item in data):
                # As the shell expands a pattern, or as a folder has them, files are in one order.
                found.sort(key=lambda source: name_order(source.name))
            yield from found
        case pd.DataFrame():
            yield _named("client 0", data, reading)
        case str() | os.PathLike():
            paths = data_files(data)
            lists = [path for path in paths if is_list(path)]
            for path in lists:
                yield from _listed(path, reading)
            files = [_file(path, reading) for path in paths if path not in lists]
            yield from sorted(files, key=lambda source: name_order(source.name))
        case _:
            raise InputError(
                "data must be a file, a folder, a DataFrame, or a list or dict of these, "
                f"not {type(data).__name__}"
            )


def _items(i: int, item: object, reading: Reading) -> Iterator[TableSource]:
    """Yield the clients of the i-th item of a list; frames are named after their position."""
    match item:
        case pd.DataFrame():
            yield _named(f"client {i}", item, reading)
        case _:
            yield from _tables(item, reading)


def name_order(name: str) -> tuple[list[int | str], str]:
    """Return what clients are sorted by: their names, with numbers in them as numbers."""
    parts: list[int | str] = list(re.split("([0-9]+)", name))
    parts[1::2] = map(int, parts[1::2])
    return parts, name


def _named(name: str, item: object, reading: Reading, folder: Path | None = None) -> TableSource:
    """Return a frame or one file as the client of this name."""
    match item:
        case pd.DataFrame():
            return TableSource(name, FrameTable(name, item, reading))
        case str() | os.PathLike():
            found = data_files(item, folder)
        case _:
            raise InputError(f"{name}: expected a file or a DataFrame, not {type(item).__name__}")
    if len(found) != 1:
        raise InputError(f"{name}: {os.fspath(item)} is {len(found)} files, name one per client")
    return _file(found[0], reading, name)


def _file(path: Path, reading: Reading, name: str | None = None) -> TableSource:
    """Return the file as a client, called after it unless the user gave a name."""
    suffix = suffix_of(path)
    if suffix is None:
        fail(
            str(path),
            "this kind of file cannot be read, its name must end in one of " + ", ".join(READERS),
        )
    stem = path.name[: -len(suffix)]
    where = str(path)
    if name not in (None, stem):
        where = f"{name} ({path})"
    table: Table = READERS[suffix](where, path.absolute(), reading=reading)
    if is_empty(path):
        table = EmptyFile(where, path.absolute())
    return TableSource(name or stem, table)


def _listed(path: Path, reading: Reading) -> Iterator[TableSource]:
    """Yield the clients of a TOML file, whose relative paths start at its folder."""
    listed = ClientList(path)
    reading = reading.joined(listed.reading())
    listed.types()  # which are checked before anything is read
    for client in listed.clients():
        if client.key == "query":
            table = QueryTable(client.where, client.value, path.absolute().parent, reading)
            yield TableSource(client.name, table)
        else:
            yield _named(client.name, client.value, reading, path.parent)


def _split(source: TableSource, group: str) -> Iterator[GroupSource]:
    """Yield one client per value of the column, in the order of their names."""
    source.check_column(group)
    where = source.table.where
    # As text, because large whole numbers are not distinct as float64.
    labels = np.asarray(source.table.take({group: "text"})[group], dtype=object)
    missing = int(pd.isna(labels).sum())
    if missing:
        fail(where, f"{missing} of {len(labels)} rows have no {group!r}: fill or remove them")
    if not len(labels):
        fail(where, "there is no row to split into clients")
    codes, names = pd.factorize(labels)
    # A stable sort keeps the rows of each client in the order of the file.
    rows = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
    shared = SharedTable(source, len(labels))
    for j in sorted(range(len(names)), key=lambda j: name_order(names[j])):
        yield GroupSource(names[j], shared, rows[j])
