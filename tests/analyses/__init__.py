"""Analyses that the package does not have: each is one file, and one line of ``ANALYSES``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from analyses import cox, describe, negative_binomial, robust, weighted
from fedsplit.data.tables import Source
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
    analysis : callable
    statistics, families : sequences
        The lines of ``STATISTICS`` and of ``FAMILIES``.
    sums : bool
        Whether all that it asks of rows is a sum over them.
    """

    analysis: Analysis[Any]
    statistics: Sequence[type[Statistic]] = ()
    families: Sequence[Family] = ()
    sums: bool = True


ANALYSES = {
    "robust": Toy(robust.robust("y ~ a + b + t", correction="HC3"), [robust.SquaredScores]),
    "cox": Toy(cox.cox("Surv(time, died) ~ a + t"), [cox.Events], [cox.CoxFamily()], sums=False),
    "negative binomial": Toy(
        negative_binomial.negative_binomial("visits ~ a + t", theta=2.0),
        [negative_binomial.ThetaScore],
        [negative_binomial.NegativeBinomialFamily()],
    ),
    "weighted": Toy(weighted.weighted("t ~ a + b", "y ~ t"), [weighted.StackedScores]),
    "describe": Toy(describe.describe(["a", "sex"], "t"), [describe.ByGroup]),
}


def enter() -> None:
    """Enter the lines of all analyses into the tables of the package."""
    for toy in ANALYSES.values():
        STATISTICS.update({each.__name__: each for each in toy.statistics})
        FAMILIES.update({each.name: each for each in toy.families})


@contextmanager
def entered() -> Iterator[None]:
    """The tables with these lines, for a while."""
    with patch.dict(STATISTICS), patch.dict(FAMILIES):
        enter()
        yield


def cohort_of(own: Sequence[Source]) -> DatasetCohort:
    """The clients of these sources, in a process that may not have the analyses yet."""
    enter()
    return DatasetCohort([Dataset(source) for source in own])
