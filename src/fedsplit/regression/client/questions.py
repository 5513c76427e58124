"""The questions about the rows of a cohort, beside those of the rounds.

Sums over rows are one question: a new sum is a statistic. What is no such sum is a class here,
with the type of its answer, the check of what comes back, and a statement of what it discloses:
what columns hold, on which a plan is agreed; costs that are made of coded rows; sums with noise.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self, get_args

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Kind
from fedsplit.clients.question import NOT_FINITE, Question
from fedsplit.data.texts import Level
from fedsplit.data.types import ColumnProfile, Type, level_form
from fedsplit.errors import RequestError
from fedsplit.regression.client.design import Frame
from fedsplit.regression.client.guards.rules import Finding
from fedsplit.regression.client.noise import (
    BoundedRows,
    Noise,
    RowVectors,
    length_of,
    source_of,
    split,
)
from fedsplit.regression.client.plan import Coding
from fedsplit.regression.client.privacy import bounds_of
from fedsplit.regression.client.statistics import DesignMoments
from fedsplit.regression.privacy import Privacy
from fedsplit.statistic import Shape, Statistic, Values
from fedsplit.sums import Summands, Total


class FitQuestion(Question):
    """A question about the rows of a cohort, answered by a list with one entry per client."""

    kind: ClassVar[Kind] = "handshake"  # of the row that it has in a trace
    coding: Coding | None

    @property
    def names(self) -> tuple[str, ...]:
        """The clients that it is for; empty for all of a cohort."""
        return () if self.coding is None else self.coding.names

    @property
    def strict(self) -> bool:
        """Whether it asks for refusals where answers could disclose single rows."""
        return self.coding is not None and self.coding.strict

    def among(self, names: Sequence[str]) -> Self | None:
        """The question as it goes to those of some clients that it is for; None if to nobody.

        Without names it goes to all of a cohort.
        """
        coding = self.coding
        if coding is None:
            return self
        own = tuple(name for name in names if not coding.names or name in coding.names)
        if names and not own:
            return None
        # every subclass is a dataclass, which a type checker cannot know here
        return replace(self, coding=replace(coding, names=own))  # type: ignore[type-var]

    def check(self, entry: Any) -> str:
        """What is wrong with one client's entry: an empty text if nothing is."""
        return ""

    def check_answer(self, value: Any, k: int) -> str:
        """What is wrong with the answer of a cohort of k clients: an empty text if nothing is."""
        if not isinstance(value, list) or len(value) != (len(self.names) or k):
            return f"an answer of the wrong type, {type(value).__name__}"
        return next(filter(None, map(self.check, value)), "")

    def entries(self, value: Any) -> list[Any]:
        """The entries of the clients in the answer of a cohort."""
        return list(value)

    @property
    def summable(self) -> bool:
        return True

    def summands(self, value: Any) -> list[Summands]:
        found = []
        for entry in value:
            own = Summands()
            self.add(own, entry)
            found.append(own)
        return found

    def of_total(self, total: Total) -> Any:
        return [self.read(total)]

    def add(self, to: Summands, entry: Any) -> None:
        """Add one client's entry."""
        raise NotImplementedError

    def read(self, total: Total) -> Any:
        """The entry of one client that has the rows of all."""
        raise NotImplementedError


class SumAnswer(NamedTuple):
    """What one client answers to ``SumQuestion``."""

    values: Mapping[str, Mapping[str, Array]]  # by the name of a statistic, its parts
    warnings: Sequence[Finding] = ()  # what they could disclose of single rows


@dataclass(frozen=True)
class SumQuestion(FitQuestion):
    """Sums over the rows of a plan, or over the rows that a fit was prepared with."""

    statistics: Mapping[str, Statistic]  # by names of the asker's own
    # None for rows in the coordinates that the key of the request names. Of a draft a client
    # answers None where its columns cannot be read before types are agreed on.
    coding: Coding | None = None

    answer_type = list[SumAnswer | None]

    @classmethod
    def name(cls) -> str:
        return "sums"

    @property
    def titles(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.title() for each in self.statistics.values()))

    @property
    def kind(self) -> str:  # type: ignore[override]  # that of every question of this class
        return next(iter(self.statistics.values())).kind

    @property
    def matrices(self) -> int:
        return sum(each.matrices for each in self.statistics.values())

    @property
    def summable(self) -> bool:
        return self.coding is None or not self.coding.plan.draft

    @cached_property
    def shapes(self) -> dict[str, Mapping[str, Shape]]:
        """What comes back, by statistic and part."""
        plan = None if self.coding is None else self.coding.plan
        return {name: each.shapes(plan) for name, each in self.statistics.items()}

    def check(self, entry: SumAnswer | None) -> str:
        if entry is None:
            return "no sums" if self.summable else ""
        if set(entry.values) != set(self.statistics):
            return "sums of other statistics"
        statistics = self.statistics.items()
        found = (each.check(entry.values[name], self.shapes[name]) for name, each in statistics)
        return next(filter(None, found), "")

    def pooled(self, entries: Sequence[SumAnswer]) -> dict[str, dict[str, Array]]:
        """The sums over all clients, by statistic and part."""
        return {
            name: {
                part: shape.pooled([entry.values[name][part] for entry in entries])
                for part, shape in shapes.items()
            }
            for name, shapes in self.shapes.items()
        }

    def add(self, to: Summands, entry: SumAnswer) -> None:
        for name, shapes in self.shapes.items():
            for part, shape in shapes.items():
                shape.add(to, entry.values[name][part])
        # what warnings say is for the client's owner alone
        to.add([float(bool(entry.warnings))])

    def read(self, total: Total) -> SumAnswer:
        values: dict[str, Values] = {
            name: {part: shape.read(total) for part, shape in shapes.items()}
            for name, shapes in self.shapes.items()
        }
        return SumAnswer(values, read_warnings(total))


def read_warnings(total: Total) -> list[Finding]:
    """How many clients have warnings, if some do."""
    count = total.count()
    if not count:
        return []
    what = "clients have warnings about their rows"
    one = f"{count} of {total.m} {what}, which with secure sums their owners alone see"
    return [Finding("", one, what, "")]


@dataclass(frozen=True)
class Settle(FitQuestion):
    """Make the costs of the rounds; the answer is the moments of the rows that they are made of."""

    coding: Coding
    frame: Frame

    answer_type = list[Mapping[str, Array]]
    prepares = True
    kind = "setup"

    @property
    def _shapes(self) -> Mapping[str, Shape]:
        return DesignMoments().shapes(self.coding.plan)

    def check(self, entry: Values) -> str:
        return DesignMoments().check(entry, self._shapes)

    def add(self, to: Summands, entry: Values) -> None:
        for name, shape in self._shapes.items():
            shape.add(to, entry[name])

    def read(self, total: Total) -> Values:
        return {name: shape.read(total) for name, shape in self._shapes.items()}


class NoisedSum(NamedTuple):
    """A sum with noise, on a grid: the sum of two arrays, (k,), which are exact."""

    high: Array  # (k,)
    low: Array  # (k,)


@dataclass(frozen=True)
class NoisySums(FitQuestion):
    """Gradient and Hessian at a point, with noise: all that a fit with dp ever asks."""

    coding: Coding  # whose plan has nothing in it but what the study declares
    privacy: Privacy
    number: int  # of the question, from 1 to ``privacy.rounds``
    x: Array  # (p,): the point, in coefficients of the declared columns
    shares: int = 1  # among how many clients the noise is shared; 1 where each adds all of it

    answer_type = list[NoisedSum]
    kind = "round"
    repeatable = False

    @property
    def length(self) -> int:
        """How many numbers the answer has."""
        return length_of(len(self.coding.plan.names), self.number == self.privacy.rounds)

    def for_sums(self, m: int) -> Self:
        return replace(self, shares=max(1, m - self.privacy.colluding))

    def add(self, to: Summands, entry: NoisedSum) -> None:
        to.add_exactly(entry.high, entry.low)

    def read(self, total: Total) -> NoisedSum:
        return NoisedSum(total.take(self.length), np.zeros(self.length))

    def noised(self, rows: Mapping[str, BoundedRows]) -> list[NoisedSum]:
        """What each client answers, by its rows."""
        if not 1 <= self.number <= self.privacy.rounds:
            raise RequestError(f"question {self.number} of {self.privacy.rounds}")
        if self.x.shape != (len(self.coding.plan.names),) or not np.isfinite(self.x).all():
            raise RequestError("the server sent a point of another size, or not finite")
        family = self.coding.plan.chosen_family
        bounds = bounds_of(family, self.privacy)
        vectors = RowVectors(family, self.privacy, bounds, self.number, self.x)
        noise = Noise.of(self.privacy, self.shares)
        found = []
        for name, own in rows.items():
            drawn = noise.draw(self.length, source_of(self.privacy, name, self.number))
            sums = vectors.total(own, noise.step)
            noisy = [a + b for a, b in zip(sums, drawn, strict=True)]
            found.append(NoisedSum(*split(noisy, noise.step)))
        return found

    def check(self, entry: NoisedSum) -> str:
        if any(part.shape != (self.length,) for part in entry):
            return "sums of the wrong length"
        return "" if np.isfinite(entry).all() else NOT_FINITE


class RowCounts(NamedTuple):
    """How many rows a client has, and how many of them have each level."""

    types: Mapping[str, Type]  # what each column was read as
    # all rows, and those that lack no value
    rows: int
    complete: int
    missing: Mapping[str, int]  # the number of missing values of each column
    # the levels of each category, with the number of complete rows that have each
    levels: Mapping[str, Mapping[Level, int]]
    # the categories whose levels are in the order in which the client has them stored, and whether
    # that order has a meaning, as that of small, medium and large
    orders: Mapping[str, bool]
    warnings: Sequence[Finding]  # what this could disclose of single rows


class SurveyAnswer(NamedTuple):
    """What a client answers to ``Survey``."""

    names: tuple[str, ...]  # the names of all its columns; empty if the plan was no draft
    # what the columns of a draft can be read as; None for one that cannot be read at all
    profiles: Mapping[str, ColumnProfile | None]
    # none if the columns cannot be counted as this client alone would read them
    counts: RowCounts | None

    @property
    def warnings(self) -> Sequence[Finding]:
        """What the counts could disclose of single rows."""
        return () if self.counts is None else self.counts.warnings


@dataclass(frozen=True)
class Survey(FitQuestion):
    """What the columns of a plan hold.

    Of a draft a client answers what its columns can be read as, and counts rows and levels as it
    would read them alone; numbers that nobody declares to be a category have no levels. Of a plan
    that has all types it counts alone, and it refuses levels that are not among declared ones.
    """

    coding: Coding

    answer_type = list[SurveyAnswer]

    def narrowed(self, value: list[SurveyAnswer], columns: Container[str]) -> list[SurveyAnswer]:
        return [
            each._replace(
                names=tuple(name for name in each.names if name in columns),
                profiles={name: own for name, own in each.profiles.items() if name in columns},
            )
            for each in value
        ]

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

    def narrowed(self, value: Mapping[str, Any], columns: Container[str]) -> dict[str, Any]:
        parts = self.questions.items()
        return {name: each.narrowed(value[name], columns) for name, each in parts}

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
    own: dict[str, Survey | SumQuestion] = {}
    for name, each in questions.items():
        if not isinstance(each, Survey | SumQuestion):
            raise TypeError(f"{each.name()} is asked alone")
        own[name] = each
    return Joint(own)


FIT_QUESTIONS: Mapping[str, type[FitQuestion]] = {
    question.name(): question for question in (Survey, SumQuestion, Joint, Settle, NoisySums)
}
"""Everything that clients of a fit answer beside the questions of the rounds, by name."""
