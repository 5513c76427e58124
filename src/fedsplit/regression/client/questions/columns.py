"""The questions before rows are coded: what is in the columns of the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedsplit.data.categories import Level
from fedsplit.data.formula.formula import Formula
from fedsplit.data.pooled.column_statistics import Statistic
from fedsplit.data.types import Type, level_form
from fedsplit.errors import RowError, listed
from fedsplit.regression.client.description import ColumnRequest, Description
from fedsplit.regression.client.introduction import Introduction, first_statistics
from fedsplit.regression.client.measuring import Measured, check_measured
from fedsplit.regression.client.questions.coding import Coding
from fedsplit.regression.client.questions.fit_question import FitQuestion
from fedsplit.regression.client.schema import Wanted
from fedsplit.regression.client.sums_of_entries import (
    add_description,
    add_measured,
    read_description,
    read_measured,
)
from fedsplit.sums import Summands, Total

if TYPE_CHECKING:
    from fedsplit.regression.client.dataset_cohort import DatasetCohort


@dataclass(frozen=True)
class Columns(FitQuestion):
    """What all columns can be read as, and whatever else can be told before that is decided."""

    wanted: Wanted

    answer_type = list[Introduction]

    def answer(self, cohort: DatasetCohort, key: str) -> list[Introduction]:
        rules = cohort.rules.asked(self.wanted.strict)
        return [dataset.introduce(self.wanted, rules) for dataset in cohort.datasets.values()]

    def check(self, entry: Introduction) -> str:
        if entry.description is None:
            return ""
        if entry.request is None:
            return "a description that nobody has asked for"
        wrong = Describe(entry.request).check(entry.description)
        if wrong or entry.measured is None:
            return wrong
        return check_measured(entry.measured, first_statistics(Formula(self.wanted.formula)))


@dataclass(frozen=True)
class Describe(FitQuestion):
    """What is in the columns that the model uses.

    Attributes
    ----------
    request : ColumnRequest
    levels : mapping or None
        The levels of every category, if they are declared: a client with others refuses.
    """

    request: ColumnRequest
    levels: Mapping[str, Sequence[Level]] | None = None

    answer_type = list[Description]
    adds = True

    def answer(self, cohort: DatasetCohort, key: str) -> list[Description]:
        rules = cohort.rules.asked(self.request.strict)
        found = []
        for dataset in cohort.datasets.values():
            entry = dataset.describe(self.request, rules)
            for column, levels in (self.levels or {}).items():
                _check_declared(dataset.name, column, levels, entry.levels.get(column, {}))
            found.append(entry)
        return found

    @property
    def summable(self) -> bool:
        return self.levels is not None and self.request.coded <= set(self.levels)

    def add(self, to: Summands, entry: Description) -> None:
        add_description(to, self.request, self.levels or {}, entry)

    def read(self, total: Total) -> Description:
        return read_description(total, self.request, self.levels or {})

    def check(self, entry: Description) -> str:
        if set(entry.missing) != set(self.request.types):
            return "a description of other columns"
        if set(entry.levels) != self.request.coded or not set(entry.orders) <= self.request.coded:
            return "levels of other columns"
        for column, levels in entry.levels.items():
            if not all(_is_level(level, self.request.types[column]) for level in levels):
                return "levels that are not of their column's type"
        counts = [entry.rows - entry.kept, entry.kept, *entry.missing.values()]
        counts += [n for levels in entry.levels.values() for n in levels.values()]
        if min(counts) < 0:
            return "negative counts"
        if any(sum(levels.values()) != entry.kept for levels in entry.levels.values()):
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
class Measure(FitQuestion):
    """Sums over the complete rows that functions such as ``poly(x, 2)`` and ``cut`` depend on.

    Attributes
    ----------
    coding : Coding
        Whose plan lacks the state that is to be agreed.
    statistics : mapping of str to Statistic
        By the text of a function in the formula, what is asked of its column.
    """

    coding: Coding
    statistics: Mapping[str, Statistic]

    answer_type = list[Measured]
    adds = True

    def add(self, to: Summands, entry: Measured) -> None:
        add_measured(to, self.statistics, entry)

    def read(self, total: Total) -> Measured:
        return read_measured(total, self.statistics)

    def answer(self, cohort: DatasetCohort, key: str) -> list[Measured]:
        rules = cohort.rules.asked(self.coding.strict)
        return [
            cohort.datasets[name].measure(self.coding.plan, self.statistics, rules)
            for name in self.coding.names
        ]

    def check(self, entry: Measured) -> str:
        return check_measured(entry, self.statistics)
