"""What the columns of a draft are read as: decided once, for one client as for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedsplit.data.types import ColumnProfile, Type, declaration
from fedsplit.errors import InputError, RequestError
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.families import FAMILIES

IN_WORDS: Mapping[Type, str] = {
    "number": "numbers",
    "boolean": "true or false",
    "date": "dates",
    "text": "text",
}
"""What a column of each type holds."""


def locally_typed(draft: Plan, profiles: Mapping[str, ColumnProfile | None]) -> Plan | None:
    """A draft with the types that a client reads its own columns as.

    None if a column is missing or cannot be read, or for a reason that the coordinator says of all
    clients together.
    """
    if draft.family not in FAMILIES:
        raise RequestError(f"the server sent the unknown family {draft.family[:40]!r}")
    columns = [*draft.columns, *draft.others]
    known = {column: profile for column in columns if (profile := profiles.get(column)) is not None}
    if len(known) < len(columns):
        return None
    try:
        return typed(draft, {column: {"": known[column]} for column in draft.columns})
    except InputError:
        return None


def typed(draft: Plan, profiles: Mapping[str, Mapping[str, ColumnProfile]]) -> Plan:
    """The draft with the types that suit the clients whose profiles of its columns these are.

    Raises InputError if they have different things in a column that nobody has declared.
    """
    target = draft.parsed.target_column
    categories = dict.fromkeys(draft.categories)
    if target is not None and is_class(draft, list(profiles[target].values())):
        categories[target] = None
    types: dict[str, Type] = dict.fromkeys(draft.others, "text")  # only what is missing matters
    types |= draft.types
    for column, own in profiles.items():
        if column in draft.types:
            continue
        if column not in categories and any(profile.category for profile in own.values()):
            categories[column] = None
            types[column] = _stored_category(column, own)
        else:
            _check_labels(column, own)
            types[column] = _common_type(column, own, column in categories)
    types = {column: types[column] for column in (*draft.columns, *draft.others)}
    for column in draft.extra:
        if types.get(column, "number") != "number":
            held = IN_WORDS[types[column]]
            raise InputError(f"column {column} must hold numbers, it holds {held}")
    return replace(draft, types=types, categories=tuple(categories), draft=False, excluded=())


def is_class(draft: Plan, profiles: Sequence[ColumnProfile]) -> bool:
    """Whether the target column of a draft, of which clients have these profiles, has classes.

    If two classes are asked for, and it holds numbers that are neither classes nor shares of
    trials, InputError is raised.
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


def local_type(profile: ColumnProfile, category: bool) -> Type:
    """What a client reads a column as, where no other client has a say."""
    if category:
        return profile.type
    if profile.category:
        return "text"
    # Where a few mistakes are among numbers, the client says in which row.
    return "number" if profile.mostly_number else profile.type


def _stored_category(column: str, profiles: Mapping[str, ColumnProfile]) -> Type:
    """The type of a column that is a category because clients have stored it as one."""
    one = next(name for name, profile in profiles.items() if profile.category)
    for other, profile in profiles.items():
        if not profile.category and profile.type != "text":
            held = IN_WORDS[profile.type]
            raise InputError(
                f"column {column} is a category at client {one} and holds {held} at client "
                f"{other}: write C({column}) if it is a category, or declare it by "
                f"{declaration(column, profile.type)}"
            )
    return "text"


def _check_labels(column: str, profiles: Mapping[str, ColumnProfile]) -> None:
    """Raise InputError if a category has labels at one client and their numbers at another."""
    labels = [name for name, profile in profiles.items() if profile.category and profile.words]
    numbers = [name for name, profile in profiles.items() if profile.type == "number"]
    if labels and numbers:
        raise InputError(
            f"column {column} is a category of words at client {labels[0]} and holds numbers at "
            f"client {numbers[0]}: if they stand for the same, give every value its label, or give "
            f"{declaration(column, 'text')} to keep them apart"
        )


def _common_type(column: str, profiles: Mapping[str, ColumnProfile], category: bool) -> Type:
    """The type that suits all clients; text, if it is a category and they have several."""
    types = {name: local_type(profile, category) for name, profile in profiles.items()}
    different = set(types.values())
    if len(different) == 1:
        return different.pop()
    if different == {"number", "boolean"}:
        return "number"
    if category:
        return "text"
    one, first = next(iter(types.items()))
    other, second = next((name, kind) for name, kind in types.items() if kind != first)
    if first == "text":
        (one, first), (other, second) = (other, second), (one, first)
    raise InputError(
        f"column {column} holds {IN_WORDS[first]} at client {one} and {IN_WORDS[second]} at client "
        f"{other}: correct the file, declare the column by {declaration(column, first)}, or write "
        f"C({column}) if it is a category"
    )
