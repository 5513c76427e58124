"""Runs that have no end, or did not reach it, say so; baselines find their own steps."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsplit as fs
from fedsplit.losses.linear import LinearLoss
from fedsplit.losses.systems import conjugate_gradients
from fedsplit.methods.method import Method
from fedsplit.penalties.penalty import Penalty
from problems import problem


@pytest.mark.parametrize("name", ["logistic", "huber"])
@pytest.mark.parametrize(
    ("method", "settings"),
    [(fs.DAvePG(), {"asynchronous": fs.Latency()}), (fs.FedGD(), {}), (fs.FedSplit(), {})],
)
def test_far_away_where_costs_are_flat_a_small_residual_is_no_convergence(
    name: str, method: Method[Any], settings: dict[str, Any]
) -> None:
    """At 1e6 a step of length 1 is small, and no Hessian is positive definite."""
    p = problem(name, [60, 70, 80], 4, seed=3)
    start = np.full(4, 1e6)
    with pytest.warns(fs.NotConverged):
        result = fs.solve(p, method, x0=start, tol=1e-3, rounds=200, **settings)
    assert p.objective(result.x) > 1e3 * p.objective(np.zeros(4))
    assert (result.stopped_by, result.converged) == ("rounds", False)


RAND = str(Path(__file__).parent.parent / "examples" / "randhie" / "*.csv")


def separated(classes: int = 2, ridge: Any = 0.0, seed: int = 0) -> fs.Problem:
    """Classes split by planes, over five clients."""
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((4, classes))
    data = []
    for _ in range(5):
        A = rng.standard_normal((40, 4))
        A[:, 0] = 1.0
        b = np.where(A @ W[:, 0] > 0, 1.0, -1.0)
        if classes > 2:
            b = np.argmax(A @ W, axis=1).astype(float)
        data.append((A, b))
    return fs.Problem(fs.Logistic() if classes == 2 else fs.Multinomial(classes), data, ridge)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("method", [None, fs.Newton(), fs.QuasiNewton(), fs.LBFGS()], ids=repr)
def test_separable_classes_end_a_run_soon(method: Method[Any] | None, classes: int) -> None:
    problem = separated(classes)
    with pytest.raises(fs.NoMinimiser, match="ridge, or fit with Firth") as caught:
        fs.solve(problem, method)
    error = caught.value
    assert error.result.rounds <= 20
    assert (problem.clients.ask(fs.questions.Margin(error.direction)).rows == 1.0).all()
    assert problem.objective(30.0 * error.direction) < 0.1 * problem.objective(np.zeros(problem.d))


@pytest.mark.parametrize("method", [fs.AGD(), fs.GIANT()], ids=repr)
def test_methods_without_margins_see_separable_classes_in_their_last_proof(
    method: Method[Any],
) -> None:
    with pytest.raises(fs.NoMinimiser):
        fs.solve(separated(), method)


def test_separable_classes_are_seen_with_some_clients_at_a_time() -> None:
    with pytest.raises(fs.NoMinimiser) as caught:
        fs.solve(separated(), participation=0.4)
    direction = caught.value.direction
    assert (separated().clients.ask(fs.questions.Margin(direction)).rows == 1.0).all()


def test_some_clients_whose_classes_are_separable_are_no_sign() -> None:
    rng = np.random.default_rng(1)
    data = []
    for j in range(6):
        A = rng.standard_normal((12, 3))
        b = np.where(A[:, 0] > 0, 1.0, -1.0)
        if j == 5:
            b = -b
        data.append((A, b))
    result = fs.solve(fs.Problem(fs.Logistic(), data), participation=0.2)
    assert result.converged


@pytest.mark.parametrize(
    ("ridge", "penalty"),
    [(1e-3, None), (np.array([0.0, 1e-3, 1e-3, 1e-3]), None), (0.0, fs.L1(0.1))],
    ids=["ridge", "partial", "l1"],
)
def test_what_bounds_x_makes_separable_classes_a_problem_with_a_minimiser(
    ridge: Any, penalty: Penalty | None
) -> None:
    assert fs.solve(separated(ridge=ridge), penalty=penalty).converged


def test_classes_that_are_nearly_separable_end_without_advice_to_run_on() -> None:
    rng = np.random.default_rng(1)
    A = rng.standard_normal((200, 4))
    A[:, 0] = 1.0
    A[:, 3] = rng.random(200) < 0.2
    b = np.where(rng.random(200) < 1.0 / (1.0 + np.exp(-A[:, 1])), 1.0, -1.0)
    b[A[:, 3] > 0] = 1.0  # a group with one class
    data = list(zip(np.array_split(A, 5), np.array_split(b, 5), strict=True))
    result = fs.solve(fs.Problem(fs.Logistic(), data))
    assert not result.converged
    assert result.rounds < 40
    assert "run more rounds" not in result.certificate.reason
    assert "Firth" in result.certificate.reason


def wide_open(loss: LinearLoss, seed: int = 0, scale: float = 1.0) -> fs.Problem:
    rng = np.random.default_rng(seed)
    data = []
    x = scale * rng.standard_normal(5) / np.sqrt(5)
    for _ in range(4):
        A = rng.standard_normal((60, 5))
        A[:, 0] = 1.0
        data.append((A, loss.sample(np.clip(A @ x, -4.0, 4.0), rng)))
    return fs.Problem(loss, data)


@pytest.mark.parametrize("loss", [fs.Poisson(), fs.Gamma()], ids=repr)
@pytest.mark.parametrize("penalty", [None, fs.L1(4.0)], ids=["plain", "l1"])
@pytest.mark.parametrize("method", [fs.GD(), fs.AGD()], ids=repr)
def test_gradient_methods_find_their_step_where_no_bound_holds_everywhere(
    method: Method[Any], penalty: Penalty | None, loss: LinearLoss
) -> None:
    problem = wide_open(loss, scale=3.0)
    x0 = np.full(5, -1.5)  # where F is much flatter, or steeper, than at the optimum
    best = fs.solve(problem, penalty=penalty, tol=1e-12)
    result = fs.solve(problem, method, penalty=penalty, x0=x0, rounds=1500)
    assert result.converged
    np.testing.assert_allclose(result.certificate.objective, best.certificate.objective, rtol=2e-9)


def test_the_trials_of_a_line_search_are_one_question_each_and_f_never_rises() -> None:
    result = fs.solve(wide_open(fs.Poisson()), fs.GD(), x0=np.full(5, -1.5), tol=0, rounds=60)
    objective = result.trace.objective
    assert (np.diff(objective) <= 1e-12 * np.abs(objective[0])).all()
    assert (result.trace.questions == 1).all()


def test_a_given_step_and_a_bound_that_holds_are_used_as_they_are() -> None:
    problem = wide_open(fs.Logistic())
    assert fs.solve(problem, fs.GD(step=0.01), tol=0, rounds=5).step == 0.01
    steps = {fs.solve(problem, fs.GD(), tol=0, rounds=n).step for n in (4, 8)}
    assert len(steps) == 1


def test_an_evaluation_has_the_value_at_a_second_point() -> None:
    problem = wide_open(fs.Poisson())
    x, trial = np.ones(5), np.linspace(0.0, 0.4, 5)
    both = problem.clients.ask(fs.questions.Evaluate(x, trial)).parts
    np.testing.assert_allclose(both["value_at_trial"].sum(), problem.objective(trial))
    np.testing.assert_allclose(both["value"].sum(), problem.objective(x))


def test_a_singular_hessian_does_not_stop_conjugate_gradients() -> None:
    rng = np.random.default_rng(0)
    B = rng.standard_normal((2, 3, 6))  # of rank 3 in 6 dimensions
    H = np.swapaxes(B, 1, 2) @ B
    G = rng.standard_normal((2, 6))
    diagonal = np.einsum("kii->ki", H)
    X = conjugate_gradients(lambda U: (H @ U[:, :, None])[:, :, 0], G, diagonal, 1e-10, flat=1e-3)
    assert (np.vecdot(G, X) > 0).all()
    assert np.linalg.norm(X) < 1e3 * np.linalg.norm(G)


def test_conjugate_gradients_solve_a_regular_system() -> None:
    rng = np.random.default_rng(0)
    B = rng.standard_normal((3, 20, 6))
    H = np.swapaxes(B, 1, 2) @ B
    G = rng.standard_normal((3, 6))
    diagonal = np.einsum("kii->ki", H)
    X = conjugate_gradients(lambda U: (H @ U[:, :, None])[:, :, 0], G, diagonal, 1e-10)
    np.testing.assert_allclose(X, np.linalg.solve(H, G[:, :, None])[:, :, 0], rtol=1e-6)


def test_giant_takes_clients_with_fewer_rows_than_columns() -> None:
    rng = np.random.default_rng(2)
    x = 0.5 * rng.standard_normal(12) / np.sqrt(12)
    data = []
    for n in rng.integers(8, 20, size=10):
        A = rng.standard_normal((n, 12))
        data.append((A, np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-A @ x)), 1.0, -1.0)))
    problem = fs.Problem(fs.Logistic(), data)
    least = problem.objective(problem.solution())
    result = fs.solve(problem, fs.GIANT(), rounds=300, tol=0)
    assert problem.objective(result.x) <= (1 + 1e-4) * least


def ill_conditioned(kappa: float, noise: float, seed: int) -> fs.Problem:
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.standard_normal((300, 20)))[0]
    V = np.linalg.qr(rng.standard_normal((20, 20)))[0]
    A = U * np.logspace(0, -np.log10(kappa) / 2, 20) @ V.T * np.sqrt(60)
    b = A @ rng.standard_normal(20) + noise * rng.standard_normal(300)
    return fs.Problem(fs.LeastSquares(), list(zip(np.split(A, 5), np.split(b, 5), strict=True)))


@pytest.mark.parametrize("noise", [1.0, 100.0])
@pytest.mark.parametrize("kappa", [1e4, 1e7, 1e10])
def test_conjugate_gradients_take_noisy_and_ill_conditioned_quadratics(
    kappa: float, noise: float
) -> None:
    for seed in range(2):
        problem = ill_conditioned(kappa, noise, seed)
        least = problem.objective(problem.solution())
        result = fs.solve(problem, fs.CG(), rounds=400)
        assert result.converged
        assert problem.objective(result.x) <= least * (1 + 1e-8)


def test_conjugate_gradients_still_refuse_what_is_not_quadratic() -> None:
    with pytest.raises(fs.InputError, match="not quadratic"):
        fs.solve(wide_open(fs.Poisson()), fs.CG())


def test_a_run_that_did_not_converge_says_so_first_and_warns() -> None:
    with pytest.warns(fs.NotConverged, match="not converged after 6 rounds"):
        result = fs.solve(wide_open(fs.Logistic()), fs.GD(), rounds=6)
    assert result.notes[0].startswith("not converged after 6 rounds")
    assert result.notes[1].startswith("method: ")


def test_runs_that_end_as_they_were_told_do_not_warn() -> None:
    problem = wide_open(fs.Logistic())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fs.solve(problem)
        fs.solve(problem, fs.GD(), tol=0, rounds=5)
        stopped = fs.solve(problem, fs.GD(), callbacks=[lambda row, state: True])
    assert stopped.notes[0].startswith("method: ")


def test_a_fit_by_gradients_is_right_or_says_that_it_is_not() -> None:
    formula = "mdvis ~ logc + female + physlm + disea + C(health)"
    with pytest.warns(fs.NotConverged, match="the fit did not converge"):
        model = fs.fit(RAND, formula, family="poisson", method="gd")
    assert model.pvalues is None
    assert str(model.summary()).startswith("NOT CONVERGED")
    assert "P>|z|" not in model.summary()
    assert model.warnings
    # and the line search has come close all the same
    assert model.params["C(health)[T.poor]"] == pytest.approx(0.235, abs=1e-3)


def test_a_fit_that_converged_has_its_p_values() -> None:
    model = fs.fit(RAND, "mdvis ~ logc + female", family="poisson")
    assert model.pvalues is not None
    assert not str(model.summary()).startswith("NOT CONVERGED")
