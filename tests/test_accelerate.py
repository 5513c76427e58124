"""The default FedSplit: few rounds, nothing to tune, never far behind the plain method."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import fedsplit as fs
from faulty import Unreliable
from fedsplit.arrays import Array, Mask
from fedsplit.clients.oracle import Clients
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.clients.questions import Curvature, Prox, Value
from fedsplit.loop.trace import Row
from fedsplit.methods import models
from fedsplit.methods.fedsplit import FedSplitState
from fedsplit.methods.memory import Memory
from fedsplit.methods.method import Method
from fedsplit.methods.models import learn
from fedsplit.methods.vectors import AcceleratedState
from problems import LOSSES, problem, updated


class Recorded(Clients):
    """Clients that keep every question."""

    def __init__(self, clients: Clients) -> None:
        super().__init__(clients)
        self.questions: list[CostQuestion] = []

    def ask(self, question: CostQuestion) -> Answer:
        self.questions.append(question)
        return super().ask(question)


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


# Secants


def test_models_are_exact_on_the_directions_seen_and_positive_everywhere() -> None:
    rng = np.random.default_rng(0)
    m, d, k = 3, 8, 5
    roots = rng.standard_normal((m, d, d))
    H = roots @ np.swapaxes(roots, 1, 2)
    dp = rng.standard_normal((k, m, d))
    dy = np.einsum("mij,kmj->kmi", H, dp)
    models = learn(dp, dy, np.full(m, 0.5), np.full(m, 2.0))
    for pair in range(k):
        np.testing.assert_allclose(models.times(dp[pair]), dy[pair], rtol=1e-7, atol=1e-7)
    columns = np.stack([models.times(np.tile(e, (m, 1))) for e in np.eye(d)], axis=2)
    np.testing.assert_allclose(columns.sum(axis=0), models.pooled(), atol=1e-10)
    assert np.linalg.eigvalsh(columns).min() > 0
    spectrum = np.linalg.eigvalsh(H)
    assert (models.low >= np.minimum(0.5, spectrum[:, 0]) - 1e-9).all()
    assert (models.high <= np.maximum(2.0, spectrum[:, -1]) + 1e-9).all()


def test_a_pair_that_no_quadratic_can_have_is_left_out() -> None:
    rng = np.random.default_rng(1)
    H, other = np.diag([1.0, 2.0, 3.0, 4.0]), np.diag([400.0, 1.0, 30.0, 2.0])
    dp = rng.standard_normal((2, 1, 4))
    dy = np.stack([dp[0] @ H, dp[1] @ other @ np.roll(np.eye(4), 1, axis=0)])
    models = learn(dp, dy, np.ones(1), np.ones(1))
    np.testing.assert_allclose(models.times(dp[0]), dy[0], rtol=1e-9)
    assert np.linalg.matrix_rank(models.S[0]) == 1


@pytest.mark.parametrize("make", [spiked, rotated])
def test_the_default_needs_a_third_of_the_plain_rounds_at_most(
    make: Callable[[], fs.Problem],
) -> None:
    p = make()
    ours = rounds_to(p, fs.FedSplitVectors(), 1e-6, 300)
    assert ours <= 30
    assert rounds_to(p, fs.FedSplit(), 1e-6, 3 * ours) >= 3 * ours


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_acceleration_is_never_far_behind_the_plain_method(name: str) -> None:
    for seed in range(6):
        p = problem(
            name, [40, 7, 25, 60][: 1 + seed % 4], 1 + seed % 6, seed, ridge=[0.1, 5.0][seed % 2]
        )
        gap = 1e-8 * max(1.0, abs(p.objective(p.solution())))
        plain = rounds_to(p, fs.FedSplit(), gap, 1000)
        for method in (
            fs.FedSplitVectors(),
            fs.FedSplitVectors(adapt=None),
            fs.FedSplitVectors(accelerate=fs.Anderson(), adapt=None),
        ):
            assert rounds_to(p, method, gap, 1000) <= plain + 6, (seed, method)


def test_anderson_takes_a_tenth_of_the_plain_rounds_on_spikes() -> None:
    p = spiked()
    step = fs.theory.fedsplit_step(1.0, 1e4)
    plain = rounds_to(p, fs.FedSplit(step), 1e-3, 2000)
    assert (
        rounds_to(p, fs.FedSplitVectors(step, accelerate=fs.Anderson(), adapt=None), 1e-3, 2000)
        < plain / 10
    )


# The step


@pytest.mark.parametrize("factor", [1e-2, 1e2])
@pytest.mark.parametrize("make", [spiked, rotated])
def test_a_first_step_that_is_wrong_by_100_costs_at_most_double(
    make: Callable[[], fs.Problem], factor: float
) -> None:
    p = make()
    right = rounds_to(p, fs.FedSplitVectors(), 1e-6, 200)
    first = factor / np.sqrt(
        p.clients.ask(Curvature()).rows[:, 0].min() * p.clients.ask(Curvature()).rows[:, 1].max()
    )
    assert rounds_to(p, fs.FedSplitVectors(float(first)), 1e-6, 400) <= 2 * right


def test_the_step_stays_within_its_bound() -> None:
    p = spiked()
    steps: list[float] = []

    def look(row: Row, state: Any) -> None:
        steps.append(float(np.max(state.s)))

    for adapt in (fs.Adapt(), fs.Adapt(bound=2.0)):
        fs.solve(p, fs.FedSplitVectors(step=1e-9, adapt=adapt), rounds=20, tol=0, callbacks=[look])
    assert max(steps[:19]) > 1e-3
    assert max(steps[19:]) <= 2.0**6 * 1e-9 * (
        1 + 1e-9
    )  # doubled in each of five rounds, and once in all the rest


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
    assert rounds_to(p, fs.FedSplitVectors(), 1e-9, 100) <= 15


def test_the_chosen_local_solver_is_used_with_badly_scaled_features_too() -> None:
    rng = np.random.default_rng(3)
    designs = [rng.standard_normal((60, 5)) * [1e-3, 1e-2, 1, 10, 1e3] for _ in range(4)]
    p = fs.Problem(fs.Logistic(), [(A, np.sign(rng.standard_normal(60))) for A in designs], 1e-6)
    asked = Recorded(p.clients)
    chosen = fs.NewtonProx(0.02)
    fs.solve(asked, fs.FedSplitVectors(prox=chosen), rounds=6, tol=0)
    proxes = [question for question in asked.questions if isinstance(question, Prox)]
    assert len(proxes) == 5
    assert all(np.shape(question.s) == (5,) for question in proxes)
    assert all(question.solver == chosen for question in proxes)


def test_badly_scaled_features_take_few_rounds_and_three_vectors_a_question() -> None:
    rng = np.random.default_rng(3)
    scales = 10.0 ** rng.uniform(-3, 3, size=20)
    x, designs = rng.standard_normal(20), [rng.standard_normal((60, 20)) * scales for _ in range(5)]
    p = fs.Problem(fs.LeastSquares(), [(A, A @ x + rng.standard_normal(60)) for A in designs])
    assert rounds_to(p, fs.FedSplitVectors(), 1e-6, 200) <= 30
    trace = fs.solve(p, fs.FedSplitVectors(), rounds=6, tol=0).trace
    assert (trace.floats_down[1:] == 5 * 60).all()  # v, x and the steps
    cheap = fs.FedSplitVectors(prox=fs.GradientProx(3))
    assert "GradientProx" in fs.solve(p, cheap, rounds=4, tol=0).notes[1]
    with pytest.raises(fs.InputError, match="a step per coordinate"):
        fs.solve(p, cheap, state=fs.solve(p, fs.FedSplitVectors(), rounds=4, tol=0).state)


@pytest.mark.parametrize("accelerate", [None, fs.Secants(5), fs.Anderson(5)], ids=repr)
@pytest.mark.parametrize("adapt", [None, fs.Adapt()], ids=repr)
def test_a_run_cut_in_two_has_the_same_bits(
    accelerate: fs.Secants | fs.Anderson | None, adapt: fs.Adapt | None
) -> None:
    p = problem("logistic", [30, 12, 25], 4, seed=5, ridge=0.1)
    method = fs.FedSplitVectors(accelerate=accelerate, adapt=adapt)
    whole = fs.solve(p, method, rounds=20, tol=0)
    half = fs.solve(p, method, rounds=9, tol=0)
    rest = fs.solve(p, method, rounds=11, tol=0, state=half.state)
    np.testing.assert_array_equal(rest.x, whole.x)


def test_the_default_local_solver_spends_little_and_has_no_floor() -> None:
    p = problem("logistic", [300, 120, 250], 6, seed=5, ridge=0.1)
    result = fs.solve(p, rounds=60, tol=0)
    assert abs(p.objective(result.x) - p.objective(p.solution())) <= 1e-12 * p.objective(
        p.solution()
    )
    v = 0.3 * np.random.default_rng(0).standard_normal((3, 6))
    x = np.zeros(6)
    rough, exact = (
        p.clients.ask(Prox(v, 0.1, x, solver)) for solver in (fs.NewtonProx(), fs.ExactProx())
    )
    assert (rough.error <= 0.01 * np.linalg.norm(rough.rows - x, axis=1)).all()
    assert (np.linalg.norm(rough.rows - exact.rows, axis=1) <= rough.error + exact.error).all()
    assert (rough.error > 10 * exact.error).any()


def test_ten_gradient_steps_as_the_only_local_work_are_enough() -> None:
    p = problem("logistic", [300, 120, 250], 6, seed=5, ridge=0.1)
    assert rounds_to(p, fs.FedSplitVectors(prox=fs.GradientProx(10)), 1e-9, 100) <= 25


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


@pytest.mark.parametrize("participation", [0.9, 0.5, 0.1])
def test_the_plain_method_and_anderson_bear_absence_too(participation: float) -> None:
    p = problem("least-squares", [60, 20, 40, 80, 30], 3, seed=1)
    for method in (fs.FedSplit(), fs.FedSplitVectors(accelerate=fs.Anderson())):
        assert rounds_to(p, method, 1e-8, 1500, participation) < 1500


def test_the_draw_of_clients_depends_on_the_seed_alone() -> None:
    p = problem("least-squares", [20] * 6, 3)
    a, b, c = (
        fs.solve(p, fs.FedSplitVectors(), participation=0.5, seed=seed, rounds=9, tol=0).x
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


def test_bad_settings_are_refused() -> None:
    for make in (
        lambda: fs.Secants(0),
        lambda: fs.Anderson(-1),
        lambda: fs.Adapt(bound=0.5),
        lambda: fs.NewtonProx(0.0),
        lambda: fs.FedSplitVectors(accelerate=fs.Adapt()),  # type: ignore[arg-type]  # the wrong type is the point
        lambda: fs.FedSplitVectors(adapt=fs.Secants()),  # type: ignore[arg-type]  # the same
    ):
        with pytest.raises(fs.InputError):
            make()


# What the server remembers


def state_after(
    p: fs.Problem, method: fs.FedSplitVectors, rounds: int, participation: float = 1.0
) -> AcceleratedState:
    state = fs.solve(p, method, rounds=rounds, tol=0, participation=participation).state.inner
    assert isinstance(state, AcceleratedState)
    return state


def test_an_absent_client_keeps_its_last_point_and_gradient() -> None:
    p = problem("logistic", [30, 12, 25, 40], 3, seed=2, ridge=0.5)
    method = fs.FedSplitVectors()
    before = state_after(p, method, 6)
    clients = unreliable(p, 0.0, gone=[1, 3])
    after = updated(method, clients, before)
    for name in ("p", "y"):
        then, now = getattr(before.memory, name), getattr(after.memory, name)
        np.testing.assert_array_equal(now[[1, 3]], then[[1, 3]])
        assert (now[[0, 2]] != then[[0, 2]]).any(axis=1).all()
    np.testing.assert_array_equal(after.memory.dp[:, [1, 3]], before.memory.dp[:, [1, 3]])
    np.testing.assert_allclose(
        after.x, after.z.mean(axis=0), rtol=1e-9
    )  # the mean over all clients


def test_anderson_takes_a_plain_step_in_a_round_with_an_absentee_and_learns_nothing_from_it() -> (
    None
):
    p = problem("logistic", [30, 12, 25, 40], 3, seed=2, ridge=0.5)
    method = fs.FedSplitVectors(0.05, accelerate=fs.Anderson(), adapt=None)
    before = state_after(p, method, 6)
    clients = unreliable(p, 0.0, gone=[1])
    after = updated(method, clients, before)
    alike = FedSplitState(before.x, before.z, 0.05)
    plain = updated(fs.FedSplit(0.05, fs.NewtonProx()), clients, alike)
    np.testing.assert_allclose(after.z, plain.z, rtol=1e-12)
    np.testing.assert_array_equal(after.memory.dp, before.memory.dp)


def test_anderson_keeps_its_pairs_when_the_step_changes_and_translates_them() -> None:
    p = spiked()
    steps: list[float] = [1e-4]
    memories: list[Memory] = []

    def look(row: Row, state: Any) -> None:
        assert isinstance(state, AcceleratedState)
        steps.append(state.step.s)
        memories.append(state.memory)

    method = fs.FedSplitVectors(step=1e-4, accelerate=fs.Anderson())
    fs.solve(p, method, rounds=30, tol=0, callbacks=[look])
    changed = [i for i in range(3, len(steps)) if steps[i] != steps[i - 1]]
    assert changed
    for s, memory in zip(steps[1:], memories, strict=True):
        # the server's x, and its changes, are those that the same answers would mean at this step
        for x, p_j, y_j in (
            (memory.x, memory.p, memory.y),
            *((pair.dx, pair.dp, pair.dy) for pair in memory.pairs),
        ):
            np.testing.assert_allclose(x, np.mean(p_j + s * y_j, axis=-2), atol=1e-9)
    assert all(np.any(memories[i - 1].dp) for i in changed)
    assert rounds_to(p, method, 1e-6, 200) <= 45


def test_flat_directions_of_single_clients_do_not_mislead_the_step_of_anderson() -> None:
    rng = np.random.default_rng(0)
    data = [(rng.standard_normal((60, 120)), rng.standard_normal(60) > 0) for _ in range(20)]
    p = fs.Problem(fs.Logistic(), data, ridge=1.0)
    result = fs.solve(p, fs.FedSplitVectors(accelerate=fs.Anderson()))
    assert result.converged
    assert result.rounds <= 40  # with the geometric mean of each client's extremes: 73


def test_the_step_changes_seldom_so_that_clients_keep_their_factors() -> None:
    steps: list[float] = []

    def look(row: Row, state: Any) -> None:
        steps.append(float(np.max(state.s)))

    fs.solve(rotated(), fs.FedSplitVectors(), rounds=30, tol=0, callbacks=[look])
    assert 1 <= sum(a != b for a, b in pairwise(steps)) <= 10


def test_a_local_solver_that_does_not_manage_the_step_gets_a_smaller_one() -> None:
    p = problem("logistic", [300, 120, 250], 6, seed=5, ridge=0.1)
    first = state_after(p, fs.FedSplitVectors(), 2).step.first
    rough = state_after(p, fs.FedSplitVectors(step=100 * first, prox=fs.GradientProx(1)), 8)
    assert float(np.max(rough.s)) < 10 * first


@pytest.mark.parametrize(
    ("name", "seed", "scale", "accelerate"),
    [("logistic", 3, 2.0, fs.Anderson()), ("poisson", 1, 1.5, fs.Secants())],
)
def test_badly_posed_problems_do_not_throw_the_run_off(
    name: str, seed: int, scale: float, accelerate: fs.Secants | fs.Anderson
) -> None:
    p = problem(name, [8, 15, 40, 5, 25], 6, seed, ridge=1e-5, scale=scale)
    gap = 1e-8 * max(1.0, abs(p.objective(p.solution())))
    assert rounds_to(p, fs.FedSplitVectors(accelerate=accelerate), gap, 200) < 200


def test_a_start_where_the_costs_are_flat_or_far_from_the_optimum_is_no_obstacle() -> None:
    rng = np.random.default_rng(0)
    designs = [np.column_stack([np.ones(30), rng.standard_normal((30, 2))]) for _ in range(4)]
    huber = fs.Problem(
        fs.Huber(), [(A, 50 + rng.standard_normal(30)) for A in designs]
    )  # no curvature at 0
    assert rounds_to(huber, fs.FedSplitVectors(), 1e-8, 100) < 60
    logistic = fs.Problem(
        fs.Logistic(), [(A, np.where(rng.logistic(size=30) < A[:, 1], 1.0, -1.0)) for A in designs]
    )
    far = fs.solve(logistic, x0=np.full(3, 100.0))
    assert far.converged
    np.testing.assert_allclose(far.x, logistic.solution(), atol=1e-5)


def test_above_a_thousand_columns_anderson_stands_in_and_the_result_says_so() -> None:
    rng = np.random.default_rng(0)
    data = [
        (A, A[:, 0] + rng.standard_normal(20))
        for A in (rng.standard_normal((20, 1100)) for _ in range(3))
    ]
    result = fs.solve(fs.Problem(fs.LeastSquares(), data, ridge=5.0))
    assert result.converged
    assert any("Anderson stands in" in note for note in result.notes)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_rounds_in_which_nobody_answers_are_no_harm(m: int) -> None:
    p = problem("logistic", [40] * m, 3, seed=3, ridge=0.5)
    for _ in range(5):
        result = fs.solve(unreliable(p, 0.4, values=False), rounds=400)
        assert result.converged
        np.testing.assert_allclose(result.x, p.solution(), atol=1e-5)


@pytest.mark.parametrize("name", ["poisson", "gamma"])
def test_a_start_far_away_ends_at_the_optimum(name: str) -> None:
    p = problem(name, [20, 30, 25], 2, seed=1)
    best = p.objective(p.solution())
    for x0 in ([6.0, 6.0], [-4.0, 4.0], [0.1, 0.1]):
        result = fs.solve(p, fs.FedSplitVectors(), x0=np.array(x0), rounds=60, tol=1e-12)
        assert result.converged
        assert p.objective(result.x) <= best + 1e-9
    far = fs.solve(p, fs.FedSplitVectors(), x0=np.array([6.0, 6.0]), rounds=60)
    assert "starts at 0" in far.notes[1]


def test_only_clients_with_news_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    m, d = 6, 3
    H = rng.standard_normal((m, 5, d))
    H = np.swapaxes(H, 1, 2) @ H
    dp = rng.standard_normal((d, m, d))
    dy = np.einsum("mij,kmj->kmi", H, dp)
    known = learn(dp, dy, np.ones(m), np.ones(m))
    learnt: list[int] = []
    block = models._learn_block

    def counted(dp: Array, dy: Array) -> tuple[Array, Array, Array, Array]:
        learnt.append(dp.shape[1])
        return block(dp, dy)

    monkeypatch.setattr(models, "_learn_block", counted)
    newest = rng.standard_normal((1, m, d))
    images = np.einsum("mij,kmj->kmi", H, newest)
    images[0, 1] *= 1.01  # the cost of client 1 has another Hessian here
    pairs = np.concatenate([newest, dp[:-1]])
    gradients = np.concatenate([images, dy[:-1]])
    renewed = learn(pairs, gradients, known.low, known.high, known)
    assert learnt == [1]
    anew = learn(pairs, gradients, known.low, known.high)
    np.testing.assert_allclose(renewed.times(newest[0]), anew.times(newest[0]), rtol=1e-9)
    np.testing.assert_allclose(renewed.pooled(), anew.pooled(), rtol=1e-9, atol=1e-9)
