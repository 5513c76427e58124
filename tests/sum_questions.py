"""Questions about sums over rows, as tests ask them one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsplit.arrays import Array
from fedsplit.data.formula.pooled_functions import ColumnStatistic
from fedsplit.regression.client.design import Calibration, Moments, Scaling
from fedsplit.regression.client.plan import Coding
from fedsplit.regression.client.questions import SumAnswer, SumQuestion
from fedsplit.regression.client.statistics import (
    CalibrationCounts,
    CombinedProducts,
    DesignMoments,
    LogLikelihood,
    OfArgument,
    PearsonSquares,
    RowsInside,
    moments_of,
)


def ask_moments(coding: Coding) -> SumQuestion:
    """The moments of coded rows."""
    return SumQuestion({"": DesignMoments()}, coding)


def moments_in(answer: SumAnswer, coding: Coding) -> Moments:
    """The moments in an answer."""
    return moments_of(answer.values[""], coding.plan)


def ask_arguments(coding: Coding, statistics: Mapping[str, ColumnStatistic]) -> SumQuestion:
    """Statistics of the arguments of functions, and how many rows have values in all."""
    asked = {text: OfArgument(text, each) for text, each in statistics.items()}
    return SumQuestion({"": RowsInside(), **asked}, coding)


def argument_in(answer: SumAnswer, text: str) -> Array:
    """What an answer has of the argument of a function."""
    part: Array = answer.values[text]["part"][0]
    return part


def rows_in(answer: SumAnswer) -> float:
    """How many rows have values in all functions."""
    return float(answer.values[""]["rows"][0, 0])


def ask_products(coding: Coding, scaling: Scaling, directions: Array) -> SumQuestion:
    """Products of combinations of the scaled columns."""
    return SumQuestion({"": CombinedProducts(scaling, directions)}, coding)


def products_in(answer: SumAnswer) -> Array:
    """The products in an answer."""
    return answer.values[""]["products"]


def ask_calibration(x: Array) -> SumQuestion:
    """The calibration at a point of the scaled columns."""
    return SumQuestion({"": CalibrationCounts(x)})


def calibration_in(answer: SumAnswer) -> Calibration:
    """The calibration in an answer."""
    return Calibration(*answer.values[""]["bins"])


def ask_pearson(x: Array) -> SumQuestion:
    """Pearson's X² at a point of the scaled columns."""
    return SumQuestion({"": PearsonSquares(x)})


def ask_fit(x: Array) -> SumQuestion:
    """Pearson's X² together with the log-likelihood, as at the end of a fit."""
    return SumQuestion({"": PearsonSquares(x), "likelihood": LogLikelihood(x, 1.0)})


def number_in(answer: SumAnswer, part: str = "total") -> Any:
    """The one number of an answer."""
    return answer.values[""][part][0, 0]
