"""SQL for what a text is, the same as ``Reading`` has it in Python."""

from __future__ import annotations

from collections.abc import Iterable

from fedsplit.data.reading import LEADING_ZERO, Reading
from fedsplit.data.types import DATE, DAY, INTEGER, NUMBER, Type, days

SPACES = "".join(filter(str.isspace, map(chr, range(0x3001))))
"""What ``str.strip`` removes."""

FIRST_MOMENT = round(days("0001-01-01") * DAY)
LAST_MOMENT = round(days("9999-12-31") * DAY) + DAY - 1
"""Microseconds since 1970 of the first and last moments of Python's calendar."""


def literal(text: str) -> str:
    """Return SQL for a text."""
    return "'" + text.replace("'", "''") + "'"


def trimmed(x: str) -> str:
    """Return SQL for a text without spaces of any kind around it; null becomes empty."""
    # DuckDB is slow to look for many kinds of spaces, and no text between ! and ~ has any.
    plain = f"ord({x}) between 33 and 126 and ord(right({x}, 1)) between 33 and 126"
    return f"case when {plain} then {x} else coalesce(trim({x}, {literal(SPACES)}), '') end"


def is_missing(x: str, reading: Reading) -> str:
    """Return SQL for whether a trimmed text is missing."""
    test = f"{x} in ({', '.join(map(literal, sorted(reading.missing)))})"
    if reading.numbers:
        number = with_point(x, reading)
        starts = literal(f"^{LEADING_ZERO.pattern}")
        test += f" or ({is_number(number)} and try_cast({number} as double) in "
        test += f"{_listed(reading.numbers)} and not regexp_matches({number}, {starts}))"
    if reading.dates:
        test += f" or ({is_date(x)} and {days_of(x)} in {_listed(reading.dates)})"
    return f"({test})"


def known(x: str, stored: Type, reading: Reading) -> str:
    """Return SQL for a number or a date, null if it is one of the user's codes."""
    if stored == "number" and reading.numbers:
        return f"case when cast({x} as double) in {_listed(reading.numbers)} then null else {x} end"
    if stored == "date" and reading.dates:
        moment = f"epoch_us(cast({x} as timestamp)) / {DAY}.0"
        return f"case when {moment} in {_listed(reading.dates)} then null else {x} end"
    return x


def with_point(x: str, reading: Reading) -> str:
    """Return SQL for a trimmed text in which the decimal mark of numbers is a point."""
    if reading.decimal == ".":
        return x
    # A point is no part of a number that has a decimal comma.
    return f"translate({x}, ',.', '.,')"


def plain(x: str, reading: Reading) -> str:
    """Return SQL for a trimmed text, with a decimal point if it is a number."""
    number = with_point(x, reading)
    if number == x:
        return x
    return f"case when {is_number(number)} then {number} else {x} end"


def is_integer(x: str) -> str:
    """Return SQL for whether a trimmed text is a whole number."""
    return f"regexp_full_match({x}, {literal(INTEGER.pattern)})"


def is_number(x: str) -> str:
    """Return SQL for whether a trimmed text is a number with a decimal point."""
    return f"regexp_full_match({x}, {literal(NUMBER.pattern)})"


def is_date(x: str) -> str:
    """Return SQL for whether a trimmed text is a date or a timestamp."""
    in_calendar = f"({_moment(x)}) between {FIRST_MOMENT} and {LAST_MOMENT}"
    return f"(regexp_full_match({x}, {literal(DATE.pattern)}) and coalesce({in_calendar}, false))"


def is_boolean(x: str) -> str:
    """Return SQL for whether a trimmed text is true or false."""
    return f"lower({x}) in ('true', 'false')"


def days_of(x: str) -> str:
    """Return SQL for the days since 1970-01-01 UTC of a date or a timestamp."""
    return f"({_moment(x)}) / {DAY}.0"


def _listed(numbers: Iterable[float]) -> str:
    return "(" + ", ".join(f"'{number!r}'::double" for number in numbers) + ")"


def _moment(x: str) -> str:
    """Return SQL for the microseconds since 1970 of a date or a timestamp, null if it is none."""
    # DuckDB 1.4 reads no zone after minutes.
    in_full = (
        f"case when substr({x}, 17, 1) in ('Z', '+', '-') "
        f"then concat(substr({x}, 1, 16), ':00', substr({x}, 17)) else {x} end"
    )
    # Dates are much faster to read than timestamps, whose zones take a library.
    return (
        f"case when length({x}) = 10 then epoch_us(cast(try_cast({x} as date) as timestamp)) "
        f"else epoch_us(try_cast({in_full} as timestamptz)) end"
    )
