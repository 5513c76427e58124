"""The clients that a user's data names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from fedsplit.data.files.formats import open_table
from fedsplit.data.files.sql import QueryTable
from fedsplit.data.frames import FrameTable, as_pandas
from fedsplit.data.reading import PLAIN, Reading
from fedsplit.data.sources.client_data import GroupSource, SharedTable, Source
from fedsplit.data.sources.client_list import ClientList, is_list
from fedsplit.data.sources.paths import data_files
from fedsplit.data.tables import Table, fail
from fedsplit.errors import InputError


def sources(
    data: object, group: str | None = None, reading: Reading = PLAIN, missing: str = "drop"
) -> list[Source]:
    """Return one source per client.

    Parameters
    ----------
    data : str, PathLike, DataFrame, list or dict
        A file, a folder, a glob pattern, a TOML file with a table ``[clients.NAME]`` for each
        client that has a ``path`` or a ``query``, a frame as ``as_pandas`` takes it, a list of
        these, or a dict from names to files and frames.
    group : str, optional
        A column of the only file or DataFrame, each of whose values is a client.
    reading : Reading, optional
        How files are read; a TOML file can add to it.
    missing : {"drop", "fail"}
        Whether rows without a group, which belong to no client, are left out or refused.
    """
    found = list(_tables(data, reading))
    if not found:
        raise InputError("there is no client: name a file, a folder or a DataFrame")
    if group is not None:
        if len(found) > 1:
            raise InputError(
                f"group {group!r} splits one file or DataFrame, there are {len(found)}: name one"
            )
        return list(_split(found[0], group, missing))
    seen: dict[str, str] = {}
    for source in found:
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
    return list(found)


def _tables(data: object, reading: Reading, place: int = 0) -> Iterator[Table]:
    """Yield the clients of what a user names; a frame is named after its place in a list."""
    match data:
        case Mapping():
            for name, item in data.items():
                if not isinstance(name, str) or not name:
                    raise InputError(f"a client's name must be text, not {name!r}")
                yield _named(name, item, reading)
        case list() | tuple():
            found = [each for i, item in enumerate(data) for each in _tables(item, reading, i)]
            if not any(isinstance(each, FrameTable) for each in found):
                # As the shell expands a pattern, or as a folder has them, files are in one order.
                found.sort(key=lambda table: name_order(table.name))
            yield from found
        case str() | os.PathLike():
            paths = data_files(data)
            lists = [path for path in paths if is_list(path)]
            for path in lists:
                yield from _listed(path, reading)
            files = [open_table(path, reading) for path in paths if path not in lists]
            yield from sorted(files, key=lambda table: name_order(table.name))
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


def _named(name: str, item: object, reading: Reading, folder: Path | None = None) -> Table:
    """Return a frame or one file as the client of this name."""
    match item:
        case str() | os.PathLike():
            found = data_files(item, folder)
        case _:
            frame = as_pandas(item)
            if frame is None:
                what = type(item).__name__
                raise InputError(f"{name}: expected a file or a DataFrame, not {what}")
            return FrameTable(name, frame, reading)
    if len(found) != 1:
        raise InputError(f"{name}: {os.fspath(item)} is {len(found)} files, name one per client")
    return open_table(found[0], reading, name)


def _listed(path: Path, reading: Reading) -> Iterator[Table]:
    """Yield the clients of a TOML file, whose relative paths start at its folder."""
    listed = ClientList(path)
    reading = reading.joined(listed.reading())
    listed.types()  # which are checked before anything is read
    for client in listed.clients():
        own = client.reading(reading)
        if client.key == "query":
            folder = path.absolute().parent
            yield QueryTable(client.name, client.where, client.value, folder, own)
        else:
            yield _named(client.name, client.value, own, path.parent)


def _split(source: Table, group: str, missing: str) -> Iterator[GroupSource]:
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
