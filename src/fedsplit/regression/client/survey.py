"""What columns hold, and several questions in one exchange: on these a plan is agreed.

With the table of all questions of a fit beside those of its rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from fedsplit.channels.channel import Request
from fedsplit.clients.question import Question
from fedsplit.data.categories import Level
from fedsplit.data.types import ColumnProfile, Type, level_form
from fedsplit.errors import InputError, RequestError, RowError, listed
from fedsplit.regression.client.coding import Coding
from fedsplit.regression.client.guards.thresholds import Finding
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.questions import (
    FitQuestion,
    NoisySums,
    Settle,
    SumAnswer,
    SumQuestion,
    read_warnings,
)
from fedsplit.regression.families import FAMILIES
from fedsplit.sums import Summands, Total

if TYPE_CHECKING:
    from fedsplit.regression.client.dataset_cohort import DatasetCohort


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


@dataclass(frozen=True)
class Survey(FitQuestion):
    """What the columns of a plan hold.

    Of a draft a client answers what its columns can be read as, and counts rows and levels as it
    would read them alone; numbers that nobody declares to be a category have no levels. Of a plan
    that has all types it counts alone, and it refuses levels that are not among declared ones.
    """

    coding: Coding

    answer_type = list[SurveyAnswer]

    def answer(self, cohort: DatasetCohort, request: Request) -> list[SurveyAnswer]:
        plan = self.coding.plan
        answers = cohort.survey(self.coding)
        for name, answer in zip(cohort.names_of(self.coding), answers, strict=True):
            if not plan.draft and answer.counts is not None:
                for column, levels in plan.levels.items():
                    _check_declared(name, column, levels, answer.counts.levels.get(column, {}))
        return answers

    @property
    def summable(self) -> bool:
        plan = self.coding.plan
        return not plan.draft and plan.categorical <= set(plan.levels)

    def add(self, to: Summands, entry: SurveyAnswer) -> None:
        assert entry.counts is not None  # of a plan that is no draft
        counts = entry.counts
        to.add([counts.rows, counts.complete, *(counts.missing[each] for each in self._types)])
        for column, levels in self._levels.items():
            to.add([counts.levels[column].get(level, 0) for level in levels])
        to.add([float(bool(counts.warnings))])

    def read(self, total: Total) -> SurveyAnswer:
        rows, complete = total.count(), total.count()
        missing = {column: total.count() for column in self._types}
        levels = {
            column: {level: total.count() for level in known}
            for column, known in self._levels.items()
        }
        warnings = read_warnings(total)
        counts = RowCounts(self._types, rows, complete, missing, levels, {}, warnings)
        return SurveyAnswer((), {}, counts)

    @property
    def _types(self) -> Mapping[str, Type]:
        return self.coding.plan.types

    @property
    def _levels(self) -> dict[str, Sequence[Level]]:
        """The levels that are counted, by column, in an order that all clients have."""
        levels = self.coding.plan.levels
        return {column: levels[column] for column in self._types if column in levels}

    def check(self, entry: SurveyAnswer) -> str:
        plan, counts = self.coding.plan, entry.counts
        if not set(entry.profiles) <= set(entry.names):
            return "types of columns that it has not"
        if counts is None:
            return "" if plan.draft else "no counts"
        expected = {*plan.expanded(entry.names).columns, *plan.others}
        if set(counts.types) != expected or set(counts.missing) != expected:
            return "counts of other columns"
        if not plan.draft and dict(counts.types) != dict(plan.types):
            return "counts of columns that were read as other types"
        levelled = set(counts.levels)
        if not set(counts.orders) <= levelled <= expected - set(plan.others):
            return "levels of other columns"
        if not plan.draft and levelled != plan.categorical:
            return "levels of other columns"
        return _wrong_counts(counts)


def _wrong_counts(counts: RowCounts) -> str:
    """What is wrong with the numbers and levels of a client: an empty text if nothing is."""
    for column, levels in counts.levels.items():
        if not all(_is_level(level, counts.types[column]) for level in levels):
            return "levels that are not of their column's type"
    numbers = [counts.rows - counts.complete, counts.complete, *counts.missing.values()]
    numbers += [n for levels in counts.levels.values() for n in levels.values()]
    if min(numbers) < 0:
        return "negative counts"
    if any(sum(levels.values()) != counts.complete for levels in counts.levels.values()):
        return "levels of another number of rows"
    return ""


def _check_declared(
    client: str, column: str, declared: Sequence[Level], present: Mapping[Level, int]
) -> None:
    """Raise RowError if a client has a level that is not declared."""
    others = [level for level in present if level not in set(declared)]
    if others:
        where = f"client {client}: column {column}"
        raise RowError(
            f"{where} has the level{'s' * (len(others) > 1)} {listed(others)}, "
            f"which the study does not declare; it declares {listed(declared)}",
            f"{where} has levels that the study does not declare (its own log says which)",
        )


def _is_level(text: str, kind: Type) -> bool:
    """Whether a text is a level in its only form."""
    try:
        return text == level_form(text.strip(), kind)
    except ValueError:
        return False


@dataclass(frozen=True)
class Joint(FitQuestion):
    """Several questions in one exchange, by name: each is checked, counted and admitted by itself.

    The answer of a cohort has its answer to each of them by the same name.
    """

    questions: Mapping[str, Survey | SumQuestion]

    coding = None
    answer_type = dict[str, list[SurveyAnswer | SumAnswer | None]]

    def singles(self) -> list[Question]:
        return list(self.questions.values())

    def answer(self, cohort: DatasetCohort, request: Request) -> dict[str, list[Any]]:
        return {name: each.answer(cohort, request) for name, each in self.questions.items()}

    def check_answer(self, value: Any, k: int) -> str:
        if not isinstance(value, dict) or list(value) != list(self.questions):
            return "answers to other questions"
        for name, question in self.questions.items():
            [kind] = get_args(question.answer_type)
            # the type of the message leaves open which answer belongs to which question
            if not all(isinstance(entry, kind) for entry in value[name]):
                return "the answer to another question"
            if wrong := question.check_answer(value[name], k):
                return wrong
        return ""

    def entries(self, value: Mapping[str, list[Any]]) -> list[Any]:
        return [entry for each in value.values() for entry in each]

    @property
    def summable(self) -> bool:
        return all(each.summable for each in self.questions.values())

    def summands(self, value: Mapping[str, list[Any]]) -> list[Summands]:
        contributions = []
        for entries in zip(*value.values(), strict=True):
            own = Summands()
            for question, entry in zip(self.questions.values(), entries, strict=True):
                question.add(own, entry)
            contributions.append(own)
        return contributions

    def of_total(self, total: Total) -> dict[str, list[Any]]:
        return {name: each.of_total(total) for name, each in self.questions.items()}


def joined(questions: Mapping[str, FitQuestion]) -> FitQuestion:
    """Questions as one; a single one travels as it is."""
    if len(questions) == 1:
        return next(iter(questions.values()))
    return Joint({name: _jointly(each) for name, each in questions.items()})


def _jointly(question: FitQuestion) -> Survey | SumQuestion:
    if isinstance(question, Survey | SumQuestion):
        return question
    raise TypeError(f"{question.name()} is asked alone")


FIT_QUESTIONS: Mapping[str, type[FitQuestion]] = {
    question.name(): question for question in (Survey, SumQuestion, Joint, Settle, NoisySums)
}
"""Everything that clients of a fit answer beside the questions of the rounds, by name."""
