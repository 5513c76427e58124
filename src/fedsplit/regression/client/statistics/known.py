"""The table of all statistics that a message may name: a new one is a class and a line here."""

from __future__ import annotations

from fedsplit.regression.client.statistics.costs import CostAlong, ScoreProducts
from fedsplit.regression.client.statistics.fit import (
    CalibrationCounts,
    ExpectedInformation,
    LogLikelihood,
    PearsonSquares,
)
from fedsplit.regression.client.statistics.functions import OfArgument, RowsInside
from fedsplit.regression.client.statistics.moments import CombinedProducts, DesignMoments
from fedsplit.regression.client.statistics.residuals import ResidualSizes
from fedsplit.regression.client.statistics.separation import RowsAlong
from fedsplit.statistic import STATISTICS

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
