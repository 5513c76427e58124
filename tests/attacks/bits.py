"""Attacks that read a number of one row from many answers of one bit each."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from attacks.columns import NOTHING, RANGE
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
from fedsplit.regression.client.questions import SumQuestion
from fedsplit.regression.client.statistics import RowsAlong
from sum_questions import (
    argument_in,
    ask_arguments,
    ask_calibration,
    ask_moments,
    ask_products,
    calibration_in,
    products_in,
    rows_in,
)

COUNTED = "refusals are counted"
HISTOGRAMS = "eight histograms a column"
SUMS = "sums, not maxima"


def by_staying(server: Server) -> Guess:
    """A client that tells its classes apart does not move: a margin in other words."""
    cut = 50.0
    coding = server.coding(f"{{age > {cut}}} ~ age", "logistic")
    server.ask(ask_moments(coding))
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
        return not server.answers(ask_moments(coding))

    return Guess(bisected(500, 9000, unusable), float(server.frame["income"].max()))


def by_bad_values(server: Server) -> Guess:
    """The target of a gamma model is above zero: the lowest income by bisection."""

    def usable(income: float) -> bool:
        formula = f"I(income - {income}) ~ age"
        return server.answers(ask_moments(server.coding(formula, "gamma")))

    return Guess(bisected(0, 2000, usable), float(server.frame["income"].min()))


def by_breaks(server: Server) -> Guess:
    """How many rows are within breaks, as one of them moves."""

    def above(age: float) -> bool:
        coding = server.coding(f"income ~ cut(age, c(0, 30, {age})) + scale(bmi)")
        return bool(rows_in(server.ask(ask_arguments(coding, {}))) < ROWS - server.few)

    kept = server.frame.dropna()
    return Guess(bisected(31, 90, above), float(kept["age"].max()))


def by_histograms(server: Server) -> Guess:
    """Counts of many rows, as the edge between them moves past one."""
    coding = server.coding("income ~ scale(age)")
    half = ROWS // 2

    def above(age: float) -> bool:
        question = ask_arguments(coding, {"scale(age)": Histogram(age, 1000.0, 1)})
        counts = argument_in(server.ask(question), "scale(age)")
        return bool(counts[0] < half)

    return Guess(bisected(20, 80, above), float(server.frame["age"][half - 1]))


def by_norm(server: Server) -> Guess:
    """The longest row, though it is told as a power of two: in which unit does that change?"""
    coding = server.coding("ill ~ age - 1", "logistic")
    server.ask(ask_moments(coding))

    def above(unit: float) -> bool:
        key = server.settle(coding, 1, scaling=Scaling(np.zeros(1), np.full(1, unit), 1.0))
        told = server.ask(LocalModel(np.zeros(1), None, None, 0.0, None), key)
        return bool(told.parts["norm"][0] > 1.0)

    return Guess(bisected(40, 159, above), float(server.frame["age"].max()))


def by_spread(server: Server) -> Guess:
    """How far the predictor of a row moves at most, as the way becomes longer."""
    coding = server.coding("ill ~ age - 1", "logistic")
    server.ask(ask_moments(coding))
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
    server.ask(ask_moments(coding))
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
    server.ask(ask_moments(coding))
    key = server.settle(coding, 2)

    def above(age: float) -> bool:
        question = SumQuestion({"": RowsAlong(np.array([[age, -1.0]]))})
        return bool(server.ask(question, key).values[""]["rows"][0, 0])

    found = bisected(10, 40, lambda age: not above(age) or age < server.frame["age"].min())
    return Guess(found, float(server.frame["age"].min()))


def by_calibration(server: Server) -> Guess:
    """Counts of rows by predicted probability, as the intercept moves a row past a bin's edge."""
    coding = server.coding("ill ~ age", "logistic")
    server.ask(ask_moments(coding))
    key = server.settle(coding, 2)
    edge = math.log(BINS[8] / (1 - BINS[8]))
    half = ROWS // 2

    def above(age: float) -> bool:
        x = np.array([edge - 0.02 * age, 0.02])
        counts = calibration_in(server.ask(ask_calibration(x), key)).rows
        return bool(counts[:8].sum() < half)

    return Guess(bisected(20, 80, above), float(server.frame["age"][half - 1]))


def by_a_moved_bin(server: Server) -> Guess:
    """The class of one row of a known age: counts on either side of it, in two calibrations."""
    coding = server.coding("{visits > 2} ~ age", "logistic")
    server.ask(ask_moments(coding))
    key = server.settle(coding, 2)
    age = server.frame["age"][100:][server.frame["visits"] > 2].iloc[0]
    observed = []
    for edge in (age - 1e-4, age + 1e-4):
        counts = calibration_in(server.ask(ask_calibration(np.array([-0.05 * edge, 0.05])), key))
        observed.append(counts.observed[8:].sum())
    return Guess(observed[0] - observed[1], 1)


def by_targets_in_other_words(server: Server) -> Guess:
    """How many calibrations there are, where the same target is written in five ways."""
    told = 0
    for cut in (2, 2.1, 2.2, 2.3, 2.4):
        coding = server.coding(f"{{visits > {cut}}} ~ age", "logistic")
        server.ask(ask_moments(coding))
        key = server.settle(coding, 2)
        for step in range(4):
            x = np.array([-1.0 - 0.5 * step, 0.01])
            told += bool(calibration_in(server.ask(ask_calibration(x), key)).rows.any())
    return Guess(told, 20)


def by_withheld_counts(server: Server) -> Guess:
    """Whether the last cell of a histogram is empty: otherwise the one before it is withheld."""
    coding = server.coding("income ~ scale(age)")

    def count(age: float) -> float:
        question = ask_arguments(coding, {"scale(age)": Histogram(50.0, age - 50.0, 1)})
        counts = argument_in(server.ask(question), "scale(age)")
        return float(counts[1])

    every = count(100.0)

    def above(age: float) -> bool:
        return count(age) < every

    # from above, so that the cells that are told are the same ones
    age = 90.0
    while not above(age):
        age -= 0.3
    return Guess(bisected(age, age + 0.3, above), float(server.frame["age"].max()), 1e-6)


def by_overflow(server: Server) -> Guess:
    """Whether a combination of columns is beyond float64 for some row, as its unit changes."""
    coding = server.coding("visits ~ age + income")
    server.ask(ask_moments(coding))
    scaling = Scaling(np.zeros(3), np.ones(3), 1.0)
    largest = np.finfo(np.float64).max

    def above(age: float) -> bool:
        D = np.array([[0, largest / age, 0], [0, 0, 1e-300]]).T
        return not np.isfinite(products_in(server.ask(ask_products(coding, scaling, D)))[0, 1])

    return Guess(bisected(20, 200, above), float(server.frame["age"].max()))


def by_boundary_knots(server: Server) -> Guess:
    """A warning that some row is beyond the boundary of a spline, as that moves."""

    def above(age: float) -> bool:
        spline = f"bs(age, degree=1, Boundary.knots=c(-1000, {age}))"
        found = server.ask(ask_moments(server.coding(f"income ~ {spline}"))).warnings
        return any("beyond the boundary" in each.one for each in found)

    return Guess(bisected(20, 200, above), float(server.frame["age"].max()))


ATTACKS: Sequence[Attack] = [
    Attack(
        "bisection by a target that is refused", by_refusals, COUNTED, (1,), TALKATIVE, seen=False
    ),
    Attack("the same from below", by_bad_values, COUNTED, (1,), TALKATIVE, seen=False),
    Attack("a break that moves", by_breaks, NOTHING, (1,)),
    Attack("the edge of a histogram that moves", by_histograms, HISTOGRAMS, (1,)),
    Attack("the unit in which a norm is another power of 2", by_norm, SUMS, (1,), seen=False),
    Attack("the way on which a spread is another power of 2", by_spread, SUMS, (1,), seen=False),
    Attack(
        "the point at which all margins are positive", by_margin, "no margins", (1,), seen=False
    ),
    Attack(
        "the point at which a site stays where it is", by_staying, "no margins", (1,), seen=False
    ),
    Attack("a direction that turns", by_direction, "no directions", (1,), seen=False),
    Attack("calibration as the intercept moves", by_calibration, "five calibrations", (1,)),
    Attack("two calibrations on either side of a row", by_a_moved_bin, NOTHING, (1,)),
    Attack(
        "calibrations of one target in five ways", by_targets_in_other_words, "five a column", (1,)
    ),
    Attack("a last cell that is empty or withheld", by_withheld_counts, HISTOGRAMS, (1,)),
    Attack("a unit in which the largest value overflows", by_overflow, RANGE, (1,), seen=False),
    Attack("boundary knots that move", by_boundary_knots, "no such warning", (1,), seen=False),
]
