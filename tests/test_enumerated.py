"""FedAvg with minibatches beside the enumeration of all its draws, in rational numbers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations, islice, permutations, product
from typing import Any, TypeAlias

import numpy as np
import pytest
from scipy.stats import chisquare

import fedsplit as fs
from fedsplit.arrays import Array
from fedsplit.clients.questions import StochasticDescend
from fedsplit.loop.conversation import independent_draws, streams_of
from fedsplit.losses.batches import Batch
from open.moments import Moments, fedavg_moments

Point: TypeAlias = tuple[Fraction, ...]
Client: TypeAlias = tuple[list[list[int]], list[int], list[int], list[int]]
Order: TypeAlias = Sequence[Sequence[int]]

CLIENTS: list[Client] = [
    ([[1, 2], [0, 1], [3, -1]], [1, 4, 2], [1, 2, 1], [0, 1, -1]),
    ([[2, 0], [1, 1], [-1, 2], [0, 3]], [0, 1, 5, -2], [2, 1, 1, 3], [1, 0, 0, 2]),
]
"""A, b, weights and offsets of clients with three and with four rows."""

RIDGE = (Fraction(1), Fraction(3))
S = Fraction(1, 40)
X0: Point = (Fraction(1), Fraction(-2))


def as_problem(clients: Sequence[Client], ridge: Array) -> fs.Problem:
    return fs.Problem(fs.LeastSquares(rows=True), rows_of(clients), ridge)


def rows_of(clients: Sequence[Client]) -> list[tuple[Array, ...]]:
    return [tuple(np.array(part, dtype=float) for part in client) for client in clients]


def two() -> fs.Problem:
    return as_problem(CLIENTS, np.array(RIDGE, dtype=float))


def moments(s: float, local_steps: int = 1, batch: int | None = None, **settings: Any) -> Moments:
    """Of FedAvg on the two clients."""
    ridge = np.array(RIDGE, dtype=float)
    return fedavg_moments(rows_of(CLIENTS), s, local_steps, batch, ridge=ridge, **settings)


def moved(x: Point, client: Client, batch: Sequence[int], s: Fraction) -> Point:
    """One step with the rows of a batch, scaled by n_j/B, and the client's half of the ridge."""
    A, b, w, o = client
    scale = Fraction(len(b), len(batch))
    g = [ridge / 2 * xi for ridge, xi in zip(RIDGE, x, strict=True)]
    for i in batch:
        residual = sum(a * xi for a, xi in zip(A[i], x, strict=True)) + o[i] - b[i]
        g = [gi + scale * w[i] * residual * a for gi, a in zip(g, A[i], strict=True)]
    return tuple(xi - s * gi for xi, gi in zip(x, g, strict=True))


def independent_orders(n: int, batch: int, steps: int) -> Iterator[Order]:
    """All sequences of batches that are drawn anew in each step."""
    return product(combinations(range(n), min(batch, n)), repeat=steps)


def epoch_orders(n: int, batch: int, passes: int) -> Iterator[Order]:
    """All sequences of batches that go through the rows in some order, pass by pass."""
    for orders in product(permutations(range(n)), repeat=passes):
        yield [order[i : i + batch] for order in orders for i in range(0, n, batch)]


def ends(x: Point, client: Client, orders: Iterator[Order], s: Fraction) -> list[Point]:
    """Where a client may end, each with the same probability."""
    found = []
    for order in orders:
        end = x
        for batch in order:
            end = moved(end, client, batch, s)
        found.append(end)
    return found


def enumerated(
    steps: int, batch: int, drawn: int, rounds: int, decay: Fraction
) -> tuple[Array, Array]:
    """Mean and covariance of x over all that may be drawn: clients, and rows at each of them."""
    outcomes: dict[Point, Fraction] = {X0: Fraction(1)}
    for t in range(rounds):
        s = S / (1 + decay * t)
        after: dict[Point, Fraction] = defaultdict(Fraction)
        for x, probability in outcomes.items():
            reached = [
                ends(x, client, independent_orders(len(client[1]), batch, steps), s)
                for client in CLIENTS
            ]
            cohorts = list(combinations(reached, drawn))
            for cohort in cohorts:
                joint = list(product(*cohort))
                for points in joint:
                    average = tuple(sum(each) / drawn for each in zip(*points, strict=True))
                    after[average] += probability / len(cohorts) / len(joint)
        outcomes = after
    assert sum(outcomes.values()) == 1
    mean = [sum(p * x[i] for x, p in outcomes.items()) for i in range(2)]
    square = [[sum(p * x[i] * x[k] for x, p in outcomes.items()) for k in range(2)] for i in (0, 1)]
    covariance = [[square[i][k] - mean[i] * mean[k] for k in range(2)] for i in range(2)]
    return np.array(mean, dtype=float), np.array(covariance, dtype=float)


@pytest.mark.parametrize(
    ("steps", "batch", "drawn", "rounds", "decay"),
    [
        (2, 1, 2, 1, 0),
        (1, 2, 2, 2, 0),
        (1, 3, 2, 2, 0),  # all rows of the first client
        (1, 9, 2, 2, 0),  # all rows of both
        (2, 2, 1, 2, 0),
        (1, 1, 1, 3, Fraction(1, 2)),
    ],
)
def test_the_recursion_of_mean_and_covariance_is_exact(
    steps: int, batch: int, drawn: int, rounds: int, decay: Fraction
) -> None:
    mean, covariance = enumerated(steps, batch, drawn, rounds, Fraction(decay))
    found = moments(
        float(S),
        steps,
        batch,
        share=drawn / 2,
        rounds=rounds,
        x0=np.array(X0, dtype=float),
        decay=float(decay),
    )
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize(
    ("which", "batch", "steps", "in_epochs"),
    [(0, 1, 2, False), (0, 2, 2, False), (1, 2, 1, False), (0, 2, 2, True), (1, 3, 1, True)],
)
def test_a_client_ends_at_each_point_that_can_be_drawn_as_often_as_it_should(
    which: int, batch: int, steps: int, in_epochs: bool
) -> None:
    copies = 1200
    ridge = copies / 2 * np.array(RIDGE, dtype=float)  # of which each has its part
    p = as_problem([CLIENTS[which]] * copies, ridge)
    question = StochasticDescend(np.array(X0, dtype=float), float(S), steps, batch, in_epochs)
    rows = p.clients.ask(question.seeded(streams_of(3, 1, copies))).rows
    orders = epoch_orders if in_epochs else independent_orders
    n = len(CLIENTS[which][1])
    expected = Counter(ends(X0, CLIENTS[which], orders(n, batch, steps), S))
    points = np.array(list(expected), dtype=float)
    away = np.abs(rows[:, None] - points).max(axis=2)
    assert away.min(axis=1).max() < 1e-12
    counts = np.bincount(away.argmin(axis=1), minlength=len(points))
    shares = np.array(list(expected.values())) / expected.total()
    assert chisquare(counts, copies * shares).pvalue > 1e-3


def test_epochs_without_replacement_do_not_have_the_mean_of_independent_batches() -> None:
    means = []
    for orders in (epoch_orders(4, 2, 1), independent_orders(4, 2, 2)):
        points = ends(X0, CLIENTS[1], orders, S)
        means.append([sum(each) / len(points) for each in zip(*points, strict=True)])
    assert abs(means[0][0] - means[1][0]) > Fraction(1, 100)


def test_fedavg_draws_every_set_of_clients_as_often_as_any_other() -> None:
    masks = islice(independent_draws(5, 2, seed=1), 2000)
    counts = Counter(tuple(np.flatnonzero(mask)) for mask in masks)
    assert len(counts) == 10
    assert chisquare(list(counts.values())).pvalue > 1e-3


def test_with_batches_of_all_rows_fedavg_is_the_deterministic_method() -> None:
    p = two()
    s = float(S)
    expected = fs.solve(p, fs.FedGD(s, 2), rounds=5, tol=0).x
    for method in (fs.FedAvg(s, 2, batch=4), fs.FedAvg(s, batch=99, epochs=2)):
        np.testing.assert_allclose(fs.solve(p, method, rounds=5, tol=0).x, expected, rtol=1e-13)


def test_the_step_of_fedavg_falls_by_its_rule() -> None:
    p = two()
    found = fs.solve(p, fs.FedAvg(float(S), 2, batch=4, decay=0.5), rounds=3, tol=0).x
    exact = moments(float(S), 2, rounds=3, decay=0.5)
    np.testing.assert_allclose(found, exact.mean, rtol=1e-13)


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_the_expected_smoothness_bounds_the_mean_square_of_drawn_hessians(batch: int) -> None:
    p = two()
    for j, client in enumerate(CLIENTS):
        [costs] = [each for at, each in p.clients._blocks if np.arange(2)[at].tolist() == [j]]
        n = len(client[1])
        drawn = [
            costs.batch(Batch(np.array([rows]), np.full((1, len(rows)), n / len(rows))))
            for rows in combinations(range(n), min(batch, n))
        ]
        H = np.stack([each.hessian(np.zeros((1, 2)))[0] for each in drawn])
        np.testing.assert_allclose(H.mean(axis=0), costs.hessian(np.zeros((1, 2)))[0])
        smooth = float(costs.batch_smoothness(batch)[0])
        below = smooth * H.mean(axis=0) - (H @ H).mean(axis=0)
        assert np.linalg.eigvalsh(below).min() > -1e-9


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"decay": 0.5}, "falling steps settle in no number of rounds: pass rounds="),
        ({"s": 1e-9, "most_rounds": 300}, "do not settle in 300 rounds: pass rounds="),
        ({"s": 9.0, "local_steps": 20}, "grow without bound: the step 9 is too large"),
        ({"s": 9.0, "batch": 1}, "grow without bound: the step 9 is too large"),
    ],
)
def test_moments_without_a_limit_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(fs.InputError, match=text):
        moments(**({"s": float(S)} | settings))


def test_moments_after_no_round_are_those_of_the_start() -> None:
    x0 = np.array(X0, dtype=float)
    start = moments(float(S), batch=1, rounds=0, x0=x0)
    np.testing.assert_array_equal(start.mean, x0)
    assert not start.covariance.any()
