"""Proxes by minibatches and by drawn Hessians: where they lead, and whether their error is true."""

from typing import Any

import numpy as np
import pytest

import fedsplit as fs
from faulty import faulty
from fedsplit.arrays import Array, norms
from fedsplit.clients.questions import Curvature, Prox
from fedsplit.local import SOLVERS, ProxSolver
from fedsplit.loop.conversation import streams_of
from open.stochastic import StochasticProx
from open.subsampled_newton import SubsampledNewtonProx
from problems import clients, problem

SIZES = [12, 12, 12]


@pytest.fixture(autouse=True)
def sendable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients elsewhere know the solvers of CONTRIBUTING's table alone."""
    monkeypatch.setitem(SOLVERS, "stochastic", StochasticProx)
    monkeypatch.setitem(SOLVERS, "subsampled-newton", SubsampledNewtonProx)


def squares(d: int = 4) -> fs.Problem:
    """Least squares with rows."""
    return fs.Problem(fs.LeastSquares(rows=True), clients("least-squares", SIZES, d), ridge=0.5)


def proxes(p: fs.Problem, solver: ProxSolver, s: float = 0.1, seed: int = 0) -> tuple[Array, Array]:
    """How far each client's answer is from the prox, and the error that it states."""
    V = np.random.default_rng(5).standard_normal((p.m, p.d))
    exact = p.clients.ask(Prox(V, s, np.zeros(p.d), fs.ExactProx())).rows
    asked = Prox(V, s, np.zeros(p.d), solver).seeded(streams_of(seed, 1, p.m))
    answer = p.clients.ask(asked)
    return norms(answer.rows - exact), answer.error


@pytest.mark.parametrize("name", ["least-squares", "logistic", "multinomial", "huber"])
@pytest.mark.parametrize(
    "solver",
    [
        StochasticProx(1500, 4, "svrg"),
        StochasticProx(1500, 4, "saga"),
        SubsampledNewtonProx(40, 20),
        SubsampledNewtonProx(40, 20, "count"),
    ],
    ids=repr,
)
def test_with_reduced_variance_or_a_full_gradient_steps_lead_to_the_prox(
    name: str, solver: ProxSolver
) -> None:
    p = squares(4) if name == "least-squares" else problem(name, SIZES, 4, ridge=0.5)
    away, error = proxes(p, solver)
    assert away.max() < 1e-6
    assert (away <= error + 1e-12).all()


@pytest.mark.parametrize("name", ["least-squares", "logistic", "multinomial", "huber"])
@pytest.mark.parametrize("s", [0.01, 3.0])
def test_a_proved_error_is_never_below_the_true_one(name: str, s: float) -> None:
    p = squares(4) if name == "least-squares" else problem(name, SIZES, 4, ridge=0.5)
    solvers: list[ProxSolver] = [SubsampledNewtonProx(1, n, "count") for n in (1, 5)]
    solvers += [SubsampledNewtonProx(1, n) for n in (1, 5)]
    estimators: tuple[Any, ...] = ("svrg", "saga", "sgd")
    solvers += [StochasticProx(steps, 3, each) for each in estimators for steps in (1, 8)]
    for seed, solver in enumerate(solvers):
        away, error = proxes(p, solver, s, seed)
        assert (away <= (1.0 + 1e-9) * error + 1e-12).all()
        assert away.max() > 1e-9  # these are rough


def test_sgd_needs_a_hundred_times_the_steps_for_a_tenth_of_the_error() -> None:
    p = problem("logistic", [200] * 40, 3, ridge=1.0)
    few, many = (
        np.sqrt(np.mean(proxes(p, StochasticProx(steps, 5, "sgd"))[0] ** 2))
        for steps in (100, 10_000)
    )
    assert 5 < few / many < 20


@pytest.mark.parametrize("estimator", ["svrg", "saga"])
def test_started_at_the_broadcast_point_only_sgd_has_a_floor(estimator: Any) -> None:
    p = problem("logistic", [60, 60, 60], 4, ridge=1.0)
    best = p.objective(p.solution())
    gaps = [
        fs.solve(p, fs.FedSplit(prox=solver), rounds=60, tol=0).trace.objective[-1] - best
        for solver in (StochasticProx(20, 6, estimator), StochasticProx(20, 6, "sgd"))
    ]
    assert gaps[0] < 1e-10
    assert gaps[1] > 1e-5


def passes_to(p: fs.Problem, s: float, prox: ProxSolver, gap: float = 1e-6) -> float:
    """Passes over the data, all counted, until F(x) - F* is at most ``gap``."""
    best = p.objective(p.solution())
    method = fs.FedSplit(s, prox)
    trace = fs.solve(
        p, method, rounds=60, tol=0, callbacks=[lambda row, state: row.objective - best <= gap]
    ).trace
    assert trace.objective[-1] - best <= gap
    return float((trace.gradients + trace.hessians).sum()) / p.m


@pytest.mark.slow
def test_stochastic_proxes_need_fewer_passes_than_ten_gradient_steps_on_figure_3() -> None:
    p = fs.Problem(fs.Logistic(), fs.ensembles.logistic(10, 100, 1000, 1 / 100, 0).rows)
    ell = float(p.clients.ask(Curvature(p.solution())).rows[:, 0].min())
    L = float(p.clients.ask(Curvature()).rows[:, 1].max())
    s = fs.theory.fedsplit_step(ell, L)
    ten = passes_to(p, s, fs.GradientProx(10))
    for solver in (
        StochasticProx(),
        StochasticProx(estimator="saga"),
        SubsampledNewtonProx(),
        SubsampledNewtonProx(sketch="count"),
    ):
        assert passes_to(p, s, solver) < 0.6 * ten


def test_an_estimated_error_is_too_small_in_at_most_its_stated_share_of_cases() -> None:
    p = problem("logistic", [300] * 250, 3, ridge=1.0)
    below = 0
    for seed in range(4):
        solver = StochasticProx(30, 10, check=50, confidence=0.9)
        away, error = proxes(p, solver, seed=seed)
        below += int((error < away).sum())
        assert np.median(error / np.maximum(away, 1e-12)) < 1e3
    assert below <= 0.1 * 1000


def test_a_stochastic_prox_is_the_same_wherever_clients_are() -> None:
    p = problem("logistic", [30, 40, 25], 3, ridge=1.0)
    for solver in (StochasticProx(6, 5), SubsampledNewtonProx(rows=8, sketch="count")):
        method = fs.FedSplit(0.1, solver)
        here = fs.solve(p, method, rounds=6, tol=0, seed=4)
        elsewhere = fs.solve(faulty(p), method, rounds=6, tol=0, seed=4)
        np.testing.assert_array_equal(here.x, elsewhere.x)
