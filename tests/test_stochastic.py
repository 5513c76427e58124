"""Methods that draw minibatches: their means, and how far they spread."""

import pickle
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsplit as fs
from faulty import faulty
from fedsplit import theory
from fedsplit.arrays import Array
from fedsplit.channels.channel import Request
from fedsplit.clients.question import CostQuestion
from fedsplit.clients.questions import BatchCurvature, Prox, StochasticDescend
from fedsplit.errors import RequestError
from fedsplit.federation.questions import decode_request, encode_request
from fedsplit.loop.conversation import streams_of
from fedsplit.loop.trace import Row
from fedsplit.losses.batches import Batch, Stacked, epochs, independent
from fedsplit.regression.client.guards.rounding import at_named_points
from open.moments import Moments, fedavg_moments
from open.stochastic import StochasticProx
from open.subsampled_newton import SubsampledNewtonProx
from problems import LOSSES, clients, loss, problem

SIZES = [12, 12, 12]


def squares(d: int = 3) -> fs.Problem:
    """Least squares with rows."""
    return fs.Problem(fs.LeastSquares(rows=True), clients("least-squares", SIZES, d), ridge=0.5)


def moments(
    s: float,
    local_steps: int,
    batch: int,
    sizes: Sequence[int] = SIZES,
    d: int = 3,
    **settings: Any,
) -> Moments:
    """Of FedAvg on ``squares``, or on clients of other sizes."""
    data = clients("least-squares", list(sizes), d)
    return fedavg_moments(data, s, local_steps, batch, ridge=0.5, **settings)


# Draws


@pytest.mark.parametrize("batch", [1, 4, 9, 12, 40])
def test_a_batch_has_distinct_rows_and_is_unbiased(batch: int) -> None:
    sizes = np.array([12, 9, 11])
    steps = 3000
    counts = np.zeros((3, 48))
    for rows, scale in independent(streams_of(1, 2, 3), Stacked(sizes, 12), batch, steps):
        for j in range(3):
            drawn = rows[j][rows[j] < sizes[j]]
            assert len(set(rows[j])) == len(rows[j])
            assert len(drawn) == min(batch, sizes[j])
            counts[j, drawn] += scale[j, 0]
    for j, n in enumerate(sizes):
        np.testing.assert_allclose(counts[j, :n] / steps, 1.0, atol=6 * np.sqrt(n / batch / steps))


def test_an_epoch_uses_every_row_once() -> None:
    sizes = np.array([12, 9, 3])
    seen = [np.zeros(n) for n in sizes]
    for rows, scale in epochs(streams_of(0, 0, 3), Stacked(sizes, 12), batch=5, passes=2):
        for j in range(3):
            used = scale[j] > 0
            seen[j][rows[j][used]] += 1
            assert not used.any() or scale[j][used][0] == pytest.approx(sizes[j] / used.sum())
    for times in seen:
        np.testing.assert_array_equal(times, 2.0)


def test_what_a_client_draws_does_not_depend_on_the_others() -> None:
    few, many = streams_of(7, 3, 2), streams_of(7, 3, 5)
    np.testing.assert_array_equal(few, many[:2])
    assert len({*many, *streams_of(7, 4, 5), *streams_of(8, 3, 5)}) == 15
    whole = fs.Problem(fs.Logistic(), clients("logistic", [30, 20, 30, 26], 3))
    part = fs.Problem(fs.Logistic(), clients("logistic", [30, 20, 30, 26], 3)[:2])
    ends = [
        p.clients.ask(_descend(3).seeded(streams_of(1, 1, p.m))).rows[:2] for p in (whole, part)
    ]
    np.testing.assert_array_equal(ends[0], ends[1])


def _descend(d: int, **settings: Any) -> Any:
    return StochasticDescend(np.ones(d), 0.01, 5, 4, **settings)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_the_mean_gradient_of_all_batches_is_the_gradient(name: str) -> None:
    data = clients(name, [8], 4)
    if name == "least-squares":
        p = fs.Problem(fs.LeastSquares(rows=True), data, ridge=0.3)
    else:
        p = fs.Problem(loss(name, 4), data, ridge=0.3)
    x = 0.1 * np.ones(4)
    [(_, costs)] = p.clients._blocks
    total = np.zeros(4)
    for rows, scale in epochs(np.zeros(1, dtype=np.int64), costs.stacked, 2, 1):
        total += costs.batch(Batch(rows, scale)).gradient(x[None])[0] / 4
    np.testing.assert_allclose(total, p.gradient(x), rtol=1e-10)


# FedAvg


def test_fedavg_with_all_rows_is_fedgd() -> None:
    p = problem("logistic", [30, 40], 3, ridge=1.0)
    a = fs.solve(p, fs.FedAvg(local_steps=5), rounds=20, tol=0)
    b = fs.solve(p, fs.FedGD(local_steps=5), rounds=20, tol=0)
    np.testing.assert_array_equal(a.x, b.x)


def ends(p: fs.Problem, method: fs.FedAvg, rounds: int, x0: Array) -> Array:
    """The last iterates over 200 seeds, (200, d)."""
    return np.stack(
        [fs.solve(p, method, rounds=rounds, tol=0, x0=x0, seed=seed).x for seed in range(200)]
    )


def agree(x: Array, exact: Moments) -> None:
    """The sample has this mean, within its Monte Carlo error, and about this covariance."""
    deviation = np.sqrt(np.diag(exact.covariance))
    assert (np.abs(x.mean(axis=0) - exact.mean) <= 4.5 * deviation / np.sqrt(len(x))).all()
    # The standard error of a sample covariance of 200 is about a tenth.
    found = np.cov(x.T)
    assert (np.abs(found - exact.covariance) <= 0.5 * np.outer(deviation, deviation)).all()


def test_the_mean_of_fedavg_is_at_the_closed_form_fixed_point() -> None:
    p = squares()
    s = 1.0 / float(p.clients.ask(BatchCurvature(3)).rows[:, 1].max())
    point = theory.fedgd_fixed_point(p.clients, s, 5)
    x = ends(p, fs.FedAvg(s, 5, 3), 3, point)
    exact = moments(s, 5, 3, rounds=3, x0=point)
    np.testing.assert_allclose(exact.mean, point, rtol=1e-9)
    agree(x, exact)


def test_in_the_limit_the_moments_settle_at_the_fixed_point() -> None:
    p = squares()
    exact = moments(0.02, 5, 3)
    np.testing.assert_allclose(exact.mean, theory.fedgd_fixed_point(p.clients, 0.02, 5), rtol=1e-9)
    later = moments(0.02, 5, 3, rounds=2, x0=exact.mean)
    assert 0.2 * np.trace(exact.covariance) < np.trace(later.covariance)
    assert np.trace(later.covariance) < np.trace(exact.covariance)


@pytest.mark.slow
@pytest.mark.parametrize(("local_steps", "batch"), [(5, 1), (1, 3), (20, 9)])
def test_fedavg_settles_at_the_closed_form_fixed_point_from_zero(
    local_steps: int, batch: int
) -> None:
    p = squares()
    s = 1.0 / float(p.clients.ask(BatchCurvature(batch)).rows[:, 1].max())
    rounds = max(6, 100 // (local_steps * batch))  # larger batches allow larger steps
    x = ends(p, fs.FedAvg(s, local_steps, batch), rounds, np.zeros(p.d))
    agree(x, moments(s, local_steps, batch))


def test_with_one_local_step_fedavg_hovers_around_the_optimum() -> None:
    p = squares()
    exact = moments(0.02, 1, 3)
    np.testing.assert_allclose(exact.mean, p.solution(), rtol=1e-9)


@pytest.mark.parametrize("local_steps", [1, 10])
def test_with_falling_steps_fedavg_converges_to_the_optimum(local_steps: int) -> None:
    p = squares()
    best = p.solution()

    def squared_distance(rounds: int, decay: float) -> float:
        x = moments(0.02, local_steps, 6, rounds=rounds, decay=decay)
        return float(np.sum(np.square(x.mean - best)) + np.trace(x.covariance))

    distances = [squared_distance(rounds, 0.2) for rounds in (15, 50, 150)]
    assert distances[1] < 0.5 * distances[0]
    assert distances[2] < 0.5 * distances[1]
    assert distances[2] < 0.2 * squared_distance(150, 0.0)


def test_the_covariance_with_drawn_clients_follows_the_recursion() -> None:
    p = fs.Problem(fs.LeastSquares(rows=True), clients("least-squares", [10] * 4, 2), ridge=0.5)
    point = theory.fedgd_fixed_point(p.clients, 0.03, 2)
    x = ends(p, fs.FedAvg(0.03, 2, 5, clients=0.5), 3, point)
    agree(x, moments(0.03, 2, 5, sizes=[10] * 4, d=2, share=0.5, rounds=3, x0=point))


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_the_step_of_a_batch_is_stable(name: str) -> None:
    p = squares(4) if name == "least-squares" else problem(name, SIZES, 4, ridge=0.5)
    result = fs.solve(p, fs.FedAvg(batch=1, local_steps=3), rounds=60, tol=0)
    assert result.trace.objective[-1] < result.trace.start
    small, large = (fs.solve(p, fs.FedAvg(batch=B), rounds=2, tol=0).step for B in (1, 9))
    assert small < large


def test_a_run_with_minibatches_is_the_same_wherever_clients_are() -> None:
    p = problem("logistic", [30, 40, 25], 3, ridge=1.0)
    method = fs.FedAvg(batch=5, local_steps=4)
    here = fs.solve(p, method, rounds=8, tol=0, seed=4)
    elsewhere = fs.solve(faulty(p), method, rounds=8, tol=0, seed=4)  # a cohort per client
    np.testing.assert_array_equal(here.x, elsewhere.x)
    assert np.abs(fs.solve(p, method, rounds=8, tol=0, seed=5).x - here.x).max() > 1e-6


DRAWING: list[tuple[Any, float]] = [
    (fs.FedAvg(batch=4, local_steps=2), 1.0),
    (fs.FedAvg(0.01, batch=4, clients=0.5, epochs=1, decay=0.2), 1.0),
    (fs.FedAvg(0.01, batch=4), 0.4),
    (fs.FedSplit(0.1, StochasticProx(3, 4)), 0.7),
    (fs.FedSplit(0.1, SubsampledNewtonProx(2, 4, "count")), 1.0),
]
"""Methods that draw, each with a participation."""


@pytest.mark.parametrize(("method", "participation"), DRAWING, ids=repr)
def test_a_run_that_goes_on_from_a_state_draws_what_it_would_have_drawn(
    method: Any, participation: float
) -> None:
    p = problem("logistic", [30, 40, 25, 12, 9], 3, ridge=1.0)
    run = partial(fs.solve, p, method, tol=0, seed=4, participation=participation)
    whole = run(rounds=9)
    half = run(rounds=4)
    rest = run(rounds=5, state=pickle.loads(pickle.dumps(half.state)))
    np.testing.assert_array_equal(rest.x, whole.x)
    assert np.abs(run(rounds=5, state=half.state, seed=5).x - whole.x).max() > 1e-9


@pytest.mark.parametrize(("method", "participation"), DRAWING, ids=repr)
@pytest.mark.parametrize("stop", [1, 4])
def test_a_run_that_is_resumed_draws_what_it_would_have_drawn(
    method: Any, participation: float, stop: int, tmp_path: Path
) -> None:
    class Killed(Exception):
        pass

    def kill(row: Row, state: object) -> None:
        nonlocal stop
        stop -= 1
        if stop == 0:
            raise Killed

    p = problem("logistic", [30, 40, 25, 12, 9], 3, ridge=1.0)
    run = partial(fs.solve, method=method, tol=0, seed=4, participation=participation, rounds=6)
    with pytest.raises(Killed):
        run(p, callbacks=[fs.Checkpoint(tmp_path), kill])
    resumed = run(p, callbacks=[fs.Checkpoint(tmp_path, resume=True)])
    np.testing.assert_array_equal(resumed.x, run(p).x)


def test_a_minibatch_question_can_be_sent() -> None:
    question = StochasticDescend(np.ones(3), 0.1, 5, 4, True, streams_of(0, 1, 1))
    sent = decode_request(encode_request(Request(question, "key", 1))).question
    assert isinstance(sent, StochasticDescend)
    np.testing.assert_array_equal(sent.streams, question.streams)
    assert question.floats_down() == 3 + 1 + 1  # x, the step and a seed


def test_mistakes_with_minibatches_are_explained() -> None:
    p = problem("least-squares", [30, 40], 3)
    with pytest.raises(fs.InputError, match=r"LeastSquares\(rows=True\)"):
        fs.solve(p, fs.FedAvg(batch=5))
    with pytest.raises(fs.InputError, match="pass that or participation"):
        fs.solve(p, fs.FedAvg(clients=0.5), participation=0.5)
    with pytest.raises(fs.InputError, match="local_steps or epochs"):
        fs.FedAvg(local_steps=3, epochs=2)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        (StochasticDescend(np.zeros(3), 0.1, 1, 5), "not about minibatches"),
        (BatchCurvature(5, None), "not about minibatches"),
        (
            Prox(np.zeros(3), 1.0, None, StochasticProx(10, 5)),
            "a prox by ExactProx.. alone",
        ),
    ],
)
def test_a_site_with_rules_answers_nothing_about_minibatches(
    question: CostQuestion, text: str
) -> None:
    # a batch of one row would tell that row
    with pytest.raises(RequestError, match=text):
        at_named_points(question)


def test_minibatches_count_as_their_share_of_the_rows() -> None:
    p = fs.Problem(fs.Logistic(), clients("logistic", [40, 40], 3), ridge=1.0)
    trace = fs.solve(p, fs.FedAvg(0.01, 6, 10), rounds=3, tol=0).trace
    assert trace.gradients.tolist() == [3, 3, 3]  # of two clients, 1.5 passes each


def test_a_client_that_has_finished_its_passes_stays_where_it_is() -> None:
    """Also where a ridge would go on pulling at it."""
    data = clients("logistic", [16, 20], 3, seed=1)  # four batches, and five
    x, streams = np.ones(3), np.array([5, 6])
    question = StochasticDescend(x, 0.1, 1, 4, in_epochs=True, streams=streams)
    # the cost of client 0 has the whole ridge where it is alone, and half of it beside another
    together = fs.Problem(fs.Logistic(), data, 2.0).clients.ask(question).rows
    for j in range(2):
        alone = fs.Problem(fs.Logistic(), [data[j]], 1.0).clients
        own = alone.ask(question.share(slice(j, j + 1))).rows
        np.testing.assert_allclose(together[j], own[0], rtol=1e-12)
