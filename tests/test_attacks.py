"""A malicious server against a real site: attacks succeed without their guard, and fail with it.

``python tests/test_attacks.py`` prints the table of docs/guards.md.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import eigvals

from fedsplit.clients.local_models import LocalModel
from fedsplit.clients.question import Question
from fedsplit.clients.questions import Gradient, Information, Line, Prox
from fedsplit.data.pooled.column_statistics import Histogram
from fedsplit.data.types import Type
from fedsplit.prox.exact import ExactProx
from fedsplit.prox.gradient import GradientProx
from fedsplit.regression.client.description import ColumnRequest
from fedsplit.regression.client.design import BINS, Recession, Scaling
from fedsplit.regression.client.fit_questions import (
    Code,
    Coding,
    Describe,
    Fitted,
    Frame,
    Measure,
    Products,
    Recede,
    Settle,
    key_of,
)
from fedsplit.regression.client.guards.rules import WARN, Rules
from fedsplit.regression.client.plan import Plan
from fedsplit.remote.channel import Request
from fedsplit.remote.messages import read_reply, write_request
from fedsplit.sites.events import Event
from fedsplit.sites.service import Site

NAME = "clinic"
ROWS = 200
FAR = 1e6
TYPES: dict[str, Type] = {
    "age": "number",
    "income": "number",
    "bmi": "number",
    "visits": "number",
    "ill": "number",
    "ward": "text",
}
WARDS = ["north", "south", "west"]


class Refused(Exception):
    """The site gave no answer."""


def patients(few: int) -> pd.DataFrame:
    """Rows of a clinic; ``few`` of them have no bmi, and they are the oldest."""
    rng = np.random.default_rng(11)
    age = np.sort(rng.uniform(20, 80, ROWS).round(3))
    income = np.exp(rng.normal(7.0, 0.5, ROWS)).round(2)
    frame = pd.DataFrame({"age": age, "income": income, "bmi": rng.normal(25, 3, ROWS).round(2)})
    frame["visits"] = rng.poisson(2.0, ROWS) + 1
    frame["ill"] = rng.integers(0, 2, ROWS)
    frame["ward"] = rng.choice(WARDS, ROWS)
    frame.loc[ROWS - few :, "bmi"] = np.nan
    # no rare pattern beside those of the attacks
    return frame


class Server:
    """What a server can do to a site: send bytes, and read bytes."""

    def __init__(self, folder: Path, rules: Rules, few: int) -> None:
        self.few = few
        self.frame = patients(few)
        self.path = folder / "clinic.csv"
        self.frame.to_csv(self.path, index=False)
        self.folder = folder / "kept"
        self.rules = rules
        self.site = self.started()

    def started(self) -> Site:
        return Site(NAME, str(self.path), folder=self.folder, rules=self.rules)

    def ask(self, question: Question, key: str = "") -> Any:
        reply = read_reply(
            self.site.reply(write_request(Request(question, key, 1))), question.answer_type, 0.0
        )
        if reply.outcome != "answer":
            raise Refused(reply.text)
        if isinstance(reply.value, list):
            return reply.value[0]
        return reply.value

    def answers(self, question: Question, key: str = "") -> bool:
        """One bit: whether the site answers."""
        try:
            self.ask(question, key)
        except Refused:
            return False
        return True

    def coding(self, formula: str, family: str = "gaussian", **changes: Any) -> Coding:
        levels = {}
        if "ward" in formula:
            levels = {"ward": WARDS}
        recessions = changes.pop("recessions", ())
        types = changes.pop("types", {name: TYPES[name] for name in TYPES if name in formula})
        plan = Plan(formula, family, levels, types, **changes)
        if family == "logistic" and not formula.startswith("{"):
            plan = replace(plan, classes=["0", "1"])
        return Coding(plan, False, (NAME,), recessions)

    def code(self, formula: str, family: str = "gaussian", **changes: Any) -> Any:
        """The moments of a design."""
        return self.ask(Code(self.coding(formula, family, **changes))).moments

    def settle(
        self, coding: Coding, p: int, delta: float = 1.345, scaling: Scaling | None = None
    ) -> str:
        """The key of plain coordinates."""
        scaling = scaling or Scaling(np.zeros(p), np.ones(p), 1.0)
        frame = Frame(scaling, None, delta, False, np.zeros(p))
        self.ask(Settle(coding, frame))
        return key_of(coding, frame)

    def oldest(self, more: int = 0) -> float:
        """An age between those of the oldest few and the others."""
        ages = self.frame["age"]
        at = ROWS - self.few - more
        return float((ages[at - 1] + ages[at]) / 2)

    @property
    def secret(self) -> float:
        """The income of the oldest few, in all."""
        return float(self.frame["income"].tail(self.few).sum())


def bisected(low: float, high: float, above: Callable[[float], bool], bits: int = 40) -> float:
    """Where an answer changes."""
    for _ in range(bits):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if above(middle) else (low, middle)
    return 0.5 * (low + high)


def products(moments: Any, column: str) -> float:
    """Σ a y of a column a and the target, from the moments of a gaussian model."""
    at = list(moments.names).index(column)
    return float(moments.cross[at] + moments.weight * moments.mean[at] * moments.net_mean)


class Guess(NamedTuple):
    """What a server has found out, and what is true."""

    found: float
    true: float
    within: float = 1e-3

    @property
    def right(self) -> bool:
        return bool(abs(self.found - self.true) <= self.within * abs(self.true))


@dataclass(frozen=True)
class Attack:
    """An attack.

    Attributes
    ----------
    title : str
        In the table.
    run : callable
        What the server finds out.
    few : tuple of int
        Of how many rows.
    guard : str
        What stops it, in the table.
    off : Rules
        The site without this guard.
    """

    title: str
    run: Callable[[Server], Guess]
    guard: str
    few: tuple[int, ...] = (1, 2, 4)
    off: Rules = WARN


STRICT = Rules.strict()
TALKATIVE = replace(STRICT, refusals=10**9)


def by_condition(server: Server) -> Guess:
    moments = server.code(f"income ~ I(age >= {server.oldest()})")
    return Guess(products(moments, moments.names[1]), server.secret)


def by_780_conditions(server: Server) -> Guess:
    """All at once; no condition is about few rows, but two of them differ in few."""
    ages = server.frame["age"].to_numpy()
    cuts = [float((ages[at - 1] + ages[at]) / 2) for at in range(20, ROWS - 40, server.few)][:60]
    terms = " + ".join(f"I(age >= {cut})" for cut in cuts)
    moments = server.code(f"income ~ {terms}")
    first, second = (products(moments, moments.names[at]) for at in (1, 2))
    return Guess(first - second, float(server.frame["income"][20 : 20 + server.few].sum()))


def by_nested_models(server: Server) -> Guess:
    every = server.code("income ~ age")
    some = server.code("income ~ age + bmi")
    return Guess(products(every, "Intercept") - products(some, "Intercept"), server.secret)


def by_two_fills(server: Server) -> Guess:
    zero, one = (server.code("income ~ bmi", fills={"bmi": fill}) for fill in (0.0, 1.0))
    return Guess(products(one, "bmi") - products(zero, "bmi"), server.secret)


def by_a_near_copy(server: Server) -> Guess:
    copy = f"I(age + 0.01*(age >= {server.oldest()}))"
    moments = server.code(f"income ~ age + {copy}")
    other = moments.names[2]
    return Guess((products(moments, other) - products(moments, "age")) / 0.01, server.secret)


def by_rounding(server: Server) -> Guess:
    """A copy that differs in the last digits: the difference itself is asked for."""
    small = 1e-12
    formula = f"bmi ~ age + I(age + {small}*(age >= {server.oldest()})) + income"
    coding = server.coding(formula.replace("bmi", "visits"))
    server.ask(Code(coding))
    D = np.array([[0, -1, 1, 0], [0, 0, 0, 1.0]]).T
    scaling = Scaling(np.zeros(4), np.ones(4), 1.0)
    told = server.ask(Products(coding, scaling, D))
    gap = math.sqrt(told[0, 0] / server.few)
    return Guess(told[0, 1] / gap, server.secret)


def by_dilution(server: Server) -> Guess:
    """A condition with so much of another column that its leverage is just below 1 - 1/n."""
    few, income = server.few, server.frame["income"]
    mixed = server.frame["visits"].to_numpy(dtype=np.float64)
    little = math.sqrt(1.2 * few / ROWS / np.square(mixed - mixed.mean()).sum())
    moments = server.code(f"income ~ I((age >= {server.oldest()}) + {little}*visits)")
    found = moments.cross[1] + few * moments.net_mean
    return Guess(found, float(income.tail(few).sum()), within=0.2)


def by_exact_differences(server: Server) -> Guess:
    """A copy that differs in the last bit, and coordinates in twice the working precision."""
    ulp = 1.5e-14
    condition = f"(age >= {server.oldest()})"
    coding = server.coding(f"visits ~ age + I(age + {ulp}*{condition}) + income", "poisson")
    server.ask(Code(coding))
    whiten = np.array([[0, 0], [-1 / ulp, 0], [1 / ulp, 0], [0, 1e-3]])
    scaling = Scaling(np.zeros(4), np.array([1, 3.0, 3.0, 1.0]), 1.0)
    frame = Frame(scaling, whiten, 1.345, False, np.zeros(2), precise=True)
    server.ask(Settle(coding, frame))
    H = server.ask(Information(np.zeros(2)), key_of(coding, frame)).rows[0]
    return Guess(1e3 * H[0, 1] / math.sqrt(H[0, 0] / server.few), server.secret)


def by_first_steps(server: Server) -> Guess:
    """A solver that stops after one gradient step tells the gradient where it began."""
    coding = server.coding("visits ~ age + income", "poisson")
    server.ask(Code(coding))
    key = server.settle(coding, 3)
    far = np.array([-9000.0, 120.0, 0.0])
    one = GradientProx(steps=1, step=1.0)
    told = server.ask(Prox(far, 1e-250, far, one), key).rows[0]
    moved = told - far
    return Guess(moved[2] / moved[0], float(server.frame["income"].iloc[-1]))


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


def by_recession(server: Server) -> Guess:
    """Only rows at rest along a direction take part: all but the oldest few."""
    condition = f"I(age >= {server.oldest()})"
    formula = f"visits ~ {condition} + income"
    eye = tuple(map(tuple, np.eye(3)))
    along = Recession((0.0,) * 3, (1.0,) * 3, eye, (0.0, 1.0, 0.0))
    every = server.code("visits ~ income", "poisson")
    some = server.code(formula, "poisson", recessions=(along,))
    income = every.weight * every.mean[1] - some.weight * some.mean[2]
    return Guess(income, server.secret)


def by_spline(server: Server) -> Guess:
    """A spline whose last function lives beyond a knot of the server's choice."""
    knot = server.oldest()
    moments = server.code(f"income ~ bs(age, knots=c({knot}), degree=1, Boundary.knots=c(0, 100))")
    last = moments.names[-1]
    beyond = server.frame["age"].tail(server.few) - knot
    truth = float((server.frame["income"].tail(server.few) * beyond).sum() / (100 - knot))
    return Guess(products(moments, last), truth)


def by_interval(server: Server) -> Guess:
    """How many rows have an interval: two sets of breaks that differ in few rows."""
    cuts = f"c(0, 40, {server.oldest()})"
    some = server.code(f"income ~ cut(age, {cuts})")
    every = server.code("income ~ age")
    return Guess(products(every, "Intercept") - products(some, "Intercept"), server.secret)


def by_levels(server: Server) -> Guess:
    """The ward of those without a bmi, from counts with and without that column."""
    counts = []
    for names in (("ward", "age"), ("ward", "age", "bmi")):
        types = {name: TYPES[name] for name in names}
        request = ColumnRequest(types, frozenset(), frozenset(), False)
        counts.append(server.ask(Describe(request)).levels["ward"])
    found = counts[0]["north"] - counts[1]["north"]
    truth = int((server.frame["ward"].tail(server.few) == "north").sum())
    return Guess(found + 10, truth + 10)  # it may be zero


def by_filled_sums(server: Server) -> Guess:
    sums = []
    for names in (("income", "age"), ("income", "age", "bmi")):
        types = {name: TYPES[name] for name in names}
        request = ColumnRequest(types, frozenset(), frozenset({"income"}), False)
        sums.append(server.ask(Describe(request)).sums["income"][1])
    return Guess(sums[0] - sums[1], server.secret)


def by_offset(server: Server) -> Guess:
    """The logarithm of a sum of exponentials is the largest of them."""
    moments = server.code("visits ~ income + offset(10*age)", "poisson")
    return Guess(moments.log_exposed / 10, float(server.frame["age"].max()))


def by_added_patients(server: Server) -> Guess:
    before = server.code("income ~ age")
    more = server.frame.head(server.few).assign(income=4321.0)
    pd.concat([server.frame, more]).to_csv(server.path, index=False)
    server.site = server.started()
    after = server.code("income ~ age")
    found = products(after, "Intercept") - products(before, "Intercept")
    return Guess(found, 4321.0 * server.few)


def by_far_poisson(server: Server) -> Guess:
    coding = server.coding("visits ~ age + income", "poisson")
    server.ask(Code(coding))
    key = server.settle(coding, 3)
    told = server.ask(Gradient(np.array([-9000.0, 120.0, 0.0])), key).rows[0]
    return Guess(told[2] / told[0], float(server.frame["income"].iloc[-1]))


def by_prony(server: Server) -> Guess:
    """A sum of exponentials at points none of which is far, taken apart by Prony's method."""
    coding = server.coding("visits ~ age", "poisson")
    told = server.ask(Code(coding)).moments
    key = server.settle(coding, 2)
    slopes = np.linspace(0.05, 1.2, 24)
    sums = []
    for slope in slopes:
        gradient = server.ask(Gradient(slope * np.array([-50.0, 1.0])), key).rows[0]
        sums.append(gradient[0] + told.weight * told.target_mean)
    last = np.array(sums[-16:])
    now = np.array([last[i : i + 8] for i in range(8)])
    then = np.array([last[i + 1 : i + 9] for i in range(8)])
    factors = np.abs(eigvals(then, now))
    found = 50 + float(np.log(factors.max())) / (slopes[1] - slopes[0])
    return Guess(found, float(server.frame["age"].max()))


def by_crossing(server: Server) -> Guess:
    """Two matrices of Huber's loss between which one row crosses δ."""
    coding = server.coding("age ~ income", "huber")
    server.ask(Code(coding))
    key = server.settle(coding, 2, delta=20.0, scaling=Scaling(np.zeros(2), np.ones(2), 10.0))
    ages = server.frame["age"].to_numpy()
    told = []
    for at in (150, 150 + server.few):
        # residuals of those before are below 200 in the unit of ten years
        cut = float((ages[at - 1] + ages[at]) / 2) / 10
        told.append(server.ask(Information(np.array([cut - 20.0, 0.0])), key).rows[0])
    found = abs(told[0][0, 1] - told[1][0, 1])
    return Guess(found, float(server.frame["income"][150 : 150 + server.few].sum()))


def by_far_prox(server: Server) -> Guess:
    """The same where the site is sent elsewhere, and says how strongly it is drawn back."""
    coding = server.coding("visits ~ age + income", "poisson")
    server.ask(Code(coding))
    key = server.settle(coding, 3)
    far = np.array([-9000.0, 120.0, 0.0])
    told = server.ask(Prox(far, 1e-300, None, ExactProx(), gradient=True), key)
    pulled = told.parts["gradient"][0]
    return Guess(pulled[2] / pulled[0], float(server.frame["income"].iloc[-1]))


def by_far_logistic(server: Server) -> Guess:
    """Where one row alone is near ½, the information is that of this row."""
    coding = server.coding("ill ~ age + income", "logistic")
    server.ask(Code(coding))
    key = server.settle(coding, 3)
    age = float(server.frame["age"][100])
    H = server.ask(Information(np.array([-age * 1e5, 1e5, 0.0])), key).rows[0]
    return Guess(H[0, 2] / H[0, 0], float(server.frame["income"][100]))


def by_changing_sides(server: Server) -> Guess:
    """Far out a gradient is a sum over rows on the wrong side: between two points few change."""
    coding = server.coding("ill ~ age + income", "logistic")
    server.ask(Code(coding))
    key = server.settle(coding, 3)
    ages = server.frame["age"].to_numpy()
    told = []
    for at in (100, 100 + server.few):
        between = float((ages[at - 1] + ages[at]) / 2)
        told.append(server.ask(Gradient(np.array([-between, 1.0, 0.0]) * FAR), key).rows[0])
    found = abs(told[0][2] - told[1][2])
    return Guess(found, float(server.frame["income"][100 : 100 + server.few].sum()))


def by_values_on_a_line(server: Server) -> Guess:
    """A loss far out is piecewise linear in the point: its kinks are single rows."""
    coding = server.coding("ill ~ age", "logistic")
    server.ask(Code(coding))
    key = server.settle(coding, 2)
    target = float(server.frame["age"].iloc[-1])
    grid = np.linspace(target - 0.005, target + 0.005, 201)
    x, direction = np.array([0.0, FAR]), np.array([-FAR, 0.0])
    values = server.ask(Line(x, direction, grid), key).rows[0]
    bends = np.abs(np.diff(values, 2))
    return Guess(float(grid[1 + int(np.argmax(bends))]), target)


def by_huber(server: Server) -> Guess:
    """With a small δ the curvature is that of the few rows whose residuals are within it."""
    coding = server.coding("age ~ income", "huber")
    server.ask(Code(coding))
    key = server.settle(coding, 2, delta=1e-4)
    age = float(server.frame["age"][100])
    H = server.ask(Information(np.array([age, 0.0])), key).rows[0]
    return Guess(H[0, 1] / H[0, 0], float(server.frame["income"][100]))


def by_pearson(server: Server) -> Guess:
    """Where means vanish, Pearson's statistic is that of the row with the smallest mean."""
    coding = server.coding("income ~ age", "gamma")
    server.ask(Code(coding))
    key = server.settle(coding, 2)
    slope = 5.0
    told = server.ask(Fitted(np.array([150.0, -slope]), 1.0), key)
    income = float(server.frame["income"].iloc[-1])
    found = (150.0 + 0.5 * math.log(told.pearson / income**2)) / slope
    return Guess(found, float(server.frame["age"].max()))


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


def by_other_words(server: Server) -> Guess:
    """The same columns written otherwise, each with matrices of its own: as many as there are."""
    matrices = 0
    for times in range(1, 60):
        coding = server.coding(f"visits ~ I({times}*age) + I({times}*income)", "poisson")
        server.ask(Code(coding))
        scaling = Scaling(np.array([0, 50.0, 1000]), np.array([1, 20.0, 800]) * times, 1.0)
        key = server.settle(coding, 3, scaling=scaling)
        for k in range(4):
            server.ask(Information(np.array([0.5, 0.01 * k, 0.0])), key)
            matrices += 1
    numbers = matrices * 6
    return Guess(float(min(numbers, ROWS * 3)), float(ROWS * 3))


LEVERAGE = "leverage of all that was answered"
POINT = "weighted leverage, slopes, \\|aᵀx\\|"
TOGETHER = "slopes and weights of all points"
COUNTED = "refusals are counted"

SUMS = "sums, not maxima"

ATTACKS: Sequence[Attack] = [
    Attack("a condition that holds for few rows", by_condition, LEVERAGE),
    Attack("60 conditions at once, two of which differ in few rows", by_780_conditions, LEVERAGE),
    Attack("two models, one with a column that few rows lack", by_nested_models, LEVERAGE),
    Attack("two values in the place of missing ones", by_two_fills, LEVERAGE),
    Attack("`I(age + 0.01*(age >= t))` beside `age`", by_a_near_copy, LEVERAGE),
    Attack("the same with 1e-12, by combinations of columns", by_rounding, LEVERAGE),
    Attack("the same in the last bit, in twice the precision", by_exact_differences, LEVERAGE),
    Attack(
        "a condition with a little of another column",
        by_dilution,
        "a limit of 0.9, not 1 - 1/n",
        (1,),
        replace(STRICT, leverage=1.0),
    ),
    Attack("rows at rest along a direction", by_recession, LEVERAGE),
    Attack("a spline with a knot before the last rows", by_spline, LEVERAGE),
    Attack("`cut` whose breaks leave out few rows", by_interval, LEVERAGE),
    Attack("counts of levels with and without a column", by_levels, LEVERAGE),
    Attack("sums for filling with and without a column", by_filled_sums, LEVERAGE),
    Attack("an offset that makes one exposure the sum", by_offset, LEVERAGE, (1,)),
    Attack("moments before and after patients were added", by_added_patients, "snapshots"),
    Attack("a Poisson gradient far out", by_far_poisson, POINT, (1,)),
    Attack("sums of exponentials at many points near by", by_prony, TOGETHER, (1,)),
    Attack("two of Huber's matrices, between which few rows cross δ", by_crossing, TOGETHER),
    Attack("a prox from far out", by_far_prox, POINT, (1,)),
    Attack("a solver that stops after one step", by_first_steps, POINT, (1,)),
    Attack("logistic information far out, one row near ½", by_far_logistic, POINT, (1,)),
    Attack("two gradients far out: few rows change sides", by_changing_sides, POINT),
    Attack("values on a line far out", by_values_on_a_line, POINT, (1,)),
    Attack("Huber's information with a tiny δ", by_huber, POINT, (1,)),
    Attack("Pearson's X² far out", by_pearson, POINT, (1,)),
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
    Attack("the same columns in other words", by_other_words, "matrices by columns", (1,)),
]

CASES = [(attack, few) for attack in ATTACKS for few in attack.few]


def outcome(attack: Attack, few: int, rules: Rules, folder: Path) -> Guess | str:
    """What a server finds out about ``few`` rows, or why it does not."""
    folder.mkdir(parents=True)
    try:
        return attack.run(Server(folder, rules, few))
    except Refused as error:
        return str(error)


@pytest.mark.parametrize(("attack", "few"), CASES, ids=[f"{a.title} {n}" for a, n in CASES])
def test_an_attack_fails_under_rules_and_succeeds_without_its_guard(
    attack: Attack, few: int, tmp_path: Path
) -> None:
    smallest = max(3, few + 1)
    without = outcome(attack, few, attack.off, tmp_path / "without")
    assert isinstance(without, Guess), without
    assert without.right, without
    found = outcome(attack, few, replace(STRICT, smallest=smallest), tmp_path / "with")
    assert isinstance(found, str) or not found.right, found


FAR_OUT = [(attack, few) for attack, few in CASES if attack.guard == POINT]


@pytest.mark.parametrize(("attack", "few"), FAR_OUT, ids=[f"{a.title} {n}" for a, n in FAR_OUT])
def test_points_are_refused_by_what_few_rows_carry_there_and_not_only_by_how_far_they_are(
    attack: Attack, few: int, tmp_path: Path
) -> None:
    unbounded = replace(STRICT, smallest=max(3, few + 1), predictor=math.inf)
    found = outcome(attack, few, unbounded, tmp_path / "with")
    assert isinstance(found, str) or not found.right, found


def test_what_was_answered_is_known_after_a_restart_and_under_a_later_snapshot(
    tmp_path: Path,
) -> None:
    server = Server(tmp_path, STRICT, 2)
    server.code("income ~ age")
    for more in (0, 40):
        frame = pd.concat([server.frame, server.frame.head(more).assign(age=50.5)])
        frame.to_csv(server.path, index=False)
        server.site = server.started()
        with pytest.raises(Refused):
            server.code("income ~ age + bmi")
        server.site.refusals.clear()
    assert server.code("income ~ age").n == ROWS + 40


def test_models_with_some_of_the_columns_of_a_study_have_the_same_rows(tmp_path: Path) -> None:
    server = Server(tmp_path, STRICT, 2)
    types = {name: TYPES[name] for name in ("income", "age", "visits")}
    for formula in ("income ~ age + visits + bmi", "income ~ age", "income ~ age + visits"):
        moments = server.code(formula, others=("bmi",), types={**types, "bmi": "number"})
        assert moments.n == ROWS - 2


def test_what_points_have_told_together_is_known_after_a_restart(tmp_path: Path) -> None:
    server = Server(tmp_path, STRICT, 1)
    ask = server.ask

    def restarted(question: Question, key: str = "") -> Any:
        server.site = server.started()
        return ask(question, key)

    server.ask = restarted  # type: ignore[method-assign]  # a process for each question
    with pytest.raises(Refused):
        by_prony(server)
    assert "rows stand out of those before" in server.site.refusals.found()[0]["why"]


def test_a_file_that_changes_is_used_once_enough_rows_have_come_and_gone(tmp_path: Path) -> None:
    server = Server(tmp_path, STRICT, 2)
    seen: list[Event] = []
    server.site = Site(
        NAME, str(server.path), folder=server.folder, rules=STRICT, watch=seen.append
    )
    request = Describe(ColumnRequest({"age": "number"}, frozenset(), frozenset(), False))
    extra = server.frame.head(3).assign(age=[41.5, 42.5, 43.5])
    for changed, rows in (
        (server.frame, ROWS),
        (pd.concat([server.frame, extra.head(2)]), ROWS),  # two came
        (pd.concat([server.frame.iloc[1:], extra]), ROWS),  # three came, one went
        (pd.concat([server.frame.assign(other=1), extra.head(1)]), ROWS),  # with a new column
        (pd.concat([server.frame, extra]), ROWS + 3),
        (server.frame, ROWS + 3),  # three went, none came
    ):
        changed.to_csv(server.path, index=False)
        assert server.ask(request).rows == rows
    told = [event.text for event in seen if event.kind == "data"]
    assert len(told) == 5
    assert "(2 rows came, 0 went)" in told[0]
    assert "3 rows came, 0 went), and is used from the next fit on" in told[3]


def table() -> list[str]:
    """The lines of the table in docs/guards.md."""
    lines = [
        "| attack | rows | without its guard | under `--strict` | what stops it |",
        "| --- | --- | --- | --- | --- |",
    ]
    for attack in ATTACKS:
        few = attack.few[-1]
        rules = replace(STRICT, smallest=max(3, few + 1))
        with tempfile.TemporaryDirectory() as name:
            without = outcome(attack, few, attack.off, Path(name) / "without")
            found = outcome(attack, few, rules, Path(name) / "with")
        assert isinstance(without, Guess)
        told = "refused"
        if isinstance(found, Guess):
            told = f"answered, which gives {found.found:.5g}"
        rows = ", ".join(map(str, attack.few))
        read = f"{without.found:.6g} of {without.true:.6g}"
        lines.append(f"| {attack.title} | {rows} | {read} | {told} | {attack.guard} |")
    return lines


if __name__ == "__main__":
    sys.stdout.write("\n".join(table()) + "\n")
