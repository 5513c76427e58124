"""The one question about sums over rows: a plan, and the statistics that are wanted of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from fedsplit.arrays import Array
from fedsplit.regression.client.coding import Coding
from fedsplit.regression.client.findings import Finding
from fedsplit.regression.client.questions.fit_question import FitQuestion
from fedsplit.regression.client.statistics import known as known  # what messages may name
from fedsplit.remote.channel import Request
from fedsplit.statistic import Shape, Statistic, Values
from fedsplit.sums import Summands, Total

if TYPE_CHECKING:
    from fedsplit.regression.client.dataset_cohort import DatasetCohort


class SumAnswer(NamedTuple):
    """What one client answers to ``SumQuestion``.

    Attributes
    ----------
    values : mapping of str to mapping of str to array
        By the name of a statistic, its parts.
    warnings : sequence of Finding
        What they could disclose of single rows.
    """

    values: Mapping[str, Mapping[str, Array]]
    warnings: Sequence[Finding] = ()


@dataclass(frozen=True)
class SumQuestion(FitQuestion):
    """Sums over the rows of a plan, or over the rows that a fit was prepared with.

    Attributes
    ----------
    statistics : mapping of str to Statistic
        By names of the asker's own.
    coding : Coding or None
        None for rows in the coordinates that the key of the request names. Of a draft a client
        answers None where its columns cannot be read before types are agreed on.
    """

    statistics: Mapping[str, Statistic]
    coding: Coding | None = None

    answer_type = list[SumAnswer | None]
    adds = True

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

    def answer(self, cohort: DatasetCohort, request: Request) -> list[SumAnswer | None]:
        return cohort.sum_over_rows(self, request)

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
