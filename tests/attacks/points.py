"""Attacks that read rows from answers at points of the server's choice."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvals

from attacks.server import ROWS, Attack, Guess, Server, patients
from fedsplit.arrays import Array, packed
from fedsplit.clients.local_models import ModifiedScore
from fedsplit.clients.questions import Decrement, Gradient, Information, Line, Prox
from fedsplit.local.gradient import GradientProx
from fedsplit.regression.client.design import Scaling
from sum_questions import ask_fit, ask_moments, number_in

FAR = 1e6
POINT = "\\|aᵀx\\| is at most 40, numbers are at least 1e-100"
NOTHING = ""
ROUNDED = "sums are rounded"


def by_first_steps(server: Server) -> Guess:
    """A solver that stops after one gradient step tells the gradient where it began."""
    coding = server.coding("visits ~ age + income", "poisson")
    server.ask(ask_moments(coding))
    key = server.settle(coding, 3)
    far = np.array([-9000.0, 120.0, 0.0])
    one = GradientProx(steps=1, step=1.0)
    told = server.ask(Prox(far, 1e-250, far, one), key).rows[0]
    moved = told - far
    return Guess(moved[2] / moved[0], float(server.frame["income"].iloc[-1]))


def by_far_poisson(server: Server) -> Guess:
    coding = server.coding("visits ~ age + income", "poisson")
    server.ask(ask_moments(coding))
    key = server.settle(coding, 3)
    told = server.ask(Gradient(np.array([-9000.0, 120.0, 0.0])), key).rows[0]
    return Guess(told[2] / told[0], float(server.frame["income"].iloc[-1]))


def by_prony(server: Server) -> Guess:
    """A sum of exponentials at points none of which is far, taken apart by Prony's method."""
    coding = server.coding("visits ~ age", "poisson")
    told = server.moments(coding)
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
    server.ask(ask_moments(coding))
    key = server.settle(coding, 2, delta=20.0, scaling=Scaling(np.zeros(2), np.ones(2), 10.0))
    ages = server.frame["age"].to_numpy()
    told = []
    for at in (150, 150 + server.few):
        # residuals of those before are below 200 in the unit of ten years
        cut = float((ages[at - 1] + ages[at]) / 2) / 10
        told.append(server.ask(Information(np.array([cut - 20.0, 0.0])), key).rows[0])
    found = abs(told[0][0, 1] - told[1][0, 1])
    return Guess(found, float(server.frame["income"][150 : 150 + server.few].sum()))


@functools.cache
def shared(few: int) -> tuple[list[str], NDArray[np.bool_]]:
    """Three conditions that hold together for few rows, any two of them for many; their rows."""
    frame = patients(few)
    often = (frame["visits"] >= 4).to_numpy()
    for age in range(25, 60):
        old = (frame["age"] >= age).to_numpy()
        for income in range(600, 2000, 20):
            rich = frame["income"].between(income, income + 500, inclusive="left").to_numpy()
            pairs = min((old & rich).sum(), (old & often).sum(), (rich & often).sum())
            if (old & rich & often).sum() == few and pairs >= 8:
                between = f"I((income >= {income})*(income < {income + 500}))"
                conditions = [f"I(age >= {age})", between, "I(visits >= 4)"]
                return conditions, old & rich & often
    raise AssertionError("no such conditions")


def _mixed(server: Server, read: str, other: str = "") -> tuple[Array, float]:
    """The gradient's mixed difference of three conditions, with a column that is read."""
    conditions, rows = shared(server.few)
    formula = f"ill ~ {' + '.join(conditions)} + {read}"
    total: Array = np.zeros(5)
    for at in range(8):
        more = other if at % 2 else ""
        coding = server.coding(formula + more, "logistic")
        p = 5 + bool(more)
        server.ask(ask_moments(coding))
        key = server.settle(coding, p)
        steps = np.array([at & 1, at >> 1 & 1, at >> 2 & 1], dtype=float)
        x = np.concatenate([[0.0], 0.1 * steps, np.zeros(p - 4)])
        told = server.ask(Gradient(x), key).rows[0]
        total += (-1) ** int(steps.sum()) * told[:5]
    return total, float(server.frame.loc[rows, read].sum())


def by_mixed_gradients(server: Server) -> Guess:
    """Eight gradients of main effects: their mixed difference is that of the rows of one cell."""
    told, true = _mixed(server, "income")
    return Guess(told[4] / told[0] * server.few, true)


def by_gradients_of_other_rows(server: Server) -> Guess:
    """The same, where half of them are of a model that leaves out the youngest rows."""
    told, true = _mixed(server, "income", " + cut(age, c(21, 50, 100))")
    return Guess(told[4] / told[0] * server.few, true)


def by_mixed_matrices(server: Server) -> Guess:
    """Four matrices: their mixed difference is that of a cell of two, in it a third condition."""
    conditions, rows = shared(server.few)
    coding = server.coding(f"ill ~ {' + '.join(conditions)} + income", "logistic")
    server.ask(ask_moments(coding))
    key = server.settle(coding, 5)
    total: Array = np.zeros((5, 5))
    for sign, old, rich in ((1, 0, 0), (-1, 1, 0), (-1, 0, 1), (1, 1, 1)):
        x = np.array([0.0, old, rich, 0.0, 0.0])
        total += sign * server.ask(Information(x), key).rows[0]
    true = float(server.frame.loc[rows, "income"].sum())
    return Guess(total[3, 4] / total[3, 0] * server.few, true)


def by_metrics(server: Server) -> Guess:
    """Firth's penalty is linear in a metric of the server's choice: a product of two columns."""
    conditions, rows = shared(server.few)
    formula = f"ill ~ {' + '.join(conditions)} + I(income*{conditions[2][1:]})"
    coding = server.coding(formula, "logistic")
    server.ask(ask_moments(coding))
    key = server.settle(coding, 5)
    x = np.array([0.5, 0.0, 0.0, 0.0, 0.0])
    total: Array = np.zeros(5)
    for sign, old, rich in ((1, 1, 1), (-1, 1, 0), (-1, 0, 1), (1, 0, 0)):
        v = np.array([0.0, old, rich, 0.0, 0.0])
        V = 1e-9 * (np.diag([1, 1, 1, 1, 1e-6]) + np.outer(v, v))
        told = server.ask(ModifiedScore(x, packed(V[None])[0], x, False, False), key)
        total += sign * told.parts["slope"][0]
    true = float(server.frame.loc[rows, "income"].sum())
    return Guess(total[4] / total[3] * server.few, true)


def by_decrements(server: Server) -> Guess:
    """Huber's matrices once more, from gᵀH⁻¹g for several g."""
    coding = server.coding("age ~ income", "huber")
    server.ask(ask_moments(coding))
    key = server.settle(coding, 2, delta=20.0, scaling=Scaling(np.zeros(2), np.ones(2), 10.0))
    ages = server.frame["age"].to_numpy()
    told = []
    for at in (150, 150 + server.few):
        x = np.array([float((ages[at - 1] + ages[at]) / 2) / 10 - 20.0, 0.0])
        one, two, both = (
            server.ask(Decrement(x, np.array(g)), key).parts["q"][0]
            for g in ([1.0, 0.0], [0.0, 1.0], [1.0, 1.0])
        )
        mixed = (both - one - two) / 2
        told.append(np.linalg.inv(np.array([[one, mixed], [mixed, two]])))
    found = abs(told[0][0, 1] - told[1][0, 1])
    return Guess(found, float(server.frame["income"][150 : 150 + server.few].sum()))


def by_far_logistic(server: Server) -> Guess:
    """Where one row alone is near ½, the information is that of this row."""
    coding = server.coding("ill ~ age + income", "logistic")
    server.ask(ask_moments(coding))
    key = server.settle(coding, 3)
    age = float(server.frame["age"][100])
    H = server.ask(Information(np.array([-age * 1e5, 1e5, 0.0])), key).rows[0]
    return Guess(H[0, 2] / H[0, 0], float(server.frame["income"][100]))


def by_changing_sides(server: Server) -> Guess:
    """Far out a gradient is a sum over rows on the wrong side: between two points few change."""
    coding = server.coding("ill ~ age + income", "logistic")
    server.ask(ask_moments(coding))
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
    server.ask(ask_moments(coding))
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
    server.ask(ask_moments(coding))
    key = server.settle(coding, 2, delta=1e-4)
    age = float(server.frame["age"][100])
    H = server.ask(Information(np.array([age, 0.0])), key).rows[0]
    return Guess(H[0, 1] / H[0, 0], float(server.frame["income"][100]))


def by_pearson(server: Server) -> Guess:
    """Where means vanish, Pearson's statistic is that of the row with the smallest mean."""
    coding = server.coding("income ~ age", "gamma")
    server.ask(ask_moments(coding))
    key = server.settle(coding, 2)
    slope = 5.0
    told = number_in(server.ask(ask_fit(np.array([150.0, -slope])), key))
    income = float(server.frame["income"].iloc[-1])
    found = (150.0 + 0.5 * math.log(told / income**2)) / slope
    return Guess(found, float(server.frame["age"].max()))


def by_other_words(server: Server) -> Guess:
    """The same columns written otherwise, each with matrices of its own: as many as there are."""
    matrices = 0
    for times in range(1, 60):
        coding = server.coding(f"visits ~ I({times}*age) + I({times}*income)", "poisson")
        server.ask(ask_moments(coding))
        scaling = Scaling(np.array([0, 50.0, 1000]), np.array([1, 20.0, 800]) * times, 1.0)
        key = server.settle(coding, 3, scaling=scaling)
        for k in range(4):
            server.ask(Information(np.array([0.5, 0.01 * k, 0.0])), key)
            matrices += 1
    numbers = matrices * 6
    return Guess(float(min(numbers, ROWS * 3)), float(ROWS * 3))


ATTACKS: Sequence[Attack] = [
    Attack("a Poisson gradient far out", by_far_poisson, POINT, (1,)),
    Attack("sums of exponentials at many points near by", by_prony, ROUNDED, (1,)),
    Attack("two of Huber's matrices, between which few rows cross δ", by_crossing, NOTHING),
    Attack("mixed differences of gradients", by_mixed_gradients, NOTHING, (1, 2)),
    Attack("the same of two sets of rows", by_gradients_of_other_rows, NOTHING, (1, 2)),
    Attack("mixed differences of matrices", by_mixed_matrices, NOTHING, (1, 2)),
    Attack("Firth's penalty with several metrics", by_metrics, ROUNDED, (1, 2)),
    Attack("Huber's matrices from decrements", by_decrements, NOTHING),
    Attack("a solver that stops after one step", by_first_steps, POINT, (1,), seen=False),
    Attack("logistic information far out, one row near ½", by_far_logistic, POINT, (1,)),
    Attack("two gradients far out: few rows change sides", by_changing_sides, POINT),
    Attack("values on a line far out", by_values_on_a_line, POINT, (1,)),
    Attack("Huber's information with a tiny δ", by_huber, POINT, (1,)),
    Attack("Pearson's X² far out", by_pearson, POINT, (1,)),
    Attack("the same columns in other words", by_other_words, NOTHING, (1,)),
]
