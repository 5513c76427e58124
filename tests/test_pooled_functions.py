"""Functions that depend on the rows of all clients, against R."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsplit.arrays import Array
from fedsplit.data.formula.constants import Constant
from fedsplit.data.formula.pooled_functions import POOLED, ColumnStatistic
from fedsplit.data.pooled.column_statistics import ColumnMoments, Histogram, Withheld
from fedsplit.data.pooled.function import PooledFunction, Spread, State, coarse_grid
from fedsplit.data.pooled.polynomials import Recurrence
from fedsplit.dialogue import converse

FOUND = json.loads((Path(__file__).parent / "data" / "pooled_functions.json").read_text())
"""What ``pooled_functions.R`` beside it wrote."""

COLUMNS = {name: np.array(values) for name, values in FOUND["data"].items()}
SMALLEST = Withheld(3)


def read(text: str) -> tuple[PooledFunction, str]:
    """The function and the column of a call."""
    spelled = text
    for name in ("Boundary.knots", "include.lowest", "dig.lab"):
        spelled = spelled.replace(name, name.replace(".", "_DOT_"))
    call = ast.parse(spelled, mode="eval").body
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    signature = POOLED[call.func.id]
    values = dict(zip(signature.parameters, call.args[1:], strict=False))
    for keyword in call.keywords:
        values[str(keyword.arg).replace("_DOT_", ".")] = keyword.value
    given: dict[str, Constant] = {key: constant(node) for key, node in values.items()}
    return signature.read(given), ast.unparse(call.args[0])


def constant(node: ast.expr) -> Any:
    match node:
        case ast.Call(ast.Name("c"), args):
            return tuple(constant(each) for each in args)
        case ast.UnaryOp(ast.USub(), operand):
            return -constant(operand)
        case ast.Name(name):
            return {"TRUE": True, "FALSE": False, "NULL": None, "Inf": math.inf}[name]
        case ast.Constant(value):
            return value
    raise AssertionError


def agreed(text: str, x: Array, sites: Any) -> State:
    """The state of a call, from what each site would send."""
    function, _ = read(text)
    agreement = function.agreement()
    if agreement is None:
        return {}

    class Sites:
        def ask(self, statistic: ColumnStatistic) -> Array:
            own = [statistic.part(x[sites == site], SMALLEST) for site in np.unique(sites)]
            parts = [each.value() for each in own]
            assert not any(statistic.shape.check(part) for part in parts)
            return statistic.shape.pooled(parts)

    return converse(agreement, Sites())


@pytest.mark.parametrize("text", FOUND["basis"])
def test_columns_are_those_of_r(text: str) -> None:
    function, column = read(text)
    x = COLUMNS[column].astype(np.float64)
    state = agreed(text, x, COLUMNS["site"])
    values = function.values(x, state)
    expected = np.array(FOUND["basis"][text])
    np.testing.assert_allclose(values[:30], expected, rtol=1e-12, atol=1e-12)
    assert len(function.labels(state)) == values.shape[1]


@pytest.mark.parametrize("text", FOUND["intervals"])
def test_intervals_are_those_of_r(text: str) -> None:
    cut, column = read(text)
    expected = FOUND["intervals"][text]
    assert cut.labels({}) == expected["levels"]
    codes = cut.values(COLUMNS[column].astype(np.float64), {})
    assert (codes + 1).tolist() == expected["codes"]


def test_breaks_and_knots_may_be_written_in_any_order() -> None:
    cut, _ = read("cut(x, c(30, 10, 20))")
    assert cut.labels({}) == ["(10,20]", "(20,30]"]
    knots, _ = read("bs(x, knots=c(3, 1), Boundary.knots=c(9, 0))")
    x = np.linspace(0.0, 9.0, 7)
    ordered, _ = read("bs(x, knots=c(1, 3), Boundary.knots=c(0, 9))")
    np.testing.assert_array_equal(knots.values(x, {}), ordered.values(x, {}))


def test_polynomials_are_orthonormal_however_far_from_zero_the_values_are() -> None:
    rng = np.random.default_rng(0)
    columns = [rng.normal(size=400) + 1e7, np.exp(1.2 * rng.normal(size=400)), np.arange(400.0) % 7]
    for x in columns:
        sites = np.arange(400) % 3
        state = agreed("poly(x, 5)", x, sites)
        values = read("poly(x, 5)")[0].values(x, state)
        np.testing.assert_allclose(values.T @ values, np.eye(5), atol=1e-12)
        np.testing.assert_allclose(values.sum(axis=0), 0.0, atol=1e-11)


def test_a_degree_above_the_number_of_different_values_is_refused() -> None:
    x = np.arange(60.0) % 3
    with pytest.raises(ValueError, match="too few different values"):
        agreed("poly(x, 3)", x, np.arange(60) % 2)
    assert len(agreed("poly(x, 2)", x, np.arange(60) % 2)["alpha"]) == 2


def test_a_column_that_does_not_vary_is_refused() -> None:
    x = np.full(50, 0.1)
    for text in ("scale(x)", "poly(x, 2)", "bs(x, df=5)", "cut(x, 3)"):
        with pytest.raises(ValueError, match="does not vary"):
            agreed(text, x, np.arange(50) % 4)


def test_agreed_knots_are_near_the_quantiles_and_short_numbers() -> None:
    x = np.random.default_rng(3).normal(50.0, 12.0, size=2000)
    sites = np.arange(2000) % 5
    state = agreed("ns(x, df=4)", x, sites)
    np.testing.assert_allclose(state["knots"], np.quantile(x, [0.25, 0.5, 0.75]), atol=1.0)
    assert all(len(f"{knot:g}") <= 4 for knot in [*state["knots"], *state["boundary"]])
    assert np.mean((x > state["boundary"][0]) & (x < state["boundary"][1])) > 0.98


def test_agreed_breaks_leave_no_row_out() -> None:
    x = np.random.default_rng(3).normal(50.0, 12.0, size=600)
    state = agreed("cut(x, 4)", x, np.arange(600) % 5)
    cut, _ = read("cut(x, 4)")
    codes = cut.values(x, state)
    assert set(codes.tolist()) == {0, 1, 2, 3}
    assert cut.report(state).startswith("breaks=c(-Inf, ")


def test_small_cells_of_a_histogram_are_withheld() -> None:
    grid = Histogram(0.0, 1.0, 4)
    x = np.array([-9.0, 0.5, 0.5, 0.5, 1.5, 1.6, 2.5, 2.5, 2.5, 2.5, *[3.5] * 12, 7.0, 8.0])
    assert grid.part(x, SMALLEST).value()[0].tolist() == [0.0, 3.0, 0.0, 4.0, 12.0, 0.0]


def test_a_client_of_few_rows_merges_cells() -> None:
    grid = coarse_grid(0.0, 1.0)
    x = np.array([-0.9, -0.5, -0.1, 0.1, 0.4, 0.7, 1.1])
    counts = grid.part(x, SMALLEST).value()[0]
    assert counts.sum() <= len(x)
    assert np.count_nonzero(counts) in (0, 8, 16)


def test_a_client_with_two_rows_for_every_cell_merges_none() -> None:
    grid = Histogram(0.0, 1.0, 10)
    x = np.array([0.5] * 15 + [1.5] * 5)
    assert grid.part(x, Withheld(1)).value()[0].tolist() == [0.0, 15.0, 5.0, *[0.0] * 9]
    assert grid.part(x[1:], Withheld(1)).value()[0].tolist() == [0.0, 9.5, 9.5, *[0.0] * 9]


def test_rows_that_are_too_few_to_be_withheld_alone_have_another_count_with_them() -> None:
    grid = Histogram(0.0, 1.0, 4)
    limit = Withheld(3, together=True)
    x = np.array([-9.0, 0.5, 7.0, *[1.5] * 4, *[3.5] * 5])
    assert grid.part(x, limit).value()[0].tolist() == [0.0, 0.0, 4.0, 0.0, 5.0, 0.0]
    assert grid.part(x[1:], limit).value()[0].tolist() == [0.0, 0.0, 0.0, 0.0, 5.0, 0.0]
    assert grid.part(x[3:], limit).value()[0].tolist() == [0.0, 0.0, 4.0, 0.0, 5.0, 0.0]


def test_the_grid_of_a_histogram_is_given_by_mean_and_deviation_alone() -> None:
    grid = coarse_grid(51.3, 11.7)
    assert (grid.first, grid.step) == (2.5, 2.5)
    assert grid.edges[-1] >= 51.3 + 4 * 11.7


def test_too_few_rows_for_histograms_are_said() -> None:
    grid = coarse_grid(0.0, 1.0)
    with pytest.raises(ValueError, match="too few rows"):
        Spread(grid, np.zeros(grid.cells + 2), 100.0)
    counts = np.zeros(grid.cells + 2)
    counts[5:9] = 12.0
    with pytest.raises(ValueError, match="too few rows"):
        Spread(grid, counts, 100.0)
    assert Spread(grid, counts, 96.0).even(1)


def test_cells_of_a_histogram_are_a_fifth_of_a_deviation_where_that_is_a_round_number() -> None:
    assert coarse_grid(0.0, 5.0).step == 1.0
    assert coarse_grid(0.0, 5.1).step == 2.0


def test_moments_of_parts_are_those_of_all_rows() -> None:
    x = np.random.default_rng(0).normal(size=90) + 1e6
    statistic = ColumnMoments()
    parts = [statistic.part(each, SMALLEST).value() for each in (x[:20], x[20:21], x[21:])]
    n, mean, scatter = statistic.shape.pooled(parts)
    assert n == 90
    np.testing.assert_allclose([mean, scatter / 89], [x.mean(), x.var(ddof=1)], rtol=1e-10)


def test_polynomials_that_are_orthogonal_already_stay_as_they_are() -> None:
    x = np.linspace(-1.0, 1.0, 31)
    once = Recurrence.legendre(4)
    values = once.values(x)
    twice = once.orthogonalised(values.T @ values)
    assert twice is not None
    values = twice.values(x)
    again = twice.orthogonalised(values.T @ values)
    assert again is not None
    np.testing.assert_allclose(again.norm2, twice.norm2, rtol=1e-12)
    np.testing.assert_allclose(again.alpha, twice.alpha, atol=1e-14)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("poly(x, 0)", "degree must be a whole number from 1 to 20"),
        ("poly(x, 2.5)", "degree must be a whole number"),
        ("poly(x, 2, raw=1)", "raw must be TRUE or FALSE"),
        ("scale(x, scale=0)", "scale must not be 0"),
        ("scale(x, 'a')", "center must be a number"),
        ("bs(x, df=2)", "df must be 3 or more"),
        ("ns(x, df=0)", "df must be a whole number from 1"),
        ("bs(x, knots=c(1, 9), Boundary.knots=c(0, 8))", "must lie between 0 and 8"),
        ("bs(x, knots=c(0, 5), Boundary.knots=c(0, 8))", "must lie between 0 and 8"),
        ("ns(x, knots=c(5, 8), Boundary.knots=c(0, 8))", "must lie between 0 and 8"),
        ("bs(x, knots=c('a'))", "knots must be numbers"),
        ("ns(x, Boundary.knots=c(1))", "Boundary.knots must be two numbers"),
        ("cut(x)", "it needs breaks"),
        ("cut(x, 1)", "breaks must be a whole number from 2"),
        ("cut(x, c(1, 1, 2))", "a break is there twice"),
        ("cut(x, c(1, 2, 3), labels=c('a'))", "2 intervals, and needs as many labels"),
        ("cut(x, c(1, 2, 3), labels=c('a', 'a'))", "different words"),
    ],
)
def test_arguments_that_cannot_be_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(text)
