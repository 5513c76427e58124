"""Rows that can be read off columns: the search for them, beside sets tried one by one."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsplit.arrays import Array
from fedsplit.regression.client.guards.leverage import Span


def span_of(columns: Array) -> Span:
    return Span().extended(columns, np.arange(len(columns)))


def worst(columns: Array, k: int) -> float:
    """The largest λ_max(H_SS) of fewer than k rows, by trying all sets."""
    Q, _ = np.linalg.qr(columns)
    H = Q @ Q.T
    sets = [list(rows) for size in range(1, k) for rows in combinations(range(len(H)), size)]
    return max(float(np.linalg.eigvalsh(H[np.ix_(rows, rows)])[-1]) for rows in sets)


@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from([2, 3, 4, 5]))
def test_what_is_found_is_what_trying_all_sets_finds(seed: int, r: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((12, r)) * np.where(rng.random((12, 1)) < 0.3, 20.0, 1.0)
    found = span_of(A).concentrated(k, 0.97)
    if found is None:
        assert worst(A, k) <= 0.97 + 1e-9
    else:
        assert len(found.rows) < k
        assert found.share > 0.97
        assert found.share <= worst(A, k) + 1e-9


def lives_on(columns: list[list[int]], rows: set[int]) -> bool:
    """Whether some combination of whole-numbered columns is zero outside of these rows, exactly.

    That is so if the columns restricted to the other rows have a smaller rank.
    """
    others = [i for i in range(len(columns[0])) if i not in rows]
    return rank([[c[i] for c in columns] for i in others]) < rank(
        [[c[i] for c in columns] for i in range(len(columns[0]))]
    )


def rank(matrix: list[list[int]]) -> int:
    """By Gaussian elimination over fractions."""
    left = [[Fraction(each) for each in row] for row in matrix]
    found = 0
    for column in range(len(left[0]) if left else 0):
        pivot = next((i for i in range(found, len(left)) if left[i][column] != 0), None)
        if pivot is None:
            continue
        left[found], left[pivot] = left[pivot], left[found]
        for i in range(found + 1, len(left)):
            factor = left[i][column] / left[found][column]
            left[i] = [a - factor * b for a, b in zip(left[i], left[found], strict=True)]
        found += 1
    return found


@given(st.integers(0, 10**6), st.integers(2, 5))
def test_columns_that_exactly_single_out_fewer_than_three_rows_are_found(seed: int, r: int) -> None:
    rng = np.random.default_rng(seed)
    A = rng.integers(-1, 2, (10, r))
    columns = A.T.tolist()
    sets = [set(rows) for size in (1, 2) for rows in combinations(range(10), size)]
    exact = any(lives_on(columns, rows) for rows in sets)
    found = span_of(A.astype(np.float64)).concentrated(3, 1 - 1e-9)
    assert (found is not None) == exact


@pytest.mark.parametrize("small", [1.0, 1e-2, 1e-6, 1e-10])
@pytest.mark.parametrize("rows", [1, 2])
def test_a_column_beside_one_that_differs_from_it_in_few_rows_is_found(
    small: float, rows: int
) -> None:
    x = np.random.default_rng(0).standard_normal(500)
    other = x + small * (x >= np.sort(x)[-rows])
    assert span_of(np.column_stack([np.ones(500), x])).concentrated(3, 1 - 1 / 500) is None
    found = span_of(np.column_stack([np.ones(500), x, other])).concentrated(3, 1 - 1 / 500)
    assert found is not None
    assert len(found.rows) == rows


def test_columns_are_found_together_that_come_one_after_the_other_on_other_rows() -> None:
    rng = np.random.default_rng(0)
    A = np.column_stack([np.ones(200), rng.standard_normal((200, 3))])
    first = Span().extended(A[:-2], np.arange(198))
    assert first.concentrated(3, 0.995) is None
    both = first.extended(A, np.arange(200))
    found = both.concentrated(3, 0.995)
    assert found is not None
    assert set(found.rows) <= {198, 199}
    again = first.extended(A[:-2] @ rng.standard_normal((4, 4)), np.arange(198))
    assert again.Q.shape == first.Q.shape


def test_larger_sets_are_found_from_each_row_that_can_be_in_one() -> None:
    rng = np.random.default_rng(1)
    A = np.column_stack([np.ones(300), rng.standard_normal((300, 4))])
    hidden = np.zeros(300)
    hidden[[3, 90, 200, 250]] = [1.0, -2.0, 1.5, 1.0]
    span = span_of(np.column_stack([A, A[:, 1] + 0.01 * hidden]))
    assert span.concentrated(4, 1 - 1 / 300) is None
    found = span.concentrated(5, 1 - 1 / 300)
    assert found is not None
    assert sorted(found.rows) == [3, 90, 200, 250]


@pytest.mark.parametrize("decoys", [0, 14, 40])
def test_rows_of_a_higher_leverage_do_not_hide_a_set_of_four(decoys: int) -> None:
    rng = np.random.default_rng(3)
    x = np.sort(rng.standard_normal(800))
    columns = [np.ones(800), x >= x[400], x >= x[404]]
    for j in range(decoys):
        columns.append(np.sin((j + 1) * x) + 30 * (x == x[9 * j]))
    found = span_of(np.column_stack(columns).astype(np.float64)).concentrated(5, 0.99)
    assert found is not None
    assert sorted(found.rows) == [400, 401, 402, 403]
