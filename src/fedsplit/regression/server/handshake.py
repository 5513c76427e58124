"""The server's side before the first round: clients agree on columns, levels, missing values and scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from fedsplit.data.categories import Level, as_text
from fedsplit.data.formula import Formula, quoted
from fedsplit.errors import InputError, listed
from fedsplit.regression.client.dataset import ColumnRequest, Description, Plan
from fedsplit.regression.client.design import Moments
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.options import Settings
from fedsplit.regression.server.federation import FederatedRows, Federation


@dataclass(frozen=True)
class Agreement:
    """What the handshake came to.

    plan : how every client codes its rows.
    rows : the clients' coded rows; a client without a complete row is left out.
    moments : what each told of them.
    missing : how many rows of each client were left out for missing values, by name.
    warnings : what could disclose single rows, or was left out.
    """

    plan: Plan
    rows: FederatedRows
    moments: Sequence[Moments]
    missing: Mapping[str, int]
    warnings: Sequence[str]


def agree(federation: Federation, formula: Formula, settings: Settings) -> Agreement:
    """Ask every client what it has, settle how to code it, and check what can be known before the rounds."""
    extra = [
        name for name in (settings.weights, settings.offset, settings.exposure) if name is not None
    ]
    for name in extra:
        if name in formula.columns:
            raise InputError(
                f"column {name} is in the formula and is a weight, offset or exposure: it cannot be both"
            )
    columns = tuple(dict.fromkeys([*formula.columns, *extra]))
    _check_present(federation.columns(), columns)
    request = _request(formula, settings, columns)
    told = federation.describe(request)
    if settings.missing == "fail":
        _check_complete(told)
    if not any(each.kept for each in told.values()):
        sizes = listed(f"{name} has {each.rows} rows" for name, each in told.items())
        raise InputError(
            f"no client has a row without missing values in {listed(columns)}: client {sizes}"
        )
    kinds = {column: _kind(column, told, column in request.categories) for column in columns}
    told = {name: _without_empty_text(each, kinds) for name, each in told.items()}
    heard = [name for name, each in told.items() if each.kept]
    for column in extra:
        if kinds[column] != "number":
            raise InputError(
                f"column {column} must hold numbers, it holds {_plural(kinds[column])}"
            )
    plan = _plan(formula, settings, kinds, told)
    rows, coded = federation.code(plan, settings.strict, heard)
    warnings = [
        f"client {name} has no complete row and is left out" for name in told if name not in heard
    ]
    warnings += [text for each in told.values() for text in each.warnings]
    warnings += [text for each in coded for text in each.warnings]
    return Agreement(
        plan,
        rows,
        [each.moments for each in coded],
        {name: each.rows - each.kept for name, each in told.items()},
        list(dict.fromkeys(warnings)),  # a rare level is found twice
    )


def complete(target: str, federation: Federation, excluded: Sequence[str | None]) -> Formula:
    """The formula of a target on all the other columns, which must be the same at every client."""
    columns = federation.columns()
    name, first = next(iter(columns.items()))
    for other, present in columns.items():
        differing = set(first) ^ set(present)
        if differing:
            raise InputError(
                f"clients {name} and {other} differ in column {listed(sorted(differing))}: "
                "give a formula, or make the columns the same"
            )
    if target not in first:
        raise InputError(f"client {name}: there is no column {target}{_nearest(target, first)}")
    others = [column for column in first if column != target and column not in excluded]
    return Formula(f"{quoted([target])} ~ {quoted(others) or 1}")


def _check_present(told: Mapping[str, Mapping[str, str]], columns: Sequence[str]) -> None:
    for name, present in told.items():
        for column in columns:
            if column not in present:
                others = [other for other, theirs in told.items() if column in theirs]
                elsewhere = f" (client {others[0]} has it)" if others else ""
                raise InputError(
                    f"client {name}: there is no column {column}{elsewhere}{_nearest(column, present)}; "
                    f"its columns are {listed(present, 12)}"
                )


def _nearest(column: str, present: Mapping[str, str]) -> str:
    near = get_close_matches(column, present, n=1)
    return f", did you mean {near[0]}?" if near else ""


def _request(formula: Formula, settings: Settings, columns: tuple[str, ...]) -> ColumnRequest:
    classes = (
        {formula.target_column}
        if FAMILIES[settings.family].classifies and formula.target_column
        else set()
    )
    filled = set(formula.columns) - formula.categories - set(formula.target_columns)
    return ColumnRequest(
        columns,
        frozenset(formula.categories | classes),
        frozenset(filled if settings.missing == "mean" else ()),
        settings.strict,
    )


def _check_complete(told: Mapping[str, Description]) -> None:
    for name, each in told.items():
        for column, absent in each.missing.items():
            if absent:
                raise InputError(
                    f"client {name}: column {column} has {absent} missing value{'s' * (absent > 1)}: "
                    "fill them, or choose drop or mean for missing values"
                )


def _kind(column: str, told: Mapping[str, Description], category: bool) -> str:
    """The column's kind at all clients: one that is empty somewhere is what it is elsewhere."""
    kinds = {
        name: each.kinds[column] for name, each in told.items() if each.kinds[column] != "empty"
    }
    if not kinds:
        raise InputError(f"column {column} is empty at every client: leave it out")
    if set(kinds.values()) <= {"number", "boolean"}:
        return "number" if "number" in kinds.values() else "boolean"
    if "text" in kinds.values() and not category:
        one = next((name for name, kind in kinds.items() if kind != "text"), None)
        if one is not None:
            other = next(name for name, kind in kinds.items() if kind == "text")
            raise InputError(
                f"column {column} holds {_plural(kinds[one])} at client {one} and text at client {other}: "
                f"correct the file, or write C({column}) if it is a category"
            )
    return "text"


def _without_empty_text(told: Description, kinds: Mapping[str, str]) -> Description:
    """With no row kept where a column that is text elsewhere is empty: only numbers can be filled."""
    empty = any(kinds[column] == "text" and kind == "empty" for column, kind in told.kinds.items())
    return replace(told, kept=0) if empty else told


def _plural(kind: str) -> str:
    return {"number": "numbers", "boolean": "yes or no"}.get(kind, kind)


def _plan(
    formula: Formula, settings: Settings, kinds: Mapping[str, str], told: Mapping[str, Description]
) -> Plan:
    target, family = formula.target_column, FAMILIES[settings.family]
    levels = {
        column: _union(kind, [each.levels.get(column, {}) for each in told.values()])
        for column, kind in kinds.items()
        if column in formula.categories or kind == "text"
    }
    classes: Sequence[Level] = ()
    if family.classifies and target is not None:
        classes = _union(kinds[target], [each.levels[target] for each in told.values()])
        family.check_classes(target, classes)
    elif family.needs_column:
        raise InputError(f"{family.name} needs a column as its target, not {formula.target}")
    elif target is not None and kinds[target] == "text":
        raise InputError(
            f"column {target} holds text: for {family.name} the target must be {family.target}"
        )
    levels.pop(target or "", None)
    sums = {
        column: [each.sums[column] for each in told.values() if column in each.sums]
        for column in kinds
    }
    fills = {
        column: sum(total for _, total in parts) / max(1, sum(number for number, _ in parts))
        for column, parts in sums.items()
        if parts and kinds[column] != "text"
    }
    return Plan(
        formula.text,
        family.name,
        levels,
        classes,
        fills,
        settings.weights,
        settings.offset,
        settings.exposure,
    )


def _union(kind: str, levels: Sequence[Mapping[Level, int]]) -> list[Level]:
    """All the levels, sorted; as text where one client has text."""
    found = {level for each in levels for level in each}
    return sorted({as_text(level) for level in found}) if kind == "text" else sorted(found)
