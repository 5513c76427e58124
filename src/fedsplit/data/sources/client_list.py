"""A TOML file that lists the clients.

There is one table ``[clients.NAME]`` for each, with a ``path`` or a ``query``, and with how its
data are read where that differs from the others. A table ``[types]`` says what columns are read as,
and ``[reading]`` how all files are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

from fedsplit.data.reading import PLAIN, Reading
from fedsplit.data.tables import fail
from fedsplit.data.toml_files import is_toml, read_toml
from fedsplit.data.types import Type
from fedsplit.errors import InputError

OPTIONS = {field.name for field in fields(Reading)}
"""What a list can say about how files are read, for all clients or for one."""

ENTRY_FORM = 'write [clients.NAME] and below it path = "FILE" or query = "SELECT …"'


class ListedClient(NamedTuple):
    """One client of the list.

    Attributes
    ----------
    name : str
    where : str
        What error messages call it.
    is_query : bool
        Whether its data are the result of a query, and not a file.
    value : str
        The path or the query.
    reading : Reading
        How its data are read: by all codes and names of the list and of its own, and by its own
        decimal mark and dates.
    """

    name: str
    where: str
    is_query: bool
    value: str
    reading: Reading


class ClientList:
    """What is in the file at a path, which is checked as far as it is asked for."""

    def __init__(self, path: Path) -> None:
        self._where = str(path)
        self._content = read_toml(path)
        if unknown := sorted(self._content.keys() - {"clients", "types", "reading"}):
            fail(
                self._where,
                f"unknown key {unknown[0]!r}: only [clients.NAME], [types] and [reading] are read",
            )

    def clients(self, common: Reading = PLAIN) -> Iterator[ListedClient]:
        """Yield the clients in the order of the file; each is checked only when it is its turn.

        ``common`` is how files are read that are not the list's own.
        """
        common = common.joined(self.reading())
        clients = self._table("clients")
        if not clients:
            fail(self._where, f"there is no client: {ENTRY_FORM}")
        for name, entry in clients.items():
            yield _listed(name, f"{self._where}, client {name}", entry, common)

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
        if unknown := sorted(table.keys() - OPTIONS):
            known = ", ".join(sorted(OPTIONS))
            fail(self._where, f"[reading]: unknown key {unknown[0]!r}: there are {known}")
        return _reading(f"{self._where}: [reading]", table)

    def _table(self, name: str) -> dict[str, Any]:
        table = self._content.get(name, {})
        if not isinstance(table, dict):
            fail(self._where, f"{name} must be a table, as in [{name}]")
        return table


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


def _listed(name: str, where: str, entry: object, common: Reading) -> ListedClient:
    if not name or not isinstance(entry, dict):
        fail(where, ENTRY_FORM)
    if unknown := sorted(entry.keys() - OPTIONS - {"path", "query"}):
        fail(
            where,
            f"unknown key {unknown[0]!r}: a client has path or query, and "
            f"{', '.join(sorted(OPTIONS))}",
        )
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
    return ListedClient(name, where, key == "query", value, reading)


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
