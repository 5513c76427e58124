"""A TOML file that lists the clients.

There is one table ``[clients.NAME]`` for each, with a ``path`` or a ``query``. A table ``[types]``
says what columns are read as, and ``[reading]`` how the files are read.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from fedsplit.data.files.opening import check_file
from fedsplit.data.reading import PLAIN, Reading
from fedsplit.data.tables import fail
from fedsplit.data.types import Type
from fedsplit.errors import InputError

TABLES = {"clients", "types", "reading"}
"""What a list can have."""

ENTRY_FORM = 'write [clients.NAME] and below it path = "FILE" or query = "SELECT …"'


class ListedClient(NamedTuple):
    """One client of the list.

    Attributes
    ----------
    name : str
    where : str
        What error messages call it.
    key : str
        ``path`` or ``query``.
    value : str
        The path or the query.
    """

    name: str
    where: str
    key: str
    value: str


class ClientList:
    """What is in the file.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._where = str(path)
        check_file(self._where, path)
        try:
            self._content = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            fail(self._where, error.strerror or error)
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            fail(self._where, f"is not TOML: {error}")
        if unknown := sorted(self._content.keys() - TABLES):
            fail(
                self._where,
                f"unknown key {unknown[0]!r}: only [clients.NAME], [types] and [reading] are read",
            )

    def clients(self) -> Iterator[ListedClient]:
        """Yield the clients in the order of the file; each is checked only when it is its turn."""
        clients = self._table("clients")
        if not clients:
            fail(self._where, f"there is no client: {ENTRY_FORM}")
        for name, entry in clients.items():
            yield _listed(name, f"{self._path}, client {name}", entry)

    def types(self) -> dict[str, Type]:
        """Return the types that columns are declared to have."""
        types = self._table("types")
        for column, kind in types.items():
            if kind not in get_args(Type):
                known = ", ".join(get_args(Type))
                fail(self._where, f"[types]: {column} must be one of {known}, not {kind!r}")
        return types

    def reading(self) -> Reading:
        """Return how the files are read."""
        table = self._table("reading")
        if unknown := sorted(table.keys() - {"na", "decimal"}):
            fail(self._where, f"[reading]: unknown key {unknown[0]!r}: there are na and decimal")
        codes = table.get("na", [])
        if not isinstance(codes, list) or not all(isinstance(code, str) for code in codes):
            fail(self._where, f"[reading]: na must be a list of texts, as in ['-9'], not {codes!r}")
        try:
            return Reading(tuple(codes), table.get("decimal", "."))
        except InputError as error:
            fail(self._where, f"[reading]: {error}")

    def _table(self, name: str) -> dict[str, Any]:
        table = self._content.get(name, {})
        if not isinstance(table, dict):
            fail(self._where, f"{name} must be a table, as in [{name}]")
        return table


def is_list(path: Path) -> bool:
    """Return whether a file is a list of clients, by its name."""
    return path.suffix.lower() == ".toml"


def declared(data: object) -> tuple[dict[str, Type], Reading]:
    """Return the types of columns, and how files are read, as the lists among a user's data say."""
    types: dict[str, Type] = {}
    reading = PLAIN
    items: Sequence[object] = [data]
    if isinstance(data, list | tuple):
        items = data
    for item in items:
        match item:
            case str() | os.PathLike() if is_list(Path(os.fspath(item))):
                found = ClientList(Path(os.fspath(item)))
                types |= found.types()
                reading = reading.joined(found.reading())
    return types, reading


def _listed(name: str, where: str, entry: object) -> ListedClient:
    if not name or not isinstance(entry, dict):
        fail(where, ENTRY_FORM)
    if unknown := sorted(entry.keys() - {"path", "query"}):
        fail(where, f"unknown key {unknown[0]!r}: a client has path or query")
    if not entry:
        fail(where, "a client has either path or query, this one has neither")
    if len(entry) > 1:
        fail(where, "a client has either path or query, this one has both")
    [(key, value)] = entry.items()
    if not isinstance(value, str) or not value.strip():
        fail(where, f"{key} must be text in quotes, not {value!r}")
    return ListedClient(name, where, key, value)
