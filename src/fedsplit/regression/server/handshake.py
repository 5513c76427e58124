"""The handshake: what clients agree on before the first round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedsplit.data.categories import Level
from fedsplit.data.formula.formula import Formula
from fedsplit.data.types import Type
from fedsplit.errors import InputError, listed
from fedsplit.loop.trace import Row
from fedsplit.regression.client.description import Description
from fedsplit.regression.client.design import Moments
from fedsplit.regression.client.findings import Finding, in_lines
from fedsplit.regression.client.measuring import Measured
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.questions.moments import Coded
from fedsplit.regression.client.schema import Schema
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.options import Settings
from fedsplit.regression.server.federation import CodedRows, FitDriver, code_rows
from fedsplit.regression.server.levels import (
    case_findings,
    check_forms,
    declared_levels,
    ordered_levels,
    with_reference,
)
from fedsplit.regression.server.looking import Looked, look, look_at_declared, wanted_by
from fedsplit.regression.server.pooled_state import agree_on_state
from fedsplit.remote.members import Members


@dataclass(frozen=True)
class Agreement:
    """What the handshake came to.

    Attributes
    ----------
    formula : Formula
    plan : Plan
        How every client makes a design of its rows.
    rows : CodedRows
        The rows that are used; a client without a complete one is left out.
    moments : sequence of Moments
        Of each of them.
    missing : mapping of str to int
        The rows that each client left out for missing values.
    warnings : sequence of str
        What could disclose single rows, or was left out: one line for each kind.
    exchanges : sequence of Row
        All that was asked until then.
    """

    formula: Formula
    plan: Plan
    rows: CodedRows
    moments: Sequence[Moments]
    missing: Mapping[str, int]
    warnings: Sequence[str]
    exchanges: Sequence[Row] = ()

    @property
    def intercept(self) -> int | None:
        """Which column of a design is the constant term, if there is one."""
        if self.formula.intercept:
            return 0
        return None


def agree(
    members: Members, formula: Formula, settings: Settings, excluded: Sequence[str] = ()
) -> Agreement:
    """Ask every client what it has, and agree on the design.

    Two questions are enough where every category is declared and no function depends on the rows
    of all clients: what a client can tell before anything is decided it tells at once.

    Parameters
    ----------
    members : Members
    formula : Formula
        In which ``.`` may stand for all other columns but those ``excluded``.
    settings : Settings
    excluded : sequence of str

    Raises
    ------
    InputError
        If the clients' columns cannot be those of one model.
    """
    if settings.secure:
        looked = look_at_declared(members, formula, settings, excluded)
    else:
        looked = look(members, formula, settings, excluded)
    formula = looked.formula
    descriptions = looked.descriptions
    if settings.missing == "fail":
        _check_complete(descriptions)
    taking_part = looked.taking_part
    measured = _measured(looked, taking_part)
    plan, used, findings = _agree_on_plan(
        members, formula, settings, looked.schema, taking_part, measured
    )
    clusters = len(members.summed)
    rows, coded = FitDriver(members).run(
        code_rows(CodedRows(tuple(used), plan, settings.strict, clusters=clusters))
    )
    _check_terms(formula, dict(zip(used, coded, strict=True)))
    findings += _left_out(descriptions, used, looked.empty)
    findings += [finding for each in descriptions.values() for finding in each.warnings]
    findings += [finding for each in coded for finding in each.warnings]
    return Agreement(
        formula=formula,
        plan=plan,
        rows=rows,
        moments=[each.moments for each in coded],
        missing={name: each.rows - used.get(name, 0) for name, each in descriptions.items()},
        warnings=in_lines(findings),
        exchanges=tuple(members.history.exchanges),
    )


def _measured(looked: Looked, taking_part: Iterable[str]) -> dict[str, Measured] | None:
    """What those that take part have told of functions such as ``poly``, if all of them have."""
    found = {}
    for name in taking_part:
        told = looked.introductions.get(name)
        if told is None or told.measured is None or told.request != looked.request:
            return None
        found[name] = told.measured
    return found


def _left_out(
    descriptions: Mapping[str, Description], used: Mapping[str, int], empty: Sequence[str]
) -> list[Finding]:
    """The clients that take no part."""
    incomplete = [name for name in descriptions if name not in used]
    found = []
    for names, what in ((incomplete, "complete row"), (empty, "row with a value")):
        found += [
            Finding(
                name,
                f"client {name} has no {what} and is left out",
                f"clients have no {what} and are left out",
                name,
            )
            for name in names
        ]
    return found


def _agree_on_plan(
    members: Members,
    formula: Formula,
    settings: Settings,
    schema: Schema,
    descriptions: Mapping[str, Description],
    measured: Mapping[str, Measured] | None,
) -> tuple[Plan, dict[str, int], list[Finding]]:
    """The plan of the clients that take part, with the state of its functions.

    Returns
    -------
    plan : Plan
    used : dict of str to int
        How many rows of each client are used; one whose rows are all outside the breaks of
        ``cut`` is left out, and nothing of it is in the plan.
    findings : list of Finding
    """
    plan, findings = plan_of(formula, settings, schema, descriptions)
    pooled = agree_on_state(members.only(list(descriptions)), plan, settings.strict, measured)
    used = {name: each.kept for name, each in descriptions.items()} | pooled.used
    for name, count in used.items():
        _check_inside(name, descriptions[name].kept - count, settings)
    inside = {name: each for name, each in descriptions.items() if used[name]}
    if not inside:
        raise InputError(f"formula {formula.text!r}: every row is outside the breaks of cut()")
    if len(inside) < len(descriptions):
        return _agree_on_plan(members, formula, settings, schema, inside, measured)
    return pooled.plan, used, findings + pooled.warnings


def _check_complete(descriptions: Mapping[str, Description]) -> None:
    """Raise InputError if a value is missing."""
    for name, each in descriptions.items():
        for column, absent in each.missing.items():
            if absent:
                raise InputError(
                    f"client {name}: column {column} has {absent} missing "
                    f"value{'s' * (absent > 1)}: fill them, or choose drop for missing values"
                )


def _check_inside(name: str, outside: int, settings: Settings) -> None:
    """Raise InputError if rows that ``cut`` has no interval for are missing values and refused."""
    if outside and settings.missing == "fail":
        raise InputError(
            f"client {name}: {outside} row{'s' * (outside > 1)} outside the breaks of cut(): write "
            "wider ones, or choose drop for missing values"
        )


def plan_of(
    formula: Formula,
    settings: Settings,
    schema: Schema,
    descriptions: Mapping[str, Description],
) -> tuple[Plan, list[Finding]]:
    """The plan that suits the clients that take part, and what is to be said of their levels."""
    family = FAMILIES[settings.family]
    target = formula.target_column
    if family.has_reference and target is None:
        raise InputError(f"{family.name} needs a column as its target, not {formula.target}")
    levels: dict[str, Sequence[Level]] = {}
    findings: list[Finding] = []
    others = wanted_by(formula, settings, ()).others(formula)
    for column, kind in schema.types.items():
        if column not in others and (kind == "text" or column in schema.categories):
            levels[column], found = _levels(column, kind, settings, descriptions)
            findings += found
    for column in settings.references:
        if column not in levels:
            raise InputError(
                f"reference: {column} is no category of this model, {listed(levels) or 'none'} is"
            )
    classes: Sequence[Level] = ()
    if target in levels:
        if not family.classifies:
            raise InputError(
                f"column {target} holds text: for {family.name} the target must be {family.target}"
            )
        classes = levels.pop(target)
        named = schema.types[target] == "text" or target in settings.references
        family.check_classes(target, classes, named)
    plan = Plan(
        formula=formula.text,
        family=family.name,
        levels=levels,
        types=schema.types,
        classes=classes,
        weights=settings.weights,
        offset=settings.offset,
        exposure=settings.exposure,
        others=others,
    )
    return plan, findings


def _levels(
    column: str, kind: Type, settings: Settings, descriptions: Mapping[str, Description]
) -> tuple[list[Level], list[Finding]]:
    """The levels of a category, the reference first, and what is to be said of them."""
    if settings.dp is not None:  # which of them rows have is not told
        levels = list(settings.declared_levels[column])
        return with_reference(column, levels, settings.references.get(column)), []
    if column in settings.declared_levels:
        levels = declared_levels(column, settings.declared_levels[column], descriptions)
        return with_reference(column, levels, settings.references.get(column)), []
    declared = column in settings.declared
    levels, findings = ordered_levels(column, kind, descriptions, stored=not declared)
    if kind == "text":
        if not declared:
            check_forms(column, levels)
        findings += case_findings(column, levels)
    return with_reference(column, levels, settings.references.get(column)), findings


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
