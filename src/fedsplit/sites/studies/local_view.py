"""What the owner of a file may see of it beside a study; none of it leaves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from fedsplit.data.tables import Source
from fedsplit.data.types import ColumnProfile
from fedsplit.sites.studies.words import Local


def complete_rows(source: Source, columns: Collection[str]) -> tuple[int, int]:
    """How many rows there are, and how many have a value in each of some columns."""
    present = source.names()
    wanted = [name for name in present if name in columns] or present[:1]
    if not wanted:
        return 0, 0
    missing = source.read(dict.fromkeys(wanted, "text")).isna().any(axis=1)
    return len(missing), int((~missing).sum())


def local_view(
    name: str, read: Callable[[], Source], columns: Collection[str], **more: Any
) -> Local:
    """What a study means for a client.

    Parameters
    ----------
    name : str
        Of the client.
    read : callable
        Gives its rows: while this looks at them, questions of other studies are answered.
    columns : collection of str
        Those of the study.
    **more
        The other fields of ``Local``.
    """
    found: Mapping[str, ColumnProfile | None] = {}
    rows = complete = 0
    trouble = ""
    try:
        source = read()
        found = source.columns()
        rows, complete = complete_rows(source, columns)
    except Exception as error:  # for the owner alone, who has to see the study in any case
        trouble = str(error)
    return Local(name=name, columns=found, rows=rows, complete=complete, trouble=trouble, **more)
