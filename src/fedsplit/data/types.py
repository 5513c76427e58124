"""What a value can be read as, and the one form in which equal values are one level.

These functions of single values are the only place that says what a number or a date is, for every
format of files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Literal, NamedTuple, TypeAlias

Type: TypeAlias = Literal["number", "boolean", "date", "text"]
"""What all clients read a column as."""

Share: TypeAlias = Literal["all", "most", "some", "none"]
"""How many of a column's values can be read as a type. No count leaves a client."""

MOSTLY = 0.8
"""More than this share of the values are most of them."""

MISSING = ("", "NA", "#N/A", "N/A", "NaN", "nan", "NULL", "null")
"""What stands for a missing value in a column of text, with or without spaces around it."""

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(?i:inf|infinity)")
DATE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([ T]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?"
    r"(Z|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?)?"
)
"""An ISO date, or a timestamp, which is UTC unless it says otherwise."""

BOOLEANS = {"true": "True", "false": "False"}
"""The two words, in any case, and their form as a level."""

DAY = 86_400_000_000
"""Microseconds of a day."""


class ColumnProfile(NamedTuple):
    """How many of a column's values that are not missing can be read as each type.

    A whole number is also a decimal. All values of a column stored as text are text, and none of
    one stored as another type; a delimited file says nothing about types: there only values that
    can be read as nothing else are text. ``category`` is for pandas' categoricals and R's factors.
    """

    integer: Share
    decimal: Share
    date: Share
    boolean: Share
    text: Share
    category: bool = False

    @property
    def empty(self) -> bool:
        """Whether the column has no value."""
        return self[:5] == EMPTY[:5]

    @property
    def words(self) -> bool:
        """Whether all values are text that can be read as nothing else."""
        return self[:5] == ("none", "none", "none", "none", "all")

    @property
    def mostly_number(self) -> bool:
        """Whether there are numbers, and a few values that are none."""
        return self.decimal == "most" and self.boolean == "none"

    @property
    def type(self) -> Type:
        """What a client alone would read the column as."""
        # Also where they are stored as text: JSON has no dates, and these are no codes.
        if self.date == "all":
            return "date"
        if self.boolean == "all":
            return "boolean"
        if self.text != "none" or self.date != "none":
            return "text"
        return "number"


EMPTY = ColumnProfile("none", "none", "none", "none", "none")
"""The profile of a column without any value."""


def share(count: int, total: int) -> Share:
    """Return how many ``count`` of ``total`` values are, in one word."""
    if count in (0, total):
        return "all" if count else "none"
    return "most" if count > MOSTLY * total else "some"


def is_number(text: str) -> bool:
    """Return whether a trimmed text is a number, infinite ones included."""
    return NUMBER.fullmatch(text) is not None


def is_boolean(text: str) -> bool:
    """Return whether a trimmed text is true or false."""
    return text.lower() in BOOLEANS


def is_date(text: str) -> bool:
    """Return whether a trimmed text is a date or a timestamp of the calendar."""
    try:
        return DATE.fullmatch(text) is not None and in_utc(text) is not None
    except (ValueError, OverflowError):  # the 30th of February; the year 10000 in UTC
        return False


def in_utc(text: str) -> datetime:
    """Return a date or timestamp as a moment in UTC, without a time zone."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


def days(text: str) -> float:
    """Return a date or timestamp as days since 1970-01-01 UTC, microseconds as a fraction."""
    # One division of whole numbers, which every reader rounds alike.
    return (in_utc(text) - datetime(1970, 1, 1)) // timedelta(microseconds=1) / DAY


def as_number(text: str, kind: Type) -> float:
    """Return a trimmed text as a number: of a boolean 0 or 1, of a date its days.

    A text that is no value of this type raises ValueError.
    """
    if kind in ("number", "boolean") and is_boolean(text):
        return float(text.lower() == "true")
    if kind == "number" and is_number(text):
        return float(text)
    if kind == "date" and is_date(text):
        return days(text)
    raise ValueError(f"{text!r} is no {kind}")


def number_form(text: str) -> str:
    """Return the shortest form of a number: 01, 1.0 and 1e0 are all 1, as is true.

    Whole numbers of up to 40 digits are exact; others are what float64 makes of them.
    """
    if is_boolean(text):
        return str(int(text.lower() == "true"))
    value = Decimal(text)
    if value.is_finite() and value.adjusted() < 40:
        # What is too close to a whole number for float64 is one, too.
        for whole in (value, float(value)):
            if whole == int(whole):
                return str(int(whole))
    return repr(float(value))


def float_form(value: float) -> str:
    """Return a float as the text that ``number_form`` leaves unchanged: 1.0 is 1."""
    if math.isnan(value):
        raise ValueError("a missing value is no level")
    return number_form(repr(value))


def date_form(text: str) -> str:
    """Return a date as YYYY-MM-DD; a time of day that is not midnight UTC follows it."""
    form = in_utc(text).replace(microsecond=0).isoformat(" ")
    # From the text, because datetime has no nanoseconds.
    fraction = re.search(r"\.[0-9]+", text)
    if fraction is not None:
        form += fraction[0].rstrip("0").rstrip(".")
    return form.removesuffix(" 00:00:00")


FORMS: Mapping[Type, Callable[[str], str]] = {
    "number": number_form,
    "boolean": lambda text: BOOLEANS[text.lower()],
    "date": date_form,
    "text": str,
}
"""A trimmed text as a level of a column of this type."""


def level_form(text: str, kind: Type) -> str:
    """Return a trimmed text as a level; ValueError if it is no value of this type."""
    if kind != "text":
        as_number(text, kind)
    return FORMS[kind](text)


def as_value(level: str, kind: Type) -> str | int | float | bool:
    """Return a level as a value of Python: a number is int or float, a boolean bool."""
    if kind == "boolean":
        return level == "True"
    if kind == "number":
        return int(level) if level.lstrip("-").isdecimal() else float(level)
    return level


def declaration(column: str, kind: Type) -> str:
    """Return how a user declares the type of a column, for messages: ``types={'g': 'text'}``."""
    return f"types={ {column: kind} }"
