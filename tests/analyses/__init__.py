"""Analyses that the package does not have: each is one file, and one line of ``ANALYSES``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from analyses import cox, describe, negative_binomial, robust, weighted
from fedsplit.data.tables import Source
from fedsplit.federation.dialogues import DialogueAnalysis
from fedsplit.federation.regression import ANALYSES as STUDIES
from fedsplit.federation.study import Analysis as StudyAnalysis
from fedsplit.regression.analysis import Analysis
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.families.family import Family
from fedsplit.statistic import STATISTICS, Statistic


@dataclass(frozen=True)
class Toy:
    """An analysis, and what it enters into the tables of the package.

    Attributes
    ----------
    study : DialogueAnalysis
        As a study names it, with the columns of ``trials``.
    statistics, families : sequences
        The lines of ``STATISTICS`` and of ``FAMILIES``.
    sums : bool
        Whether all that it asks of rows is a sum over them.
    """

    study: DialogueAnalysis
    statistics: Sequence[type[Statistic]] = ()
    families: Sequence[Family] = ()
    sums: bool = True

    @property
    def analysis(self) -> Analysis[Any]:
        return self.study.dialogue()


def numbers(names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), "number")


LEVELS = {"t": ["0", "1"], "sex": ["f", "m"]}

ANALYSES = {
    each.study.name: each
    for each in (
        Toy(
            robust.Robust(formula="y ~ a + b + t", correction="HC3", types=numbers("y a b t")),
            [robust.SquaredScores],
        ),
        Toy(
            cox.Cox(formula="Surv(time, died) ~ a + t", types=numbers("time died a t")),
            [cox.Events],
            [cox.CoxFamily()],
            sums=False,
        ),
        Toy(
            negative_binomial.NegativeBinomialAnalysis(
                formula="visits ~ a + t", theta=2.0, types=numbers("visits a t")
            ),
            [negative_binomial.ThetaScore],
            [negative_binomial.NegativeBinomialFamily()],
        ),
        Toy(
            weighted.Weighted(
                treatment="t ~ a + b",
                outcome="y ~ t",
                types=numbers("y a b t"),
                levels={"t": LEVELS["t"]},
            ),
            [weighted.StackedScores],
        ),
        Toy(
            describe.Description(
                described=["a", "sex"],
                group="t",
                types={**numbers("a t"), "sex": "text"},
                levels=LEVELS,
            ),
            [describe.ByGroup],
        ),
    )
}

KNOWN: Mapping[str, type[StudyAnalysis]] = {
    name: type(each.study) for name, each in ANALYSES.items()
}
"""The lines of the table of what a study can name."""


def enter() -> None:
    """Enter the lines of all analyses into the tables of the package."""
    for toy in ANALYSES.values():
        STATISTICS.update({each.__name__: each for each in toy.statistics})
        FAMILIES.update({each.name: each for each in toy.families})
    STUDIES.update(KNOWN)


@contextmanager
def entered() -> Iterator[None]:
    """The tables with these lines, for a while."""
    with patch.dict(STATISTICS), patch.dict(FAMILIES), patch.dict(STUDIES):
        enter()
        yield


def cohort_of(own: Sequence[Source]) -> DatasetCohort:
    """The clients of these sources, in a process that may not have the analyses yet."""
    enter()
    return DatasetCohort([Dataset(source) for source in own])
