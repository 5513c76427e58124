"""QuasiNewton: few exchanges of vectors, nothing to tune, never far behind L-BFGS."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import fedsplit as fs
from faulty import Unreliable
from fedsplit.arrays import Array, Mask
from fedsplit.clients.local_models import Trials
from fedsplit.clients.questions import Gradient, Information, Value
from fedsplit.loop.trace import Row
from fedsplit.methods.lbfgs import Compact, LBFGSState, Pairs
from fedsplit.methods.method import Method
from fedsplit.methods.quasi_newton import QuasiNewtonState, bfgs
from penalty_examples import PENALTIES
from problems import LOSSES, problem, updated


def rounds_to(
    p: fs.Problem, method: Method[Any], gap: float, most: int, participation: float = 1.0
) -> int:
    """Rounds until F(x) - F* is at most ``gap``; ``most`` where it is not reached."""
    best = p.objective(p.solution())

    def near(row: Row, state: Any) -> bool:
        return row.objective - best <= gap

    return fs.solve(
        p, method, rounds=most, tol=0, callbacks=[near], participation=participation
    ).rounds


def spiked(kappa: float = 1e4) -> fs.Problem:
    return fs.Problem(fs.LeastSquares(), fs.ensembles.spiked(m=6, d=40, n=80, kappa=kappa).rows)


def rotated(seed: int = 0, kappa: float = 1e3) -> fs.Problem:
    """Every client's eigenvectors its own, eigenvalues from 1 to κ."""
    rng = np.random.default_rng(seed)
    x, data = rng.standard_normal(30), []
    for _ in range(6):
        U, V = fs.ensembles.haar(60, 30, rng), fs.ensembles.haar(30, 30, rng)
        A = U * np.sqrt(np.geomspace(1, kappa, 30)) @ V.T
        data.append((A, A @ x + rng.standard_normal(60)))
    return fs.Problem(fs.LeastSquares(), data)


def short() -> fs.Problem:
    """Every client has fewer rows than there are columns."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(30)
    designs = [rng.standard_normal((12, 30)) for _ in range(8)]
    return fs.Problem(fs.LeastSquares(), [(A, A @ x + rng.standard_normal(12)) for A in designs])


def states(p: fs.Problem, method: Method[Any] | None = None, **options: Any) -> list[Any]:
    """The states of a run after every round."""
    found: list[Any] = []
    callbacks = [lambda row, state: found.append(state)]
    fs.solve(p, method or fs.QuasiNewton(), tol=0, callbacks=callbacks, **options)
    return found


# How far, and in how many exchanges


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_every_loss_ends_at_the_optimum_with_a_proof(name: str) -> None:
    p = problem(name, [60, 20, 40, 80], 5, seed=1, ridge=1.0)
    result = fs.solve(p, fs.QuasiNewton(), tol=1e-10)
    assert result.converged
    assert result.stopped_by == "certificate"
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-5)


@pytest.mark.parametrize("make", [spiked, rotated, short])
def test_it_needs_fewer_exchanges_than_every_baseline_of_vectors(
    make: Callable[[], fs.Problem],
) -> None:
    p = make()
    gap = 1e-8 * (p.objective(np.zeros(p.d)) - p.objective(p.solution()))
    ours = rounds_to(p, fs.QuasiNewton(), gap, 300)
    assert ours <= 30
    for method in (fs.LBFGS(), fs.GIANT(), fs.FedSplit()):
        assert ours <= rounds_to(p, method, gap, 300)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_F_never_rises(name: str) -> None:  # noqa: N802  # F is the objective
    p = problem(name, [40, 7, 25, 60], 6, seed=3, ridge=0.1)
    trace = fs.solve(p, fs.QuasiNewton(), rounds=25, tol=0).trace
    rounding = 1e-13 * abs(trace.start)
    assert all(after <= before + rounding for before, after in pairwise(trace.objective))


def test_alike_clients_make_it_newtons_method() -> None:
    A = np.random.default_rng(0).standard_normal((50, 20)) * np.geomspace(1, 100, 20)
    data = [(A, A @ np.ones(20) + np.random.default_rng(j).standard_normal(50)) for j in range(5)]
    p = fs.Problem(fs.LeastSquares(), data)
    gap = 1e-9 * (p.objective(np.zeros(20)) - p.objective(p.solution()))
    assert rounds_to(p, fs.QuasiNewton(), gap, 50) <= 9


def test_wrong_claims_about_curvature_do_no_harm() -> None:
    H = np.diag([1.0, 30.0, 1000.0])
    loss = fs.CustomLoss(
        lambda x, c: float(0.5 * x @ H @ x - c @ x),
        lambda x, c: H @ x - c,
        3,
        lambda x, c: H,
        lambda c: (1e5, 1e6),
    )
    p = fs.Problem(loss, [np.array([1.0, 2.0, 3.0]), np.array([-5.0, 0.0, 1.0])])
    assert rounds_to(p, fs.QuasiNewton(), 1e-9, 100) <= 15


def test_badly_scaled_columns_get_units_of_their_own_and_take_few_exchanges() -> None:
    rng = np.random.default_rng(3)
    scales = 10.0 ** rng.uniform(-3, 3, size=20)
    x, designs = rng.standard_normal(20), [rng.standard_normal((60, 20)) * scales for _ in range(5)]
    p = fs.Problem(fs.LeastSquares(), [(A, A @ x + rng.standard_normal(60)) for A in designs])
    assert rounds_to(p, fs.QuasiNewton(), 1e-6, 200) <= 20
    unit = states(p, rounds=3)[-1].unit
    np.testing.assert_allclose(np.log(unit / unit[0]), 2 * np.log(scales / scales[0]), atol=1.5)
    assert (states(spiked(), rounds=3)[-1].unit == 1.0).all()


def test_badly_posed_problems_do_not_throw_the_run_off() -> None:
    for name, seed, scale in (("logistic", 3, 2.0), ("poisson", 1, 1.5), ("gamma", 2, 1.5)):
        p = problem(name, [8, 15, 40, 5, 25], 6, seed, ridge=1e-5, scale=scale)
        gap = 1e-8 * max(1.0, abs(p.objective(p.solution())))
        assert rounds_to(p, fs.QuasiNewton(), gap, 100) < 60


def test_a_start_where_the_costs_are_flat_or_far_from_the_optimum_is_no_obstacle() -> None:
    rng = np.random.default_rng(0)
    designs = [np.column_stack([np.ones(30), rng.standard_normal((30, 2))]) for _ in range(4)]
    huber = fs.Problem(
        fs.Huber(), [(A, 50 + rng.standard_normal(30)) for A in designs]
    )  # no curvature at 0
    assert rounds_to(huber, fs.QuasiNewton(), 1e-8, 100) < 60
    logistic = fs.Problem(
        fs.Logistic(), [(A, np.where(rng.logistic(size=30) < A[:, 1], 1.0, -1.0)) for A in designs]
    )
    far = fs.solve(logistic, x0=np.full(3, 100.0))
    assert far.converged
    np.testing.assert_allclose(far.x, logistic.solution(), atol=1e-5)


@pytest.mark.parametrize("name", ["poisson", "gamma"])
def test_a_start_far_away_ends_at_the_optimum(name: str) -> None:
    p = problem(name, [20, 30, 25], 2, seed=1)
    best = p.objective(p.solution())
    for x0 in ([6.0, 6.0], [-4.0, 4.0], [0.1, 0.1]):
        result = fs.solve(p, fs.QuasiNewton(), x0=np.array(x0), rounds=60, tol=1e-12)
        assert result.converged
        assert p.objective(result.x) <= best + 1e-9
    far = fs.solve(p, fs.QuasiNewton(), x0=np.array([6.0, 6.0]), rounds=60)
    assert "starts at 0" in far.notes[1]


@pytest.mark.parametrize("penalty", sorted(PENALTIES))
def test_every_penalty_ends_at_the_optimum(penalty: str) -> None:
    p = problem("logistic", [60, 20, 40], 6, seed=1, ridge=0.1)
    g = PENALTIES[penalty](6)
    best = fs.solve(p, fs.FedSplitInformation(), penalty=g, tol=1e-13).x
    for method in (fs.QuasiNewton(), fs.LBFGS()):
        result = fs.solve(p, method, penalty=g, tol=1e-12, rounds=300)
        np.testing.assert_allclose(result.x, best, atol=1e-5)


# What is exchanged


def test_an_exchange_is_4d_and_3_floats_up_and_one_more_where_hessians_are_renewed() -> None:
    p = problem("least-squares", [40, 30, 20], 6, seed=1, ridge=0.1)
    trace = fs.solve(p, fs.QuasiNewton(), rounds=13, tol=0).trace
    each = trace.floats_up // p.m
    assert each[0] == 2 * 6 + 3  # gradient and diagonal, F, rank and gain
    assert each[1] == 3 * 6 + 2 + 1  # two points
    renewed = [number in (3, 5, 8, 12) for number in range(3, 14)]
    assert list(each[2:]) == [4 * 6 + 3 + more for more in renewed]
    # three points, the prediction, a number, and the reference unless it is new
    assert list(trace.floats_down[2:] // p.m) == [(5 - more) * 6 + 1 for more in renewed]


def test_a_fresh_client_answers_to_the_bit_what_an_old_one_does() -> None:
    def make() -> fs.Problem:
        return problem("logistic", [30, 4, 25], 6, seed=2, ridge=0.5)

    old = make()
    rng = np.random.default_rng(0)
    reference, prediction = rng.standard_normal(6), rng.standard_normal((3, 6))
    diagonals: list[float | Array] = [0.3, np.linspace(0.1, 2.0, 6)]
    for metric in diagonals:
        question = Trials(reference, None, None, prediction, metric)
        old.clients.ask(question)
        for x in rng.standard_normal((3, 6)):
            question = Trials(x, x + 0.1, None, prediction, metric, reference)
            for name, part in make().clients.ask(question).parts.items():
                np.testing.assert_array_equal(old.clients.ask(question).parts[name], part)


def test_the_local_step_is_newtons_on_what_was_not_foreseen() -> None:
    p = problem("poisson", [30, 4, 25], 6, seed=2, ridge=0.5)
    rng = np.random.default_rng(1)
    x, reference = 0.1 * rng.standard_normal((2, 6))
    prediction = rng.standard_normal((3, 6))
    metric = np.linspace(0.1, 2.0, 6)
    answer = p.clients.ask(Trials(x, None, None, prediction, metric, reference))
    H = p.clients.ask(fs.questions.Information(reference)).rows
    g = p.clients.ask(fs.questions.Gradient(x)).rows
    np.testing.assert_allclose(answer.parts["gradients"][:, 0], g, rtol=1e-12)
    expected = np.linalg.solve(H + np.diag(metric), (prediction - g)[:, :, None])[:, :, 0]
    np.testing.assert_allclose(answer.parts["step"], expected, rtol=1e-8, atol=1e-10)
    renewed = p.clients.ask(Trials(reference, None, None, prediction, metric))
    trace = np.einsum("kii,i->k", H, 1 / metric)
    np.testing.assert_allclose(renewed.parts["trace"], trace, rtol=1e-10)


# What the server learns


def test_bfgs_satisfies_the_last_secant_equation_and_stays_definite() -> None:
    rng = np.random.default_rng(0)
    m, k, d = 4, 3, 7
    roots = rng.standard_normal((m, d, d))
    H = roots @ np.swapaxes(roots, 1, 2)
    S = rng.standard_normal((m, k, d))
    Y = S @ H
    B = bfgs(np.tile(np.eye(d), (m, 1, 1)), S, Y, np.zeros(m))
    np.testing.assert_allclose(np.einsum("mij,mj->mi", B, S[:, -1]), Y[:, -1], rtol=1e-9)
    assert np.linalg.eigvalsh(B).min() > 0
    one_by_one: Array = np.tile(np.eye(d), (m, 1, 1))
    for i in range(k):
        one_by_one = bfgs(one_by_one, S[:, i : i + 1], Y[:, i : i + 1], np.zeros(m))
    np.testing.assert_allclose(B, one_by_one, rtol=1e-8, atol=1e-8)


def test_a_pair_without_curvature_teaches_nothing() -> None:
    B = np.diag([1.0, 2.0, 3.0])[None]
    s, y = np.array([[[1.0, 0.0, 0.0]]]), np.array([[[-1.0, 0.5, 0.0]]])
    np.testing.assert_array_equal(bfgs(B, s, y, np.zeros(1)), B)
    np.testing.assert_array_equal(bfgs(B, s, -y, np.full(1, 10.0)), B)  # rounding
    assert not np.array_equal(bfgs(B, s, -y, np.zeros(1)), B)


def test_the_models_satisfy_the_secant_equation_of_the_sums() -> None:
    p = problem("poisson", [60, 20, 40, 80], 5, seed=1, ridge=1.0)
    moved = 0
    for before, after in pairwise(states(p, rounds=12)):
        if np.array_equal(before.x, after.x) or after.number - 1 in (2, 3, 5, 8, 12):
            continue  # nothing was taken, or a trace may have been raised
        change = after.models.y.sum(axis=0) - before.models.y.sum(axis=0)
        np.testing.assert_allclose(
            after.models.B.sum(axis=0) @ (after.x - before.x), change, rtol=1e-6, atol=1e-9
        )
        np.testing.assert_array_equal(after.H, after.models.B.sum(axis=0))
        moved += 1
    assert moved >= 3


def test_the_matrix_of_l_bfgs_is_the_inverse_of_its_two_loops() -> None:
    rng = np.random.default_rng(0)
    H = np.diag(np.geomspace(1, 100, 8))
    pairs = Pairs.none(8)
    for s in rng.standard_normal((5, 8)):
        pairs = pairs.added(s, H @ s, memory=4)
    assert len(pairs.moves) == 4
    B = Compact(pairs)
    for v in rng.standard_normal((4, 8)):
        np.testing.assert_allclose(pairs.solve(B @ v), v, rtol=1e-8, atol=1e-8)
    whole = np.stack([B @ e for e in np.eye(8)])
    assert B.largest == pytest.approx(np.linalg.eigvalsh(whole)[-1])


def test_beyond_its_limit_it_is_l_bfgs() -> None:
    p = problem("logistic", [60, 20, 40, 80], 5, seed=1, ridge=1.0)
    few = fs.QuasiNewton(largest=4 * 25 - 1)
    assert few.suited(4, 5) == fs.LBFGS(100, wait=True)
    result = fs.solve(p, few, tol=1e-10)
    assert isinstance(result.state.inner, LBFGSState)
    assert result.converged
    assert "L-BFGS" in result.notes[0]
    assert isinstance(fs.solve(p, fs.QuasiNewton(largest=100)).state.inner, QuasiNewtonState)
    some = fs.solve(p, few, participation=0.5, rounds=400, tol=1e-12)
    np.testing.assert_allclose(some.x, p.solution(), atol=1e-5)


def test_above_a_thousand_columns_the_default_is_l_bfgs_and_the_result_says_so() -> None:
    rng = np.random.default_rng(0)
    designs = [rng.standard_normal((20, 1200)) for _ in range(3)]
    p = fs.Problem(fs.LeastSquares(), [(A, A[:, 0]) for A in designs], ridge=5.0)
    result = fs.solve(p)
    assert result.converged
    assert "L-BFGS" in result.notes[0]


# Runs that are cut, and settings


@pytest.mark.parametrize("penalty", [None, fs.L1(1.0)])
def test_a_run_cut_in_two_has_the_same_bits(penalty: fs.L1 | None) -> None:
    p = problem("logistic", [30, 12, 25], 4, seed=5, ridge=0.1)
    for method in (fs.QuasiNewton(), fs.LBFGS()):
        whole = fs.solve(p, method, rounds=20, tol=0, penalty=penalty)
        half = fs.solve(p, method, rounds=9, tol=0, penalty=penalty)
        rest = fs.solve(p, method, rounds=11, tol=0, state=half.state, penalty=penalty)
        np.testing.assert_array_equal(rest.x, whole.x)


def test_bad_settings_are_refused() -> None:
    for make in (
        lambda: fs.QuasiNewton(prior=0.0),
        lambda: fs.QuasiNewton(growth=-1.0),
        lambda: fs.QuasiNewton(memory=0),
        lambda: fs.QuasiNewton(sufficient=math.nan),
        lambda: fs.LBFGS(sufficient=math.nan),
        lambda: fs.LBFGS(memory=0),
    ):
        with pytest.raises(fs.InputError):
            make()


def test_asynchronous_runs_are_refused_with_the_name_of_a_method_that_can() -> None:
    p = problem("logistic", [30, 12, 25], 4, seed=5, ridge=0.1)
    with pytest.raises(fs.InputError, match=r"QuasiNewton .* DAvePG"):
        fs.solve(p, fs.QuasiNewton(), asynchronous=fs.Latency())


# Partial participation


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("participation", [0.9, 0.5, pytest.param(0.1, marks=pytest.mark.slow)])
def test_absent_clients_delay_but_do_not_move_the_optimum(name: str, participation: float) -> None:
    p = problem(name, [60, 20, 40, 80, 10, 33, 25, 70, 50, 90], 5, seed=1, ridge=1.0)
    result = fs.solve(p, participation=participation, seed=4, rounds=800, tol=1e-12)
    assert result.converged
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-5)
    answered = result.trace.answered
    assert (answered == round(10 * participation)).all()


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("participation", [0.9, 0.5, 0.1])
def test_vectors_of_some_clients_end_at_the_optimum_of_all(name: str, participation: float) -> None:
    p = problem(name, [60, 20, 40, 80, 10, 33, 25, 70, 50, 90], 5, seed=1, ridge=1.0)
    result = fs.solve(
        p, fs.QuasiNewton(), participation=participation, seed=4, rounds=600, tol=1e-10
    )
    assert result.converged
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-4)


def test_an_absent_client_keeps_its_model() -> None:
    p = problem("logistic", [30, 12, 25, 40], 3, seed=2, ridge=0.5)
    method = fs.QuasiNewton()
    before = states(p, rounds=6)[-1]
    after = updated(method, unreliable(p, 0.0, gone=[1, 3]), before)
    learnt = [
        [state.models.p, state.models.y, state.models.B, state.value] for state in (before, after)
    ]
    for then, now in zip(*learnt, strict=True):
        np.testing.assert_array_equal(now[[1, 3]], then[[1, 3]])
        assert (now[[0, 2]] != then[[0, 2]]).all(axis=tuple(range(1, now.ndim))).any()
    assert np.isinf(after.F)  # which nobody knows
    assert method.values(after) is None


def test_a_move_that_those_who_answer_are_surprised_by_is_taken_back() -> None:
    p = problem("poisson", [30, 12, 25, 40], 3, seed=2, ridge=0.5)
    method = fs.QuasiNewton()
    before = states(p, rounds=6)[-1]
    far = before._replace(trials=np.stack([np.full(3, 4.0), *before.trials[1:]]))
    after = updated(method, unreliable(p, 0.0, gone=[1]), far)
    np.testing.assert_array_equal(after.x, before.x)
    assert np.linalg.norm(after.trials[0]) <= 0.25 * np.linalg.norm(far.trials[0]) + 1e-12


def test_the_draw_of_clients_depends_on_the_seed_alone() -> None:
    p = problem("least-squares", [20] * 6, 3)
    a, b, c = (
        fs.solve(p, fs.QuasiNewton(), participation=0.5, seed=seed, rounds=9, tol=0).x
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def unreliable(
    p: fs.Problem, failing: float, gone: Sequence[int] = (), values: bool = True
) -> Unreliable:
    """Clients that fail at random, and some of them always, as between organisations."""
    rng = np.random.default_rng(0)

    def draw() -> Mask:
        present: Mask = rng.uniform(size=p.m) >= failing
        present[list(gone)] = False
        return present

    return Unreliable(p, draw, always=(Value,) if values else ())


def test_clients_that_fail_at_random_delay_but_do_not_move_the_optimum() -> None:
    p = problem("logistic", [60, 20, 40, 80], 3, seed=1, ridge=1.0)
    result = fs.solve(unreliable(p, 0.4), rounds=400)
    assert result.converged
    assert result.stopped_by == "certificate"
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-5)


def test_a_client_that_never_answers_is_named_and_nothing_is_called_converged() -> None:
    p = problem("least-squares", [60, 20, 40, 80], 3, seed=1)
    result = fs.solve(unreliable(p, 0.0, gone=[2], values=False), rounds=60)
    assert result.absent == (2,)
    assert not result.converged


@pytest.mark.parametrize("wrong", [0.0, -1.0, 1.5, float("nan"), "half"])
def test_a_participation_that_is_no_share_is_refused(wrong: float) -> None:
    with pytest.raises(fs.InputError, match="participation"):
        fs.solve(problem("least-squares", [20, 20], 3), participation=wrong)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_rounds_in_which_nobody_answers_are_no_harm(m: int) -> None:
    p = problem("logistic", [40] * m, 3, seed=3, ridge=0.5)
    for _ in range(5):
        result = fs.solve(unreliable(p, 0.4, values=False), rounds=400)
        assert result.converged
        np.testing.assert_allclose(result.x, p.solution(), atol=1e-4)


# What single rounds do


def test_a_hessian_that_has_grown_raises_its_model_at_once() -> None:
    p = problem("poisson", [60, 20, 40, 80], 5, seed=1, ridge=1.0)
    raised = 0
    for before, after in pairwise(states(p, rounds=14, x0=np.full(5, -3.0))):
        if before.number < before.due:
            continue
        H = p.clients.ask(Information(after.reference)).rows
        traces = np.einsum("kii->ki", H) @ (1.0 / after.unit)
        learnt = np.einsum("kii->ki", after.models.B) @ (1.0 / after.unit)
        if after.due > after.number:  # else the trial was too far away to learn from
            raised += 1
            assert (learnt >= (1.0 - 1e-9) * after.least * traces).all()
    assert raised > 2


class Recording:
    """Clients that note the questions for trials."""

    def __init__(self, p: fs.Problem) -> None:
        self.m = p.m
        self.clients = p.clients
        self.trials: list[Trials] = []

    def ask(self, question: Any) -> fs.Answer:
        if isinstance(question, Trials):
            self.trials.append(question)
        return self.clients.ask(question)


def test_predictions_add_up_to_the_slope_of_the_penalty() -> None:
    p = problem("logistic", [30, 25, 40, 12], 5, seed=1, ridge=0.05)
    clients = Recording(p)
    seen: list[Any] = []
    fs.solve(
        clients,
        fs.QuasiNewton(penalty=fs.L1(0.5)),
        x0=np.zeros(5),
        callbacks=[lambda row, state: seen.append(state)],
    )
    for state, question in zip(seen, clients.trials[1:], strict=False):
        np.testing.assert_allclose(question.prediction.sum(axis=0), -state.ahead, atol=1e-9)
        assert (np.abs(state.ahead) <= 0.5 + 1e-9).all()


def test_a_subgradient_is_known_where_a_step_went_all_the_way() -> None:
    p = problem("logistic", [30, 25, 40, 12], 5, seed=1, ridge=0.05)
    method = fs.QuasiNewton(penalty=fs.L1(0.5))
    known = [
        state for state in states(p, method, rounds=15) if method.subgradient(state) is not None
    ]
    assert len(known) > 5
    for state in known:
        slope = method.subgradient(state)
        assert slope is not None
        on = state.x != 0.0
        np.testing.assert_allclose(slope[on], 0.5 * np.sign(state.x[on]), atol=1e-6)
        assert (np.abs(slope) <= 0.5 + 1e-9).all()


def test_pairs_of_lbfgs_are_moves_and_changes_of_the_gradient_of_the_sum() -> None:
    p = problem("poisson", [60, 20, 40, 80], 5, seed=1, ridge=1.0)
    compared = 0
    for before, after in pairwise(states(p, rounds=10)):
        if not np.array_equal(before.x, after.x):
            compared += 1
            np.testing.assert_allclose(after.pairs.moves[-1], after.x - before.x, atol=1e-15)
            gradients = [
                p.clients.ask(Gradient(each.x)).rows.sum(axis=0) for each in (before, after)
            ]
            np.testing.assert_allclose(
                after.pairs.changes[-1], gradients[1] - gradients[0], rtol=1e-6, atol=1e-9
            )
    assert compared > 3


@pytest.mark.parametrize(("curved", "taken"), [(0.9, True), (1.1, False)])
def test_those_who_answer_may_be_curved_twice_as_much_as_their_models(
    curved: float, taken: bool
) -> None:
    p = problem("poisson", [60, 20, 40, 80], 5, seed=1, ridge=1.0)
    method = fs.QuasiNewton()
    state = states(p, rounds=4)[-1]
    moves = state.trials[:1]
    here = np.array([True, False, True, True])
    way = state.x + moves[0] - state.models.p[here]
    linear = state.value[here] + np.sum(way * state.models.y[here], axis=1)
    added = np.einsum("ki,kij,kj->k", way, state.models.B[here], way)
    f = np.zeros((4, 1))
    f[here, 0] = linear + curved * added
    answer = p.clients.ask(Value(state.x)).only(here)
    passed, best, F = method._judged(state, moves, f, answer)
    assert (passed[0], best, F) == (taken, 0, math.inf)
