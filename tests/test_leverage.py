"""Leverages of rows in what was disclosed, beside definitions, exact fractions and blocks."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsplit.arrays import Array
from fedsplit.regression.client.guards import ledger as module
from fedsplit.regression.client.guards.ledger import Disclosed, DisclosureLedger, Span, by_blocks
from fedsplit.statistic import RowSum


def span_of(columns: Array) -> Span:
    return Span().extended(columns, np.arange(len(columns)))


def solved(A: list[list[Fraction]], b: list[Fraction]) -> list[Fraction]:
    """A⁻¹b by Gaussian elimination over fractions."""
    rows = [[*row, right] for row, right in zip(A, b, strict=True)]
    for i in range(len(rows)):
        pivot = next(j for j in range(i, len(rows)) if rows[j][i] != 0)
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [each / rows[i][i] for each in rows[i]]
        for j in range(len(rows)):
            if j != i:
                factor = rows[j][i]
                rows[j] = [a - factor * c for a, c in zip(rows[j], rows[i], strict=True)]
    return [row[-1] for row in rows]


@given(st.integers(0, 10**6), st.integers(1, 5))
def test_leverages_are_those_of_exact_arithmetic(seed: int, r: int) -> None:
    A = np.random.default_rng(seed).integers(-3, 4, (12, r))
    if np.linalg.matrix_rank(A) < r:
        return
    gram = [[Fraction(int(each)) for each in row] for row in A.T @ A]
    exact = []
    for row in A:
        u = [Fraction(int(each)) for each in row]
        exact.append(float(sum(a * b for a, b in zip(u, solved(gram, u), strict=True))))
    assert np.allclose(span_of(A.astype(np.float64)).leverages, exact, atol=1e-13)


@given(st.integers(0, 10**6))
def test_no_combination_has_more_of_its_square_on_rows_than_their_leverages(seed: int) -> None:
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((30, 6)) * np.where(rng.random((30, 1)) < 0.1, 20.0, 1.0)
    h = span_of(U).leverages
    w = U @ rng.standard_normal(6)
    some = rng.random(30) < 0.2
    assert np.square(w[some]).sum() <= h[some].sum() * np.square(w).sum() * (1 + 1e-12)
    # the best combination for a row has exactly its share
    best = U @ np.linalg.solve(U.T @ U, U[0])
    assert best[0] ** 2 / np.square(best).sum() == pytest.approx(h[0])


@pytest.mark.parametrize("small", [1.0, 1e-2, 1e-6, 1e-10])
@pytest.mark.parametrize("rows", [1, 2])
def test_a_column_beside_one_that_differs_from_it_in_few_rows_has_a_leverage_of_one(
    small: float, rows: int
) -> None:
    x = np.random.default_rng(0).standard_normal(500)
    other = x + small * (x >= np.sort(x)[-rows])
    assert span_of(np.column_stack([np.ones(500), x])).leverages.max() < 0.1
    h = np.sort(span_of(np.column_stack([np.ones(500), x, other])).leverages)
    assert h[-rows:].sum() == pytest.approx(1.0, abs=0.03)


def test_columns_that_come_one_after_the_other_on_other_rows_count_together() -> None:
    rng = np.random.default_rng(0)
    A = np.column_stack([np.ones(200), rng.standard_normal((200, 3))])
    first = Span().extended(A[:-2], np.arange(198))
    both = first.extended(A, np.arange(200))
    assert both.leverages[198:].sum() > 0.99 > first.leverages.max()
    again = first.extended(A[:-2] @ rng.standard_normal((4, 4)), np.arange(198))
    assert again.rank == first.rank


def some_sums(n: int) -> list[Disclosed]:
    rng = np.random.default_rng(1)
    rows = rng.permutation(n)[: n - 5]
    A = np.column_stack([np.ones(n - 5), rng.standard_normal((n - 5, 3))])
    A[:, 3] *= 1e6
    return [
        Disclosed(rows, RowSum(rng.random((n - 5, 2)), A)),
        Disclosed(rows, RowSum(A, weights=rng.random(n - 5))),
        Disclosed(
            np.repeat(np.arange(n // 2), 2),
            RowSum(rng.random((n // 2 * 2, 1)), np.ones((n // 2 * 2, 1))),
        ),
    ]


def test_by_blocks_of_rows_leverages_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = some_sums(300)
    ledger = DisclosureLedger()
    ledger.add("key", sums)
    monkeypatch.setattr(module, "BLOCK", 64)
    exact = ledger.leverages()
    assert exact.sum() == pytest.approx(sum(each.number for each in sums))  # they are independent
    assert np.abs(by_blocks(sums) - exact).max() < 1e-10
    monkeypatch.setattr(module, "LARGEST", 0)
    assert np.abs(ledger.leverages() - exact).max() < 1e-10


@pytest.mark.parametrize("share", [1e-5, 1e-8, 1e-10])
def test_by_blocks_a_column_that_differs_in_one_row_by_little_has_a_leverage_of_one(
    share: float,
) -> None:
    A = np.random.default_rng(0).standard_normal((500, 4))
    B = A.copy()
    B[7, 0] += share * float(np.linalg.norm(A[:, 0]))
    rows = np.arange(500)
    h = by_blocks([Disclosed(rows, RowSum(each, np.ones((500, 1)))) for each in (A, B)])
    assert h[7] == pytest.approx(1, abs=1e-4)
    assert h.sum() == pytest.approx(5, abs=1e-4)


def test_the_vectors_of_sums_are_the_products_that_are_summed() -> None:
    rng = np.random.default_rng(2)
    W, A = rng.integers(-3, 4, (20, 2)).astype(float), rng.integers(1, 5, (20, 3)).astype(float)
    rows = np.arange(20)
    gradients = [W[:, k] * A[:, j] for k in range(2) for j in range(3)]
    products = [W[:, 0] * A[:, i] * A[:, j] for i in range(3) for j in range(i, 3)]
    for each, expected in (
        (RowSum(W, A), gradients),
        (RowSum(A, weights=W[:, 0]), products),
        (RowSum(W, np.ones((20, 1))), list(W.T)),
    ):
        own = Disclosed(rows, each)
        found = own.vectors()
        assert found.shape == (20, own.number)
        for one, other in zip(found.T, expected, strict=True):
            assert np.linalg.matrix_rank(np.column_stack([one, other])) == 1


def test_a_question_counts_once_and_rows_that_change_later_do_not_change_its_record() -> None:
    columns = np.arange(40.0).reshape(20, 2) % 7
    sums = [Disclosed(np.arange(20), RowSum(columns, np.ones((20, 1))))]
    ledger = DisclosureLedger()
    for key in ("a", "b", "a"):
        ledger.add(key, sums, ["matrix"])
    columns *= 0.0  # as rows are scaled in place
    assert ledger.count("matrix") == len(ledger) == 2
    assert ledger.leverages().sum() == pytest.approx(2)
