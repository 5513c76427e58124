"""Data that determine only some directions, and columns on all scales: optimum and proof."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedsplit as fs
from fedsplit.arrays import Array
from fedsplit.losses.linear import LinearLoss
from fedsplit.methods.method import Method

LOSSES = [fs.LeastSquares(), fs.Logistic(), fs.Poisson()]


def grouped(loss: LinearLoss, seed: int = 0, rotated: bool = True) -> tuple[Array, Array]:
    """An intercept beside a dummy for each of four groups, and numbers of three scales."""
    rng = np.random.default_rng(seed)
    groups = np.eye(4)[rng.integers(4, size=600)]
    A = np.column_stack([np.ones(600), groups, rng.standard_normal((600, 3)) * [1.0, 30.0, 0.01]])
    x = np.array([0.15, 0.1, -0.05, 0.2, 0.0, 0.25, 0.005, 10.0])
    b = loss.sample(A @ x, rng)
    if rotated:
        A = A @ np.linalg.qr(rng.standard_normal((8, 8)))[0]
    return A, b


def over_four(loss: LinearLoss, A: Array, b: Array, ridge: float = 0.0) -> fs.Problem:
    return fs.Problem(
        loss, list(zip(np.array_split(A, 4), np.array_split(b, 4), strict=True)), ridge
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_a_rank_deficient_problem_ends_at_the_optimum_with_a_proof(
    loss: LinearLoss, seed: int
) -> None:
    A, b = grouped(loss, seed)
    result = fs.solve(over_four(loss, A, b))
    assert result.stopped_by == "certificate"
    assert 2 <= result.rounds <= 5
    assert "in the 7 of 8 directions that the data determine to rounding" in (
        result.certificate.reason
    )
    assert result.certificate.distance is None  # there are many minimisers
    # the same rows without the dummy of one group, which determine x
    A, b = grouped(loss, seed, rotated=False)
    A = np.delete(A, 1, axis=1)
    full = fs.solve(over_four(loss, A, b), tol=1e-12)
    gap = result.certificate.gap
    assert gap is not None
    excess = result.certificate.objective - full.certificate.objective
    assert excess <= gap + 1e-9 * abs(full.certificate.objective)


@pytest.mark.parametrize("method", [fs.Newton(), fs.QuasiNewton(), fs.LBFGS()], ids=repr)
def test_other_methods_prove_it_by_the_pooled_hessian(method: Method[Any]) -> None:
    A, b = grouped(fs.Logistic())
    result = fs.solve(over_four(fs.Logistic(), A, b), method, tol=1e-6, rounds=400)
    assert result.converged
    assert "7 of 8 directions" in result.certificate.reason


def test_a_ridge_makes_the_proof_an_ordinary_one() -> None:
    A, b = grouped(fs.Logistic())
    result = fs.solve(over_four(fs.Logistic(), A, b, ridge=1e-3))
    assert result.converged
    assert result.certificate.reason == "self-concordance"
    assert result.certificate.distance is not None


def test_nothing_is_proved_where_only_this_hessian_is_singular() -> None:
    # All residuals of Huber's loss are large at 0: its Hessian is 0 there, but not elsewhere.
    rng = np.random.default_rng(3)
    A = rng.standard_normal((40, 3))
    b = 100.0 + rng.standard_normal(40)
    problem = over_four(fs.Huber(0.1), A, b)
    assert not problem.clients.pooled_information(np.zeros(3)).any()
    assert fs.certify(problem.clients, np.zeros(3)).gap is None


def test_a_gradient_along_the_kernel_is_no_optimum() -> None:
    # At large predictors a logistic Hessian underflows, while F still falls.
    rng = np.random.default_rng(2)
    A = rng.standard_normal((40, 2))
    b = np.where(A[:, 0] > 0, 1.0, -1.0)
    b[:4] *= -1.0
    problem = over_four(fs.Logistic(), A, b)
    proof = fs.certify(problem.clients, np.array([1e6, 0.0]))
    assert proof.gap is None
    assert "add a ridge" in proof.reason


@pytest.mark.parametrize("digits", [9, 11, 13])
def test_columns_that_differ_in_late_digits_are_not_proved_away(digits: int) -> None:
    # The data do determine the difference of two columns, and F falls along it by much.
    rng = np.random.default_rng(digits)
    z, other = 1.0 + rng.random(200), rng.standard_normal(200)
    A = np.column_stack([z, z + 10.0**-digits * other])
    b = z + 0.5 * other + rng.standard_normal(200)
    best = np.linalg.lstsq(np.column_stack([z, other]), b)[0]
    least = 0.5 * np.sum(np.square(b - np.column_stack([z, other]) @ best))
    result = fs.solve(over_four(fs.LeastSquares(), A, b), rounds=30)
    assert result.certificate.objective - least > 1.0
    assert not result.converged


@pytest.mark.parametrize("digits", [3, 5, 6])
def test_predictors_that_cancel_count_in_the_proof(digits: int) -> None:
    for seed in range(4):
        rng = np.random.default_rng([digits, seed])
        z, other = 1.0 + rng.random(200), rng.standard_normal(200)
        near = z + 10.0**-digits * other
        A = np.column_stack([z, near])
        b = z + 0.5 * other + rng.standard_normal(200)
        exact = np.column_stack([z, (near - z) * 10.0**digits])  # the difference is exact
        best = np.linalg.lstsq(exact, b)[0]
        least = 0.5 * float(np.sum(np.square(b - exact @ best)))
        result = fs.solve(over_four(fs.LeastSquares(), A, b), rounds=30)
        gap = result.certificate.gap
        assert gap is not None
        eta = A.astype(np.longdouble) @ result.x.astype(np.longdouble)
        true = float(0.5 * np.sum(np.square(eta - b))) - least
        assert true <= gap + 1e-12 * least


@pytest.mark.parametrize("loss", [*LOSSES, fs.Gamma()], ids=repr)
def test_columns_over_sixteen_orders_of_magnitude_are_proved(loss: LinearLoss) -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((400, 6))
    A[:, 0] = 1.0
    b = loss.sample(A @ (0.4 * rng.standard_normal(6)), rng)
    A *= 10.0 ** np.linspace(-8, 8, 6)
    result = fs.solve(over_four(loss, A, b))
    assert result.stopped_by == "certificate"
    assert result.rounds <= 8
