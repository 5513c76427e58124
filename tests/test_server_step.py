"""The server's own problem with a coordinatewise penalty, against its optimality conditions."""

import numpy as np
import pytest

import fedsplit as fs
from fedsplit.methods.server_step import Expansions, minimise_coordinatewise, proximal_gradient
from fedsplit.penalties.penalty import Penalty


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "penalty",
    [fs.L1(3.0), fs.ElasticNet(2.0, 0.5), fs.Box(-0.1, 0.2), fs.NonNegative()],
    ids=["lasso", "elastic net", "box", "nonnegative"],
)
def test_the_minimiser_is_that_of_proximal_gradient_steps(penalty: Penalty, seed: int) -> None:
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((60, 20)) * np.geomspace(1.0, 100.0, 20)
    H = A.T @ A
    b = A.T @ rng.standard_normal(60) * 3.0
    found = minimise_coordinatewise(H, b, penalty, rng.standard_normal(20), 1e-12)
    assert found is not None
    x, slope = found
    np.testing.assert_allclose(H @ x + slope, b, atol=1e-9 * np.abs(b).max())
    np.testing.assert_allclose(penalty.prox(x + slope, 1.0), x, atol=1e-9)
    scale = np.sqrt(np.diag(H))
    steps = 1.0 / (np.linalg.eigvalsh(H / np.outer(scale, scale))[-1] * scale**2)
    slow, _ = proximal_gradient(H, b, penalty, np.zeros(20), steps, 1e-13)
    np.testing.assert_allclose(x, slow, atol=1e-8 * np.abs(x).max())
    np.testing.assert_array_equal(x == 0, slow == 0)


def test_from_the_minimiser_it_stays_there() -> None:
    H = np.array([[2.0, 0.5], [0.5, 1.0]])
    b = np.array([3.0, 0.2])
    first = minimise_coordinatewise(H, b, fs.L1(1.0), np.zeros(2), 1e-12)
    assert first is not None
    again = minimise_coordinatewise(H, b, fs.L1(1.0), first[0], 1e-12)
    assert again is not None
    np.testing.assert_allclose(again[0], [1.0, 0.0], atol=1e-15)


def test_clients_that_have_not_answered_are_taken_for_the_mean_of_the_others() -> None:
    rng = np.random.default_rng(4)
    d = 3
    roots = rng.standard_normal((4, d, d))
    B = roots @ roots.transpose(0, 2, 1)
    p, y = rng.standard_normal((2, 4, d))
    heard = np.array([True, False, True, True])
    x = rng.standard_normal(d)
    models = Expansions(p, y, B, heard)
    own = [y[j] + B[j] @ (x - p[j]) for j in (0, 2, 3)]
    np.testing.assert_allclose(models.gradients(x)[[0, 2, 3]], own)
    assert not models.gradients(x)[1].any()
    np.testing.assert_allclose(models.gradient(x), 4 / 3 * np.sum(own, axis=0))
    np.testing.assert_allclose(models.hessian(), 4 / 3 * (B[0] + B[2] + B[3]))
    # so that the minimiser is that of the clients heard alone
    ahead, slope = models.minimiser(x, None)
    np.testing.assert_allclose(models.of(heard).gradient(ahead), 0.0, atol=1e-9)
    assert not slope.any()
    assert not models.are_at(x)
    assert not models._replace(p=np.tile(x, (4, 1))).are_at(x)
    assert models._replace(p=np.tile(x, (4, 1))).of(heard).are_at(x)
