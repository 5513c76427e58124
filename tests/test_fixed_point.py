"""Fixed point against exact rationals."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsplit import fixed_point

UNIT = Fraction(1, 2**128)
numbers = st.floats(
    min_value=-fixed_point.LARGEST,
    max_value=fixed_point.LARGEST,
    exclude_min=True,
    exclude_max=True,
)
vectors = st.lists(numbers, min_size=1, max_size=8)


def rationals(values: list[float]) -> list[Fraction]:
    """What fixed point should hold: the nearest multiples of the unit, half to even."""
    return [round(Fraction(value) / UNIT) * UNIT for value in values]


def exactly(limbs: fixed_point.Limbs) -> list[Fraction]:
    return [integer * UNIT for integer in fixed_point.integers(limbs)]


@given(vectors)
def test_a_number_is_encoded_as_the_nearest_multiple_of_the_unit(values: list[float]) -> None:
    assert exactly(fixed_point.encode(values)) == rationals(values)


@given(st.lists(vectors, min_size=1, max_size=6))
def test_a_sum_is_the_exact_sum_of_rationals_in_any_order(terms: list[list[float]]) -> None:
    n = min(len(term) for term in terms)
    encoded = [fixed_point.encode(term[:n]) for term in terms]
    columns = zip(*(rationals(term[:n]) for term in terms), strict=True)
    exact = [sum(column, Fraction()) for column in columns]
    assert exactly(fixed_point.total(encoded, n)) == exact
    assert exactly(fixed_point.total(reversed(encoded), n)) == exact
    assert fixed_point.decode(fixed_point.total(encoded, n)).tolist() == [float(e) for e in exact]


@given(st.lists(st.integers(-(2**245), 2**245), min_size=1, max_size=5))
def test_decoding_rounds_to_the_nearest_float(integers: list[int]) -> None:
    limbs = fixed_point.from_integers(integers)
    assert fixed_point.integers(limbs) == integers
    assert fixed_point.decode(limbs).tolist() == [float(i * UNIT) for i in integers]


@given(st.integers(2**52, 2**53), st.integers(0, 190), st.integers(-1, 1))
def test_decoding_rounds_ties_to_even(mantissa: int, shift: int, beside: int) -> None:
    tie = ((2 * mantissa + 1) << shift) + beside
    decoded = fixed_point.decode(fixed_point.from_integers([tie, -tie]))
    assert decoded.tolist() == [float(tie * UNIT), -float(tie * UNIT)]


@given(numbers, numbers)
def test_subtraction_undoes_addition(a: float, b: float) -> None:
    x, y = fixed_point.encode([a]), fixed_point.encode([b])
    assert (fixed_point.subtract(fixed_point.add(x, y), y) == x).all()


@given(vectors)
def test_bytes_are_read_back(values: list[float]) -> None:
    limbs = fixed_point.encode(values)
    assert (fixed_point.from_bytes(fixed_point.to_bytes(limbs)) == limbs).all()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2.0**118, -(2.0**118), 1e300])
def test_a_number_that_does_not_fit_is_refused(value: float) -> None:
    assert not fixed_point.fits([value]).any()
    with pytest.raises(OverflowError):
        fixed_point.encode([1.0, value])


def test_five_hundred_of_the_largest_numbers_sum_exactly() -> None:
    largest = np.nextafter(fixed_point.LARGEST, 0)
    sums = fixed_point.total([fixed_point.encode([largest, -largest])] * 500, 2)
    assert fixed_point.decode(sums).tolist() == [500 * largest, -500 * largest]


@given(st.integers(53, 76).flatmap(lambda e: st.sampled_from([2.0**-e, (1 + 2.0**-52) * 2.0**-e])))
def test_every_float_above_2_to_the_minus_76_is_exact(value: float) -> None:
    assert fixed_point.decode(fixed_point.encode([value, -value])).tolist() == [value, -value]
