"""Random regressions and random starts; ``make bench-rounds`` runs many more."""

import numpy as np
import pytest

import fedsplit as fs
from random_problems import attempt, random_glm, random_start


@pytest.mark.parametrize("seed", range(50))
def test_from_a_random_start_information_ends_at_the_optimum(seed: int) -> None:
    outcome = attempt(random_start(seed), fs.FedSplitInformation())
    assert not outcome.failed, outcome


@pytest.mark.parametrize("seed", range(30))
def test_information_solves_every_random_regression_that_newton_solves(seed: int) -> None:
    outcome = attempt(random_glm(seed), fs.FedSplitInformation())
    assert not outcome.failed, outcome


def test_a_start_that_is_worse_than_0_and_all_the_way_there_is_left_for_0() -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((90, 3))
    b = rng.poisson(np.exp(A @ [0.3, -0.2, 0.1])).astype(float)
    p = fs.Problem(fs.Poisson(), list(zip(np.split(A, 3), np.split(b, 3), strict=True)))
    result = fs.solve(p, fs.FedSplitInformation(), x0=np.array([2.0, -40.0, 9.0]))
    assert result.converged
    np.testing.assert_allclose(result.x, p.solution(), atol=1e-5)


def test_a_start_beyond_float64_is_no_obstacle() -> None:
    rng = np.random.default_rng(1)
    A = rng.standard_normal((60, 2)) * [1.0, 1e3]
    b = rng.gamma(2.0, size=60)
    p = fs.Problem(fs.Gamma(), list(zip(np.split(A, 3), np.split(b, 3), strict=True)))
    assert p.objective(np.array([5.0, 5.0])) == np.inf
    assert fs.solve(p, fs.FedSplitInformation(), x0=np.array([5.0, 5.0])).converged


@pytest.mark.parametrize("seed", [160, 335])
def test_a_newton_step_that_has_to_be_a_millionth_as_long_is_found_on_its_line(seed: int) -> None:
    outcome = attempt(random_glm(seed), fs.FedSplitInformation())
    assert outcome.converged, outcome
    assert outcome.questions <= 20
