"""What is known of the clients' columns before a design is agreed on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from fedsplit.data.formula.formula import Formula
from fedsplit.data.texts import appearance
from fedsplit.data.types import Type
from fedsplit.errors import InputError, listed
from fedsplit.regression.client.description import ColumnRequest, Description
from fedsplit.regression.client.introduction import Introduction
from fedsplit.regression.client.questions.columns import Columns, Describe
from fedsplit.regression.client.schema import IN_WORDS, Schema, Wanted, decide
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.options import Settings
from fedsplit.regression.server.federation import ask_everyone
from fedsplit.remote.members import Members


class Looked(NamedTuple):
    """What is known of the columns before a design is agreed on.

    Attributes
    ----------
    formula : Formula
        Without ``.``.
    schema : Schema
    request : ColumnRequest
        What the clients were asked to describe.
    descriptions : mapping of str to Description
        By client.
    introductions : mapping of str to Introduction
        What they told at once; empty if everything was declared.
    empty : sequence of str
        The clients without any value.
    """

    formula: Formula
    schema: Schema
    request: ColumnRequest
    descriptions: Mapping[str, Description]
    introductions: Mapping[str, Introduction]
    empty: Sequence[str]

    @property
    def taking_part(self) -> dict[str, Description]:
        """Those of clients that have a complete row; there is one at least."""
        found = {name: each for name, each in self.descriptions.items() if each.kept}
        if not found:
            columns = listed(self.schema.types)
            rows = self.descriptions.items()
            sizes = listed(f"{name} has {each.rows} rows" for name, each in rows)
            raise InputError(
                f"no client has a row without missing values in {columns}: client {sizes}"
            )
        return found


def look(members: Members, formula: Formula, settings: Settings, excluded: Sequence[str]) -> Looked:
    """Ask every client what it has, and decide what columns are read as."""
    wanted = wanted_by(formula, settings, excluded)
    if not formula.open:
        _check_formula(formula, wanted)
    introductions: dict[str, Introduction] = ask_everyone(members, Columns(wanted))
    present = {name: each.columns for name, each in introductions.items()}
    names = {name: each.names for name, each in introductions.items()}
    empty = _empty(introductions)
    if formula.open:
        full = {name: own for name, own in names.items() if name not in empty} or names
        formula = _complete(formula, full, excluded)
        _check_formula(formula, wanted)
    if not settings.intercept:
        formula = formula.without_intercept()
    if len(empty) == len(present) or (empty and settings.empty_site == "refuse"):
        raise InputError(
            f"there is no row with a value at client {listed(empty)}: correct the data, leave the "
            "client out, or choose leave-out for empty sites"
        )
    present = {name: own for name, own in present.items() if name not in empty}
    columns = wanted.columns(formula)
    _check_present({name: names[name] for name in present}, columns)
    _check_declared(settings, names)
    schema = decide(formula, wanted, columns, present)
    for column in wanted.extra:
        if schema.types[column] != "number":
            held = IN_WORDS[schema.types[column]]
            raise InputError(f"column {column} must hold numbers, it holds {held}")
    request = wanted.request(formula, schema)
    introductions = {name: introductions[name] for name in present}
    descriptions = _described(members, request, introductions)
    return Looked(formula, schema, request, descriptions, introductions, empty)


def look_at_declared(
    members: Members, formula: Formula, settings: Settings, excluded: Sequence[str]
) -> Looked:
    """Ask the clients for counts alone: types and levels are declared, and others are refused."""
    formula, schema, request = declared(formula, settings, excluded)
    levels = {column: settings.declared_levels[column] for column in sorted(request.coded)}
    descriptions = ask_everyone(members, Describe(request, levels))
    return Looked(formula, schema, request, descriptions, {}, ())


def declared(
    formula: Formula, settings: Settings, excluded: Sequence[str]
) -> tuple[Formula, Schema, ColumnRequest]:
    """What a study with secure sums or dp says about its columns; InputError if that is not all.

    Returns
    -------
    formula : Formula
        As the settings have its constant term.
    schema : Schema
    request : ColumnRequest
        What the clients are asked to describe.
    """
    wanted = wanted_by(formula, settings, excluded)
    mode = "secure sums" if settings.dp is None else "dp"
    if formula.open:
        raise InputError(f"{mode}: name the columns in the formula, in place of the dot")
    _check_formula(formula, wanted)
    if not settings.intercept:
        formula = formula.without_intercept()
    others = wanted.others(formula)
    columns = wanted.columns(formula)
    types: dict[str, Type] = dict.fromkeys(others, "text")
    types |= settings.declared
    _check_all_declared(mode, "types", columns, types)
    levels = settings.declared_levels
    used = set(columns) - set(others)
    texts = {column for column in used if types[column] == "text"}
    categories = frozenset(texts | set(formula.categories) | (used & levels.keys()))
    schema = Schema({column: types[column] for column in columns}, categories)
    request = wanted.request(formula, schema)
    _check_all_declared(mode, "levels", sorted(request.coded), levels)
    return formula, schema, request


def _check_all_declared(
    mode: str, what: str, columns: Sequence[str], declared: Mapping[str, object]
) -> None:
    lacking = [column for column in columns if column not in declared]
    if lacking:
        raise InputError(
            f"{mode}: the study must declare the {what} of column {listed(lacking)}, by the "
            f"option {what}: no client tells them"
        )


def wanted_by(formula: Formula, settings: Settings, excluded: Sequence[str]) -> Wanted:
    """What a user has said about the columns of a model."""
    return Wanted(
        formula=formula.text,
        family=settings.family,
        declared=settings.declared,
        weights=settings.weights,
        offset=settings.offset,
        exposure=settings.exposure,
        excluded=tuple(excluded),
        strict=settings.strict,
        study=tuple(settings.columns),
    )


def _check_formula(formula: Formula, wanted: Wanted) -> None:
    """Raise InputError if the family cannot have such a model, or a column has two uses."""
    family = FAMILIES[wanted.family]
    for name in wanted.extra:
        # the trials of a share, as in died / n
        trials = family.binary and name == wanted.weights and name in formula.target_columns
        if name in formula.columns and not trials:
            raise InputError(
                f"column {name} is in the formula and is a weight, offset or exposure: "
                "it cannot be both"
            )
    if formula.has_offset and not family.takes_offset:
        raise InputError(f"{wanted.family} takes no offset")
    if formula.grouped is not None and not family.binary:
        raise InputError(f"{formula.target}: it is a target of logistic, not of {wanted.family}")


def _described(
    members: Members, request: ColumnRequest, introductions: Mapping[str, Introduction]
) -> dict[str, Description]:
    """The clients' descriptions; those that could not know the request are asked for theirs."""
    known = {
        name: each.description
        for name, each in introductions.items()
        if each.description is not None and each.request == request
    }
    lacking = introductions.keys() - known.keys()
    if lacking:
        # those of one place answer together
        places = [names for names in members.cohorts.values() if lacking & set(names)]
        asked = members.only([name for names in places for name in names])
        known |= ask_everyone(asked, Describe(request))
    return {name: known[name] for name in introductions}


def _complete(
    formula: Formula, columns: Mapping[str, Sequence[str]], excluded: Sequence[str]
) -> Formula:
    """The formula with ``.`` replaced by all other columns but those ``excluded``.

    Raises
    ------
    InputError
        If clients have different columns, or no such target.
    """
    name, first = next(iter(columns.items()))
    for other, own in columns.items():
        differing = set(first) ^ set(own)
        if differing:
            raise InputError(
                f"clients {name} and {other} differ in column {listed(sorted(differing))}: "
                "name the columns in the formula, or make them the same"
            )
    for target in formula.target_columns:
        if target not in first:
            raise InputError(f"client {name}: there is no column {target}{_nearest(target, first)}")
    return formula.expanded(column for column in first if column not in excluded)


def _empty(introductions: Mapping[str, Introduction]) -> list[str]:
    """The clients that have columns of the model, or none at all, and no value in any of them."""
    return [
        name
        for name, each in introductions.items()
        if all(fit is not None and fit.empty for fit in each.columns.values())
        and (each.columns or not each.names)
    ]


def _check_present(present: Mapping[str, Sequence[str]], columns: Sequence[str]) -> None:
    """Raise InputError if a client lacks one of the columns."""
    for name, own in present.items():
        for column in columns:
            if column in own:
                continue
            elsewhere = ""
            for other, theirs in present.items():
                if column in theirs:
                    elsewhere = f" (client {other} has it)"
                    break
            known = ""
            if not set(own) <= set(columns):  # between organisations only these are named
                known = f"; its columns are {listed(own, 12)}"
            near = _nearest(column, own)
            raise InputError(f"client {name}: there is no column {column}{elsewhere}{near}{known}")


def _nearest(column: str, present: Iterable[str]) -> str:
    """The end of a message that there is no such column."""
    names = {appearance(name).casefold(): name for name in present}
    for near in get_close_matches(appearance(column).casefold(), names, n=1):
        found = names[near]
        if appearance(found) == appearance(column):
            return f", {found!a} looks the same but has other characters: rename it"
        return f", did you mean {found}?"
    return ""


def _check_declared(settings: Settings, present: Mapping[str, Sequence[str]]) -> None:
    """Raise InputError if a type is declared for a column that no client has."""
    everything = dict.fromkeys(column for own in present.values() for column in own)
    for column in settings.declared:
        if column not in everything:
            raise InputError(
                f"types: there is no column {column} at any client{_nearest(column, everything)}"
            )
