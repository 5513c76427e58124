"""``solve``: what it records, when it stops, how it goes on, and how it fails."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fedsplit as fs
from faulty import Unreliable
from fedsplit.arrays import Array
from fedsplit.clients.questions import Curvature, Descend, Prox
from fedsplit.loop.run import Divergence
from fedsplit.methods.method import Method
from problems import LOSSES, Client, begun, clients, problem, updated

D, M = 4, 3


@pytest.fixture
def p() -> fs.Problem:
    return problem("least-squares", [30, 12, 25], D, seed=1)


COLUMNS = (
    "residual",
    "error",
    "floats_up",
    "floats_down",
    "answered",
    "seconds",
    "kind",
    "questions",
    "gradients",
    "hessians",
    "factorisations",
)

METHODS: dict[str, Method[Any]] = {
    "fedgd": fs.FedGD(),
    "fedprox": fs.FedProx(),
    "fedsplit": fs.FedSplit(),
}


@pytest.mark.parametrize("name", METHODS)
def test_the_trace_has_one_row_a_round_and_one_more_objective(p: fs.Problem, name: str) -> None:
    result = fs.solve(p, METHODS[name], rounds=7, tol=0)
    trace = result.trace
    assert result.rounds == len(trace) == 7
    assert len(trace.objective) == 8
    for column in COLUMNS:
        assert len(getattr(trace, column)) == 7
    assert list(trace.kind) == ["setup"] + ["round"] * 6
    assert (
        trace.objective[0] == trace.objective[1] == p.objective(np.zeros(D))
    )  # set-up repeats the value
    assert trace.objective[-1] == p.objective(result.x)
    assert np.isnan(trace.residual[0])
    assert (trace.residual[1:] > 0).all()
    assert (trace.answered == M).all()
    assert (trace.seconds > 0).all()


def test_floats_are_counted_both_ways(p: fs.Problem) -> None:
    setup = (0, 2 * M)  # two scalars from every client
    cases: list[tuple[Method[Any], int, int]] = [
        (fs.FedSplit(), 2 * D + 1, D + 1),  # v, x and s down; the prox and its error up
        (
            fs.FedSplit(prox=fs.GradientProx(2, start="argument")),
            D + 1,
            D + 1,
        ),  # the start is v itself
        (fs.FedProx(), D + 1, D + 1),
        (fs.FedGD(local_steps=3), D + 1, D),
    ]
    for method, down, up in cases:
        trace = fs.solve(p, method, rounds=5, tol=0).trace
        assert (trace.floats_down[0], trace.floats_up[0]) == setup
        assert (trace.floats_down[1:] == M * down).all()
        assert (trace.floats_up[1:] == M * up).all()


def test_a_round_is_a_question_and_the_work_of_all_clients_is_counted_once() -> None:
    d = 40
    trace = fs.solve(
        problem("logistic", [60, 50, 70], d, seed=1, ridge=1.0), fs.Newton(), rounds=3, tol=0
    ).trace
    assert list(trace.questions) == [1, 1, 1]
    assert (trace.hessians == M).all()
    assert (trace.floats_up > M * d * (d + 1) / 2).all()
    p = problem("least-squares", [60, 50, 70], d, seed=1)
    trace = fs.solve(p, fs.Newton(), rounds=3, tol=0).trace
    assert list(trace.hessians) == [M, 0, 0]  # those of quadratics are sent once
    assert (trace.floats_up[1:] < M * d * (d + 1) / 2).all()
    steps = fs.solve(p, fs.FedGD(1e-4, local_steps=5), rounds=2, tol=0).trace
    assert list(steps.gradients) == [5 * M, 5 * M]


def test_a_given_step_needs_no_set_up(p: fs.Problem) -> None:
    result = fs.solve(p, fs.FedSplit(step=0.01), rounds=3, tol=0)
    assert list(result.trace.kind) == ["round"] * 3
    assert result.step == 0.01


def test_the_step_that_the_theory_gives_is_recorded(p: fs.Problem) -> None:
    bounds = p.clients.ask(Curvature()).rows
    ell, L = bounds[:, 0].min(), bounds[:, 1].max()
    assert fs.solve(p, fs.FedSplit(), rounds=2).step == pytest.approx(1 / np.sqrt(ell * L))
    assert fs.solve(p, fs.FedProx(), rounds=2).step == pytest.approx(1 / np.sqrt(ell * L))
    assert fs.solve(p, fs.FedGD(), rounds=2).step == pytest.approx(2 / (ell + L))


@pytest.mark.parametrize("method", [fs.FedGD(), fs.FedProx(), fs.FedSplit()], ids=repr)
def test_without_strong_convexity_the_step_is_one_over_l(method: fs.FedGD) -> None:
    p = problem("logistic", [30, 2, 25], D)
    assert fs.solve(p, method, rounds=2).step == pytest.approx(
        1 / p.clients.ask(Curvature()).rows[:, 1].max()
    )


def test_without_global_curvature_the_step_comes_from_the_start() -> None:
    p = problem("poisson", [30, 12], 3, ridge=1.0)
    result = fs.solve(p, fs.FedSplit(), rounds=500)
    local = p.clients.ask(Curvature(np.zeros(3))).rows
    assert result.step == pytest.approx(1 / np.sqrt(local[:, 0].min() * local[:, 1].max()))
    assert list(result.trace.kind[:3]) == ["setup", "setup", "round"]
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-7)


def test_tol_stops_at_a_proved_gap(p: fs.Problem) -> None:
    result = fs.solve(p, fs.QuasiNewton(), rounds=1000, tol=1e-8)
    assert result.converged
    assert result.stopped_by == "certificate"
    assert result.certificate.gap is not None
    assert result.certificate.gap <= 1e-8 * result.certificate.scale
    F = result.trace.objective[-1]
    assert result.certificate.scale == pytest.approx(max(F, p.objective(np.zeros(D)) - F))
    assert list(result.trace.kind[-3:]) == ["round", "certificate", "certificate"]


def own(huber: fs.Huber) -> fs.CustomLoss:
    """Huber's loss for three columns as a user's own, without anything that a proof could use."""

    def hessian(x: Array, client: Client) -> Array:
        A, b, w = client
        return np.asarray((A * (w * huber.curvature(A @ x, b))[:, None]).T @ A)

    return fs.CustomLoss(
        lambda x, client: float(np.sum(client[2] * huber.value(client[0] @ x, client[1]))),
        lambda x, client: client[0].T @ (client[2] * huber.slope(client[0] @ x, client[1])),
        3,
        hessian,
        lambda client: (
            0.0,
            float(np.linalg.eigvalsh((client[0] * client[2][:, None]).T @ client[0])[-1]),
        ),
    )


def test_where_nothing_can_be_proved_tol_stops_at_a_small_relative_residual() -> None:
    p = fs.Problem(own(fs.Huber(0.7)), clients("huber", [30, 25, 40], 3))
    result = fs.solve(p, fs.FedSplit(), rounds=1000, tol=1e-8)
    assert result.converged
    assert result.stopped_by == "residual"
    assert result.certificate.gap is None
    assert "ridge" in result.certificate.reason
    scale = float(np.linalg.norm(result.state.inner.z))
    moves = result.trace.residual[result.trace.kind == "round"]
    assert moves[-1] <= 1e-8 * scale < moves[-2]


def test_a_spent_budget_is_not_called_converged(p: fs.Problem) -> None:
    result = fs.solve(p, fs.QuasiNewton(), rounds=4, tol=1e-12)
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
    assert seen[-1] == (result.trace.rows[-1], result.state.inner)


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize(
    "method", [fs.FedGD(1e-3, 3), fs.FedProx(0.02), fs.FedSplit(0.02)], ids=repr
)
def test_going_on_from_a_state_is_exact_to_the_bit(name: str, method: fs.FedGD) -> None:
    p = problem(name, [30, 12, 3], D, ridge=0.5)
    whole = fs.solve(p, method, rounds=9, tol=0)
    half = fs.solve(p, method, rounds=4, tol=0)
    rest = fs.solve(p, method, rounds=5, tol=0, state=half.state)
    np.testing.assert_array_equal(rest.x, whole.x)
    np.testing.assert_array_equal(rest.trace.objective, whole.trace.objective[4:])


@pytest.mark.parametrize("method", [fs.QuasiNewton(), fs.LBFGS(), fs.Newton()], ids=repr)
@pytest.mark.parametrize("change", ["data", "ridge", "penalty"])
def test_a_state_of_another_problem_brings_its_x_and_nothing_else(
    method: Method[Any], change: str
) -> None:
    """FedSplit, LBFGS and Newton stood still where they were, far from the minimiser."""
    if change == "penalty" and isinstance(method, fs.LBFGS):
        pytest.skip("it takes no penalty")
    p = problem("logistic", [30, 12, 9], D, ridge=1.0)
    state = pickle.loads(pickle.dumps(fs.solve(p, method).state))
    penalty = None
    if change == "data":
        p = problem("logistic", [30, 12, 9], D, ridge=1.0, seed=7)
    elif change == "ridge":
        p = p.with_ridge(10.0)
    else:
        penalty = fs.L1(2.0)
    result = fs.solve(p, method, state=state, penalty=penalty)
    assert result.converged
    assert any("the problem has changed" in note for note in result.notes)
    assert result.x == pytest.approx(fs.solve(p, method, penalty=penalty).x, abs=1e-4)


def test_a_state_is_known_again_after_pickling() -> None:
    p = problem("logistic", [30, 12, 3], D, ridge=0.5)
    half = fs.solve(p, rounds=4, tol=0)
    state = pickle.loads(pickle.dumps(half.state))
    rest = fs.solve(p, rounds=5, tol=0, state=state)
    assert not any("changed" in note for note in rest.notes)
    np.testing.assert_array_equal(rest.x, fs.solve(p, rounds=9, tol=0).x)


def test_a_state_in_the_place_of_a_start_is_refused_in_one_short_line(p: fs.Problem) -> None:
    state = fs.solve(p, rounds=3).state
    with pytest.raises(fs.InputError, match=r"pass a result's state as state=") as caught:
        fs.solve(p, x0=state)  # type: ignore[arg-type]  # a wrong value is the point
    assert len(str(caught.value)) < 120


def test_problems_and_results_say_what_they_are_in_a_line(p: fs.Problem) -> None:
    assert repr(p) == "Problem(loss=LeastSquares(), clients=3, coordinates=4, ridge=0.)"
    assert "<td>LeastSquares()</td>" in p._repr_html_()
    result = fs.solve(p)
    assert repr(result).startswith("Result(x=[")
    assert "converged=True" in repr(result)
    assert len(repr(result)) < 200


def test_the_same_run_twice_gives_the_same_bits() -> None:
    a, b = (fs.solve(problem("logistic", [30, 12, 3], D, ridge=0.5), rounds=30) for _ in range(2))
    np.testing.assert_array_equal(a.x, b.x)
    np.testing.assert_array_equal(a.trace.objective, b.trace.objective)


def test_a_start_is_used(p: fs.Problem) -> None:
    x0 = np.arange(4.0)
    result = fs.solve(p, fs.FedSplit(0.01), x0=x0, rounds=1)
    assert result.trace.objective[0] == p.objective(x0)
    assert fs.solve(p, rounds=1000, x0=p.solution() + 1.0).x == pytest.approx(
        p.solution(), abs=1e-7
    )


def test_too_large_a_step_diverges_with_the_round_the_cause_and_what_came_before(
    p: fs.Problem,
) -> None:
    with pytest.raises(
        fs.Diverged, match=r"round \d+; likely cause: the step is above 2/L\*"
    ) as caught:
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
        ({"rounds": "10"}, "rounds"),
        ({"rounds": 2.5}, "rounds"),
        ({"tol": float("nan")}, "tol"),
        ({"x0": "abcd"}, "4 finite numbers"),
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
        lambda: fs.FedGD(local_steps=2.5),  # type: ignore[arg-type]  # wrong values are the point
        lambda: fs.FedGD(step="0.1"),  # type: ignore[arg-type]  # the same
        lambda: fs.FedGD(step=True),
        lambda: fs.FedProx(step=-1.0),
        lambda: fs.FedSplit(step=float("nan")),
        lambda: fs.QuasiNewton(prior=-1.0),
    ],
)
def test_methods_that_make_no_sense_are_refused(build: Callable[[], object]) -> None:
    with pytest.raises(fs.InputError, match=r"step|local_steps|prior"):
        build()


@pytest.mark.parametrize("method", [fs.FedGD(1e-3, 2), fs.FedProx(0.1), fs.FedSplit(0.1)], ids=repr)
def test_a_client_that_does_not_answer_does_not_move_and_still_counts_in_the_mean(
    method: Method[Any],
) -> None:
    p = problem("least-squares", [30, 12, 25], D, seed=1)
    whole = p.clients
    absent = Unreliable(p, lambda: np.array([False, True, True]))
    state = begun(method, whole, np.ones(D))
    after = updated(method, absent, state)
    everyone = updated(method, whole, state)
    if isinstance(method, fs.FedGD):
        rows = whole.ask(Descend(state.x, 1e-3, 2)).rows
    elif isinstance(method, fs.FedProx):
        rows = whole.ask(Prox(state.x, 0.1, state.x, fs.ExactProx())).rows
    else:
        rows = everyone.z
    rows[0] = state.x  # where the absent client still is: z_0 = x at the start
    np.testing.assert_allclose(after.x, rows.mean(axis=0), rtol=1e-14)
    if isinstance(method, fs.FedSplit):
        np.testing.assert_array_equal(after.z[0], state.z[0])
        np.testing.assert_array_equal(after.z[1:], rows[1:])
    trace = fs.solve(absent, method, rounds=3, tol=0).trace
    assert (trace.answered == M - 1).all()
    up = D if isinstance(method, fs.FedGD) else D + 1
    assert (trace.floats_up == (M - 1) * up).all()
    assert np.isfinite(trace.error).all()


def test_set_up_questions_are_counted_too() -> None:
    poisson = fs.solve(
        problem("poisson", [30, 12], 3, ridge=1.0), fs.FedSplit(), rounds=3, tol=0
    ).trace
    assert list(poisson.floats_down[:2]) == [0, 2 * 3]  # curvature everywhere, then at x0
    assert list(poisson.floats_up[:2]) == [2 * 2, 2 * 2]
    method = fs.RegularisedFedSplit(1.0, 1.0)
    theorem = fs.solve(problem("logistic", [30, 12], 3), method, rounds=3).trace
    assert list(theorem.kind) == ["setup", "setup", "round"]
    assert list(theorem.floats_down[:2]) == [0, 2 * 3]  # curvature, then gradients
    assert list(theorem.floats_up[:2]) == [2 * 2, 2 * 3]


def test_the_traced_error_is_that_of_the_worst_client() -> None:
    p = problem("logistic", [30, 12, 25], D, seed=1)
    prox = fs.GradientProx(2)
    state = begun(fs.FedSplit(0.1), p.clients, np.zeros(D))
    answer = p.clients.ask(Prox(-state.z, 0.1, np.zeros(D), prox))
    assert answer.error.min() < 0.9 * answer.error.max()
    assert fs.solve(p, fs.FedSplit(0.1, prox), rounds=1).trace.error[0] == answer.error.max()


def test_the_tolerance_of_the_residual_is_relative_to_the_size_of_z() -> None:
    rng = np.random.default_rng(0)
    data = [
        (A, A @ np.full(3, 1e6), np.ones(9)) for A in (rng.standard_normal((9, 3)) for _ in "abc")
    ]
    result = fs.solve(fs.Problem(own(fs.Huber(1e3)), data), fs.FedSplit(), rounds=10000, tol=1e-6)
    assert result.stopped_by == "residual"
    assert result.trace.residual[result.trace.kind == "round"][-1] > 1e-5  # ‖z‖ is about 1e6


def test_a_method_that_ends_by_itself_is_not_stopped_by_tol() -> None:
    p = problem("logistic", [60, 25, 80], 4, seed=1)
    result = fs.solve(p, fs.RegularisedFedSplit(1.0, 2.0), rounds=10**5, tol=0.1)
    assert result.stopped_by == "method"


def test_a_slow_divergence_is_noticed(p: fs.Problem) -> None:
    top = float(np.linalg.eigvalsh(p.clients.pooled_information(np.zeros(D)))[-1]) / M
    with pytest.raises(fs.Diverged, match="grew"):
        fs.solve(p, fs.FedGD(step=2.1 / top), rounds=300, tol=0)


def test_an_objective_that_is_not_a_number_is_divergence_and_an_infinite_one_no_convergence() -> (
    None
):
    def value(x: Array, data: object) -> float:
        return float("nan") if np.abs(x).max() > 0.1 else 0.0

    def pull(x: Array, data: object) -> Array:
        return x - 1.0

    odd = fs.Problem(fs.CustomLoss(value, pull, 2), [0, 1])
    with pytest.raises(fs.Diverged, match="not a number"):
        fs.solve(odd, fs.FedGD(step=0.5))
    poisson = fs.Problem(fs.Poisson(), [(np.ones((3, 1)), [1, 2, 3])])
    stuck = fs.solve(poisson, fs.FedSplit(0.05, fs.GradientProx(5)), x0=np.array([800.0]), rounds=5)
    assert not stuck.converged


def test_a_numpy_bool_stops_a_run(p: fs.Problem) -> None:
    result = fs.solve(p, tol=0, callbacks=[lambda row, state: state.x[0] < 1e9])
    assert result.stopped_by == "callback"


def test_a_divergence_survives_the_way_between_processes(p: fs.Problem) -> None:
    with pytest.raises(fs.Diverged) as caught:
        fs.solve(p, fs.FedGD(step=1.0), rounds=500)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert again.result.rounds == caught.value.result.rounds


def test_a_state_of_another_method_or_problem_is_refused(p: fs.Problem) -> None:
    state = fs.solve(p, fs.FedGD(1e-3), rounds=2).state
    with pytest.raises(
        fs.InputError, match="FedSplit continues from FedSplitState, not AverageState"
    ):
        fs.solve(p, fs.FedSplit(), state=state)
    other = fs.solve(problem("least-squares", [9, 9], D), fs.FedSplit(0.1), rounds=2).state
    with pytest.raises(fs.InputError, match="3 clients and 4 coordinates"):
        fs.solve(p, fs.FedSplit(), state=other)


@pytest.mark.parametrize("name", ["least-squares", "logistic", "poisson", "huber"])
@pytest.mark.parametrize("penalty", [None, fs.L1(3.0)])
def test_a_run_stops_soon_after_the_tolerance_is_reached(name: str, penalty: fs.L1 | None) -> None:
    p = problem(name, [60] * 8, 6, seed=3)
    best = fs.solve(p, fs.QuasiNewton(), tol=1e-15, penalty=penalty).trace.objective[-1]
    tol = 1e-8 * max(1.0, abs(best))
    result = fs.solve(p, fs.QuasiNewton(), tol=1e-8, penalty=penalty)
    assert result.stopped_by == "certificate"
    # The x before the last two rounds was not good enough.
    rounds = [row.objective for row in result.trace.rows if row.kind == "round"]
    assert rounds[-3] - best > tol
    assert list(result.trace.kind).count("certificate") <= 4


def test_the_objective_is_known_nearly_from_gradients_alone() -> None:
    for name in ("least-squares", "logistic", "poisson"):
        p = problem(name, [40, 25, 30], 4, seed=5)
        method = fs.QuasiNewton()
        state = fs.solve(p, method, tol=1e-12).state.inner
        assert method.smooth_value(state) == pytest.approx(p.objective(state.x), rel=0.1)


@pytest.mark.parametrize(
    "settings",
    [
        *({"callbacks": wrong} for wrong in (3, None, [3], print)),
        *({"state": wrong} for wrong in ("x", 3)),
    ],
    ids=repr,
)
def test_callbacks_and_states_of_another_kind_are_refused(
    p: fs.Problem, settings: dict[str, Any]
) -> None:
    with pytest.raises(fs.InputError, match=next(iter(settings))):
        fs.solve(p, **settings)


@pytest.mark.parametrize("given", [None, {"gradient": np.zeros((2, 2))}])
def test_clients_that_return_something_else_than_an_answer_are_refused(given: object) -> None:
    class Wrong:
        m = 2

        def ask(self, question: object) -> Any:
            return given

    message = rf"returned {type(given).__name__}: return an Answer"
    with pytest.raises(fs.InputError, match=message):
        fs.solve(Wrong(), fs.GD(step=0.1), x0=np.zeros(2))
    with pytest.raises(fs.InputError, match=message):
        fs.certify(Wrong(), np.zeros(2))


@pytest.mark.parametrize("clients", [None, 3])
def test_a_custom_loss_without_a_list_of_clients_is_refused(clients: Any) -> None:
    loss = fs.CustomLoss(lambda x, data: float(x @ x), lambda x, data: 2.0 * x, 2)
    with pytest.raises(fs.InputError, match="clients must be a list with one item of data"):
        fs.Problem(loss, clients)


def test_clients_that_do_not_say_how_many_they_are_are_refused() -> None:
    class Nobody:
        def ask(self, question: object) -> None:
            """Answers nothing."""

    with pytest.raises(fs.InputError, match="clients with m and ask"):
        fs.solve(Nobody(), x0=np.zeros(2))  # type: ignore[arg-type]  # that is the mistake


@pytest.mark.parametrize(("objective", "uphill"), [(2.0, True), (1.0, False)])
def test_ten_long_moves_above_the_start_are_a_sign_of_divergence(
    objective: float, uphill: bool
) -> None:
    divergence = Divergence(1.0)
    z = np.ones(2)
    assert not divergence.sign(z, 1e-3, 1.0, 1.0)  # the smallest move
    signs = [divergence.sign(z, 2.0, objective, objective) for _ in range(10)]
    assert not any(signs[:9])
    assert bool(signs[9]) == uphill
