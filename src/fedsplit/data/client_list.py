"""A TOML file that lists the clients.

There is one table ``[clients.NAME]`` for each, with a ``path`` or a ``query``, and there may be a
table ``[types]`` of what columns are read as at all of them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

from fedsplit.data.opening import check_file
from fedsplit.data.tables import fail
from fedsplit.data.types import Type

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


def read_client_list(path: Path) -> Iterator[ListedClient]:
    """Yield the clients in the order of the file; each is checked only when it is its turn."""
    where = str(path)
    content = _content(path)
    clients = content.get("clients")
    if not isinstance(clients, dict) or not clients:
        fail(where, f"there is no client: {ENTRY_FORM}")
    if unknown := sorted(content.keys() - {"clients", "types"}):
        fail(where, f"unknown key {unknown[0]!r}: only [clients.NAME] and [types] are read")
    for name, entry in clients.items():
        yield _listed(name, f"{path}, client {name}", entry)


def read_types(path: Path) -> dict[str, Type]:
    """Return what the file says that columns are read as."""
    types = _content(path).get("types", {})
    known = get_args(Type)
    if not isinstance(types, dict):
        fail(str(path), "write [types] and below it COLUMN = TYPE")
    for column, kind in types.items():
        if kind not in known:
            fail(str(path), f"[types]: {column} must be one of {', '.join(known)}, not {kind!r}")
    return types


def _content(path: Path) -> dict[str, Any]:
    where = str(path)
    check_file(where, path)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        fail(where, error.strerror or error)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        fail(where, f"is not TOML: {error}")


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
