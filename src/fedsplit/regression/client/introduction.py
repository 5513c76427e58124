"""What a client can tell at once, before the server has decided anything about columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fedsplit.data.formula.formula import Formula
from fedsplit.data.pooled.column_statistics import Statistic
from fedsplit.data.pooled.function import State
from fedsplit.data.types import ColumnProfile
from fedsplit.dialogue import Dialogue
from fedsplit.regression.client.description import ColumnRequest, Description
from fedsplit.regression.client.measuring import Measured


class Introduction(NamedTuple):
    """What a client answers to ``Columns``.

    Attributes
    ----------
    columns : mapping of str to ColumnProfile or None
        What those of its columns can be read as that the model needs.
    names : tuple of str
        Of all its columns.
    request : ColumnRequest or None
        What it would be asked to describe if there were no other client. None if that is more than
        it may tell by itself.
    description : Description or None
        The answer to that, which holds if the server decides the same.
    measured : Measured or None
        What functions such as ``poly`` ask for first, of the same rows.
    """

    columns: Mapping[str, ColumnProfile | None]
    names: tuple[str, ...]
    request: ColumnRequest | None = None
    description: Description | None = None
    measured: Measured | None = None


def askings(formula: Formula) -> dict[str, Dialogue[State]]:
    """The agreements that the functions of a formula need, by their text."""
    found = {}
    for call in formula.pooled:
        agreement = call.function.agreement()
        if agreement is not None:
            found[call.text] = agreement
    return found


def first_statistics(formula: Formula) -> dict[str, Statistic]:
    """What each of them asks for first."""
    return {text: next(asking) for text, asking in askings(formula).items()}
