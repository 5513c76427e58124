"""The handshake: what clients agree on before the first round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from fedsplit.data.categories import Level, as_text
from fedsplit.data.formula import Formula
from fedsplit.errors import InputError, listed
from fedsplit.regression.client.dataset import ColumnRequest, Description, Plan
from fedsplit.regression.client.design import Moments
from fedsplit.regression.client.findings import Finding, in_lines
from fedsplit.regression.client.fit_questions import Coded, Columns, Describe
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.options import Settings
from fedsplit.regression.server.federation import FederatedRows, ask_everyone
from fedsplit.regression.server.pooled_state import agree_on_state
from fedsplit.remote.members import Members

IN_WORDS = {"number": "numbers", "boolean": "yes or no", "text": "text"}
"""What a column of each kind holds."""


@dataclass(frozen=True)
class Agreement:
    """What the handshake came to.

    Attributes
    ----------
    formula : Formula
    plan : Plan
        How every client makes a design of its rows.
    rows : FederatedRows
        The designs; a client without a complete row is left out.
    moments : sequence of Moments
        Of each of them.
    missing : mapping of str to int
        The rows that each client left out for missing values.
    warnings : sequence of str
        What could disclose single rows, or was left out: one line for each kind.
    """

    formula: Formula
    plan: Plan
    rows: FederatedRows
    moments: Sequence[Moments]
    missing: Mapping[str, int]
    warnings: Sequence[str]

    @property
    def intercept(self) -> int | None:
        """Which column of a design is the constant term, if there is one."""
        if self.formula.intercept:
            return 0
        return None


def agree(members: Members, formula: Formula, settings: Settings) -> Agreement:
    """Ask every client what it has, and agree on the design.

    Raises
    ------
    InputError
        If the clients' columns cannot be those of one model.
    """
    extra = [
        name for name in (settings.weights, settings.offset, settings.exposure) if name is not None
    ]
    for name in extra:
        if name in formula.columns:
            raise InputError(
                f"column {name} is in the formula and is a weight, offset or exposure: "
                "it cannot be both"
            )
    if formula.has_offset and not FAMILIES[settings.family].takes_offset:
        raise InputError(f"{settings.family} takes no offset")
    columns = tuple(dict.fromkeys([*formula.columns, *extra]))
    _check_present(ask_everyone(members, Columns()), columns)
    request = _request(formula, settings, columns)
    descriptions = ask_everyone(members, Describe(request))
    if settings.missing == "fail":
        _check_complete(descriptions)
    if not any(each.kept for each in descriptions.values()):
        sizes = listed(f"{name} has {each.rows} rows" for name, each in descriptions.items())
        raise InputError(
            f"no client has a row without missing values in {listed(columns)}: client {sizes}"
        )
    kinds = {
        column: _kind(column, descriptions, column in request.categories) for column in columns
    }
    for column in extra:
        if kinds[column] != "number":
            raise InputError(
                f"column {column} must hold numbers, it holds {IN_WORDS[kinds[column]]}"
            )
    for name, each in descriptions.items():
        # Only numbers can be filled: no row is complete where a text column is empty.
        if any(kind == "empty" and kinds[column] == "text" for column, kind in each.kinds.items()):
            descriptions[name] = replace(each, kept=0)
    plan = _plan(formula, settings, kinds, list(descriptions.values()))
    taking_part = [name for name, each in descriptions.items() if each.kept]
    pooled = agree_on_state(members.only(taking_part), plan, settings.strict)
    for name, used in pooled.used.items():
        _check_inside(name, descriptions[name].kept - used, settings)
        descriptions[name] = replace(descriptions[name], kept=used)
    plan = pooled.plan
    taking_part = [name for name, each in descriptions.items() if each.kept]
    if not taking_part:
        raise InputError(f"formula {formula.text!r}: every row is outside the breaks of cut()")
    rows = FederatedRows(members.only(taking_part), plan, settings.strict)
    coded = rows.code()
    _check_terms(formula, dict(zip(taking_part, coded, strict=True)))
    findings = [
        Finding(
            name,
            f"client {name} has no complete row and is left out",
            "clients have no complete row and are left out",
            name,
        )
        for name in descriptions
        if name not in taking_part
    ]
    findings += [finding for each in descriptions.values() for finding in each.warnings]
    findings += pooled.warnings
    findings += [finding for each in coded for finding in each.warnings]
    return Agreement(
        formula=formula,
        plan=plan,
        rows=rows,
        moments=[each.moments for each in coded],
        missing={name: each.rows - each.kept for name, each in descriptions.items()},
        warnings=in_lines(findings),
    )


def complete(formula: Formula, members: Members, excluded: Sequence[str | None]) -> Formula:
    """The formula with ``.`` replaced by all other columns but those ``excluded``.

    Raises
    ------
    InputError
        If clients have different columns, or no such target.
    """
    columns = ask_everyone(members, Columns())
    name, first = next(iter(columns.items()))
    for other, present in columns.items():
        differing = set(first) ^ set(present)
        if differing:
            raise InputError(
                f"clients {name} and {other} differ in column {listed(sorted(differing))}: "
                "name the columns in the formula, or make them the same"
            )
    for target in formula.target_columns:
        if target not in first:
            raise InputError(f"client {name}: there is no column {target}{_nearest(target, first)}")
    return formula.expanded(column for column in first if column not in excluded)


def _check_present(present: Mapping[str, Mapping[str, str]], columns: Sequence[str]) -> None:
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
            raise InputError(
                f"client {name}: there is no column {column}{elsewhere}{_nearest(column, own)}; "
                f"its columns are {listed(own, 12)}"
            )


def _nearest(column: str, present: Iterable[str]) -> str:
    """The end of a message that there is no such column."""
    for near in get_close_matches(column, present, n=1):
        return f", did you mean {near}?"
    return ""


def _request(formula: Formula, settings: Settings, columns: tuple[str, ...]) -> ColumnRequest:
    categories = set(formula.categories)
    if FAMILIES[settings.family].classifies and formula.target_column is not None:
        categories.add(formula.target_column)
    filled: set[str] = set()
    if settings.missing == "mean":
        filled = set(formula.columns) - formula.categories - set(formula.target_columns)
    return ColumnRequest(columns, frozenset(categories), frozenset(filled), settings.strict)


def _check_complete(descriptions: Mapping[str, Description]) -> None:
    """Raise InputError if a value is missing."""
    for name, each in descriptions.items():
        for column, absent in each.missing.items():
            if absent:
                raise InputError(
                    f"client {name}: column {column} has {absent} missing "
                    f"value{'s' * (absent > 1)}: fill them, or choose drop or mean for missing "
                    "values"
                )


def _check_inside(name: str, outside: int, settings: Settings) -> None:
    """Raise InputError if rows that ``cut`` has no interval for are missing values and refused."""
    if outside and settings.missing == "fail":
        raise InputError(
            f"client {name}: {outside} row{'s' * (outside > 1)} outside the breaks of cut(): write "
            "wider ones, or choose drop for missing values"
        )


def _kind(column: str, descriptions: Mapping[str, Description], category: bool) -> str:
    """The kind of a column over all clients; one that is empty somewhere is as it is elsewhere."""
    kinds = {name: each.kinds[column] for name, each in descriptions.items()}
    kinds = {name: kind for name, kind in kinds.items() if kind != "empty"}
    found = set(kinds.values())
    if not found:
        raise InputError(f"column {column} is empty at every client: leave it out")
    if "text" not in found:
        # A number at one client makes the booleans of the others numbers.
        return "number" if "number" in found else "boolean"
    if len(found) > 1 and not category:
        one = next(name for name, kind in kinds.items() if kind != "text")
        other = next(name for name, kind in kinds.items() if kind == "text")
        raise InputError(
            f"column {column} holds {IN_WORDS[kinds[one]]} at client {one} and text at client "
            f"{other}: correct the file, or write C({column}) if it is a category"
        )
    return "text"


def _plan(
    formula: Formula,
    settings: Settings,
    kinds: Mapping[str, str],
    descriptions: Sequence[Description],
) -> Plan:
    """The plan that suits all clients."""
    family = FAMILIES[settings.family]
    target = formula.target_column
    classes: Sequence[Level] = ()
    if family.classifies and target is not None:
        classes = _union(kinds[target], [each.levels[target] for each in descriptions])
        family.check_classes(target, classes)
    elif family.has_reference:
        raise InputError(f"{family.name} needs a column as its target, not {formula.target}")
    elif target is not None and kinds[target] == "text":
        raise InputError(
            f"column {target} holds text: for {family.name} the target must be {family.target}"
        )
    levels = {}
    fills = {}
    for column, kind in kinds.items():
        if column != target and (column in formula.categories or kind == "text"):
            levels[column] = _union(kind, [each.levels.get(column, {}) for each in descriptions])
        sums = [each.sums[column] for each in descriptions if column in each.sums]
        if sums and kind != "text":
            total = sum(part for _, part in sums)
            fills[column] = total / max(1, sum(count for count, _ in sums))
    return Plan(
        formula=formula.text,
        family=family.name,
        levels=levels,
        classes=classes,
        fills=fills,
        weights=settings.weights,
        offset=settings.offset,
        exposure=settings.exposure,
    )


def _check_terms(formula: Formula, coded: Mapping[str, Coded]) -> None:
    """Raise InputError unless all designs have the same columns, one at least."""
    expected: list[str] | None = None
    for name, each in coded.items():
        terms = list(each.moments.names)
        if not terms:
            raise InputError(f"formula {formula.text!r}: there is no term on the right")
        if expected is None:
            expected = terms
        if terms != expected:
            raise InputError(
                f"client {name}: its terms are {listed(terms)}, not {listed(expected)}"
            )


def _union(kind: str, levels: Sequence[Mapping[Level, int]]) -> list[Level]:
    """All the levels, sorted; as text if one client has text."""
    found = {level for each in levels for level in each}
    if kind == "text":
        return sorted({as_text(level) for level in found})
    return sorted(found)
