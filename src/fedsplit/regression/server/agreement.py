"""How clients agree on a plan: columns, types, levels, and states of functions, in step.

The agreement is a dialogue. A draft of the plan is surveyed together with the first sums that
functions such as ``poly`` depend on; from the answers the plan is decided here, once for all. A
client is asked a second time only if it counted the levels of a category in another type than the
one agreed on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from fedsplit.arrays import Array
from fedsplit.data.formula.formula import Formula
from fedsplit.data.formula.pooled_functions import ColumnStatistic
from fedsplit.data.pooled.function import State
from fedsplit.data.types import Type
from fedsplit.dialogue import Dialogue, together
from fedsplit.errors import InputError, listed
from fedsplit.loop.trace import Row
from fedsplit.regression.client.design import Moments
from fedsplit.regression.client.guards.rules import Finding, in_lines
from fedsplit.regression.client.plan import Coding, DerivedColumn, Plan
from fedsplit.regression.client.questions import (
    RowCounts,
    SumAnswer,
    SumQuestion,
    Survey,
    SurveyAnswer,
)
from fedsplit.regression.client.statistics import OfArgument, RowsInside
from fedsplit.regression.families import parameters_of
from fedsplit.regression.options import Settings
from fedsplit.regression.server.columns import (
    check_declared,
    check_present,
    with_columns,
    with_levels,
    with_types,
)
from fedsplit.regression.server.federation import BeforeSums, CodedRows, SummedClients, code_rows
from fedsplit.statistic import Statistic

T = TypeVar("T")


@dataclass(frozen=True)
class Agreement:
    """What clients agreed on."""

    settings: Settings  # with all that was declared
    rows: CodedRows  # those that are used; a client without a complete one is left out
    missing: Mapping[str, int]  # the rows that each client left out for missing values
    missing_values: Mapping[str, int]  # how many values each column lacks, over all clients
    # what could disclose single rows, or was left out: one line for each kind
    warnings: Sequence[str]
    exchanges: Sequence[Row] = ()  # all that was asked until then

    @property
    def plan(self) -> Plan:
        """How every client makes a design of its rows."""
        return self.rows.plan

    @property
    def moments(self) -> Sequence[Moments]:
        """Of the rows of each client."""
        return self.rows.moments


class AgreedPlan(NamedTuple):
    """A plan, and the rows of each client by it."""

    settings: Settings
    plan: Plan
    counts: dict[str, RowCounts]  # of the clients that have a value
    used: dict[str, int]  # the rows that are used, of the clients that take part
    empty: list[str]  # the clients without any value
    # what is to be said of levels, and what sums could disclose of single rows
    findings: list[Finding]

    @property
    def coding(self) -> Coding:
        """By which the clients that take part are asked about rows of the plan."""
        return Coding(self.plan, self.settings.strict, tuple(self.used))


class AgreedStates(NamedTuple):
    """What functions such as ``poly`` and ``cut`` know of the rows of all clients."""

    states: dict[str, State]  # by the text of a function
    # by client, the complete rows that have a value in every function: ``cut`` may lack one
    used: dict[str, int]
    findings: list[Finding]


def agree(
    formula: Formula | str,
    settings: Settings,
    excluded: Sequence[str] = (),
    derived: Mapping[str, DerivedColumn] | None = None,
) -> Dialogue[Agreement]:
    """Agree with the clients on a plan, and ask for the moments of the rows that it makes.

    Two exchanges are enough unless clients have different types in a category, or a function needs
    more than one statistic of all rows. In a formula ``.`` may stand for all other columns but
    those ``excluded``; terms, weights and offsets may name columns ``derived`` by earlier models.
    Raises InputError if the clients' columns cannot be those of one model.
    """
    agreed = yield from agree_on_rows(formula, settings, excluded, derived)
    plan, used, counts = agreed.plan, agreed.used, agreed.counts
    if not plan.names:
        raise InputError(f"formula {plan.formula!r}: there is no term on the right")
    summed: Sequence[str] = yield SummedClients()
    rows, findings = yield from code_rows(
        CodedRows(tuple(used), plan, settings.strict, clusters=len(summed))
    )
    warnings = [finding for each in counts.values() for finding in each.warnings]
    return Agreement(
        agreed.settings,
        rows,
        missing={name: each.rows - used.get(name, 0) for name, each in counts.items()},
        missing_values=sum((Counter(each.missing) for each in counts.values()), Counter()),
        warnings=in_lines([*agreed.findings, *_left_out(agreed), *warnings, *findings]),
    )


def agree_on_rows(
    formula: Formula | str,
    settings: Settings,
    excluded: Sequence[str] = (),
    derived: Mapping[str, DerivedColumn] | None = None,
) -> Dialogue[AgreedPlan]:
    """Agree with the clients on a plan, as ``agree`` does, without a design.

    Analyses of columns as they are in the tables, such as counts of levels, begin with it.
    """
    if isinstance(formula, str):
        formula = Formula(formula)
    draft = draft_of(formula, settings, excluded, derived)
    if settings.secure:
        known: Plan | None = yield BeforeSums(declaration(draft, settings))
        if known is not None:
            settings = with_declared(settings, known)
            draft = draft_of(known.parsed, settings, excluded, derived)
        draft = with_declarations(draft, settings)
    return (yield from agree_on_plan(draft, settings))


def with_declared(settings: Settings, plan: Plan) -> Settings:
    """Settings that declare all types and levels of a plan."""
    return replace(settings, types=plan.types, levels={**plan.levels, **settings.declared_levels})


def draft_of(
    formula: Formula,
    settings: Settings,
    excluded: Sequence[str],
    derived: Mapping[str, DerivedColumn] | None = None,
) -> Plan:
    """What a user has said of a model, before any client is asked."""
    if not settings.intercept:
        formula = formula.without_intercept()
    family = settings.chosen_family
    plan = Plan(
        formula=formula.text,
        family=family.name,
        parameters=parameters_of(family),
        types=settings.declared,
        weights=settings.weights,
        offset=settings.offset,
        exposure=settings.exposure,
        draft=True,
        excluded=tuple(excluded),
        derived=derived or {},
    )
    used = plan.columns
    others = tuple(name for name in dict.fromkeys(settings.columns) if name not in used)
    types = settings.declared
    if not formula.open:
        plan.chosen_family.check_plan(plan)
        types = {name: types[name] for name in (*used, *others) if name in types}
    text = {name for name, kind in types.items() if kind == "text" and name not in others}
    categories = sorted({*formula.categories, *text})
    return replace(plan, types=types, others=others, categories=categories)


def with_declarations(draft: Plan, settings: Settings) -> Plan:
    """The plan of a study with secure sums or dp; InputError unless everything is declared."""
    mode = "secure sums" if settings.dp is None else "dp"
    if draft.parsed.open:
        raise InputError(f"{mode}: name the columns in the formula, in place of the dot")
    types: dict[str, Type] = {**dict.fromkeys(draft.others, "text"), **draft.types}
    levels = settings.declared_levels
    types = _declared(mode, "types", [*draft.columns, *draft.others], types)
    categories = sorted({*draft.categories, *(set(draft.columns) & levels.keys())})
    plan = replace(draft, types=types, categories=categories, draft=False, excluded=())
    return replace(plan, levels=_declared(mode, "levels", sorted(plan.categorical), levels))


def declaration(draft: Plan, settings: Settings) -> Dialogue[Plan]:
    """What a study with secure sums declares, of clients that may be asked before it.

    Between organisations no client answers what its columns hold; where all rows are at hand, as
    when a study is tried out, they are surveyed.
    """
    agreed = yield from agree_on_columns(draft, settings)
    lacking = [*agreed.empty, *(name for name in agreed.counts if name not in agreed.used)]
    if lacking:
        raise InputError(
            f"client {listed(lacking)} has no complete row: with secure sums every client takes "
            "part, leave it out of the data"
        )
    plan = agreed.plan
    classes = {str(plan.parsed.target_column): plan.classes} if plan.classes else {}
    return replace(plan, levels={**plan.levels, **classes})


def agree_on_plan(draft: Plan, settings: Settings) -> Dialogue[AgreedPlan]:
    """Agree on types, levels and states of functions, as far as possible in the same exchanges."""
    dialogues: dict[str, Dialogue[object]] = {"columns": agree_on_columns(draft, settings)}
    if draft.parsed.pooled:
        dialogues["states"] = agree_on_states(Coding(draft, settings.strict, ()))
    results = yield from together(dialogues)
    agreed: AgreedPlan = results["columns"]
    states: AgreedStates | None = results.get("states")
    while draft.parsed.pooled:
        if states is None:
            states = yield from agree_on_states(agreed.coding)
            assert states is not None  # with all types agreed on, every client has an answer
        inside = {name: states.used.get(name, rows) for name, rows in agreed.used.items()}
        if settings.missing == "fail":
            _check_inside(agreed.used, inside)
        used = {name: rows for name, rows in inside.items() if rows}
        if not used:
            raise InputError(f"formula {draft.formula!r}: every row is outside the breaks of cut()")
        if len(used) == len(inside):
            plan = replace(agreed.plan, state=states.states)
            return agreed._replace(plan=plan, used=used, findings=agreed.findings + states.findings)
        # nothing of a client that takes no part is in the plan
        counts = {name: agreed.counts[name] for name in used}
        plan, findings = with_levels(agreed.plan, settings, counts)
        agreed = agreed._replace(plan=plan, used=used, findings=findings)
        if states.states:
            states = None
    return agreed


def agree_on_columns(draft: Plan, settings: Settings) -> Dialogue[AgreedPlan]:
    """Agree on the types of columns and the levels of categories."""
    answers: dict[str, SurveyAnswer] = yield Survey(Coding(draft, settings.strict, ()))
    plan, empty = draft, []
    if draft.draft:
        empty = _without_values(answers)
        full = {name: each for name, each in answers.items() if name not in empty}
        plan = with_columns(draft, full or answers)
        if draft.parsed.open:
            plan.chosen_family.check_plan(plan)
        if not full or (empty and settings.empty_site == "refuse"):
            what = f"there is no row with a value at client {listed(empty)}: correct the data"
            others = ", leave the client out, or choose empty_site='leave-out'"
            raise InputError(what + others * bool(full))
        check_present(plan, {name: each.names for name, each in full.items()})
        names = [each.names for each in answers.values()]
        check_declared("types", settings.declared, names)
        check_declared("levels", settings.declared_levels, names)
        plan = with_types(plan, full)
        uncounted = tuple(name for name, each in full.items() if not _is_counted(each, plan))
        if uncounted:
            full |= yield Survey(Coding(plan, settings.strict, uncounted))
        answers = full
    counts = {name: each.counts for name, each in answers.items() if each.counts is not None}
    if settings.missing == "fail":
        _check_complete(counts)
    _check_enough(counts)
    taking_part = {name: each for name, each in counts.items() if each.complete}
    plan, findings = with_levels(plan, settings, taking_part)
    used = {name: each.complete for name, each in taking_part.items()}
    return AgreedPlan(settings, plan, counts, used, empty, findings)


def agree_on_states(coding: Coding) -> Dialogue[AgreedStates | None]:
    """Agree on what functions such as ``poly`` and ``cut`` know of the rows of all clients.

    None if a client cannot answer before the types of a draft are agreed on. Raises InputError if
    there is no such function of these rows, such as a polynomial of too high a degree.
    """
    formula = coding.plan.parsed
    used: dict[str, int] = {}
    findings: dict[Finding, None] = {}
    agreements = together(
        {
            call.text: _naming(call.text, agreement)
            for call in formula.pooled
            if (agreement := call.function.agreement()) is not None
        }
    )
    totals: dict[str, Array] | None = None
    states: dict[str, State] | None = None
    while states is None:
        statistics: Mapping[str, ColumnStatistic] = {}
        try:
            statistics = agreements.send(totals).questions
        except StopIteration as end:
            states = end.value
            if used or not any(call.function.is_category for call in formula.pooled):
                break  # else the rows between the breaks that a user wrote are still to be counted
        except ValueError as error:
            raise InputError(f"formula {formula.text!r}: {error}") from None
        asked: dict[str, Statistic] = {
            text: OfArgument(text, statistic) for text, statistic in statistics.items()
        }
        # the count of rows stands beside statistics that have the texts of functions
        used_rows = ""
        question = SumQuestion({used_rows: RowsInside(), **asked}, coding)
        answers: dict[str, SumAnswer | None] = yield question
        measured = {name: each for name, each in answers.items() if each is not None}
        if len(measured) < len(answers):
            return None
        used = {
            name: round(each.values[used_rows]["rows"][0, 0]) for name, each in measured.items()
        }
        findings |= dict.fromkeys(note for each in measured.values() for note in each.warnings)
        pooled = question.pooled(list(measured.values()))
        totals = {text: pooled[text]["part"] for text in statistics}
    return AgreedStates(states or {}, used, list(findings))


def _naming(text: str, agreement: Dialogue[State]) -> Dialogue[State]:
    """An agreement whose errors begin with the function that they are about."""
    try:
        return (yield from agreement)
    except ValueError as error:
        raise ValueError(f"{text}: {error}") from None


def _declared(
    mode: str, what: str, columns: Sequence[str], declared: Mapping[str, T]
) -> dict[str, T]:
    """What is declared of each column; InputError if nothing is of one."""
    if lacking := [column for column in columns if column not in declared]:
        raise InputError(
            f"{mode}: the study must declare the {what} of column {listed(lacking)}, by the "
            f"option {what}: no client tells them"
        )
    return {column: declared[column] for column in columns}


def _without_values(answers: Mapping[str, SurveyAnswer]) -> list[str]:
    """The clients that have columns of the model, or none at all, and no value in any of them."""
    return [
        name
        for name, each in answers.items()
        if all(own is not None and own.empty for own in each.profiles.values())
        and (each.profiles or not each.names)
    ]


def _is_counted(answer: SurveyAnswer, plan: Plan) -> bool:
    """Whether a client has counted the levels of all categories in the types of a plan."""
    counts = answer.counts
    if counts is None or not counts.complete:
        return counts is not None
    return all(
        column in counts.levels and counts.types[column] == plan.types[column]
        for column in plan.categorical
    )


def _check_complete(counts: Mapping[str, RowCounts]) -> None:
    """Raise InputError if a value is missing."""
    for name, each in counts.items():
        for column, absent in each.missing.items():
            if absent:
                raise InputError(
                    f"client {name}: column {column} has {absent} missing "
                    f"value{'s' * (absent > 1)}: fill them, or leave rows out by missing='drop'"
                )


def _check_enough(counts: Mapping[str, RowCounts]) -> None:
    """Raise InputError if no row is complete, or one alone, of which everything is constant."""
    total = sum(each.rows for each in counts.values())
    complete = sum(each.complete for each in counts.values())
    if complete > 1 or (complete == 1 and total == 1):
        return
    absent: Counter[str] = Counter()
    for each in counts.values():
        absent.update(each.missing)
    most = [f"{column} in {count:,}" for column, count in absent.most_common(3) if count]
    lacking = f"values are missing of {', '.join(most)}" if most else ""
    if complete:
        raise InputError(
            f"1 of {total:,} rows is complete, {lacking}: leave out of the model what most rows "
            "lack"
        )
    columns = listed(next(iter(counts.values())).types)
    sizes = listed(f"{name} has {each.rows} rows" for name, each in counts.items())
    end = f"; {lacking}" if lacking else ""
    raise InputError(
        f"no client has a row without missing values in {columns}: client {sizes}{end}"
    )


def _check_inside(complete: Mapping[str, int], inside: Mapping[str, int]) -> None:
    """Raise InputError if there are rows that ``cut`` has no interval for."""
    for name, rows in inside.items():
        if outside := complete[name] - rows:
            raise InputError(
                f"client {name}: {outside} row{'s' * (outside > 1)} outside the breaks of cut(): "
                "write wider ones, or leave rows out by missing='drop'"
            )


def _left_out(agreed: AgreedPlan) -> list[Finding]:
    """The clients that take no part."""
    incomplete = [name for name in agreed.counts if name not in agreed.used]
    return [
        Finding(
            name,
            f"client {name} has no {what} and is left out",
            f"clients have no {what} and are left out",
            name,
        )
        for names, what in ((incomplete, "complete row"), (agreed.empty, "row with a value"))
        for name in names
    ]
