"""Attacks that read a number of one row from many answers of one bit each."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from attacks.columns import LEVERAGE
from attacks.server import (
    ROWS,
    TALKATIVE,
    Attack,
    Guess,
    Server,
    bisected,
)
from fedsplit.clients.local_models import LocalModel
from fedsplit.data.pooled.column_statistics import Histogram
from fedsplit.regression.client.design import BINS, Scaling
from fedsplit.regression.client.fit_questions import (
    Code,
    Fitted,
    Measure,
    Recede,
)

COUNTED = "refusals are counted"
SUMS = "sums, not maxima"


def by_staying(server: Server) -> Guess:
    """A client that tells its classes apart does not move: a margin in other words."""
    cut = 50.0
    coding = server.coding(f"{{age > {cut}}} ~ age", "logistic")
    server.ask(Code(coding))
    key = server.settle(coding, 2)

    def above(age: float) -> bool:
        x = 0.5 * np.array([-age, 1.0])
        told = server.ask(LocalModel(x, None, None, 1e-3, None), key)
        return bool((told.parts["point"][0] == x).all())

    ages = server.frame["age"]
    return Guess(bisected(cut, 80, above), float(ages[ages > cut].min()))


def by_refusals(server: Server) -> Guess:
    """What a logarithm is taken of has to be above zero: the highest income by bisection."""

    def unusable(income: float) -> bool:
        coding = server.coding(f"I({income} - income) ~ age", "gamma")
        return not server.answers(Code(coding))

    return Guess(bisected(500, 9000, unusable), float(server.frame["income"].max()))


def by_bad_values(server: Server) -> Guess:
    """The target of a gamma model is above zero: the lowest income by bisection."""

    def usable(income: float) -> bool:
        formula = f"I(income - {income}) ~ age"
        return server.answers(Code(server.coding(formula, "gamma")))

    return Guess(bisected(0, 2000, usable), float(server.frame["income"].min()))


def by_breaks(server: Server) -> Guess:
    """How many rows are within breaks, as one of them moves."""

    def above(age: float) -> bool:
        coding = server.coding(f"income ~ cut(age, c(0, 30, {age})) + scale(bmi)")
        return bool(server.ask(Measure(coding, {})).used < ROWS - server.few)

    kept = server.frame.dropna()
    return Guess(bisected(31, 90, above), float(kept["age"].max()))


def by_histograms(server: Server) -> Guess:
    """Counts of many rows, as the edge between them moves past one."""
    coding = server.coding("income ~ scale(age)")
    half = ROWS // 2

    def above(age: float) -> bool:
        counts = server.ask(Measure(coding, {"scale(age)": Histogram(age, 1000.0, 1)})).parts
        return bool(counts["scale(age)"][0] < half)

    return Guess(bisected(20, 80, above), float(server.frame["age"][half - 1]))


def by_norm(server: Server) -> Guess:
    """The longest row, though it is told as a power of two: in which unit does that change?"""
    coding = server.coding("ill ~ age - 1", "logistic")
    server.ask(Code(coding))

    def above(unit: float) -> bool:
        key = server.settle(coding, 1, scaling=Scaling(np.zeros(1), np.full(1, unit), 1.0))
        told = server.ask(LocalModel(np.zeros(1), None, None, 0.0, None), key)
        return bool(told.parts["norm"][0] > 1.0)

    return Guess(bisected(40, 159, above), float(server.frame["age"].max()))


def by_spread(server: Server) -> Guess:
    """How far the predictor of a row moves at most, as the way becomes longer."""
    coding = server.coding("ill ~ age - 1", "logistic")
    server.ask(Code(coding))
    key = server.settle(coding, 1)

    def above(unit: float) -> bool:
        x = np.full(1, 1.0 / unit)
        told = server.ask(LocalModel(x, np.zeros((1, 1)), np.full(1, 1e12), 1.0, None), key)
        return bool(told.parts["spread"][0] > 1.0)

    return Guess(bisected(40, 159, above), float(server.frame["age"].max()))


def by_margin(server: Server) -> Guess:
    """Whether a point puts all rows in their class, as it moves."""
    cut = 50.0
    coding = server.coding(f"{{age > {cut}}} ~ age", "logistic")
    server.ask(Code(coding))
    key = server.settle(coding, 2)

    def above(age: float) -> bool:
        x = 0.5 * np.array([-age, 1.0])
        told = server.ask(LocalModel(x, None, None, 0.0, None), key)
        return bool(told.parts["margin"][0] > 0)

    ages = server.frame["age"]
    return Guess(bisected(cut, 80, above), float(ages[ages > cut].min()))


def by_direction(server: Server) -> Guess:
    """Whether some row gains along a direction, as that turns."""
    coding = server.coding("visits ~ age", "poisson")
    server.ask(Code(coding))
    key = server.settle(coding, 2)

    def above(age: float) -> bool:
        return bool(server.ask(Recede(np.array([age, -1.0])), key).against)

    found = bisected(10, 40, lambda age: not above(age) or age < server.frame["age"].min())
    return Guess(found, float(server.frame["age"].min()))


def by_calibration(server: Server) -> Guess:
    """Counts of rows by predicted probability, as the intercept moves a row past a bin's edge."""
    coding = server.coding("ill ~ age", "logistic")
    server.ask(Code(coding))
    key = server.settle(coding, 2)
    edge = math.log(BINS[8] / (1 - BINS[8]))
    half = ROWS // 2

    def above(age: float) -> bool:
        x = np.array([edge - 0.02 * age, 0.02])
        counts = server.ask(Fitted(x, 1.0), key).calibration.rows
        return bool(counts[:8].sum() < half)

    return Guess(bisected(20, 80, above), float(server.frame["age"][half - 1]))


ATTACKS: Sequence[Attack] = [
    Attack("bisection by a target that is refused", by_refusals, COUNTED, (1,), TALKATIVE),
    Attack("the same from below", by_bad_values, COUNTED, (1,), TALKATIVE),
    Attack("a break that moves", by_breaks, LEVERAGE, (1,)),
    Attack("the edge of a histogram that moves", by_histograms, LEVERAGE, (1,)),
    Attack("the unit in which a norm is another power of 2", by_norm, SUMS, (1,)),
    Attack("the way on which a spread is another power of 2", by_spread, SUMS, (1,)),
    Attack("the point at which all margins are positive", by_margin, "no margins", (1,)),
    Attack("the point at which a site stays where it is", by_staying, "no margins", (1,)),
    Attack("a direction that turns", by_direction, "no directions", (1,)),
    Attack("calibration as the intercept moves", by_calibration, "five calibrations", (1,)),
]
