"""The questions about the rows of a cohort, beside those of the rounds.

Sums over rows are one question: a new sum is a statistic. What is no such sum is a class here,
with the type of its answer, the check of what comes back, and a statement of what it discloses.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from fedsplit.arrays import Array
from fedsplit.channels.channel import Request
from fedsplit.clients.effects import Kind
from fedsplit.clients.question import NOT_FINITE, Question
from fedsplit.errors import RequestError
from fedsplit.regression.client.coding import Coding, Frame
from fedsplit.regression.client.guards.thresholds import Finding
from fedsplit.regression.client.noise import Noise, RowVectors, length_of, source_of, split
from fedsplit.regression.client.privacy import bounds_of
from fedsplit.regression.client.statistics import (
    CalibrationCounts,
    CombinedProducts,
    CostAlong,
    DesignMoments,
    ExpectedInformation,
    LogLikelihood,
    OfArgument,
    PearsonSquares,
    ResidualSizes,
    RowsAlong,
    RowsInside,
    ScoreProducts,
)
from fedsplit.regression.privacy import Privacy
from fedsplit.statistic import STATISTICS, Shape, Statistic, Values
from fedsplit.sums import Summands, Total

if TYPE_CHECKING:
    from fedsplit.regression.client.dataset_cohort import DatasetCohort

STATISTICS.update(
    (each.__name__, each)
    for each in (
        CalibrationCounts,
        CombinedProducts,
        CostAlong,
        DesignMoments,
        ExpectedInformation,
        LogLikelihood,
        OfArgument,
        PearsonSquares,
        ResidualSizes,
        RowsAlong,
        RowsInside,
        ScoreProducts,
    )
)


class FitQuestion(Question):
    """A question about the rows of a cohort, answered by a list with one entry per client.

    Attributes
    ----------
    kind : str
        Of the row that it has in a trace.
    """

    kind: ClassVar[Kind] = "handshake"
    coding: Coding | None

    @abstractmethod
    def answer(self, cohort: DatasetCohort, request: Request) -> Any:
        """The entry of every client; the request says what the cohort was prepared with."""

    @property
    def names(self) -> tuple[str, ...]:
        """The clients that it is for; empty for all of a cohort."""
        return () if self.coding is None else self.coding.names

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


def strict_is_asked(question: Question) -> bool:
    """Whether a question about rows asks for refusals where answers could disclose single ones."""
    if not isinstance(question, FitQuestion) or question.coding is None:
        return False
    return question.coding.strict


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


@dataclass(frozen=True)
class Settle(FitQuestion):
    """Make the costs of the rounds; the answer is the moments of the rows that they are made of."""

    coding: Coding
    frame: Frame

    answer_type = list[Mapping[str, Array]]
    prepares = True
    kind = "setup"

    def answer(self, cohort: DatasetCohort, request: Request) -> list[Values]:
        return cohort.settle(self.coding, self.frame)

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
    """A sum with noise, on a grid: the sum of two arrays, (k,), which are exact.

    Attributes
    ----------
    high, low : (k,) arrays
    """

    high: Array
    low: Array


@dataclass(frozen=True)
class NoisySums(FitQuestion):
    """Gradient and Hessian at a point, with noise: all that a fit with dp ever asks.

    Attributes
    ----------
    coding : Coding
        Whose plan has nothing in it but what the study declares.
    privacy : Privacy
    number : int
        Of the question, from 1 to ``privacy.rounds``.
    x : (p,) array
        The point, in coefficients of the declared columns.
    shares : int
        Among how many clients the noise is shared; 1 where each adds all of it.
    """

    coding: Coding
    privacy: Privacy
    number: int
    x: Array
    shares: int = 1

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

    def answer(self, cohort: DatasetCohort, request: Request) -> list[NoisedSum]:
        if not 1 <= self.number <= self.privacy.rounds:
            raise RequestError(f"question {self.number} of {self.privacy.rounds}")
        if self.x.shape != (len(self.coding.plan.names),) or not np.isfinite(self.x).all():
            raise RequestError("the server sent a point of another size, or not finite")
        family = self.coding.plan.chosen_family
        bounds = bounds_of(family, self.privacy)
        vectors = RowVectors(family, self.privacy, bounds, self.number, self.x)
        noise = Noise.of(self.privacy, self.shares)
        found = []
        rows = cohort.bounded(self.coding, self.privacy)
        for name, own in zip(cohort.names_of(self.coding), rows, strict=True):
            drawn = noise.draw(self.length, source_of(self.privacy, name, self.number))
            sums = vectors.total(own, noise.step)
            noisy = [a + b for a, b in zip(sums, drawn, strict=True)]
            found.append(NoisedSum(*split(noisy, noise.step)))
        return found

    def check(self, entry: NoisedSum) -> str:
        if any(part.shape != (self.length,) for part in entry):
            return "sums of the wrong length"
        return "" if np.isfinite(entry).all() else NOT_FINITE
