"""Numbers that may be added: sums are those of rationals, and bounds stay on the safe side."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsplit import fixed_point
from fedsplit.data.pooled.column_statistics import Histogram, Withheld
from fedsplit.errors import InputError
from fedsplit.sums import (
    KEPT,
    RADIUS,
    ROOT,
    SIGN,
    SUM,
    VALUES,
    LastDigits,
    Rule,
    Summands,
    Total,
    about_means,
)

NUMBERS = st.floats(-1e15, 1e15, allow_subnormal=False).filter(lambda x: x == 0 or abs(x) > 1e-6)
SIZES = st.one_of(st.just(0.0), st.floats(1e-12, 1e12), st.floats(1e-40, 1e-15), st.just(np.inf))


def summed(contributions: list[Summands]) -> Total:
    """What the server reads."""
    vectors = [each.vector for each in contributions]
    return Total(fixed_point.total(vectors, len(vectors[0])), len(vectors))


def together(rule: Rule, values: list[float]) -> float:
    """The number that stands for those of several clients."""
    contributions = []
    for value in values:
        own = Summands()
        rule.add(own, np.array(value))
        contributions.append(own)
    total = summed(contributions)
    [found] = rule.read(total, (1,))
    total.end()
    return float(found)


@given(st.lists(st.lists(NUMBERS, min_size=2, max_size=2), min_size=1, max_size=6))
def test_a_sum_is_that_of_rationals_rounded_to_the_unit(rows: list[list[float]]) -> None:
    contributions = []
    for row in rows:
        own = Summands()
        own.add(row)
        contributions.append(own)
    found = summed(contributions).exact(2)
    for at, exact in enumerate(found):
        expected = sum(Fraction(row[at]) for row in rows)
        assert abs(Fraction(exact, 2**128) - expected) <= Fraction(len(rows), 2**129)


@given(st.lists(st.tuples(st.integers(1, 9), NUMBERS, NUMBERS), min_size=2, max_size=8))
def test_a_scatter_about_the_mean_of_all_has_no_rounding_but_that_of_a_mean(
    clients: list[tuple[int, float, float]],
) -> None:
    first, second = np.array([0]), np.array([1])
    contributions = []
    for n, a, b in clients:
        own = Summands()
        means = np.array([a, b])
        own.add_about_means(float(n), means, np.zeros(2), (first, second), np.zeros(1))
        contributions.append(own)
    weight, a_sum, b_sum, products = summed(contributions).wide(4)
    # those of clients whose sums are those of their means, rounded once
    sums = [(n, Fraction(n * a), Fraction(n * b)) for n, a, b in clients]
    exact: Fraction | float = sum(x * y / n for n, x, y in sums)
    exact -= sum(x for _, x, _ in sums) * sum(y for _, _, y in sums) / sum(n for n, _, _ in sums)
    found = float(about_means(products, a_sum, b_sum, weight))
    assert found == pytest.approx(float(exact), rel=1e-14, abs=1e-20)


def random_digits(seed: int) -> LastDigits:
    return LastDigits(np.random.default_rng(seed).bytes)


@given(st.lists(NUMBERS, min_size=1, max_size=6))
def test_random_digits_are_below_those_that_are_kept(numbers: list[float]) -> None:
    own = Summands()
    own.add(numbers)
    own.add_wide(numbers)
    total = Total(own.encoded(random_digits(0)), 1)
    for unit, found in ((2**128, total.exact(len(numbers))), (2**288, total.wide(len(numbers)))):
        for number, integer in zip(numbers, found, strict=True):
            moved = abs(Fraction(integer, unit) - Fraction(number))
            assert moved <= abs(Fraction(number)) / 2**KEPT + Fraction(1, unit)
            assert moved == 0 or not (number.is_integer() and abs(number) < 1e12)


def test_the_digits_of_a_small_number_cannot_be_read_beside_a_large_one() -> None:
    large, small = 123456.789, 0.001234567
    # what a server reads below the last digit of the large number, over many clients' keys
    seen: dict[str, list[float]] = {}
    for digits in ("exact", "random"):
        seen[digits] = []
        for seed in range(200):
            total = fixed_point.encode([0.0])
            for at, number in enumerate((large, small)):
                own = Summands()
                own.add([number])
                source = random_digits(2 * seed + at) if digits == "random" else LastDigits()
                total = fixed_point.add(total, own.encoded(source)[1:])
            ulp = int(np.spacing(large) * 2**128)
            [integer] = fixed_point.integers(total)
            seen[digits].append(integer % ulp / ulp)
    share = Fraction(small) % Fraction(np.spacing(large)) / Fraction(np.spacing(large))
    assert set(seen["exact"]) == {float(share)}
    spread = np.sort(seen["random"])
    # the greatest distance from a uniform distribution, which is below 0.14 in all but 1 of 1000
    assert np.abs(spread - np.arange(200) / 200).max() < 0.14


def test_only_whole_numbers_that_counts_can_reach_keep_their_last_digits() -> None:
    counts, large = np.array([0.0, 3.0, -(2.0**39)]), np.array([2.0**52 + 1, -(2.0**90)])
    digits = random_digits(1)
    np.testing.assert_array_equal(digits.narrow(counts), fixed_point.encode(counts))
    # every float64 is whole from 2^52 on, in units that are small enough
    assert (digits.narrow(large) != fixed_point.encode(large)).any(axis=1).all()


def test_numbers_beside_the_unit_are_rounded_at_random() -> None:
    share = 0.3
    own = Summands()
    own.add(np.full(10_000, share * 2.0**-128))
    units = fixed_point.integers(own.encoded(random_digits(0))[1:])
    assert set(units) == {0, 1}
    assert abs(np.mean(units) - share) < 5 * np.sqrt(share * (1 - share) / 10_000)
    assert not own.vector.any()  # otherwise to the nearest, which tells whether it is above a half


def told_of_binary_columns(clients: list[tuple[int, int]], digits: LastDigits) -> Total:
    """The sums over clients of n rows, k of them with a one."""
    first = np.array([0])
    vectors = []
    for n, k in clients:
        own = Summands()
        scatter = np.array([n * (k / n) * (1 - k / n)])
        own.add_about_means(float(n), np.array([k / n]), scatter, (first, first), scatter)
        vectors.append(own.encoded(digits))
    return Total(fixed_point.total(vectors, len(vectors[0])), len(clients))


def test_the_rows_of_single_clients_cannot_be_told_from_the_digits_of_sums_of_squares() -> None:
    candidates = [(n, k) for n in range(30, 50) for k in range(10, 20)]
    truth = [(33, 12), (41, 15), (47, 19)]

    def found(digits: LastDigits) -> list[list[tuple[int, int]]]:
        """The clients whose sums have the digits that the server sees."""
        rows, ones, square = told_of_binary_columns(truth, digits).wide(3)
        shares = {
            each: told_of_binary_columns([each], LastDigits()).wide(3)[2] for each in candidates
        }
        total = (rows >> 288, ones >> 288)
        matches = []
        for a in candidates:
            for b in candidates:
                c = (total[0] - a[0] - b[0], total[1] - a[1] - b[1])
                if a <= b <= c and c in shares and shares[a] + shares[b] + shares[c] == square:
                    matches.append([a, b, c])
        return matches

    assert found(LastDigits()) == [truth]
    assert found(random_digits(1)) == []


def test_a_client_that_merges_cells_of_a_histogram_adds_whole_numbers() -> None:
    histogram = Histogram(0.0, 1.0, 16)
    part = histogram.part(np.array([0.5, 1.5, 2.5, 3.5, 4.5, 9.5]), Withheld(1)).value()
    assert (part % 1 != 0).any()  # each merged count is spread evenly
    own = Summands()
    histogram.shape.add(own, part)
    added = histogram.shape.read(summed([own]))
    assert (added % 1 == 0).all()
    assert (added >= 0).all()
    assert added.sum() == part.sum()
    assert np.abs(np.cumsum(added) - np.cumsum(part)).max() < 1


@given(st.floats(-1e80, 1e80), st.integers(-120, 0))
def test_a_wide_sum_holds_numbers_in_any_unit(value: float, exponent: int) -> None:
    number = value * 10.0**exponent
    own = Summands()
    own.add_wide([number])
    [found] = summed([own, own]).wide(1)
    assert abs(Fraction(found, 2**288) - 2 * Fraction(number)) <= Fraction(1, 2**288)


@given(st.lists(SIZES, min_size=1, max_size=20))
def test_a_bound_for_all_clients_is_at_least_that_of_each(sizes: list[float]) -> None:
    found = together(ROOT, sizes)
    assert found >= max(sizes)
    assert found <= max(1.001 * np.sqrt(len(sizes)) * max(sizes), 1e-13)
    radius = together(RADIUS, sizes)
    assert 0 <= radius <= min(sizes)
    if 1e-12 <= min(sizes) < 1e12:
        assert radius >= 0.999 * min(sizes) / np.sqrt(len(sizes))


@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=1, max_size=5))
def test_a_sign_is_the_smallest(signs: list[float]) -> None:
    assert together(SIGN, signs) == min(signs)
    assert np.isnan(together(SIGN, [*signs, np.nan]))


def test_a_value_that_is_not_finite_is_infinite_for_all_and_entries_are_unknown() -> None:
    assert together(VALUES, [1.0, 2.5]) == 3.5
    assert together(VALUES, [1.0, np.inf]) == together(VALUES, [np.nan, 1e40]) == np.inf
    assert together(SUM, [1.0, 2.5]) == 3.5
    assert np.isnan(together(SUM, [1.0, np.inf]))


def test_numbers_that_do_not_fit_are_zeros_and_a_count_that_says_how_many_but_not_whose() -> None:
    fitting, other = Summands(), Summands()
    fitting.add([1.0, 2.0])
    other.add([1e40, 2.0])
    assert not other.vector[1:].any()
    with pytest.raises(InputError, match=r"^1 of 2 clients have numbers that secure sums cannot"):
        summed([fitting, other])


def test_a_sum_of_another_length_is_refused() -> None:
    own = Summands()
    own.add([1.0, 2.0])
    with pytest.raises(InputError, match="too few"):
        summed([own]).take(3)
    total = summed([own])
    total.take(1)
    with pytest.raises(InputError, match="answers of 3 numbers, expected 2"):
        total.end()
