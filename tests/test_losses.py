"""Every loss: its derivatives, its curvature, its values at the edge of float64."""

import warnings
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given

import fedsplit as fs
from fedsplit.arrays import Array
from problems import LOSSES, clients, dimensions, names, problem, ridges, seeds, sizes


def differences(f: Callable[[Array], Array], x: Array, h: float = 1e-6) -> Array:
    """Central differences of a function of x, one row a coordinate."""
    return np.stack([(f(x + e) - f(x - e)) / (2 * h) for e in h * np.eye(x.size)])


@given(names, sizes, dimensions, seeds, ridges)
def test_gradient_is_the_derivative_of_the_value(name: str, n: list[int], d: int, seed: int, ridge: float) -> None:
    p = problem(name, n, d, seed, ridge)
    x = 0.5 * np.random.default_rng(seed).standard_normal(d)
    numeric = differences(lambda y: p.clients.value(y).rows, x)
    np.testing.assert_allclose(p.clients.gradient(x).rows, numeric.T, rtol=1e-5, atol=1e-5 * (1 + abs(numeric).max()))


@given(names, sizes, dimensions, seeds, ridges)
def test_hessian_is_the_derivative_of_the_gradient(name: str, n: list[int], d: int, seed: int, ridge: float) -> None:
    p = problem(name, n, d, seed, ridge)
    x = 0.5 * np.random.default_rng(seed).standard_normal(d)
    if name == "huber":  # away from the kinks of the slope, where there is no second derivative
        kinks = [abs(abs(A @ x - b) - 0.7).min() for A, b, _ in clients(name, n, d, seed)]
        if min(kinks) < 1e-4:
            return
    numeric = np.moveaxis(differences(lambda y: p.clients.gradient(y).rows, x), 0, 2)
    np.testing.assert_allclose(p.clients.information(x).rows, numeric, rtol=1e-5, atol=1e-5 * (1 + abs(numeric).max()))


@given(names, sizes, dimensions, seeds, ridges)
def test_global_curvature_bounds_the_local_one(name: str, n: list[int], d: int, seed: int, ridge: float) -> None:
    p = problem(name, n, d, seed, ridge)
    bounds = p.clients.curvature().rows
    for x in np.random.default_rng(seed).standard_normal((5, d)):
        local = p.clients.curvature(x).rows
        assert (bounds[:, 0] <= local[:, 0] * (1 + 1e-9) + 1e-12).all()
        assert (bounds[:, 1] >= local[:, 1] * (1 - 1e-9) - 1e-12).all()
        H = p.clients.information(x).rows
        np.testing.assert_allclose(local[:, 1], np.linalg.eigvalsh(H)[:, -1], rtol=1e-9)


def test_least_squares_curvature_is_the_spectrum_of_the_gram_matrix() -> None:
    p = problem("least-squares", [30, 4], 6, ridge=2.0)
    H = p.clients.information(np.zeros(6)).rows
    spectrum = np.linalg.eigvalsh(H)
    np.testing.assert_allclose(p.clients.curvature().rows, spectrum[:, [0, -1]], rtol=1e-10)


@pytest.mark.parametrize("coding", [(-1, 1), (0, 1), (False, True)])
def test_logistic_is_exact_at_huge_margins_in_every_coding(coding: tuple[int, int]) -> None:
    A = np.array([[1.0], [1.0]])
    p = fs.Problem(fs.Logistic(), [(A, np.array([coding[1], coding[0]]))])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for x in (1e4, -1e4):
            assert p.objective(np.array([x])) == 1e4
            assert p.gradient(np.array([x])) == np.sign(x)
    assert p.objective(np.zeros(1)) == pytest.approx(2 * np.log(2), rel=1e-15)


def test_logistic_keeps_the_digits_of_a_tiny_loss() -> None:
    p = fs.Problem(fs.Logistic(), [(np.ones((1, 1)), [1])])
    assert p.objective(np.array([40.0])) == pytest.approx(np.exp(-40.0), rel=1e-14)
    assert p.gradient(np.array([40.0]))[0] == pytest.approx(-np.exp(-40.0), rel=1e-14)


def test_poisson_is_infinite_where_the_truth_exceeds_float64() -> None:
    A = np.array([[1.0, 0.0, 2.0], [-1.0, 0.5, 0.0], [0.0, 1.0, 1.0]])
    p = fs.Problem(fs.Poisson(), [(A, [1, 2, 0])])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = np.array([800.0, 1.0, 0.0])
        assert p.objective(x) == np.inf
        g = p.gradient(x)
    # e^800 stands in the first and third coordinates only; the second is e^1 - 0 + (e^-799.5 - 2)/2
    assert g[0] == np.inf
    assert g[2] == np.inf
    assert g[1] == pytest.approx(np.e - 1.0, rel=1e-14)


def test_poisson_gradient_has_the_sign_of_the_larger_of_two_overflows() -> None:
    p = fs.Problem(fs.Poisson(), [(np.array([[1.0, 1.0], [1.0, -1.0]]), [1, 1])])
    assert list(p.gradient(np.array([800.0, 5.0]))) == [np.inf, np.inf]
    assert list(p.gradient(np.array([800.0, -5.0]))) == [np.inf, -np.inf]


def test_huber_is_quadratic_inside_and_linear_outside() -> None:
    p = fs.Problem(fs.Huber(2.0), [(np.ones((1, 1)), [0.0])])
    assert p.objective(np.array([1.5])) == pytest.approx(1.125, rel=1e-15)
    assert p.objective(np.array([-5.0])) == pytest.approx(2 * 5 - 2, rel=1e-15)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_objective_sums_over_all_observations_and_adds_the_ridge_once(name: str) -> None:
    data = clients(name, [17, 33, 2], 3, 7)
    x = np.array([0.3, -0.2, 0.1])
    loss = LOSSES[name][0]
    pooled = sum(np.sum(w * loss.value(A @ x, b)) for A, b, w in data)
    whole = fs.Problem(loss, data, ridge=5.0)
    assert whole.objective(x) == pytest.approx(pooled + 2.5 * x @ x, rel=1e-13)


def test_a_ridge_may_differ_by_coordinate() -> None:
    p, plain = (problem("logistic", [20, 9], 3, ridge=r) for r in (np.array([0.0, 1.0, 2.0]), 0.0))
    x = np.array([0.3, -0.2, 0.1])
    assert p.objective(x) == pytest.approx(plain.objective(x) + 0.5 * (0.04 + 2 * 0.01), rel=1e-14)


def test_float32_and_integers_are_computed_in_float64() -> None:
    rng = np.random.default_rng(0)
    A, b = rng.integers(-3, 4, size=(30, 3)), rng.integers(0, 9, size=30)
    answers = [
        fs.Problem(fs.LeastSquares(), [(A.astype(t), b.astype(t))]).solution()
        for t in (np.int8, np.int64, np.float32, np.float64)
    ]
    for x in answers:
        assert x.dtype == np.float64
        np.testing.assert_array_equal(x, answers[-1])


def test_least_squares_value_keeps_its_digits_near_the_optimum() -> None:
    data = fs.ensembles.isotropic(m=5, d=20, n=300, seed=3).clients
    p = fs.Problem(fs.LeastSquares(), data)
    x = p.solution()
    residuals = np.concatenate([A @ x - b for A, b in data])
    assert p.objective(x) == pytest.approx(0.5 * float(residuals @ residuals), rel=1e-14)


def test_curvature_constants_are_those_of_the_gram_matrix() -> None:
    for name, factor in (("logistic", 0.25), ("huber", 1.0)):
        ridge = np.array([0.0, 3.0, 9.0])
        data = clients(name, [30, 2], 3)
        top = [np.linalg.eigvalsh((A * w[:, None]).T @ A)[-1] for A, _, w in data]
        bounds = fs.Problem(LOSSES[name][0], data, ridge).clients.curvature().rows
        np.testing.assert_allclose(bounds[:, 1], factor * np.array(top) + 4.5, rtol=1e-12)  # 9/m
        np.testing.assert_array_equal(bounds[:, 0], [0.0, 0.0])  # the smallest ridge is 0


def test_poisson_sums_of_huge_slopes_neither_warn_nor_become_nan() -> None:
    cases = [
        ([[10.0, 1.0], [-10.0, 1.0]], [0.0, 709.5], [0.0, np.inf]),  # each slope is finite, their sum is not
        ([[-10.0, 0.0], [1.0, 1.0]], [-70.95, 2000.0], [np.inf, np.inf]),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for A, x, truth in cases:
            p = fs.Problem(fs.Poisson(), [(np.array(A), [1, 1])])
            np.testing.assert_array_equal(p.gradient(np.array(x)), truth)
            assert p.objective(np.array(x)) == np.inf
        assert fs.Problem(fs.Poisson(), [([[10.0]], [1])]).objective(np.array([1e308])) == np.inf
