"""What the columns of a model are read as: decided once, from what all clients have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

from fedsplit.data.texts import appearance
from fedsplit.data.types import ColumnProfile, Type, declaration
from fedsplit.errors import InputError, listed
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.survey import SurveyAnswer, is_class, local_type

IN_WORDS: Mapping[Type, str] = {
    "number": "numbers",
    "boolean": "true or false",
    "date": "dates",
    "text": "text",
}
"""What a column of each type holds."""


def with_columns(draft: Plan, answers: Mapping[str, SurveyAnswer]) -> Plan:
    """The draft with the columns that ``.`` stands for.

    Raises
    ------
    InputError
        If clients have different columns, or no such target.
    """
    formula = draft.parsed
    if not formula.open:
        return draft
    name, first = next(iter(answers.items()))
    for other, own in answers.items():
        differing = set(first.names) ^ set(own.names)
        if differing:
            raise InputError(
                f"clients {name} and {other} differ in column {listed(sorted(differing))}: "
                "name the columns in the formula, or make them the same"
            )
    for target in formula.target_columns:
        if target not in first.names:
            near = _nearest(target, first.names)
            raise InputError(f"client {name}: there is no column {target}{near}")
    return draft.expanded(first.names)


def with_types(draft: Plan, answers: Mapping[str, SurveyAnswer]) -> Plan:
    """The draft with the types that suit all clients, and what are categories.

    Raises
    ------
    InputError
        If clients have different things in a column, and nobody has declared what it is.
    """
    columns = [*draft.columns, *draft.others]
    profiles = {column: _known(column, answers) for column in draft.columns}
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
    plan = replace(
        draft,
        types={column: types[column] for column in columns},
        categories=tuple(categories),
        draft=False,
        excluded=(),
    )
    check_extra(plan)
    return plan


def check_extra(plan: Plan) -> None:
    """Raise InputError if a column of weights, offset or exposure does not hold numbers."""
    for column in plan.extra:
        if plan.types.get(column, "number") != "number":
            held = IN_WORDS[plan.types[column]]
            raise InputError(f"column {column} must hold numbers, it holds {held}")


def check_present(plan: Plan, present: Mapping[str, Sequence[str]]) -> None:
    """Raise InputError if a client lacks one of the columns of a plan."""
    columns = [*plan.columns, *plan.others]
    for name, own in present.items():
        for column in columns:
            if column in own:
                continue
            elsewhere = ""
            for other, theirs in present.items():
                if column in theirs:
                    elsewhere = f" (client {other} has it)"
                    break
            quoted = next((text for text in plan.extra if text in own), None)
            if quoted is not None and quoted not in columns:
                elsewhere = f": {quoted} is read as an expression, write `{quoted}` in backticks"
            known = ""
            if not set(own) <= set(columns):  # between organisations only these are named
                known = f"; its columns are {listed(own, 12)}"
            near = _nearest(column, own)
            raise InputError(f"client {name}: there is no column {column}{elsewhere}{near}{known}")


def check_declared(option: str, columns: Iterable[str], present: Iterable[Sequence[str]]) -> None:
    """Raise InputError if an option, such as ``types``, names a column that no client has."""
    everything = dict.fromkeys(column for own in present for column in own)
    for column in columns:
        if column not in everything:
            near = _nearest(column, everything)
            raise InputError(f"{option}: there is no column {column} at any client{near}")


def _nearest(column: str, present: Iterable[str]) -> str:
    """The end of a message that there is no such column."""
    names = {appearance(name).casefold(): name for name in present}
    for near in get_close_matches(appearance(column).casefold(), names, n=1):
        name = names[near]
        if appearance(name) == appearance(column):
            return f", {name!a} looks the same but has other characters: rename it"
        return f", did you mean {name}?"
    return ""


def _known(column: str, answers: Mapping[str, SurveyAnswer]) -> dict[str, ColumnProfile]:
    """What the clients that have values in a column can read it as."""
    known = {}
    for name, answer in answers.items():
        profile = answer.profiles[column]
        if profile is None:
            raise InputError(
                f"client {name}: column {column} is nested, or of a type that is neither number, "
                "boolean, text nor date: convert it"
            )
        if not profile.empty:
            known[name] = profile
    if not known:
        raise InputError(f"column {column} is empty at every client: leave it out")
    return known


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
