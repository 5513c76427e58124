"""When clients of ``FedSplitInformation`` leave x, what they send, and who waits for whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import fedsplit as fs
from fedsplit import fixed_point
from fedsplit.clients.local_models import LocalModel
from fedsplit.losses.linear import LinearLoss
from fedsplit.sums import Total


def unlike(
    loss: LinearLoss, m: int, rows: tuple[int, int], d: int, spread: float, seed: int
) -> fs.Problem:
    """Clients of few rows, each with coefficients of its own around common ones."""
    rng = np.random.default_rng([seed, 27])
    x = 0.5 * rng.standard_normal(d) / np.sqrt(d)
    data = []
    for n in rng.integers(*rows, size=m):
        own = x + spread * rng.standard_normal(d) / np.sqrt(d)
        A = rng.standard_normal((n, d)) + 0.5 * rng.standard_normal(d)
        A[:, 0] = 1.0
        data.append((A, loss.sample(np.clip(A @ own, -4.0, 4.0), rng)))
    return fs.Problem(loss, data)


def cost(problem: fs.Problem, method: fs.FedSplitInformation | None = None) -> tuple[int, int]:
    """Questions and floats of a run that is proved."""
    result = fs.solve(problem, method)
    assert result.converged
    assert result.certificate.gap is not None
    return result.rounds, int(result.trace.floats_up.sum() + result.trace.floats_down.sum())


@pytest.mark.parametrize("spread", [0.5, 1.5])
@pytest.mark.parametrize("loss", [fs.Huber(1.0), fs.Poisson(), fs.Gamma(), fs.Logistic()], ids=repr)
def test_many_unlike_clients_cost_hardly_more_than_newtons_method(
    loss: LinearLoss, spread: float
) -> None:
    ours, newton = np.zeros(2), np.zeros(2)
    for seed in range(3):
        problem = unlike(loss, 142, (4, 30), 12, spread, seed)
        ours += cost(problem)
        newton += cost(problem, fs.Newton())
    assert (ours <= 1.2 * newton).any()
    assert ours[0] <= 1.1 * newton[0]


def test_clients_that_are_alike_still_leave_x_and_save_questions() -> None:
    problem = unlike(fs.Poisson(), 10, (100, 101), 10, 0.0, 0)
    assert cost(problem)[0] < cost(problem, fs.Newton())[0]


class Watched(fs.Clients):
    """Clients that keep the questions they were asked."""

    def __init__(self, clients: fs.Clients) -> None:
        self.clients = clients
        self.m = clients.m
        self.d = clients.d
        self.asked: list[Any] = []

    def ask(self, question: Any) -> fs.Answer:
        self.asked.append(question)
        return self.clients.ask(question)

    def ask_some(self, question: Any, drawn: Any) -> fs.Answer:
        self.asked.append(question)
        return self.clients.ask_some(question, drawn)


def models_asked(problem: fs.Problem, **options: Any) -> list[LocalModel]:
    watched = Watched(problem.clients)
    fs.solve(watched, fs.FedSplitInformation(), **options)
    return [each for each in watched.asked if isinstance(each, LocalModel)]


def test_clients_stay_at_x_once_their_points_do_not_shorten_the_way() -> None:
    first, *others = models_asked(unlike(fs.Huber(1.0), 142, (4, 30), 12, 1.5, 0))
    assert first.reach > 0
    assert others
    assert all(each.reach == 0.0 and each.metric is None and not each.both for each in others)


def least_squares(sizes: Sequence[int], d: int = 8) -> fs.Problem:
    rng = np.random.default_rng(4)
    return fs.Problem(
        fs.LeastSquares(), [(rng.standard_normal((n, d)), rng.standard_normal(n)) for n in sizes]
    )


@pytest.mark.parametrize("method", [fs.FedSplitInformation(), fs.Newton()], ids=["ours", "newton"])
def test_hessians_of_quadratics_are_sent_once(method: fs.FedSplitInformation) -> None:
    problem = least_squares([30, 9, 5, 40])
    watched = Watched(problem.clients)
    result = fs.solve(watched, method)
    assert result.converged
    assert [each.hessian for each in watched.asked if isinstance(each, LocalModel)] == [True, False]
    first, second = result.trace.floats_up
    assert first - second == problem.clients.m * 8 * 9 // 2
    np.testing.assert_allclose(result.x, problem.solution(), rtol=1e-9, atol=1e-12)


def test_a_penalty_on_quadratics_needs_their_hessians_once_too() -> None:
    asked = models_asked(least_squares([30, 20]), penalty=fs.L1(3.0))
    assert len(asked) > 1
    assert [each.hessian for each in asked[1:]] == [False] * (len(asked) - 1)


def test_an_answer_without_a_hessian_is_the_same_otherwise() -> None:
    clients = least_squares([30, 20]).clients
    x = np.linspace(-1.0, 1.0, 8)
    whole = clients.ask(LocalModel(x, None, None, 0.0, None)).parts
    short = clients.ask(LocalModel(x, None, None, 0.0, None, hessian=False)).parts
    assert set(whole) - set(short) == {"hessian"}
    for name, part in short.items():
        np.testing.assert_array_equal(part, whole[name])


def test_sums_without_a_hessian_are_the_answer_of_one_client() -> None:
    problem = least_squares([30, 20, 25])
    x = np.linspace(-1.0, 1.0, 8)
    question = LocalModel(x, None, None, 0.0, 0.5 * x, hessian=False)
    answer = problem.clients.ask(question)
    vectors = [each.vector for each in question.summands(answer)]
    summed = fixed_point.total(vectors, len(vectors[0]))
    total = question.of_total(Total(summed, problem.clients.m))
    np.testing.assert_allclose(total.parts["slope"][0], answer.parts["slope"].sum(axis=0))
    assert list(total.parts) == list(answer.parts)


@pytest.mark.parametrize("share", [0.1, 0.3])
@pytest.mark.parametrize(
    "make",
    [
        lambda: unlike(fs.Logistic(), 30, (20, 60), 6, 0.5, 1),
        lambda: unlike(fs.Poisson(), 30, (20, 60), 6, 1.0, 2),
        lambda: least_squares([12] * 30),
    ],
    ids=["logistic", "poisson", "quadratic"],
)
def test_with_some_clients_at_a_time_steps_wait_for_all_and_are_proved(
    make: Callable[[], fs.Problem], share: float
) -> None:
    problem = make()
    result = fs.solve(problem, participation=share)
    assert result.stopped_by == "certificate"
    assert "information" in result.method
    vectors = fs.solve(problem, fs.QuasiNewton(), participation=share, rounds=600)
    assert result.rounds < vectors.rounds
    steps = fs.solve(problem).rounds
    assert result.rounds <= (steps + 1) * (1 / share + 1)


def test_a_client_that_never_answers_does_not_stop_those_that_wait() -> None:
    problem = unlike(fs.Logistic(), 6, (30, 60), 4, 0.3, 1)

    class Silent(Watched):
        def ask_some(self, question: Any, drawn: Any) -> fs.Answer:
            here = np.arange(self.m) != 2
            return self.clients.ask_some(question, drawn & here).only(drawn & here)

        def ask(self, question: Any) -> fs.Answer:
            return self.ask_some(question, np.ones(self.m, dtype=bool))

    with pytest.warns(fs.NotConverged, match="clients 2 never answered"):
        result = fs.solve(
            Silent(problem.clients),
            fs.FedSplitInformation(wait=True),
            participation=0.5,
            rounds=60,
        )
    assert result.absent == (2,)
    # x has moved to the minimiser of the others, whose models stand for the one that is absent
    assert problem.objective(result.x) < problem.objective(np.zeros(4))


def test_answers_are_joined_by_who_came_first() -> None:
    problem = least_squares([12, 12, 12])
    question = LocalModel(np.ones(8), None, None, 0.0, None)
    masks = [np.array(each) for each in ([True, False, False], [True, True, False])]
    first, second = (problem.clients.ask_some(question, mask) for mask in masks)
    joined = first.joined(second)
    assert joined.present.tolist() == [True, True, False]
    whole = problem.clients.ask(question)
    for name in whole.parts:
        np.testing.assert_array_equal(joined.parts[name][:2], whole.parts[name][:2])


def test_a_trace_counts_every_question_of_a_step_that_waits() -> None:
    problem = least_squares([12] * 10)
    result = fs.solve(problem, participation=0.2)
    assert result.rounds == len(result.trace) == 10
    assert (result.trace.answered == 2).all()


def test_a_start_that_is_worse_than_zero_costs_one_question() -> None:
    problem = least_squares([30, 20])
    far = fs.solve(problem, x0=np.full(8, 50.0))
    assert far.rounds == fs.solve(problem).rounds + 1
    assert set(far.trace.kind) == {"round"}
