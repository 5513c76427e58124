"""What a client answers about the columns of a draft plan, before anything is agreed on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from fedsplit.data.categories import Level
from fedsplit.data.types import ColumnProfile, Type
from fedsplit.errors import InputError, RequestError
from fedsplit.regression.client.findings import Finding
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.families import FAMILIES


class RowCounts(NamedTuple):
    """How many rows a client has, and how many of them have each level.

    Attributes
    ----------
    types : mapping of str to Type
        What each column was read as.
    rows, complete : int
        All rows, and those that lack no value.
    missing : mapping of str to int
        The number of missing values of each column.
    levels : mapping
        The levels of each category, with the number of complete rows that have each.
    orders : mapping of str to bool
        The categories whose levels are in the order in which the client has them stored, and
        whether that order has a meaning, as that of small, medium and large.
    warnings : sequence of Finding
        What this could disclose of single rows.
    """

    types: Mapping[str, Type]
    rows: int
    complete: int
    missing: Mapping[str, int]
    levels: Mapping[str, Mapping[Level, int]]
    orders: Mapping[str, bool]
    warnings: Sequence[Finding]


class SurveyAnswer(NamedTuple):
    """What a client answers to ``Survey``.

    Attributes
    ----------
    names : tuple of str
        The names of all its columns; empty if the plan was no draft.
    profiles : mapping of str to ColumnProfile or None
        What the columns of a draft can be read as; None for one that cannot be read at all.
    counts : RowCounts or None
        None if the columns cannot be counted as this client alone would read them.
    """

    names: tuple[str, ...]
    profiles: Mapping[str, ColumnProfile | None]
    counts: RowCounts | None

    @property
    def warnings(self) -> Sequence[Finding]:
        """What the counts could disclose of single rows."""
        return () if self.counts is None else self.counts.warnings


def local_type(profile: ColumnProfile, category: bool) -> Type:
    """What a client reads a column as, where no other client has a say."""
    if category:
        return profile.type
    if profile.category:
        return "text"
    # Where a few mistakes are among numbers, the client says in which row.
    return "number" if profile.mostly_number else profile.type


def locally_typed(draft: Plan, profiles: Mapping[str, ColumnProfile | None]) -> Plan | None:
    """A draft with the types that a client reads its own columns as.

    None if a column is missing, cannot be read, or cannot be a target of the family.
    """
    if draft.family not in FAMILIES:
        raise RequestError(f"the server sent the unknown family {draft.family[:40]!r}")
    columns = [*draft.columns, *draft.others]
    known = {column: profile for column in columns if (profile := profiles.get(column)) is not None}
    if len(known) < len(columns):
        return None
    target = draft.parsed.target_column
    categories = dict.fromkeys(draft.categories)
    try:
        if target in known and is_class(draft, [known[target]]):
            categories[target] = None
    except InputError:  # which the coordinator says of all clients together
        return None
    types: dict[str, Type] = dict.fromkeys(draft.others, "text")
    types |= draft.types
    for column, profile in known.items():
        if column not in types:
            types[column] = local_type(profile, column in categories)
            if profile.category:
                categories[column] = None
    ordered = {column: types[column] for column in columns}
    return replace(draft, types=ordered, categories=tuple(categories), draft=False, excluded=())


def is_class(draft: Plan, profiles: Sequence[ColumnProfile]) -> bool:
    """Whether the target column of a draft, of which clients have these profiles, has classes.

    Raises
    ------
    InputError
        If two classes are asked for, and the column holds numbers that are neither classes nor
        shares of trials.
    """
    family = draft.chosen_family
    if not family.classifies:
        return False
    column = str(draft.parsed.target_column)
    numbers = all(draft.types.get(column, profile.type) == "number" for profile in profiles)
    if not (family.binary and numbers) or all(profile.integer == "all" for profile in profiles):
        return True
    if draft.weights is None:
        raise InputError(
            f"column {column} holds numbers that are not whole: {draft.family} needs 0 and 1, "
            "or shares and a column of trials as weights, or cbind(successes, failures)"
        )
    return False
