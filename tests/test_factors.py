"""Linear systems with Hessians: any scale, any rank, and what is stored instead of solved again."""

import numpy as np
import pytest

import fedsplit as fs
from fedsplit.arrays import Array, Factors, extreme_eigenvalues, matvec, norms
from fedsplit.clients.questions import Prox
from fedsplit.losses.designs import DenseDesign
from fedsplit.losses.systems import Latest, Woodbury, conjugate_gradients
from problems import problem


def definite(k: int, d: int, seed: int = 0) -> Array:
    B = np.random.default_rng(seed).standard_normal((k, 2 * d, d))
    return np.swapaxes(B, 1, 2) @ B


def right_sides(k: int, d: int) -> Array:
    return np.random.default_rng(1).standard_normal((k, d))


@pytest.mark.parametrize("small", [3, 24])
@pytest.mark.parametrize("largest", [3, 512])
def test_factors_of_any_size_are_inverses(small: int, largest: int) -> None:
    M, G = definite(4, 6), right_sides(4, 6)
    before = M.copy()
    solution = np.linalg.solve(M, G[:, :, None])[:, :, 0]
    factors = Factors(M, small=small, largest=largest)
    np.testing.assert_allclose(factors.solve(G), solution, rtol=1e-12)
    np.testing.assert_allclose(factors.inverted().solve(G), solution, rtol=1e-12)
    np.testing.assert_array_equal(M, before)
    assert not factors.singular.any()


def test_columns_over_sixteen_orders_of_magnitude_are_solved() -> None:
    C, G = definite(3, 5), right_sides(3, 5)
    scale = 10.0 ** np.linspace(-8, 8, 5)
    M = scale[:, None] * C * scale
    solution = np.linalg.solve(C, (G / scale)[:, :, None])[:, :, 0] / scale
    np.testing.assert_allclose(Factors(M).solve(G), solution, rtol=1e-11)


@pytest.mark.parametrize("small", [2, 24])
def test_a_matrix_with_digits_left_is_not_taken_for_a_singular_one(small: int) -> None:
    for condition in (1e4, 1e8, 1e12):
        Q = np.linalg.qr(definite(1, 5)[0])[0]
        M = (Q * np.geomspace(1.0, 1.0 / condition, 5)) @ Q.T
        exact = np.ones(5)
        factors = Factors(M[None], small=small)
        assert not factors.singular[0]
        solution = factors.solve((M @ exact)[None])[0]
        np.testing.assert_allclose(solution, exact, atol=1e-14 * condition)


@pytest.mark.parametrize("small", [2, 24])
@pytest.mark.parametrize("inverted", [False, True])
def test_a_singular_matrix_has_its_pseudo_inverse_and_its_neighbours_their_inverses(
    small: int, inverted: bool
) -> None:
    rng = np.random.default_rng(2)
    M, G = definite(3, 5), right_sides(3, 5)
    B = rng.standard_normal((8, 3)) @ rng.standard_normal((3, 5))
    M[1] = B.T @ B
    factors = Factors(M, small=small)
    assert factors.singular.tolist() == [False, True, False]
    if inverted:
        factors.inverted()
    alone = Factors(M[[0, 2]], small=small)
    np.testing.assert_allclose(factors.solve(G)[[0, 2]], alone.solve(G[[0, 2]]), rtol=1e-13)
    # a solution where there is one, orthogonal to the kernel in units of a unit diagonal
    g = (M @ G[:, :, None])[:, :, 0]
    u = factors.solve(g)[1]
    np.testing.assert_allclose(M[1] @ u, g[1], rtol=1e-9)
    size = np.sqrt(np.diag(M[1]))
    kernel = np.linalg.svd(M[1] / np.outer(size, size))[0][:, 3:]
    assert np.abs(kernel.T @ (size * u)).max() < 1e-9 * np.linalg.norm(size * u)


def test_the_stated_error_of_a_solution_covers_rounding_and_not_much_more() -> None:
    for seed in range(20):
        B = np.random.default_rng(seed).standard_normal((1, 6, 6))
        B[0, :, 0] = B[0, :, 1] + 10.0 ** -(seed / 4) * B[0, :, 0]
        M = B.mT @ B
        exact = np.random.default_rng(seed + 1).standard_normal(6)
        g = M[0] @ exact
        factors = Factors(M).inverted()
        if factors.singular[0]:
            continue
        bound = factors.forward_error[0] * np.linalg.norm(g / factors.sizes[0])
        # g itself is rounded, which the same bound covers
        assert np.linalg.norm(factors.solve(g[None])[0] - exact) <= 2 * bound
        assert bound <= 1e-9 * np.linalg.cond(M[0]) ** 2


def test_eigenvalues_at_the_level_of_rounding_are_zero() -> None:
    B = np.random.default_rng(0).standard_normal((20, 4, 9))
    low, high = extreme_eigenvalues(np.swapaxes(B, 1, 2) @ B)
    np.testing.assert_array_equal(low, 0.0)
    np.testing.assert_allclose(high, np.linalg.norm(B, 2, axis=(1, 2)) ** 2)
    assert [each.tolist() for each in extreme_eigenvalues(-1e-20 * np.eye(2)[None])] == [[0.0]] * 2


def test_the_freedom_of_a_matrix_is_its_rank_where_the_shift_is_small() -> None:
    B = np.random.default_rng(0).standard_normal((2, 3, 7))
    np.testing.assert_allclose(Factors(np.swapaxes(B, 1, 2) @ B, 1e-6).freedom, 3.0, atol=1e-3)


def test_fewer_rows_than_columns_give_the_inverse_of_the_whole_matrix() -> None:
    rng = np.random.default_rng(0)
    A, D, G = rng.standard_normal((2, 3, 7)), rng.uniform(0.5, 2.0, 7), right_sides(2, 7)
    root = rng.uniform(0.5, 2.0, (2, 3))
    B = root[:, :, None] * A
    M = np.swapaxes(B, 1, 2) @ B + np.diag(D)
    made = Woodbury.of(DenseDesign(A), root, D, (B / D) @ np.swapaxes(B, 1, 2))
    np.testing.assert_allclose(made.solve(G), np.linalg.solve(M, G[:, :, None])[:, :, 0])


def test_conjugate_gradients_leave_the_residual_that_is_asked_for() -> None:
    M = definite(1, 40)
    M[0] *= np.outer(10.0 ** np.linspace(-3, 3, 40), 10.0 ** np.linspace(-3, 3, 40))
    G = right_sides(1, 40)
    D = np.diag(M[0])[None]
    for tolerance in (1e-3, 1e-10):
        left = matvec(M, conjugate_gradients(lambda U: matvec(M, U), G, D, tolerance)) - G
        # in the norm of the inverse diagonal, so that units do not matter
        assert norms(left / D**0.5) <= 2 * tolerance * norms(G / D**0.5)


def test_the_latest_is_made_once_for_a_key_and_again_for_another() -> None:
    latest = Latest()
    made: list[int] = []

    def make() -> int:
        made.append(len(made))
        return len(made)

    assert [latest.get("a", key, make) for key in (1, 1, 2, 2, 1)] == [1, 1, 2, 2, 3]
    assert latest.get("b", 1, make) == 4


def test_one_product_of_the_rows_serves_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    p = problem("logistic", [4, 4], 9)
    made = []
    inner = DenseDesign.inner

    def counted(self: DenseDesign, weights: Array) -> Array:
        made.append(weights)
        return inner(self, weights)

    monkeypatch.setattr(DenseDesign, "inner", counted)
    for s in (0.1, 0.7, 3.0):
        p.clients.ask(Prox(np.ones((2, 9)), s, np.zeros(9), fs.ExactProx()))
    assert len(made) == 1
