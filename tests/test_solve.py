"""``solve``: what it records, when it stops, how it goes on, and how it fails."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fedsplit as fs
from fedsplit.arrays import Array
from fedsplit.clients.protocol import Answer
from fedsplit.clients.stacked import StackedClients
from fedsplit.methods.method import Method
from fedsplit.prox.solver import ProxSolver
from problems import LOSSES, problem

D, M = 4, 3


@pytest.fixture
def p() -> fs.Problem:
    return problem("least-squares", [30, 12, 25], D, seed=1)


METHODS: dict[str, Method[Any]] = {"fedgd": fs.FedGD(), "fedprox": fs.FedProx(), "fedsplit": fs.FedSplit()}


@pytest.mark.parametrize("name", METHODS)
def test_the_trace_has_one_row_a_round_and_one_more_objective(p: fs.Problem, name: str) -> None:
    result = fs.solve(p, METHODS[name], rounds=7, tol=0)
    trace = result.trace
    assert result.rounds == len(trace) == 7
    assert len(trace.objective) == 8
    for column in ("residual", "error", "floats_up", "floats_down", "answered", "seconds", "kind"):
        assert len(getattr(trace, column)) == 7
    assert list(trace.kind) == ["setup"] + ["round"] * 6
    assert trace.objective[0] == trace.objective[1] == p.objective(np.zeros(D))  # set-up repeats the value
    assert trace.objective[-1] == p.objective(result.x)
    assert np.isnan(trace.residual[0])
    assert (trace.residual[1:] > 0).all()
    assert (trace.answered == M).all()
    assert (trace.seconds > 0).all()


def test_floats_are_counted_both_ways(p: fs.Problem) -> None:
    setup = (0, 2 * M)  # two scalars from every client
    cases: list[tuple[Method[Any], int, int]] = [
        (fs.FedSplit(), 2 * D + 1, D + 1),  # v, x and s down; the prox and its error up
        (fs.FedSplit(prox=fs.GradientProx(2, start="argument")), D + 1, D + 1),  # the start is v itself
        (fs.FedProx(), D + 1, D + 1),
        (fs.FedGD(local_steps=3), D + 1, D),
    ]
    for method, down, up in cases:
        trace = fs.solve(p, method, rounds=5, tol=0).trace
        assert (trace.floats_down[0], trace.floats_up[0]) == setup
        assert (trace.floats_down[1:] == M * down).all()
        assert (trace.floats_up[1:] == M * up).all()


def test_a_given_step_needs_no_set_up(p: fs.Problem) -> None:
    result = fs.solve(p, fs.FedSplit(step=0.01), rounds=3, tol=0)
    assert list(result.trace.kind) == ["round"] * 3
    assert result.step == 0.01


def test_the_step_that_the_theory_gives_is_recorded(p: fs.Problem) -> None:
    bounds = p.clients.curvature().rows
    ell, L = bounds[:, 0].min(), bounds[:, 1].max()
    assert fs.solve(p, fs.FedSplit(), rounds=2).step == pytest.approx(1 / np.sqrt(ell * L))
    assert fs.solve(p, fs.FedProx(), rounds=2).step == pytest.approx(1 / np.sqrt(ell * L))
    assert fs.solve(p, fs.FedGD(), rounds=2).step == pytest.approx(2 / (ell + L))


@pytest.mark.parametrize("method", [fs.FedGD(), fs.FedProx(), fs.FedSplit()], ids=repr)
def test_without_strong_convexity_the_step_is_one_over_l(method: fs.FedGD) -> None:
    p = problem("logistic", [30, 2, 25], D)
    assert fs.solve(p, method, rounds=2).step == pytest.approx(1 / p.clients.curvature().rows[:, 1].max())


def test_without_global_curvature_the_step_comes_from_the_start() -> None:
    p = problem("poisson", [30, 12], 3, ridge=1.0)
    result = fs.solve(p, fs.FedSplit(), rounds=500)
    local = p.clients.curvature(np.zeros(3)).rows
    assert result.step == pytest.approx(1 / np.sqrt(local[:, 0].min() * local[:, 1].max()))
    assert list(result.trace.kind[:3]) == ["setup", "setup", "round"]
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-7)


def test_tol_stops_at_a_small_relative_residual(p: fs.Problem) -> None:
    result = fs.solve(p, rounds=1000, tol=1e-8)
    assert result.converged
    assert result.stopped_by == "residual"
    scale = max(1.0, float(np.linalg.norm(result.state.iterate)))
    assert result.trace.residual[-1] <= 1e-8 * scale < result.trace.residual[-2]


def test_a_spent_budget_is_not_called_converged(p: fs.Problem) -> None:
    result = fs.solve(p, rounds=4, tol=1e-12)
    assert (result.rounds, result.converged, result.stopped_by) == (4, False, "rounds")


def test_tol_zero_runs_all_rounds_even_at_rounding(p: fs.Problem) -> None:
    assert fs.solve(p, rounds=400, tol=0).rounds == 400


def test_a_callback_sees_every_round_and_can_stop_the_run(p: fs.Problem) -> None:
    seen = []

    def stop_at_five(row: object, state: object) -> bool:
        seen.append((row, state))
        return len(seen) == 5

    result = fs.solve(p, fs.FedSplit(0.01), callbacks=[stop_at_five])
    assert (result.rounds, result.stopped_by, result.converged) == (5, "callback", False)
    assert seen[-1] == (result.trace.rows[-1], result.state)


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("method", [fs.FedGD(1e-3, 3), fs.FedProx(0.02), fs.FedSplit(0.02)], ids=repr)
def test_going_on_from_a_state_is_exact_to_the_bit(name: str, method: fs.FedGD) -> None:
    p = problem(name, [30, 12, 3], D, ridge=0.5)
    whole = fs.solve(p, method, rounds=9, tol=0)
    half = fs.solve(p, method, rounds=4, tol=0)
    rest = fs.solve(p, method, rounds=5, tol=0, state=half.state)
    np.testing.assert_array_equal(rest.x, whole.x)
    np.testing.assert_array_equal(rest.trace.objective, whole.trace.objective[4:])


def test_the_same_run_twice_gives_the_same_bits() -> None:
    a, b = (fs.solve(problem("logistic", [30, 12, 3], D, ridge=0.5), rounds=30) for _ in range(2))
    np.testing.assert_array_equal(a.x, b.x)
    np.testing.assert_array_equal(a.trace.objective, b.trace.objective)


def test_a_start_is_used(p: fs.Problem) -> None:
    x0 = np.arange(4.0)
    result = fs.solve(p, fs.FedSplit(0.01), x0=x0, rounds=1)
    assert result.trace.objective[0] == p.objective(x0)
    assert fs.solve(p, rounds=1000, x0=p.solution() + 1.0).x == pytest.approx(p.solution(), abs=1e-7)


def test_too_large_a_step_diverges_with_the_round_the_cause_and_what_came_before(p: fs.Problem) -> None:
    with pytest.raises(fs.Diverged, match=r"round \d+; likely cause: the step is above 2/L\*") as caught:
        fs.solve(p, fs.FedGD(step=1.0), rounds=500)
    assert caught.value.round == caught.value.result.rounds + 1
    assert caught.value.result.stopped_by == "diverged"
    assert not caught.value.result.converged
    assert np.isfinite(caught.value.result.x).all()
    assert len(caught.value.result.trace) == caught.value.result.rounds > 0


def test_overflow_in_one_round_diverges_without_a_warning() -> None:
    p = problem("poisson", [30, 12], 3)
    with pytest.raises(fs.Diverged, match="not finite"):
        fs.solve(p, fs.FedGD(step=100.0), rounds=50)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": 0}, "rounds"),
        ({"tol": -1.0}, "tol"),
        ({"x0": np.zeros(3)}, "4 finite numbers"),
        ({"x0": np.array([0.0, np.nan, 0.0, 0.0])}, "4 finite numbers"),
    ],
)
def test_bad_settings_are_refused(p: fs.Problem, settings: dict[str, object], message: str) -> None:
    with pytest.raises(fs.InputError, match=message):
        fs.solve(p, **settings)  # type: ignore[arg-type]  # wrong values are the point


def test_a_start_and_a_state_exclude_each_other(p: fs.Problem) -> None:
    state = fs.solve(p, rounds=3).state
    with pytest.raises(fs.InputError, match="not both"):
        fs.solve(p, x0=np.zeros(4), state=state)


@pytest.mark.parametrize(
    "build",
    [
        lambda: fs.FedGD(step=0.0),
        lambda: fs.FedGD(local_steps=0),
        lambda: fs.FedProx(step=-1.0),
        lambda: fs.FedSplit(step=float("nan")),
        lambda: fs.FedSplit(accelerate=5),  # type: ignore[arg-type]
    ],
)
def test_methods_that_make_no_sense_are_refused(build: Callable[[], object]) -> None:
    with pytest.raises(fs.InputError, match=r"step|local_steps|accelerate"):
        build()


class Absent(StackedClients):
    """Client 0 never answers, and what stands in its row must not be read."""

    def prox(self, v: Array, s: float | Array, start: Array, solver: ProxSolver) -> Answer:
        return self._without_the_first(super().prox(v, s, start, solver))

    def descend(self, x: Array, step: float, steps: int) -> Answer:
        return self._without_the_first(super().descend(x, step, steps))

    def _without_the_first(self, answer: Answer) -> Answer:
        rows, present = answer.rows.copy(), answer.present.copy()
        rows[0], present[0] = np.nan, False
        return Answer(rows, present, answer.error, answer.seconds)


@pytest.mark.parametrize("method", [fs.FedGD(1e-3), fs.FedProx(0.1), fs.FedSplit(0.1)], ids=repr)
def test_a_client_that_does_not_answer_does_not_move_and_still_counts_in_the_mean(method: fs.FedSplit) -> None:
    whole = problem("least-squares", [30, 12, 25], D, seed=1)
    absent = problem("least-squares", [30, 12, 25], D, seed=1)
    absent.clients.__class__ = Absent
    state = method.start(whole.clients, np.ones(D))
    everyone, others = method.update(whole.clients, state), method.update(absent.clients, state)
    if isinstance(method, fs.FedSplit):
        np.testing.assert_array_equal(others.z[0], state.z[0])
        np.testing.assert_array_equal(others.z[1:], everyone.z[1:])
        np.testing.assert_allclose(others.x, others.z.mean(axis=0))
    rows = fs.solve(absent, method, rounds=3, tol=0).trace
    assert (rows.answered == M - 1).all()
    assert np.isfinite(others.x).all()
    assert not np.allclose(others.x, everyone.x)
