"""What must not matter: how observations are ordered, split over clients, padded or stacked."""

from threading import Barrier, get_ident

import numpy as np
import pytest
from hypothesis import given
from threadpoolctl import threadpool_info

import fedsplit as fs
from fedsplit.clients.question import CostQuestion
from fedsplit.clients.questions import Curvature, Gradient, Information, Prox, Value
from fedsplit.losses.observations import padded
from fedsplit.threads import each, one_blas_thread
from problems import LOSSES, clients, columns, dimensions, loss, names, ridges, seeds, sizes


@given(names, sizes, dimensions, seeds, ridges)
def test_the_objective_ignores_how_observations_are_split(
    name: str, n: list[int], d: int, seed: int, ridge: float
) -> None:
    data = clients(name, n, d, seed)
    pool = tuple(np.concatenate(parts) for parts in zip(*data, strict=True))
    order = np.random.default_rng(seed).permutation(len(pool[1]))
    shuffled = tuple(part[order] for part in pool)
    x = 0.3 * np.random.default_rng(seed).standard_normal(d)
    split, one = (
        fs.Problem(loss(name, d), data, ridge),
        fs.Problem(loss(name, d), [shuffled], ridge),
    )
    assert split.objective(x) == pytest.approx(one.objective(x), rel=1e-12)
    np.testing.assert_allclose(split.gradient(x), one.gradient(x), rtol=1e-9, atol=1e-10)


@given(names, sizes, dimensions, seeds)
def test_observations_of_weight_zero_change_nothing(
    name: str, n: list[int], d: int, seed: int
) -> None:
    data = clients(name, n, d, seed)
    rng = np.random.default_rng(seed)
    longer = [
        (
            np.concatenate([A, 1e3 * rng.standard_normal((3, columns(name, d)))]),
            np.concatenate([b, b[[0, 0, 0]]]),
            np.concatenate([w, [0.0, 0.0, 0.0]]),
        )
        for A, b, w in data
    ]
    p, q = (fs.Problem(loss(name, d), c) for c in (data, longer))
    V = rng.standard_normal((p.m, d))
    a, b = (clients.ask(Prox(V, 0.3, V, fs.ExactProx())).rows for clients in (p.clients, q.clients))
    np.testing.assert_array_equal(a, b)


@given(names, sizes, dimensions, seeds)
def test_an_integer_weight_is_that_many_observations(
    name: str, n: list[int], d: int, seed: int
) -> None:
    data = clients(name, n, d, seed)
    repeats = [np.arange(len(b)) % 3 + 1 for _, b, _ in data]
    weighted = [(A, b, r.astype(float)) for (A, b, _), r in zip(data, repeats, strict=True)]
    repeated = [
        (A.repeat(r, axis=0), b.repeat(r)) for (A, b, _), r in zip(data, repeats, strict=True)
    ]
    x = 0.3 * np.random.default_rng(seed).standard_normal(d)
    p, q = (fs.Problem(loss(name, d), c) for c in (weighted, repeated))
    assert p.objective(x) == pytest.approx(q.objective(x), rel=1e-12)
    np.testing.assert_allclose(p.gradient(x), q.gradient(x), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_client_answers_with_the_same_bits_whoever_it_is_stacked_with(name: str) -> None:
    data = clients(name, [17, 3, 18, 40, 33, 17, 2], 5, seed=4)
    V = np.random.default_rng(0).standard_normal((7, 5))
    together = fs.Problem(loss(name, 5), data).clients
    for j, client in enumerate(data):
        alone = fs.Problem(loss(name, 5), [client]).clients
        for solver in (fs.ExactProx(), fs.GradientProx(5)):
            a, b = (
                together.ask(Prox(V, 0.3, V, solver)),
                alone.ask(Prox(V[[j]], 0.3, V[[j]], solver)),
            )
            np.testing.assert_array_equal(a.rows[j], b.rows[0])
            assert a.error[j] == b.error[0]
        np.testing.assert_array_equal(
            together.ask(Gradient(V[j])).rows[j], alone.ask(Gradient(V[j])).rows[0]
        )
        np.testing.assert_array_equal(
            together.ask(Value(V[j])).rows[j], alone.ask(Value(V[j])).rows[0]
        )


def test_blocks_and_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsplit.threads.WORKERS", 2)
    data = clients("logistic", [30] * 50, 8, seed=1)
    V = np.random.default_rng(0).standard_normal((50, 8))
    whole = fs.Problem(fs.Logistic(), data).clients.ask(Prox(V, 0.3, V, fs.ExactProx()))
    monkeypatch.setattr("fedsplit.losses.observations.BLOCK_BYTES", 8 * 30 * 8 * 7)
    cut = fs.Problem(fs.Logistic(), data).clients.ask(Prox(V, 0.3, V, fs.ExactProx()))
    np.testing.assert_array_equal(whole.rows, cut.rows)
    np.testing.assert_array_equal(whole.error, cut.error)


def test_pieces_of_work_are_shared_by_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsplit.threads.WORKERS", 2)
    together, seen = Barrier(2, timeout=60), set()

    def meet(piece: int) -> None:
        if piece < 2:  # neither of the first two can go on alone
            together.wait()
        seen.add((piece, get_ident()))

    each(meet, range(4))
    assert {piece for piece, _ in seen} == {0, 1, 2, 3}
    assert len({thread for _, thread in seen}) == 2


def test_blas_has_one_thread_during_a_run_and_its_own_number_after() -> None:
    def blas() -> list[int]:
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before, during = blas(), []
    p = fs.Problem(fs.LeastSquares(), clients("least-squares", [30, 5], 4))
    fs.solve(p, rounds=3, tol=0, callbacks=[lambda row, state: during.append(blas())])
    assert all(count == 1 for counts in during for count in counts)
    with one_blas_thread(), one_blas_thread():
        assert set(blas()) == {1}
    assert blas() == before


def test_the_order_of_clients_does_not_move_the_answer() -> None:
    data = clients("logistic", [30, 5, 60], 4, seed=2)
    a, b = (fs.solve(fs.Problem(fs.Logistic(), c, 1.0), rounds=300) for c in (data, data[::-1]))
    np.testing.assert_allclose(a.x, b.x, rtol=1e-7)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_padded_clients_answer_as_unpadded_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = clients(name, [17, 33, 35], 40, seed=4)  # stacked as 18, 36 and 36 rows
    V = 0.1 * np.random.default_rng(0).standard_normal((3, 40))
    longer = fs.Problem(loss(name, 40), data, 1.0).clients
    monkeypatch.setattr("fedsplit.losses.observations.padded", lambda n: n)
    plain = fs.Problem(loss(name, 40), data, 1.0).clients
    questions: list[CostQuestion] = [
        Value(V),
        Gradient(V),
        Information(V),
        Prox(V, 0.3, V, fs.ExactProx()),
        Curvature(),
    ]
    for question in questions:
        a, b = (clients.ask(question).rows for clients in (longer, plain))
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def test_padding_depends_on_the_size_alone_and_wastes_less_than_an_eighth() -> None:
    for n in range(1, 5000):
        assert n <= padded(n) < n * 1.125 + 1
        assert padded(padded(n)) == padded(n)
