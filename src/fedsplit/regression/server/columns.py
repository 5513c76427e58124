"""What the columns of a model are over all clients: their types, and the levels of categories."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from fedsplit.data.formula.constants import level_at
from fedsplit.data.texts import Level, appearance, sort_levels
from fedsplit.data.types import (
    FORMS,
    ColumnProfile,
    Type,
    declaration,
    is_boolean,
    is_date,
    is_number,
)
from fedsplit.errors import InputError, listed
from fedsplit.regression.client.column_types import typed
from fedsplit.regression.client.guards.rules import Finding
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.questions import RowCounts, SurveyAnswer
from fedsplit.regression.options import Settings


def with_columns(draft: Plan, answers: Mapping[str, SurveyAnswer]) -> Plan:
    """The draft with the columns that ``.`` stands for; InputError if clients differ."""
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

    Raises InputError if clients have different things in a column that nobody has declared.
    """
    return typed(draft, {column: _known(column, answers) for column in draft.columns})


def check_present(plan: Plan, present: Mapping[str, Sequence[str]]) -> None:
    """Raise InputError if a client lacks one of the columns of a plan."""
    columns = [*plan.columns, *plan.others]
    for name, own in present.items():
        for column in columns:
            if column in own:
                continue
            having = [f" (client {other} has it)" for other in present if column in present[other]]
            elsewhere = "".join(having[:1])
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


def with_levels(
    plan: Plan, settings: Settings, counts: Mapping[str, RowCounts]
) -> tuple[Plan, list[Finding]]:
    """The plan with the levels of every category over some clients, and what to say of them.

    There are no counts if levels are declared and nothing may be counted.
    """
    family = plan.chosen_family
    formula = plan.parsed
    levels: dict[str, Sequence[Level]] = {}
    findings: list[Finding] = []
    for column in plan.types:
        if column in plan.categorical:
            levels[column], notes = _levels_of(column, plan.types[column], settings, counts)
            findings += notes
    known = listed(levels) or "none"
    for column in settings.references:
        if column not in levels:
            raise InputError(f"reference: {column} is no category of this model, {known} is")
    for column in settings.declared_levels:
        if column in plan.columns and column not in levels:
            raise InputError(
                f"levels: {column} is no category of this model, {known} is: write C({column})"
            )
    target = formula.target_column
    classes = levels.pop(target, ()) if target else ()
    if target and classes:
        named = plan.types[target] == "text" or target in settings.references
        family.check_classes(target, classes, named)
    # the levels say from now on what is a category
    return replace(plan, levels=levels, classes=classes, categories=()), findings


def _levels_of(
    column: str, kind: Type, settings: Settings, counts: Mapping[str, RowCounts]
) -> tuple[list[Level], list[Finding]]:
    """The levels of a category, the reference first, and what is to be said of them."""
    reference = settings.references.get(column)
    if column in settings.declared_levels:
        levels = list(settings.declared_levels[column])
        if counts:
            levels = _present(column, levels, counts)
        return with_reference(column, levels, reference), []
    declared = column in settings.declared
    levels, findings = ordered_levels(column, kind, counts, stored=not declared)
    if kind == "text":
        if not declared:
            check_forms(column, levels)
        findings += _alike(column, levels, "differ only in case", str.casefold)
        what = "look the same but have different characters"
        # The code of a character shows what is different where a page does not.
        findings += _alike(column, levels, what, appearance, lambda level: ascii(level)[1:-1])
    return with_reference(column, levels, reference), findings


def check_forms(column: str, levels: Sequence[Level]) -> None:
    """Raise InputError if two levels of text are one number, date or boolean, written twice."""
    forms: dict[tuple[Type, str], list[Level]] = defaultdict(list)
    for level in levels:
        kind = _looks_like(level)
        if kind != "text":
            forms[kind, FORMS[kind](level)].append(level)
    for (kind, _), same in forms.items():
        if len(same) > 1:
            merge = "or write them alike"
            if all(_looks_like(level) == kind for level in levels):
                merge = f"or {declaration(column, kind)} to merge them"
            raise InputError(
                f"column {column} holds {listed(same)}, which are the same {kind} written "
                f"differently: give {declaration(column, 'text')} to keep them apart, {merge}"
            )


def _alike(
    column: str,
    levels: Sequence[Level],
    how: str,
    key: Callable[[str], str],
    shown: Callable[[str], str] = str,
) -> list[Finding]:
    """A finding, if there are levels of the same key, with how it shows them."""
    groups: dict[str, list[str]] = defaultdict(list)
    for level in levels:
        groups[key(level)].append(shown(level))
    alike = [" and ".join(same) for same in groups.values() if len(same) > 1]
    if not alike:
        return []
    one = f"column {column} has levels that {how}: {listed(alike, 3)}"
    return [Finding(column, one, f"columns have levels that {how}", column)]


def ordered_levels(
    column: str, kind: Type, counts: Mapping[str, RowCounts], stored: bool
) -> tuple[list[Level], list[Finding]]:
    """All levels of a category in the order that clients have them in, or else sorted.

    The orders that clients have stored count if ``stored``; the findings say what they leave open.
    """
    everything = {level for each in counts.values() for level in each.levels[column]}
    default = sort_levels(list(everything), kind)
    orders = {}
    if stored:
        known = {name: each for name, each in counts.items() if column in each.orders}
        meant = any(each.orders[column] for each in known.values())
        for name, each in known.items():
            if each.orders[column] == meant:
                orders[name] = list(each.levels[column])
        in_default = all(order == sort_levels(order, kind) for order in orders.values())
        if orders and (meant or not in_default):
            return _merged(column, orders, default, meant)
    return default, []


def _present(
    column: str, declared: Sequence[Level], counts: Mapping[str, RowCounts]
) -> list[Level]:
    """The declared levels that a row has; InputError if a client has another one."""
    present: set[Level] = set()
    for name, each in counts.items():
        own = {level for level, rows in each.levels[column].items() if rows}
        others = own - set(declared)
        if others:
            raise InputError(
                f"client {name}: column {column} has the level {listed(sorted(others))}, which is "
                f"not among those declared: {listed(declared)}"
            )
        present |= own
    return [level for level in declared if level in present]


def with_reference(column: str, levels: Sequence[Level], reference: str | None) -> list[Level]:
    """The levels with the reference first, if the user has named one."""
    if reference is None:
        return list(levels)
    try:
        first = levels[level_at(levels, reference)]
    except ValueError as error:
        raise InputError(f"reference of {column}: {error}") from None
    return [first, *[level for level in levels if level != first]]


def _looks_like(level: Level) -> Type:
    if is_number(level):
        return "number"
    if is_date(level):
        return "date"
    return "boolean" if is_boolean(level) else "text"


def _merged(
    column: str, orders: Mapping[str, Sequence[Level]], default: Sequence[Level], meant: bool
) -> tuple[list[Level], list[Finding]]:
    """One order of the levels that agrees with those of all clients.

    Levels between which no client decides are sorted, with a finding if the order has a meaning.
    One that is in no order comes last.
    """
    sorter: TopologicalSorter[Level] = TopologicalSorter()
    for order in orders.values():
        sorter.add(order[0])
        for lower, higher in pairwise(order):
            sorter.add(higher, lower)
    try:
        sorter.prepare()
    except CycleError:
        if not meant:
            return list(default), []
        shown = listed((f"{name} has {' < '.join(each)}" for name, each in orders.items()), 3)
        raise InputError(
            f"column {column}: its levels are in different orders, client {shown}: make them the "
            f"same, or give {declaration(column, 'text')} to ignore them"
        ) from None
    levels: list[Level] = []
    tied: list[Level] = []
    places = {level: place for place, level in enumerate(default)}
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=places.__getitem__)
        sorter.done(*ready)
        levels += ready
        if len(ready) > 1:
            tied += ready
    known = set(levels)
    rest = [level for level in default if level not in known]
    if not meant or not (tied or rest):
        return levels + rest, []
    one = (
        f"column {column}: no client has an order of {listed(tied or rest)}; they are taken as "
        f"{' < '.join(levels + rest)}"
    )
    many = "columns have levels of which no client has an order"
    return levels + rest, [Finding(column, one, many, column)]
