"""The clients that a user's data names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from fedsplit.data.client_data import GroupSource, SharedTable, Source, TableSource
from fedsplit.data.client_list import read_client_list, read_types
from fedsplit.data.formats import READERS, suffix_of
from fedsplit.data.frames import FrameTable
from fedsplit.data.paths import data_files
from fedsplit.data.sql import QueryTable
from fedsplit.data.tables import fail
from fedsplit.data.types import Type
from fedsplit.errors import InputError


def sources(data: object, group: str | None = None) -> list[Source]:
    """Return one source per client.

    Parameters
    ----------
    data : str, PathLike, DataFrame, list or dict
        A file, a folder, a glob pattern, a TOML file with a table ``[clients.NAME]`` for each
        client that has a ``path`` or a ``query``, a DataFrame, a list of these, or a dict from
        names to files and DataFrames.
    group : str, optional
        A column of the only file or DataFrame, each of whose values is a client.
    """
    found = list(_tables(data))
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
        if source.name in seen:
            raise InputError(
                f"two clients are named {source.name!r}, {seen[source.name]} and {where}: "
                "rename one, or give each a name in a TOML file or a dict"
            )
        seen[source.name] = where
    return list(found)


def declared_types(data: object) -> dict[str, Type]:
    """Return what the TOML files among the data say that columns are read as."""
    found: dict[str, Type] = {}
    match data:
        case list() | tuple():
            for item in data:
                found |= declared_types(item)
        case str() | os.PathLike():
            for path in data_files(data):
                if path.suffix.lower() == ".toml":
                    found |= read_types(path)
    return found


def _tables(data: object) -> Iterator[TableSource]:
    match data:
        case Mapping():
            for name, item in data.items():
                if not isinstance(name, str) or not name:
                    raise InputError(f"a client's name must be text, not {name!r}")
                yield _named(name, item)
        case list() | tuple():
            for i, item in enumerate(data):
                match item:
                    case pd.DataFrame():  # frames are named after their position
                        yield _named(f"client {i}", item)
                    case _:
                        yield from _tables(item)
        case pd.DataFrame():
            yield _named("client 0", data)
        case str() | os.PathLike():
            for path in data_files(data):
                if path.suffix.lower() == ".toml":
                    yield from _listed(path)
                else:
                    yield _file(path)
        case _:
            raise InputError(
                "data must be a file, a folder, a DataFrame, or a list or dict of these, "
                f"not {type(data).__name__}"
            )


def _named(name: str, item: object, folder: Path | None = None) -> TableSource:
    """Return a frame or one file as the client of this name."""
    match item:
        case pd.DataFrame():
            return TableSource(name, FrameTable(name, item))
        case str() | os.PathLike():
            found = data_files(item, folder)
        case _:
            raise InputError(f"{name}: expected a file or a DataFrame, not {type(item).__name__}")
    if len(found) != 1:
        raise InputError(f"{name}: {os.fspath(item)} is {len(found)} files, name one per client")
    return _file(found[0], name)


def _file(path: Path, name: str | None = None) -> TableSource:
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
    return TableSource(name or stem, READERS[suffix](where, path.absolute()))


def _listed(path: Path) -> Iterator[TableSource]:
    """Yield the clients of a TOML file, whose relative paths start at its folder."""
    for client in read_client_list(path):
        if client.key == "query":
            table = QueryTable(client.where, client.value, path.absolute().parent)
            yield TableSource(client.name, table)
        else:
            yield _named(client.name, client.value, path.parent)


def _split(source: TableSource, group: str) -> Iterator[GroupSource]:
    """Yield one client per value of the column, in the order of numbers if they are numbers."""
    fit = source.check_column(group)
    where = source.table.where
    # As text, because large whole numbers are not distinct as float64.
    labels = source.table.take({group: "text"})[group].astype(object).to_numpy()
    missing = int(pd.isna(labels).sum())
    if missing:
        fail(where, f"{missing} of {len(labels)} rows have no {group!r}: fill or remove them")
    if not len(labels):
        fail(where, "there is no row to split into clients")
    codes, names = pd.factorize(labels)
    # A stable sort keeps the rows of each client in the order of the file.
    rows = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
    order = float if fit.decimal == "all" else str
    shared = SharedTable(source, len(labels))
    for j in sorted(range(len(names)), key=lambda j: order(names[j])):
        yield GroupSource(names[j], shared, rows[j])
