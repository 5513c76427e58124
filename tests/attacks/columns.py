"""Attacks that read rows from sums and products of columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from attacks.server import (
    ROWS,
    TYPES,
    Attack,
    Guess,
    Server,
    products,
)
from fedsplit.arrays import Array
from fedsplit.clients.questions import Gradient, Information
from fedsplit.regression.client.design import Frame, Scaling, key_of
from fedsplit.regression.client.questions import Settle, Survey
from sum_questions import ask_moments, ask_products, products_in

GROUP = "groups of fewer than k rows"
NOTHING = ""
DIGITS = "no column that is mostly rounding"
RANGE = "numbers between 1e-100 and 1e100"
ROUNDED = "sums are rounded"


def by_condition(server: Server) -> Guess:
    moments = server.code(f"income ~ I(age >= {server.oldest()})")
    return Guess(products(moments, moments.names[1]), server.secret)


def by_many_conditions(server: Server) -> Guess:
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
    server.ask(ask_moments(coding))
    D = np.array([[0, -1, 1, 0], [0, 0, 0, 1.0]]).T
    scaling = Scaling(np.zeros(4), np.ones(4), 1.0)
    told = products_in(server.ask(ask_products(coding, scaling, D)))
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
    server.ask(ask_moments(coding))
    whiten = np.array([[0, 0], [-1 / ulp, 0], [1 / ulp, 0], [0, 1e-3]])
    scaling = Scaling(np.zeros(4), np.array([1, 3.0, 3.0, 1.0]), 1.0)
    frame = Frame(scaling, whiten, 1.0, False, np.zeros(2), precise=True)
    server.ask(Settle(coding, frame))
    H = server.ask(Information(np.zeros(2)), key_of(coding, frame)).rows[0]
    return Guess(1e3 * H[0, 1] / math.sqrt(H[0, 0] / server.few), server.secret)


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
    for formula in ("age ~ ward", "age ~ ward + bmi"):
        counts.append(server.ask(Survey(server.coding(formula))).counts.levels["ward"])
    found = counts[0]["north"] - counts[1]["north"]
    truth = int((server.frame["ward"].tail(server.few) == "north").sum())
    return Guess(found + 10, truth + 10)  # it may be zero


def by_offset(server: Server) -> Guess:
    """The logarithm of a sum of exponentials is the largest of them."""
    moments = server.code("visits ~ income + offset(10*age)", "poisson")
    return Guess(moments.log_exposed / 10, float(server.frame["age"].max()))


def by_added_patients(server: Server) -> Guess:
    before = server.code("income ~ age")
    more = server.frame.head(server.few).assign(income=4321.0)
    server.replace_rows(pd.concat([server.frame, more]))
    after = server.code("income ~ age")
    found = products(after, "Intercept") - products(before, "Intercept")
    return Guess(found, 4321.0 * server.few)


def gram(moments: Any) -> Array:
    """Σ a aᵀ of the columns, from their moments."""
    found: Array = moments.scatter + moments.weight * np.outer(moments.mean, moments.mean)
    return found


def a_cell(server: Server, few: int) -> tuple[float, float, pd.DataFrame]:
    """An age and a bmi that many rows are above, and few are above both."""
    frame = server.frame
    for age in frame["age"][ROWS - 60 : ROWS - 8]:
        for bmi in frame["bmi"].dropna().sort_values()[-40:-8]:
            rows = frame[(frame["age"] >= age) & (frame["bmi"] >= bmi)]
            if len(rows) == few:
                return float(age), float(bmi), rows
    raise AssertionError("there is no such cell")


def by_a_product(server: Server) -> Guess:
    """Two conditions of many rows each: the product of their columns is that of few."""
    age, bmi, rows = a_cell(server, server.few)
    moments = server.code(f"visits ~ I(income*(age >= {age})) + I(bmi >= {bmi})")
    return Guess(gram(moments)[1, 2], float(rows["income"].sum()))


def by_masked_products(server: Server) -> Guess:
    """The same with conditions that are added to other columns of the model."""
    age, bmi, rows = a_cell(server, server.few)
    first, second = f"I(age + income*(age >= {age}))", f"I(bmi + (bmi >= {bmi}))"
    moments = server.code(f"visits ~ age + bmi + {first} + {second}")
    G = gram(moments)
    return Guess(G[3, 4] - G[1, 4] - G[3, 2] + G[1, 2], float(rows["income"].sum()))


def by_a_difference_of_products(server: Server) -> Guess:
    """Products of many rows each, which differ in few."""
    frame = server.frame
    age = float(frame["age"][ROWS - 60])
    old = frame["bmi"][frame["age"] >= age].dropna().sort_values()
    above = [float(old.iloc[at]) for at in (-20, server.few - 20)]
    conditions = [f"I(bmi >= {bmi})" for bmi in above]
    G = gram(server.code(f"visits ~ I(income*(age >= {age})) + {' + '.join(conditions)}"))
    between = frame["bmi"].between(*above, inclusive="left") & (frame["age"] >= age)
    return Guess(G[1, 2] - G[1, 3], float(frame["income"][between].sum()))


def by_crossed_conditions(server: Server) -> Guess:
    """Cells of two columns in bulk: one question, with five conditions on each."""
    frame = server.frame.dropna()
    edges = [np.quantile(frame[name], np.linspace(0.3, 0.7, 5)) for name in ("age", "bmi")]
    terms = [f"I(income*(age >= {edge}))" for edge in edges[0]]
    terms += [f"I(bmi >= {edge})" for edge in edges[1]]
    G = gram(server.code(f"visits ~ {' + '.join(terms)}"))[1:6, 6:11]
    sums = G[:-1, :-1] - G[1:, :-1] - G[:-1, 1:] + G[1:, 1:]
    (a, b), inside = edges, []
    for i in range(4):
        for j in range(4):
            rows = frame[frame["age"].between(a[i], a[i + 1], inclusive="left")]
            rows = rows[rows["bmi"].between(b[j], b[j + 1], inclusive="left")]
            if len(rows) == 1:
                inside.append((sums[i, j], float(rows["income"].iloc[0])))
    return Guess(*np.sum(inside, axis=0))


def by_two_scales(server: Server) -> Guess:
    """A column that is tiny on few rows, where another one is not zero: their product."""
    age, bmi, rows = a_cell(server, server.few)
    ill = rows["ill"].iloc[0]
    cell = f"(age >= {age})*(bmi >= {bmi})*(ill == {ill})"
    formula = f"visits ~ I(1e6*(ill != {ill}) + 4*(ill == {ill}) + 1e-8*{cell})"
    coding = server.coding(f"{formula} + I(income*(ill == {ill}))")
    server.ask(ask_moments(coding))
    told = products_in(
        server.ask(ask_products(coding, Scaling(np.zeros(3), np.ones(3), 1.0), np.eye(3)))
    )
    kept = server.frame.dropna()
    others = float(kept["income"][kept["ill"] == ill].sum())
    of_cell = rows[rows["ill"] == ill]["income"].sum()
    return Guess((told[1, 2] - 4 * others) * 1e8, float(of_cell), within=0.2)


def by_a_state(server: Server) -> Guess:
    """Polynomials whose coefficients round a column to two steps, at an age of one's choice."""
    ages = server.frame["age"]
    found = []
    for at in (100, 100 + server.few):
        state = {
            "center": [(ages[at - 1] + ages[at]) / 2 - 64.0],
            "scale": [2.0],
            "alpha": [-(2.0**58), 0.0],
            "norm2": [1.0, 1.0, 1.0],
        }
        moments = server.code("visits ~ poly(age, 2) + income", state={"poly(age, 2)": state})
        found.append(moments.scatter[1, 3] / 64 + (ROWS - at) * moments.mean[3])
    truth = float(server.frame["income"][100 : 100 + server.few].sum())
    return Guess(found[0] - found[1], truth)


def by_a_weight(server: Server) -> Guess:
    """Weights beside two conditions."""
    age, bmi, rows = a_cell(server, server.few)
    formula = f"visits ~ I(age >= {age}) + I(bmi >= {bmi})"
    types = {name: TYPES[name] for name in ("visits", "age", "bmi", "income")}
    moments = server.code(formula, weights="income", types=types)
    return Guess(gram(moments)[1, 2], float(rows["income"].sum()))


def by_nearly_equal_weights(server: Server) -> Guess:
    """Weights of 1, and of a little more for few rows, that are an expression."""
    plain = server.code("income ~ age")
    more = server.code("income ~ age", weights=f"1 + 0.01*(age >= {server.oldest()})")
    found = (products(more, "Intercept") - products(plain, "Intercept")) / 0.01
    return Guess(found, server.secret)


def by_nearly_equal_exposures(server: Server) -> Guess:
    """Two gradients at one point, between which few rows have another exposure."""
    told = []
    for more in (0.0, 0.01):
        exposure = f"1 + {more}*(age >= {server.oldest()})"
        types = {name: TYPES[name] for name in ("visits", "income", "age")}
        coding = server.coding("visits ~ income", "poisson", exposure=exposure, types=types)
        server.ask(ask_moments(coding))
        told.append(server.ask(Gradient(np.zeros(2)), server.settle(coding, 2)).rows[0])
    return Guess(float(told[1][1] - told[0][1]) / 0.01, server.secret)


def by_a_steep_column(server: Server) -> Guess:
    """A column of exponentials is nearly that of its largest row."""
    moments = server.code("income ~ I(exp(9*(age - 60)))")
    steep = moments.names[1]
    sums = moments.weight * moments.mean[1]
    return Guess(products(moments, steep) / sums, server.secret, within=0.2)


def by_tiny_products(server: Server) -> Guess:
    """The same as a product of two conditions, where squares of the products underflow."""
    age, bmi, rows = a_cell(server, server.few)
    moments = server.code(f"visits ~ I(1e-100*income*(age >= {age})) + I(1e-100*(bmi >= {bmi}))")
    return Guess(gram(moments)[1, 2] * 1e200, float(rows["income"].sum()))


def by_huge_columns(server: Server) -> Guess:
    """Columns whose squares overflow; they differ in few rows."""
    ages = server.frame["age"]
    cuts = [float((ages[at - 1] + ages[at]) / 2) for at in (100, 100 + server.few)]
    moments = server.code(f"income ~ {' + '.join(f'I(1e200*(age >= {cut}))' for cut in cuts)}")
    first, second = (products(moments, moments.names[at]) for at in (1, 2))
    truth = float(server.frame["income"][100 : 100 + server.few].sum())
    return Guess((first - second) / 1e200, truth)


def by_underflow(server: Server) -> Guess:
    """A product that is 0 or the least number of float64: a condition, in any formula."""
    coding = server.coding("visits ~ age + income")
    server.ask(ask_moments(coding))
    least, huge = 5e-324, 1e300
    D = np.array([[0, least, 0], [0, 0, huge]]).T
    scaling = Scaling(np.zeros(3), np.array([1.0, 2 * server.oldest(), 1.0]), 1.0)
    told = products_in(server.ask(ask_products(coding, scaling, D)))
    return Guess(told[0, 1] / least / huge, server.secret)


def by_rounded_combinations(server: Server) -> Guess:
    """Terms that cancel on a part of the rows: what is left there is rounded at a value."""
    ill = server.frame[server.frame["ill"] == 1].reset_index()
    at = len(ill) - server.few
    age = float((ill["age"][at - 1] + ill["age"][at]) / 2)
    coding = server.coding("visits ~ age + ill + ill:income")
    server.ask(ask_moments(coding))
    D = np.array([[2.0**58, 32 / age, -(2.0**58), 0], [0, 0, 0, 1.0]]).T
    told = products_in(server.ask(ask_products(coding, Scaling(np.zeros(4), np.ones(4), 1.0), D)))
    return Guess(told[0, 1] / 64, float(ill["income"][at:].sum()))


ATTACKS: Sequence[Attack] = [
    Attack("a condition that holds for few rows", by_condition, GROUP),
    Attack("60 conditions at once, two of which differ in few rows", by_many_conditions, NOTHING),
    Attack("two models, one with a column that few rows lack", by_nested_models, NOTHING),
    Attack("`I(age + 0.01*(age >= t))` beside `age`", by_a_near_copy, NOTHING),
    Attack("the same with 1e-12, by combinations of columns", by_rounding, NOTHING),
    Attack("the same in the last bit, in twice the precision", by_exact_differences, NOTHING),
    Attack(
        "a condition with a little of another column",
        by_dilution,
        NOTHING,
        (1,),
    ),
    Attack("a spline with a knot before the last rows", by_spline, GROUP),
    Attack("`cut` whose breaks leave out few rows", by_interval, NOTHING),
    Attack("counts of levels with and without a column", by_levels, NOTHING),
    Attack("an offset that makes one exposure the sum", by_offset, NOTHING, (1,)),
    Attack(
        "moments before and after patients were added",
        by_added_patients,
        "frozen copies",
        (3, 4),  # with fewer even an owner who is only warned keeps the rows
        seen=False,
    ),
    Attack("a product of two conditions", by_a_product, NOTHING, (1, 2)),
    Attack("the same beside weights", by_a_weight, NOTHING, (1, 2)),
    Attack("the same, added to other columns", by_masked_products, NOTHING, (1, 2)),
    Attack("weights of 1, and of 1.01 for few rows", by_nearly_equal_weights, NOTHING),
    Attack("exposures of 1, and of 1.01 for few rows", by_nearly_equal_exposures, NOTHING),
    Attack("a column of exponentials", by_a_steep_column, NOTHING, (1,)),
    Attack("the difference of two products", by_a_difference_of_products, NOTHING, (1, 2), rows=2),
    Attack("the cells of five conditions and five others", by_crossed_conditions, NOTHING, (1,)),
    Attack("a product of columns of two scales", by_two_scales, ROUNDED, (1,)),
    Attack("a state of `poly` that rounds its column to two steps", by_a_state, DIGITS),
    Attack("a product of conditions times 1e-100", by_tiny_products, NOTHING, (1, 2)),
    Attack("two conditions times 1e200 that differ in few rows", by_huge_columns, RANGE),
    Attack("combinations that underflow for some rows", by_underflow, RANGE),
    Attack("combinations that cancel on a part of the rows", by_rounded_combinations, ROUNDED),
]
