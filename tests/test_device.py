"""Clients on a device, by array-api-strict: a hidden conversion to NumPy raises there."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import array_api_strict as xp
import numpy as np
import pytest
from scipy.sparse import csr_array

import fedsplit as fs
from fedsplit.arrays import Array, length
from fedsplit.clients.local_models import LocalModel
from fedsplit.clients.question import CostQuestion
from fedsplit.clients.questions import (
    Curvature,
    Decrement,
    Descend,
    Direction,
    Evaluate,
    Gradient,
    Information,
    Line,
    Margin,
    Prox,
    Value,
)
from fedsplit.commands.app import run
from fedsplit.device.backend import on_device, to_host
from fedsplit.device.blocks import BlockVector
from fedsplit.paper.comparison import compare
from open.stochastic import StochasticProx

DEVICE = xp.Device("device1")

LOSSES: dict[str, Any] = {
    "least squares": fs.LeastSquares(),
    "logistic": fs.Logistic(),
    "poisson": fs.Poisson(),
    "huber": fs.Huber(0.7),
}

SOLVERS: dict[str, Any] = {
    "gradient": fs.GradientProx(10, step=0.03),
    "own steps": fs.GradientProx(4),
    "paper": fs.GradientProx(4, step="paper"),
    "from the iterate": fs.GradientProx(4, "iterate", step=0.03),
    "from the argument": fs.GradientProx(4, "argument", step=0.03),
    "exact": fs.ExactProx(),
}

SHAPES = {"wide": (5, 3, 6), "tall": (4, 7, 3), "one": (1, 1, 1)}

TOLERANCE = {"float64": 1e-12, "float32": 1e-5}


def drawn(loss: Any, shape: tuple[int, int, int], weighted: bool) -> fs.StackedRows:
    m, n, d = shape
    rng = np.random.default_rng([m, n, d])
    A = rng.standard_normal((m, n, d))
    b = loss.sample(0.5 * A @ rng.standard_normal(d) / np.sqrt(d), rng)
    if not weighted:
        return fs.StackedRows(A, b)
    weights = rng.integers(0, 3, size=(m, n)) + (np.arange(n) == 0.0)
    return fs.StackedRows(A, b, weights.astype(float), 0.3 * rng.standard_normal((m, n)))


def both(
    loss: str = "logistic",
    shape: str = "wide",
    weighted: bool = False,
    dtype: str = "float64",
    ridge: Any = 0.4,
) -> tuple[fs.Problem, fs.Problem]:
    """The same problem in this process and on the device."""
    A, b, w, o = drawn(LOSSES[loss], SHAPES[shape], weighted)
    host: list[Any] = list(zip(A, b, strict=True))
    if weighted:
        host = list(zip(A, b, w, o, strict=True))
    parts = [None if a is None else xp.asarray(a, device=DEVICE) for a in (A, b, w, o)]
    placed = fs.StackedRows(*parts)
    ours = fs.Problem(LOSSES[loss], placed, ridge=ridge, dtype=dtype)
    return fs.Problem(LOSSES[loss], host, ridge=ridge), ours


def dense(rows: Any) -> Array:
    if isinstance(rows, BlockVector):
        rows = rows.dense()
    return to_host(rows)


def near(ours: Any, theirs: Any, dtype: str = "float64") -> bool:
    size = max(1.0, float(np.linalg.norm(theirs)))
    return bool(np.linalg.norm(dense(ours) - theirs) <= TOLERANCE[dtype] * size)


@pytest.mark.parametrize(
    ("shape", "weighted", "dtype"),
    [
        ("wide", False, "float64"),
        ("wide", True, "float32"),
        ("tall", True, "float64"),
        ("tall", False, "float32"),
        ("one", True, "float64"),
    ],
)
@pytest.mark.parametrize("loss", LOSSES)
def test_questions_are_answered_as_in_this_process(
    loss: str, shape: str, weighted: bool, dtype: str
) -> None:
    host, placed = both(loss, shape, weighted, dtype)
    x = np.linspace(-0.4, 0.6, host.d)
    at = placed.clients.vector(x)
    questions: list[tuple[CostQuestion, CostQuestion]] = [
        (Gradient(x), Gradient(at)),
        (Value(x), Value(at)),
        (Evaluate(x), Evaluate(at)),
        (Descend(x, 0.05, 3), Descend(at, 0.05, 3)),
        (Curvature(x), Curvature(at)),
    ]
    if loss != "poisson":
        questions.append((Curvature(), Curvature()))
    for question, other in questions:
        expected = host.clients.ask(question).parts
        told = placed.clients.ask(other).parts
        assert list(told) == list(expected)
        for name, array in expected.items():
            assert near(told[name], array, dtype), (question.name(), name)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_all_clients_as_one_answer_as_one_client_with_all_rows(loss: str, weighted: bool) -> None:
    """Certificates and the methods of sums are made of these answers."""
    _, placed = both(loss, "wide", weighted)
    stacked = drawn(LOSSES[loss], SHAPES["wide"], weighted)
    rows = [None if a is None else a.reshape(15, *a.shape[2:]) for a in stacked]
    pooled = fs.Problem(LOSSES[loss], [tuple(rows)], ridge=0.4)
    x = np.linspace(-0.4, 0.6, 6)
    g = np.linspace(1.0, -0.5, 6)
    one = np.eye(6)[np.tril_indices(6)]
    questions: list[CostQuestion] = [
        Evaluate(x),
        Information(x),
        Decrement(x, g),
        Margin(x),
        Line(x, g, np.array([0.1, 1.0])),
        Direction(x, g),
        Curvature(x),
        LocalModel(x, x[None] + 0.1, one, 1.0, x - 0.1),
        LocalModel(x, None, None, 1.0, None, both=True),
    ]
    for question in questions:
        told = placed.clients.pooled().ask(question).parts
        for name, expected in pooled.clients.ask(question).parts.items():
            np.testing.assert_allclose(told[name], expected, rtol=1e-9, atol=1e-11, err_msg=name)


EVERY_SOLVER = [(loss, solver, "wide", "float64") for loss in LOSSES for solver in SOLVERS]

EVERY_LOSS = [
    (loss, solver, shape, dtype)
    for shape, dtype in (("wide", "float32"), ("tall", "float64"), ("one", "float64"))
    for loss, solver in zip(LOSSES, ("own steps", "gradient", "exact", "exact"), strict=True)
]


@pytest.mark.parametrize(
    ("loss", "solver", "shape", "dtype"),
    [
        each
        for each in EVERY_SOLVER + EVERY_LOSS
        if each[:2] not in (("poisson", "own steps"), ("poisson", "paper"))  # it has no L_j
    ],
)
def test_two_rounds_of_proxes_are_those_of_this_process(
    loss: str, solver: str, shape: str, dtype: str
) -> None:
    found = []
    for problem in both(loss, shape, True, dtype):
        clients = problem.clients
        x = clients.vector(np.linspace(-0.4, 0.6, problem.d))
        z: Any = clients.repeated(x)
        for _ in range(2):
            v = -z + 2.0 * x
            start = {"broadcast": x, "iterate": z, "argument": v}[SOLVERS[solver].start]
            answer = clients.ask(Prox(v, 0.7, start, SOLVERS[solver]))
            moved = answer.rows - x
            z = z + 2.0 * moved
            x = z.mean(axis=0) if isinstance(z, np.ndarray) else z.mean()
        found.append((dense(answer.rows), to_host(x), length(moved), answer))
    (point, mean, size, answer), (ours, our_mean, our_size, our_answer) = found
    assert near(ours, point, dtype)
    assert near(our_mean, mean, dtype)
    assert our_size == pytest.approx(size, rel=10 * TOLERANCE[dtype])
    # a proved error may be larger where less is known of ℓ_j
    assert our_answer.largest_error() >= answer.largest_error() * (1 - 1e-3) - 1e-5
    assert our_answer.complete
    assert answer.complete
    if SOLVERS[solver].start == "broadcast":
        assert our_answer.margin == pytest.approx(answer.margin, nan_ok=True)


@pytest.mark.parametrize("shape", ["wide", "tall"])
def test_the_error_of_a_prox_that_ended_early_is_bounded(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, placed = both(shape=shape)
    x = np.linspace(-0.4, 0.6, host.d)
    at = placed.clients.vector(x)
    exact = host.clients.ask(Prox(x, 5.0, x, fs.ExactProx())).rows
    monkeypatch.setattr("fedsplit.device.span_steps.MOST_STEPS", 1)
    monkeypatch.setattr("fedsplit.device.column_steps.MOST_STEPS", 1)
    answer = placed.clients.ask(Prox(at, 5.0, at, fs.ExactProx()))
    missed = np.linalg.norm(dense(answer.rows) - exact, axis=1)
    assert missed.max() > 1e-4
    assert (missed <= to_host(answer.error)).all()
    assert answer.largest_error() == to_host(answer.error).max()


@pytest.mark.parametrize("solver", [fs.ExactProx(), fs.GradientProx(4, step=0.1)])
def test_steps_and_ridges_per_coordinate_are_taken(solver: Any) -> None:
    ridge = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    host, placed = both(ridge=ridge)
    x = np.linspace(-0.4, 0.6, 6)
    s = np.array([0.5, 1.0, 0.7, 0.5, 0.9, 0.6])
    if isinstance(solver, fs.GradientProx):  # which takes one step for all coordinates
        s = np.full(6, 0.5)
    v = np.arange(30.0).reshape(5, 6) / 30
    expected = host.clients.ask(Prox(v, s, x, solver))
    place = placed.clients.vector
    ours = placed.clients.ask(Prox(place(v), place(s), place(x), solver))
    assert near(ours.rows, expected.rows)


METHODS: dict[str, Any] = {
    "plain": fs.FedSplit(0.5),
    "plain, gradient": fs.FedSplit(0.3, fs.GradientProx(10, step=0.1)),
    "plain, own steps": fs.FedSplit(0.3, fs.GradientProx(10)),
    "fedgd": fs.FedGD(),
    "information": fs.FedSplitInformation(),
    "newton": fs.Newton(),
    "lbfgs": fs.LBFGS(),
    "chosen": None,
}


@pytest.mark.parametrize("method", METHODS)
def test_methods_run_on_a_device_and_prove_what_they_find(method: str) -> None:
    host, placed = both(ridge=10.0)
    result = fs.solve(placed, METHODS[method], rounds=400, tol=1e-9)
    assert result.converged
    assert result.certificate.gap is not None
    best = host.objective(host.solution())
    gap = host.objective(result.x) - best
    assert gap <= result.certificate.gap <= 1e-9 * max(1.0, abs(best))


@pytest.mark.parametrize("method", ["plain", "plain, own steps", "fedgd"])
def test_a_trace_is_that_of_this_process(method: str) -> None:
    host, placed = both("least squares", ridge=1.0)
    expected = fs.solve(host, METHODS[method], rounds=12, tol=0).trace
    ours = fs.solve(placed, METHODS[method], rounds=12, tol=0).trace
    for column in ("objective", "residual", "answered", "floats_up", "floats_down", "kind"):
        one, other = getattr(ours, column), getattr(expected, column)
        if one.dtype.kind == "f":
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12, equal_nan=True)
        else:
            assert (one == other).all(), column


@pytest.mark.parametrize("method", ["newton", "lbfgs"])
def test_sums_over_all_clients_are_counted_as_an_answer_of_each(method: str) -> None:
    host, placed = (fs.solve(p, METHODS[method], rounds=5, tol=0).trace for p in both())
    for column in ("answered", "floats_up", "floats_down", "gradients", "kind"):
        assert (getattr(placed, column) == getattr(host, column)).all(), column


@pytest.mark.parametrize("rounds", [2, 20, 40])
def test_proofs_are_asked_for_when_they_are_in_this_process_and_share_the_budget(
    rounds: int,
) -> None:
    # proofs come while rounds are ahead of them: these must not count on top of the budget
    host, placed = (
        fs.solve(problem, METHODS["fedgd"], rounds=rounds)
        for problem in both("least squares", ridge=1.0)
    )
    assert list(placed.trace.kind) == list(host.trace.kind)
    np.testing.assert_allclose(placed.x, host.x, rtol=1e-10)
    early = fs.solve(both("least squares", ridge=1.0)[1], METHODS["fedgd"], rounds=11, tol=1e-3)
    assert len(early.trace) <= 11


def test_a_callback_ends_a_run_after_the_round_that_it_was_told_of() -> None:
    _, placed = both()
    seen: list[float] = []

    def stop(row: Any, state: Any) -> bool:
        seen.append(row.objective)
        return len(seen) == 4

    result = fs.solve(placed, METHODS["plain"], rounds=50, tol=0, callbacks=[stop])
    assert (result.stopped_by, result.rounds) == ("callback", 4)
    assert placed.objective(result.x) == pytest.approx(seen[-1], rel=1e-14)


def test_a_run_that_diverges_on_a_device_says_so_after_as_many_rounds_as_in_this_process() -> None:
    rounds = []
    for problem in both("least squares"):
        with pytest.raises(fs.Diverged) as raised:
            fs.solve(problem, fs.FedGD(5.0, 3), rounds=100, tol=0)
        rounds.append(raised.value.result.rounds)
    assert rounds[0] == rounds[1]


def test_fedprox_ends_where_it_does_in_this_process() -> None:
    ends = [fs.solve(each, fs.FedProx(0.5), rounds=15, tol=0).x for each in both()]
    assert np.linalg.norm(ends[0] - ends[1]) <= 1e-10


def test_a_run_goes_on_from_its_state() -> None:
    _, placed = both()
    whole = fs.solve(placed, METHODS["plain"], rounds=9, tol=0)
    first = fs.solve(placed, METHODS["plain"], rounds=4, tol=0)
    rest = fs.solve(placed, METHODS["plain"], rounds=5, tol=0, state=first.state)
    assert len(rest.notes) == 1  # what ran, and nothing else
    np.testing.assert_allclose(rest.x, whole.x, rtol=1e-12)


def test_a_state_of_this_process_starts_a_run_on_a_device_anew_and_the_other_way_round() -> None:
    A, b = np.array([[2.0, 1.0], [0.0, 1.0]]), np.ones(2)
    rows = [tuple(xp.asarray(each, device=DEVICE) for each in (A, b))]
    problems = [fs.Problem(fs.LeastSquares(), data, 1.0) for data in ([(A, b)], rows)]
    states = [fs.solve(p, METHODS["plain"], rounds=3, tol=0).state for p in problems]
    for problem, state in zip(problems, reversed(states), strict=True):
        result = fs.solve(problem, METHODS["plain"], rounds=3, tol=0, state=state)
        assert "started anew" in result.notes[1]


def test_points_may_be_on_the_device_or_here() -> None:
    host, placed = both()
    x = np.linspace(-0.4, 0.6, 6)
    at = placed.clients.vector(x)
    for problem in (host, placed):
        assert problem.objective(at) == problem.objective(x)
        assert (problem.gradient(at) == problem.gradient(x)).all()
        runs = [fs.solve(problem, METHODS["plain"], rounds=2, tol=0, x0=x0) for x0 in (x, at)]
        assert (runs[0].x == runs[1].x).all()
    with pytest.raises(fs.InputError, match="x must be 6 numbers, not of type BlockVector"):
        placed.objective(placed.clients.repeated(at))


def test_the_state_of_a_client_is_n_numbers_in_plain_fedsplit() -> None:
    _, placed = both()
    state: Any = fs.solve(placed, METHODS["plain"], rounds=5, tol=0).state.inner
    _, displacement = state.z.displacement
    assert displacement.c.shape == (5, 3)
    rows = to_host(state.z.dense())
    np.testing.assert_allclose(to_host(state.z.mean()), rows.mean(axis=0), rtol=1e-12)
    assert length(state.z) == pytest.approx(np.linalg.norm(rows))


def test_what_two_block_vectors_share_cancels_exactly() -> None:
    _, placed = both()
    x = placed.clients.vector(np.ones(6))
    z: Any = placed.clients.repeated(x)
    p: Any = placed.clients.ask(Prox(z, 0.5, x, fs.ExactProx())).rows
    later = z + 2.0 * (p - x)
    later.mean()
    assert length(later - z) == pytest.approx(2.0 * length(p - x), rel=1e-15)
    assert not (p - x).shared


def test_a_certificate_of_float32_says_that_rows_were_rounded() -> None:
    _, placed = both(dtype="float32", ridge=1.0)
    result = fs.solve(placed, METHODS["plain"], rounds=300, tol=1e-6)
    assert result.converged
    assert "rounded to float32" in result.certificate.reason
    _, exact = both(ridge=1.0)
    assert "rounded" not in fs.solve(exact, METHODS["plain"], tol=1e-6).certificate.reason


def test_any_point_is_certified_on_a_device_as_in_this_process() -> None:
    host, placed = both(ridge=1.0)
    x = host.solution() + 1e-3
    bound = host.gradient(x) @ host.gradient(x) / 2.0
    ours = fs.certify(placed.clients, x)
    assert ours.gap is not None
    assert host.objective(x) - host.objective(host.solution()) <= ours.gap <= bound
    _, rounded = both(dtype="float32", ridge=1.0)
    assert "rounded to float32" in fs.certify(rounded.clients, x).reason
    with pytest.raises(fs.InputError, match=r"pass problem\.clients"):
        fs.certify(host, x)  # type: ignore[arg-type]


def test_a_run_in_float32_is_refined_in_float64_where_float32_ends() -> None:
    _, placed = both(dtype="float32", ridge=1.0)
    result = fs.solve(placed, METHODS["plain"], tol=1e-13)
    assert result.converged
    assert result.certificate.gap is not None
    assert result.certificate.gap <= 1e-13 * result.certificate.objective
    _, note, *_ = result.notes
    ended, more = (int(word) for word in note.split() if word.isdigit())
    assert ended < 100
    assert more < 10
    assert result.rounds == len(result.trace) == ended + more
    assert np.linalg.norm(result.x - placed.solution()) <= 1e-6


def test_it_is_said_that_float32_may_not_come_closer() -> None:
    _, placed = both(dtype="float32", ridge=1.0)
    result = fs.solve(placed, METHODS["plain"], rounds=12, tol=1e-13)
    assert not result.converged
    assert any("float32 may not come closer" in note for note in result.notes)


def test_arrays_on_two_devices_are_refused() -> None:
    A, b, _, _ = drawn(fs.Logistic(), SHAPES["wide"], weighted=False)
    here = xp.asarray(A, device=DEVICE)
    elsewhere = xp.asarray(b, device=xp.Device("device2"))
    with pytest.raises(fs.InputError, match="b is on another device than A"):
        fs.Problem(fs.Logistic(), fs.StackedRows(here, elsewhere))


def test_padding_does_not_count() -> None:
    A, b, _, _ = drawn(fs.Logistic(), (3, 4, 6), weighted=False)
    ragged = [(A[0], b[0]), (A[1][:2], b[1][:2]), (A[2][:3], b[2][:3])]
    weights = np.array([[1.0, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]])
    placed = fs.StackedRows(*(xp.asarray(a, device=DEVICE) for a in (A, b, weights)))
    x = fs.Problem(fs.Logistic(), ragged, ridge=0.3).solution()
    assert np.allclose(fs.Problem(fs.Logistic(), placed, ridge=0.3).solution(), x, atol=1e-12)


def refuse(**changes: Any) -> dict[str, Any]:
    return {"method": fs.FedSplit(0.5), **changes}


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (refuse(participation=0.5), "participation below 1"),
        (refuse(penalty=fs.L1(0.1)), "FedSplit with a penalty"),
        (refuse(method=fs.ADMM()), "ADMM"),
        (refuse(asynchronous=True), "asynchronous"),
        (refuse(method=fs.FedSplit(0.5, StochasticProx())), "StochasticProx"),
        (refuse(method=fs.FedSplit(0.5, fs.GradientProx(step="backtracking"))), "backtrack"),
    ],
)
def test_what_has_no_device_path_is_refused_in_a_line(settings: Any, what: str) -> None:
    _, placed = both()
    with pytest.raises(fs.InputError, match=what) as refused:
        fs.solve(placed, **settings)
    assert "no device path" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_checkpoint_is_refused_on_a_device(tmp_path: Any) -> None:
    _, placed = both()
    with pytest.raises(fs.InputError, match="Checkpoint have no device path"):
        fs.solve(placed, METHODS["plain"], callbacks=[fs.Checkpoint(tmp_path / "run")])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"b": np.full((5, 3), 2.0)}, "labels must be"),
        ({"A": np.full((5, 3, 6), np.nan)}, "A has numbers that are not finite"),
        ({"b": np.linspace(-1, 1, 3) * np.ones((5, 1))}, "labels must be"),
        ({"A": np.ones((5, 3, 6)) + 0j}, "must be real numbers"),
        ({"b": np.ones((5, 4))}, "b must have shape"),
        ({"A": np.ones((5, 3, 6), dtype=np.int64)}, "float32 or float64"),
        ({"weights": -np.ones((5, 3))}, "weights must be"),
        ({"A": np.zeros((5, 3, 6))}, "a column is zero"),
        ({"A": np.ones((3, 6))}, "A must be"),
        ({"A": np.ones((5, 0, 6)), "b": np.ones((5, 0))}, "A must be"),
        ({"weights": np.array([[0.0, 0, 0], *[[1.0, 1, 1]] * 4])}, "a client is empty"),
    ],
)
def test_rows_that_cannot_be_used_are_refused(change: dict[str, Array], what: str) -> None:
    A, b, _, _ = drawn(fs.Logistic(), SHAPES["wide"], weighted=False)
    arrays = {"A": A, "b": b} | change
    placed = {name: xp.asarray(array, device=DEVICE) for name, array in arrays.items()}
    with pytest.raises(fs.InputError, match=what):
        fs.Problem(fs.Logistic(), fs.StackedRows(**placed))


def test_arrays_in_two_places_and_of_different_shapes_are_refused() -> None:
    A, b, _, _ = drawn(fs.Logistic(), SHAPES["wide"], weighted=False)
    rows = xp.asarray(A, device=DEVICE), xp.asarray(b, device=DEVICE)
    wrong: list[tuple[Any, str]] = [
        (fs.StackedRows(rows[0], b), "b is of type ndarray, and A of type Array"),
        (fs.StackedRows(A, b), "StackedRows has NumPy arrays"),
        ([(rows[0][0, :, :], rows[1][0, :]), (A[0], b[0])], "client 1: .* and these are not"),
        ([(rows[0][0, :, :], rows[1][0, :]), (rows[0][0, :, :2], rows[1][0, :])], "shapes"),
    ]
    for clients, what in wrong:
        with pytest.raises(fs.InputError, match=what):
            fs.Problem(fs.Logistic(), clients)


def test_padding_may_have_any_label() -> None:
    A, b, _, _ = drawn(fs.Logistic(), SHAPES["wide"], weighted=False)
    weights = np.ones_like(b)
    weights[0, 0] = 0.0
    b[0, 0] = 0.0
    placed = fs.StackedRows(*(xp.asarray(each, device=DEVICE) for each in (A, b, weights)))
    host = fs.Problem(fs.Logistic(), list(zip(A, b, weights, strict=True)))
    x = np.ones(6)
    assert fs.Problem(fs.Logistic(), placed).objective(x) == pytest.approx(host.objective(x))


def test_a_loss_without_a_device_path_is_refused() -> None:
    A, b, _, _ = drawn(fs.LeastSquares(), SHAPES["wide"], weighted=False)
    rows = fs.StackedRows(xp.asarray(A, device=DEVICE), xp.asarray(np.abs(b) + 1, device=DEVICE))
    with pytest.raises(fs.InputError, match="Gamma has no device path: use one of LeastSquares"):
        fs.Problem(fs.Gamma(), rows)


def test_devices_are_named_and_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = [(np.eye(2), np.ones(2))]
    with pytest.raises(fs.InputError, match="device 'tpu' is not known"):
        fs.Problem(fs.LeastSquares(), data, device="tpu")
    with pytest.raises(fs.InputError, match="sparse rows have no device path"):
        fs.Problem(fs.LeastSquares(), [(csr_array(np.eye(2)), np.ones(2))], device="cuda")
    with pytest.raises(fs.InputError, match="dtype is for rows on a device"):
        fs.Problem(fs.LeastSquares(), data, dtype="float32")
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(fs.InputError, match=r'device "cuda" needs CuPy: pip install'):
        fs.Problem(fs.LeastSquares(), data, device="cuda")
    with pytest.raises(fs.InputError, match="needs CuPy"):
        fs.ensembles.logistic(3, 2, 2, device="cuda")


def test_the_command_says_in_a_line_that_there_is_no_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert run(["compare", "--device", "cuda", "--ensemble", "logistic"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "needs CuPy" in captured.err
    assert len(captured.err.strip().splitlines()) == 1
    assert run(["compare", "--device", "cuda", "--ensemble", "spiked"]) == 2
    assert "is not drawn on a device: use one of isotropic" in capsys.readouterr().err


def test_methods_are_compared_on_a_device_as_in_this_process() -> None:
    methods = [("plain", METHODS["plain"]), ("fedprox", fs.FedProx(0.5)), ("fedgd", fs.FedGD())]
    seen: list[tuple[str, int]] = []
    runs = [
        compare(problem, methods, 40, lambda label, done, gap: seen.append((label, done)))
        for problem in both(ridge=1.0)
    ]
    for ours, theirs in zip(*runs, strict=True):
        assert ours.outcome == theirs.outcome
        np.testing.assert_allclose(ours.gaps, theirs.gaps, atol=1e-11)
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]


def test_a_users_module_with_the_name_of_an_array_library_is_in_nobodys_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sparse", ModuleType("sparse"))

    class Table:
        """Of a class that nobody has looked at before."""

    assert not on_device(Table())
    assert on_device(xp.zeros(1))
