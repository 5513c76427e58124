"""Maxima and minima over rows, which are numbers of one row, leave a client only rounded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedsplit as fs
from fedsplit.arrays import Array, packed
from fedsplit.clients.local_models import LocalModel, ModifiedScore
from fedsplit.clients.question import CostQuestion
from fedsplit.clients.questions import (
    BatchCurvature,
    Decrement,
    Descend,
    Direction,
    Evaluate,
    Gradient,
    Information,
    Margin,
    Overview,
    Prox,
    Trials,
)
from fedsplit.clients.rounding import (
    GRID,
    all_positive,
    rounded,
    rounded_down,
    rounded_products,
    rounded_up,
)
from fedsplit.losses.least_squares import LeastSquares
from fedsplit.problem import Problem
from fedsplit.regression.client.guards.rounding import RoundedLeastSquares, Watch, rounded_again
from problems import LOSSES, problem

D = 4
X = 0.3 * np.ones(D)
QUESTIONS: list[CostQuestion] = [
    Decrement(X, np.ones(D)),
    LocalModel(X, None, None, 4.0, None),
    Prox(X, 0.1, None, fs.ExactProx()),
    Margin(X),
]


@given(st.floats(min_value=0.0, allow_nan=False))
def test_rounding_is_to_the_next_power_of_two_on_the_safe_side(number: float) -> None:
    x = np.array([number])
    up, down = rounded_up(x)[0], rounded_down(x)[0]
    assert down <= number <= up
    if 2.0**-1000 < number <= 2.0**1022:
        assert 1 <= up / down <= 2
        assert {float(np.frexp(each)[0]) for each in (up, down)} == {0.5}


@pytest.mark.parametrize("power", [2.0**-40, 0.5, 1.0, 4.0, 2.0**40])
def test_a_power_of_two_stays(power: float) -> None:
    x = np.array([power])
    assert (rounded_up(x)[0], rounded_down(x)[0]) == (power, power)


def parts(name: str, question: CostQuestion) -> dict[str, Array]:
    return problem(name, [17, 30], D).clients.ask(question).parts


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name())
def test_what_one_row_determines_is_told_as_a_power_of_two_or_a_sign(
    name: str, question: CostQuestion
) -> None:
    told = parts(name, question)
    for part in {"norm", "leverage", "spread", "steady"} & told.keys():
        usual = told[part][np.isfinite(told[part]) & (told[part] != 0)]
        assert (np.frexp(usual)[0] == 0.5).all()
    margin = told.get("margin", np.zeros(1))
    assert set(margin[~np.isnan(margin)]) <= {1.0, 0.0, -1.0}


def test_the_spread_of_a_modified_score_is_a_power_of_two() -> None:
    question = ModifiedScore(X, packed(np.eye(D)[None])[0], np.zeros(D), False, False)
    assert (np.frexp(parts("logistic", question)["spread"])[0] == 0.5).all()


@pytest.mark.parametrize("x", [None, X], ids=["everywhere", "at x"])
def test_the_smoothness_of_a_batch_is_rounded_up_to_a_power_of_two(x: Array | None) -> None:
    p = problem("logistic", [17], D)
    [(_, costs)] = p.clients._blocks
    exact = costs.batch_smoothness(1, None if x is None else x[None])
    rounded_to = p.clients.ask(BatchCurvature(1, x)).parts["bounds"][:, 1]
    assert (np.frexp(rounded_to)[0] == 0.5).all()
    assert (exact <= rounded_to).all()
    assert (rounded_to < 2.0 * exact).all()


def test_a_row_on_the_plane_is_on_neither_side() -> None:
    margins = np.array([0.0, 1e-300, -1e-300, np.nan])
    np.testing.assert_array_equal(all_positive(margins), [-1.0, 1.0, -1.0, np.nan])


@pytest.mark.parametrize("name", ["logistic", "poisson", "gamma", "multinomial", "huber"])
def test_rounded_bounds_are_on_the_side_of_the_proof(name: str) -> None:
    p = problem(name, [17], D)
    [(_, costs)] = p.clients._blocks
    exact = costs.at(X[None]).decrement(np.ones((1, D)))
    told = p.clients.ask(Decrement(X, np.ones(D))).parts
    assert (exact["norm"] <= told["norm"]).all()
    assert (exact["leverage"] <= told["leverage"]).all()
    assert (exact["steady"] >= told["steady"]).all()


def test_sums_are_rounded_relative_to_the_most_that_they_could_be() -> None:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(500, 3)) * [1e-60, 1.0, 1e60]
    A[:, 2] += 1e66 * A[:, 1]
    P = A.T @ A
    told = rounded_products(P)
    most = np.sqrt(np.outer(P.diagonal(), P.diagonal()))
    assert np.array_equal(told, told.T)
    assert np.array_equal(rounded_products(told), told)
    assert (np.abs(told - P) <= GRID * most).all()
    noise = P * (1 + 2.0**-50 * rng.uniform(-1, 1, P.shape))
    assert (np.abs(rounded_products(noise) - told) <= 2 * GRID * most).all()
    assert rounded(np.array([0.0, np.inf]), np.array([0.0, 1.0])).tolist() == [0.0, np.inf]


def test_least_squares_of_rounded_sums_has_the_minimiser_of_the_rows() -> None:
    rng = np.random.default_rng(1)
    A = rng.normal(size=(400, 3))
    b = A @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=400)
    exact, told = (Problem(loss, [(A, b)]) for loss in (LeastSquares(), RoundedLeastSquares()))
    x = told.solution()
    assert np.abs(x - exact.solution()).max() < 1e-13
    at = x + 1e-3
    assert np.allclose(told.gradient(at), exact.gradient(at), rtol=1e-11)
    assert told.objective(at) == pytest.approx(exact.objective(at), rel=1e-9)


def test_least_squares_of_fewer_rows_than_columns_follow_from_rounded_sums_too() -> None:
    rng = np.random.default_rng(2)
    A, b = rng.normal(size=(3, 5)), rng.normal(size=3)
    problem = Problem(RoundedLeastSquares(), [(A, b)], ridge=1.0).with_ridge(0.0)
    told = problem.clients.ask(Information(np.zeros(5))).rows[0]
    assert np.array_equal(rounded_products(told), told)
    assert np.allclose(told, A.T @ A, rtol=1e-12, atol=0.0)
    assert not np.array_equal(rounded_products(A.T @ A), A.T @ A)


def test_the_rounding_errors_that_a_perfect_fit_leaves_are_not_told() -> None:
    x = np.array([1.0, -2.0, 0.5])
    same = {LeastSquares(): 0, RoundedLeastSquares(): 0}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        A = rng.normal(size=(400, 3))
        b = A @ x
        targets = (b, b * (1 + 2.0**-52 * rng.integers(0, 2, 400)))
        for loss in same:
            one, other = (Problem(loss, [(A, target)]).gradient(x) for target in targets)
            same[loss] += np.array_equal(one, other)
    # a sum that happens to lie between two multiples of the grid may go either way
    plain, rounded_sums = same.values()
    assert plain < 20 < 50 < rounded_sums


TOLD: list[CostQuestion] = [
    Gradient(X),
    Evaluate(X),
    Information(X),
    Overview(X),
    Trials(X, X + 0.1, X - 0.2, np.ones((2, len(X))), 0.3),
    Direction(X, np.ones(D)),
    LocalModel(X, None, None, 1.0, None, both=True),
    Prox(X, 0.1, None, fs.ExactProx()),
    Descend(X, 0.1, 1),
]


@pytest.mark.parametrize("question", TOLD, ids=lambda question: question.name())
@pytest.mark.parametrize("name", ["poisson", "logistic", "huber", "multinomial"])
def test_what_is_told_at_a_point_has_the_digits_of_its_sums(
    name: str, question: CostQuestion
) -> None:
    of_rows = problem(name, [17, 30], D)
    if isinstance(question, LocalModel):
        question = replace(question, reach=0.0)
    exact = of_rows.clients.ask(question).parts
    watched = Watch(rounds=True).clients(of_rows, of_rows.m)
    assert watched is not None
    asked = of_rows.clients if isinstance(question, Prox) else watched
    told = rounded_again(question, asked.ask(question), watched).parts
    of_one_row = {"margin", "norm", "spread", "steady"} & exact.keys()
    assert not np.isfinite(told.get("margin", np.nan)).any()
    for part in exact.keys() - of_one_row:
        numbers = exact[part]
        known = np.isfinite(numbers)
        assert np.array_equal(np.isfinite(told[part]), known)
        size = np.abs(numbers[known]).max(initial=1.0)
        assert np.allclose(told[part][known], numbers[known], rtol=0, atol=1e-10 * size)
    changed = [
        part
        for part in exact.keys() - of_one_row
        if not np.array_equal(told[part], exact[part], True)
    ]
    assert changed
