"""Studies whose sums are about few clients when they are taken together."""

from __future__ import annotations

import numpy as np
import pytest

from fedsplit.sites.studies.overlaps import Sums, exposed, told


def sums(study: str, *groups: str, columns: str = "x") -> Sums:
    return Sums(study, columns.split(), tuple(frozenset(group) for group in groups))


@pytest.mark.parametrize(
    ("groups", "found"),
    [
        (["abcd"], []),
        (["abcd", "abcd"], []),
        (["abcd", "abc"], ["d"]),
        (["abcd", "abce"], ["de"]),
        (["abcdef", "abc"], []),
        (["abcdefg", "abcd", "efh"], ["gh"]),  # neither two of them
        (["abcdef", "abc", "def"], []),
        (["abcdef", "abcd", "abef", "cdef"], ["ab", "cd", "ef"]),
        (["abc", "a", "b"], ["a", "b", "c"]),
        ([], []),
    ],
)
def test_what_follows_from_sums_is_found_by_linear_algebra(
    groups: list[str], found: list[str]
) -> None:
    assert told([frozenset(group) for group in groups]) == {frozenset(each) for each in found}


def test_whatever_is_told_of_few_is_a_combination_of_the_sums() -> None:
    rng = np.random.default_rng(0)
    names = "abcdefgh"
    seen = 0
    for _ in range(100):
        members = rng.random((4, len(names))) < 0.6
        groups = [
            frozenset(n for n, there in zip(names, row, strict=True) if there)
            for row in members
            if row.sum() >= 3
        ]
        matrix = np.array([[name in group for name in names] for group in groups], dtype=float)
        for clients in told(groups):
            inside = [name in clients for name in names]
            # coefficients that vanish on all other clients, and not on these
            _, sizes, directions = np.linalg.svd(matrix[:, ~np.array(inside)].T)
            free = directions[np.count_nonzero(sizes > 1e-9) :]
            assert np.abs(free @ matrix[:, inside]).max() > 1e-9
            seen += 1
    assert seen > 50


def test_studies_without_a_column_in_common_expose_nobody() -> None:
    assert exposed(sums("new", "abc"), [sums("old", "abcd", columns="z")]) == []
    [found] = exposed(sums("new", "abc"), [sums("old", "abcd", columns="z x")])
    assert found == (("d",), ("old",))


def test_what_earlier_studies_expose_is_not_new() -> None:
    earlier = [sums("one", "abcd"), sums("two", "abc")]
    assert exposed(sums("three", "abcd"), earlier) == []
    assert exposed(sums("open", "a", "b", "c"), [sums("one", "abc")]) == []
    [found] = exposed(sums("open", "a", "b"), [sums("one", "abc")])
    assert found.clients == ("c",)
