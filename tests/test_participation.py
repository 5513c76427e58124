"""Partial participation: who is asked, what it costs, and where it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsplit as fs
from faulty import FAULTS, faulty
from fedsplit.arrays import Array, Mask
from fedsplit.channels.clients import RemoteClients, in_process
from fedsplit.clients.oracle import clients_of
from fedsplit.clients.question import CostQuestion
from fedsplit.clients.questions import Gradient, Prox
from fedsplit.dialogue import converse
from fedsplit.local.newton import ExactProx
from fedsplit.loop.conversation import Conversation, shuffled_draws
from fedsplit.methods.method import answers
from problems import LOSSES, problem


def taken(m: int, k: int, seed: int, number: int) -> list[Mask]:
    masks = shuffled_draws(m, k, seed)
    return [next(masks) for _ in range(number)]


@pytest.mark.parametrize(("m", "k"), [(10, 1), (10, 3), (10, 9), (7, 2), (5, 5), (1, 1), (110, 11)])
def test_every_client_is_drawn_once_before_any_is_drawn_again(m: int, k: int) -> None:
    masks = taken(m, k, seed=3, number=5 * m)
    assert all(mask.sum() == k for mask in masks)
    counts = np.cumsum(masks, axis=0)
    assert (counts.max(axis=1) - counts.min(axis=1) <= 1).all()
    whole = counts[np.arange(1, 6) * m - 1]  # after k shuffled lists, and multiples of that
    np.testing.assert_array_equal(whole, np.outer(np.arange(1, 6) * k, np.ones(m)))


@pytest.mark.parametrize(
    ("m", "participation", "asked"),
    [(10, 0.3, 3), (10, 0.26, 3), (7, 0.5, 4), (10, 1e-9, 1), (1, 0.1, 1), (10, 0.99, 10)],
)
def test_so_many_clients_are_asked_as_their_share_rounds_to(
    m: int, participation: float, asked: int
) -> None:
    p = problem("least-squares", [5] * m, 2)
    trace = fs.solve(p, fs.FedGD(0.01), rounds=3, tol=0, participation=participation).trace
    assert trace.answered.tolist() == [asked] * 3


def test_the_draw_depends_on_the_seed_and_differs_between_shuffles() -> None:
    first = taken(10, 3, 1, 20)
    np.testing.assert_array_equal(first, taken(10, 3, 1, 20))
    assert not np.array_equal(first, taken(10, 3, 2, 20))
    assert not np.array_equal(first[:10], first[10:])


class Calls:
    """Counts, per client, how often its gradient is computed at the client."""

    def __init__(self, m: int) -> None:
        self.gradients = np.zeros(m, dtype=int)

    def loss(self) -> fs.CustomLoss:
        def gradient(x: Array, data: tuple[int, Array]) -> Array:
            j, centre = data
            self.gradients[j] += 1
            return x - centre

        return fs.CustomLoss(
            value=lambda x, data: 0.5 * float(np.sum((x - data[1]) ** 2)),
            gradient=gradient,
            d=3,
            curvature=lambda data: (1.0, 1.0),
        )


@pytest.mark.parametrize("engine", ["here", "over a channel", "kept"])
def test_clients_that_are_not_drawn_compute_nothing(engine: str, tmp_path: Path) -> None:
    calls = Calls(10)
    rng = np.random.default_rng(0)
    p = fs.Problem(calls.loss(), [(j, rng.standard_normal(3)) for j in range(10)])
    clients = p.clients if engine != "over a channel" else in_process(p.clients)
    callbacks = [fs.Checkpoint(tmp_path / "run")] if engine == "kept" else []
    method = fs.FedGD(step=0.5)
    calls.gradients[:] = 0
    fs.solve(clients, method, rounds=20, tol=0, participation=0.1, callbacks=callbacks)
    probes = 1 if engine != "here" else 0  # the data are identified once over a channel
    np.testing.assert_array_equal(calls.gradients, np.full(10, 2 + probes))


@pytest.mark.parametrize("d", [4, 70])
@pytest.mark.parametrize("name", ["least-squares", "logistic", "huber"])
def test_a_client_answers_alone_as_it_does_among_all(name: str, d: int) -> None:
    p = problem(name, [90, 20, 90, 35, 90], d, ridge=1.0)
    rng = np.random.default_rng(1)
    drawn = np.array([True, False, True, True, False])
    questions: list[CostQuestion] = [
        Gradient(rng.standard_normal(d)),
        Prox(rng.standard_normal((5, d)), 0.1, None, ExactProx()),
    ]
    for question in questions:
        whole = p.clients.ask(question).only(drawn)
        for clients in (p.clients, in_process(p.clients)):
            for _ in range(2):
                some = clients.ask_some(question, drawn)
                np.testing.assert_array_equal(some.present, drawn)
                for part in whole.parts:
                    np.testing.assert_array_equal(some.parts[part], whole.parts[part])


def test_only_questions_to_clients_that_are_asked_are_counted() -> None:
    p = problem("least-squares", [20] * 10, 3)
    conversation = Conversation(p.clients, participation=0.3)
    conversation.ask(Gradient(np.zeros(3)))
    [exchange] = conversation.take()
    assert (exchange.answered, exchange.floats_down, exchange.floats_up) == (3, 9, 9)
    assert exchange.gradients == 3


def test_a_method_that_draws_clients_itself_takes_no_participation() -> None:
    p = problem("least-squares", [20] * 4, 3)
    with pytest.raises(fs.InputError, match="pass that or participation, not both"):
        fs.solve(p, fs.FedAvg(clients=0.5), participation=0.5)


def test_a_run_that_diverges_does_not_blame_the_clients_drawn() -> None:
    nothing, _ = FAULTS["NaN"]
    p = problem("least-squares", [20] * 6, 3)

    def asked(who: str) -> RemoteClients:
        return faulty(p, lambda moment: nothing if moment.client in who else None)

    with pytest.raises(fs.Diverged):
        fs.solve(asked("012345"), fs.FedGD(step=0.01), participation=0.5)
    result = fs.solve(asked("3"), fs.FedGD(step=0.01), participation=0.5, rounds=6, tol=0)
    assert {incident.client for incident in result.incidents} == {"3"}


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_the_optimum_is_that_of_all_clients(name: str) -> None:
    p = problem(name, [60, 20, 40, 80, 10, 33, 25, 70, 50, 90], 3, seed=1, ridge=1.0)
    result = fs.solve(p, participation=0.3, seed=4, rounds=400, tol=1e-12)
    assert result.converged
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("method", [fs.QuasiNewton(), fs.FedSplitInformation()])
def test_a_tenth_of_the_clients_takes_at_most_fifteen_times_the_rounds(method: Any) -> None:
    rng = np.random.default_rng(0)
    x = 1.5 * rng.standard_normal(68) / np.sqrt(68)
    data = []
    for n in rng.integers(20, 400, 110):
        A = rng.standard_normal((n, 68))
        A[:, 0] = 1.0
        data.append((A, np.where(rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-A @ x)), 1.0, -1.0)))
    p = fs.Problem(fs.Logistic(), data, ridge=1.0)
    full = fs.solve(p, method)
    tenth = fs.solve(p, method, participation=0.1, rounds=1000)
    assert full.converged
    assert tenth.converged
    rounds = [np.count_nonzero(run.trace.kind == "round") for run in (full, tenth)]
    assert rounds[1] <= 15 * rounds[0]


def test_waiting_for_everyone_is_one_round_of_several_questions() -> None:
    p = problem("logistic", [30, 25, 40, 12], 5, seed=1, ridge=0.05)
    states: list[Any] = []
    result = fs.solve(
        p,
        fs.FedSplitInformation(wait=True),
        participation=0.5,
        callbacks=[lambda row, state: states.append(state)],
    )
    assert result.converged
    together = fs.solve(p, fs.FedSplitInformation())
    np.testing.assert_allclose(result.x, together.x, rtol=1e-12)
    # two questions reach everyone once, since half of the clients are asked each
    assert result.rounds == 2 * together.rounds
    assert len(states) == together.rounds
    np.testing.assert_array_equal(np.isnan(result.trace.residual), [True, False] * len(states))
    assert all(state.models.heard.all() for state in states)


def test_a_round_that_the_budget_breaks_off_while_it_waits_is_void() -> None:
    p = problem("logistic", [30, 25, 40, 12], 5, seed=1, ridge=0.05)
    method = fs.FedSplitInformation(wait=True)
    whole = fs.solve(p, method, participation=0.5, rounds=4, tol=0)
    broken = fs.solve(p, method, participation=0.5, rounds=5, tol=0)
    np.testing.assert_array_equal(broken.x, whole.x)
    assert broken.rounds == 5


def test_a_client_is_absent_if_others_have_answered_three_times_before_it() -> None:
    p = problem("poisson", [30, 25, 40], 3, seed=1, ridge=1.0)
    asked = []

    class Absent:
        m = 3

        def ask(self, question: CostQuestion) -> fs.Answer:
            asked.append(question)
            return p.clients.ask(question).only(np.array([True, True, False]))

    dialogue = answers(Gradient(np.zeros(3)))
    answer = converse(dialogue, clients_of(Absent()))
    assert len(asked) == 3  # a third draw comes after everyone was drawn once
    np.testing.assert_array_equal(answer.present, [True, True, False])
    asked.clear()
    converse(answers(Gradient(np.zeros(3)), wait=False), clients_of(Absent()))
    assert len(asked) == 1


def test_asking_again_ends_where_nobody_answers() -> None:
    class Nobody:
        m = 2

        def ask(self, question: CostQuestion) -> fs.Answer:
            answer = fs.Answer.of(value=np.zeros(2), gradient=np.zeros((2, 3)))
            return answer.only(np.zeros(2, dtype=bool))

    answer = converse(answers(Gradient(np.zeros(3)), most=5), clients_of(Nobody()))
    assert not answer.present.any()
