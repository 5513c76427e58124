"""Losses that are not ours: a function of the user's own, and a CVXPY expression."""

import subprocess
import sys
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import fedsplit as fs
from fedsplit.arrays import Array
from fedsplit.losses.terms import Loss
from fedsplit.methods.method import State
from fedsplit.rounds.trace import Row
from problems import Client, clients

DATA = clients("logistic", [30, 8, 3], 3, seed=2)


def value(x: Array, data: Client) -> float:
    A, b, w = data
    return float(np.sum(w * np.logaddexp(0, -b * (A @ x))))


def gradient(x: Array, data: Client) -> Array:
    A, b, w = data
    return np.asarray(A.T @ (-w * b / (1 + np.exp(b * (A @ x)))))


def hessian(x: Array, data: Client) -> Array:
    A, _, w = data
    p = 1 / (1 + np.exp(-(A @ x)))
    return np.asarray((A * (w * p * (1 - p))[:, None]).T @ A)


def curvature(data: Client) -> tuple[float, float]:
    A, _, w = data
    return 0.0, float(np.linalg.eigvalsh((A * w[:, None]).T @ A)[-1]) / 4


def expression(x: Any, data: Client) -> Any:
    A, b, w = data
    return cp.sum(cp.multiply(w, cp.logistic(-cp.multiply(b, A @ x))))


OWN: dict[str, Loss] = {
    "with a Hessian": fs.CustomLoss(value, gradient, 3, hessian, curvature),
    "without a Hessian": fs.CustomLoss(value, gradient, 3),
    "a CVXPY expression": fs.CvxpyLoss(expression, 3),
}


@pytest.mark.parametrize("kind", OWN)
def test_the_users_own_logistic_loss_is_ours(kind: str) -> None:
    own, ours = fs.Problem(OWN[kind], DATA, ridge=0.5), fs.Problem(fs.Logistic(), DATA, ridge=0.5)
    x = np.array([0.3, -1.0, 0.2])
    assert own.objective(x) == pytest.approx(ours.objective(x), rel=1e-12)
    np.testing.assert_allclose(own.gradient(x), ours.gradient(x), rtol=1e-9)
    np.testing.assert_allclose(
        own.clients.information(x).rows, ours.clients.information(x).rows, rtol=1e-6, atol=1e-8
    )
    np.testing.assert_allclose(own.solution(), ours.solution(), rtol=1e-9)
    V = np.random.default_rng(0).standard_normal((3, 3))
    a, b = (p.clients.prox(V, 0.7, np.zeros(3), fs.ExactProx()) for p in (own, ours))
    np.testing.assert_allclose(a.rows, b.rows, rtol=1e-11)
    result = fs.solve(own, fs.FedSplit(step=0.3), rounds=500)
    np.testing.assert_allclose(result.x, ours.solution(), rtol=1e-6)


def test_given_curvature_sets_the_step() -> None:
    own, ours = fs.Problem(OWN["with a Hessian"], DATA, 0.5), fs.Problem(fs.Logistic(), DATA, 0.5)
    assert fs.solve(own, rounds=2).step == pytest.approx(fs.solve(ours, rounds=2).step, rel=1e-12)


def test_unknown_curvature_takes_the_local_one_and_a_line_search() -> None:
    own = fs.Problem(OWN["without a Hessian"], DATA, 0.5)
    result = fs.solve(own, fs.FedSplit(prox=fs.GradientProx(10)), rounds=2000, tol=1e-11)
    np.testing.assert_allclose(result.x, own.solution(), rtol=1e-6)


def test_a_cvxpy_expression_can_be_solved_by_cvxpy() -> None:
    own = fs.Problem(OWN["a CVXPY expression"], DATA, ridge=0.5)
    result = fs.solve(own, fs.FedSplit.plain(step=0.3, prox=fs.CvxpyProx()), rounds=30, tol=0)
    np.testing.assert_allclose(result.x, own.solution(), atol=1e-3)


def test_an_expression_that_is_not_convex_is_refused() -> None:
    with pytest.raises(fs.InputError, match="client 0: the expression must be scalar and convex"):
        fs.Problem(fs.CvxpyLoss(lambda x, data: -cp.sum_squares(x), 2), [None])
    with pytest.raises(fs.InputError, match="client 0: the expression must be scalar and convex"):
        fs.Problem(fs.CvxpyLoss(lambda x, data: x, 2), [None])


def test_wrong_shapes_of_the_users_functions_are_named() -> None:
    with pytest.raises(fs.InputError, match=r"client 0: gradient must return shape \(2,\)"):
        fs.Problem(fs.CustomLoss(lambda x, data: 0.0, lambda x, data: np.zeros(3), 2), [None])
    bad = fs.CustomLoss(
        lambda x, data: 0.0, lambda x, data: np.zeros(2), 2, lambda x, data: np.eye(3)
    )
    with pytest.raises(fs.InputError, match=r"client 0: hessian must return shape \(2, 2\)"):
        fs.Problem(bad, [None]).solution()


def test_bad_custom_problems_are_refused() -> None:
    own = OWN["with a Hessian"]
    with pytest.raises(fs.InputError, match="there is no client"):
        fs.Problem(own, [])
    with pytest.raises(fs.InputError, match="d must be a whole number of at least 1"):
        fs.Problem(fs.CustomLoss(value, gradient, 0), DATA)
    infinite = fs.CustomLoss(lambda x, data: 0.0, lambda x, data: np.full(2, np.nan), 2)
    with pytest.raises(
        fs.InputError, match="client 0: the value or the gradient at x = 0 is not a number"
    ):
        fs.Problem(infinite, [None])


@pytest.mark.parametrize(
    "data",
    [
        clients("least-squares", [30, 8, 20], 3, seed=4),
        fs.ensembles.spiked(m=4, d=20, n=40, kappa=1e3).clients,
    ],
    ids=["small", "spiked"],
)
def test_rounds_are_the_same_whoever_wrote_the_quadratic(data: list[Any]) -> None:
    ours = fs.Problem(fs.LeastSquares(), data)
    m, d = ours.m, ours.d
    H, c = ours.clients.information(np.zeros(d)).rows, -ours.clients.gradient(np.zeros(d)).rows
    own = fs.Problem(
        fs.CustomLoss(
            lambda x, j: float(0.5 * x @ H[j] @ x - c[j] @ x),
            lambda x, j: H[j] @ x - c[j],
            d,
            lambda x, j: H[j],
        ),
        range(m),
    )
    best = ours.solution()
    for method in (fs.FedSplit(), fs.FedSplit.plain(0.05)):
        counts = []
        for p in (own, ours):

            def near(row: Row, state: State) -> bool:
                return bool(np.linalg.norm(state.x - best) <= 1e-8)

            counts.append(fs.solve(p, method, rounds=1000, tol=0, callbacks=[near]).rounds)
        assert abs(counts[0] - counts[1]) <= 2
        assert max(counts) < 1000


def test_the_library_works_without_the_extra_and_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['cvxpy'] = None\n"
        "import fedsplit as fs\n"
        "try: fs.CvxpyProx()\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "fedsplit.CvxpyProx needs CVXPY: pip install 'fedsplit[cvx]'\n"
