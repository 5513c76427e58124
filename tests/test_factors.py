"""What is kept instead of solved again, and what is estimated where there are many coordinates."""

import numpy as np
import pytest

import fedsplit as fs
from fedsplit.arrays import Array, matvec
from fedsplit.clients.questions import Curvature, Diagonal, Prox
from fedsplit.losses import costs, factors
from fedsplit.losses.work import counter
from problems import problem


def definite(k: int, d: int) -> Array:
    B = np.random.default_rng(0).standard_normal((k, 2 * d, d))
    return np.swapaxes(B, 1, 2) @ B


@pytest.mark.parametrize("many", [3, 512])
def test_factors_of_any_size_are_inverses(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factors, "MANY", many)
    M, G = definite(4, 6), np.random.default_rng(1).standard_normal((4, 6))
    solution = np.linalg.solve(M, G[:, :, None])[:, :, 0]
    np.testing.assert_allclose(factors.solve_definite(M, G), solution, rtol=1e-12)
    np.testing.assert_allclose(factors.factored(M.copy())(G), solution, rtol=1e-12)
    monkeypatch.setattr(factors, "FEW", 3)
    np.testing.assert_allclose(factors.solve_definite(M, G), solution, rtol=1e-12)
    np.testing.assert_allclose(factors.solve_definite(-M, G), -solution, rtol=1e-12)


def test_products_show_the_largest_eigenvalue_and_one_above_the_smallest() -> None:
    M = definite(3, 40)
    spectrum = np.linalg.eigvalsh(M)
    low, high = factors.lanczos(lambda U: matvec(M, U), 3, 40)
    np.testing.assert_allclose(high, spectrum[:, -1], rtol=1e-3)
    assert (low >= spectrum[:, 0]).all()
    assert (low <= spectrum.mean(axis=1)).all()


def test_the_first_step_with_many_coordinates_needs_no_factorisation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(costs, "MANY", 5)
    for sizes in ([40, 60], [4, 3]):
        p = problem("logistic", sizes, 6, ridge=0.1)
        before = counter.read()
        look = p.clients.ask(Diagonal(np.zeros(6)))
        assert counter.read().factorisations == before.factorisations
        bounds = p.clients.ask(Curvature(np.zeros(6))).rows
        np.testing.assert_allclose(look.parts["largest"], bounds[:, 1], rtol=1e-6)


def test_one_product_of_the_rows_serves_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    p = problem("logistic", [4, 4], 9)
    made = []

    def transposed(A: Array, *axes: int) -> Array:
        made.append(axes)
        return A.transpose(0, 2, 1)

    monkeypatch.setattr(np, "swapaxes", transposed)
    for s in (0.1, 0.7, 3.0):
        p.clients.ask(Prox(np.ones((2, 9)), s, np.zeros(9), fs.NewtonProx()))
    assert len(made) == 1
