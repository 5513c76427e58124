"""The robust deviation of the residuals, which Huber's δ is in units of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedsplit.arrays import Array
from fedsplit.data.pooled.column_statistics import Histogram
from fedsplit.dialogue import Dialogue
from fedsplit.regression.client.fitted import ResidualSizes
from fedsplit.regression.client.questions import SumAnswer, SumQuestion
from fedsplit.regression.server.federation import AboutCosts
from fedsplit.regression.server.problem import FitProblem

SIZES = Histogram(first=-14.0, step=1 / 6, cells=100)
"""Residuals of 2^-14 to 6.3 units, each cell an eighth wider than the one below."""

NORMAL = 0.6745
"""The median of |z| of a standard normal z: deviations are comparable with standard ones."""


def with_spread(problem: FitProblem, x: Array, unit: float) -> Dialogue[FitProblem]:
    """The problem with parameters of its family in units of the residuals' deviation at x, (d,).

    The deviation is rounded to two digits in the given unit, which is to be in proportion to the
    target: so the unit of the target changes nothing.
    """
    question = ResidualSizes(problem.basis @ x, unit, SIZES)
    answers: list[SumAnswer] = yield AboutCosts(problem, SumQuestion({"sizes": question}))
    counts = np.sum([each.values["sizes"]["counts"][0] for each in answers], axis=0)
    return in_units_of(problem, unit * spread_of(counts))


def in_units_of(problem: FitProblem, spread: float) -> FitProblem:
    """The problem with parameters of its family in these units."""
    return replace(problem, frame=replace(problem.frame, spread=spread))


def spread_of(counts: Array) -> float:
    """The robust deviation of residuals, in their unit, from counts of their sizes, (cells + 2,).

    It is 1 if all counts were withheld.
    """
    if not counts.any():
        return 1.0
    below = counts.cumsum() / counts.sum()
    edges = np.append(SIZES.edges, SIZES.edges[-1])
    median = 2.0 ** float(np.interp(0.5, below, edges))
    return float(f"{median / NORMAL:.1e}")
