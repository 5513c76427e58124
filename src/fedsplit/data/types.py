"""What a value can be read as, and the one form in which equal values are one level.

These functions of single values say what holds in every file format. Readers work on whole columns
and agree with them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
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

INTEGER = re.compile(r"[+-]?[0-9]+")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(?i:inf|infinity)")
DATE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?)?"
)
"""An ISO date, or a timestamp, which is UTC unless it says otherwise."""

BOOLEANS = {"true": "True", "false": "False"}
"""The two words, in any case, and their form as a level."""

MOST_DIGITS = 40
"""A whole number of more digits is a level in the form of a float."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Fit(NamedTuple):
    """Of one column, how many of its values that are not missing can be read as each type.

    A column without any value has none of everything.

    Attributes
    ----------
    integer, decimal, date, boolean : Share
        A whole number is also a decimal.
    text : Share
        Of a column stored as text, all; of one stored as another type, none. A delimited file says
        nothing about types: there only values that can be read as nothing else are text.
    """

    integer: Share
    decimal: Share
    date: Share
    boolean: Share
    text: Share


def share(count: int, total: int) -> Share:
    """How many ``count`` of ``total`` values are, in one word."""
    if count == 0:
        return "none"
    if count == total:
        return "all"
    if count > MOSTLY * total:
        return "most"
    return "some"


def is_integer(text: str) -> bool:
    """Whether a trimmed text is a whole number without exponent or decimals."""
    return INTEGER.fullmatch(text) is not None


def is_number(text: str) -> bool:
    """Whether a trimmed text is a number, infinite ones included."""
    return NUMBER.fullmatch(text) is not None


def is_boolean(text: str) -> bool:
    """Whether a trimmed text is true or false."""
    return text.lower() in BOOLEANS


def is_date(text: str) -> bool:
    """Whether a trimmed text is a date or a timestamp of the calendar."""
    if DATE.fullmatch(text) is None:
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def days(text: str) -> float:
    """A date or timestamp as days since 1970-01-01 UTC."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH).total_seconds() / 86_400


def number_form(text: str) -> str:
    """The shortest form of a number: 01, 1.0 and 1e0 are all 1.

    Whole numbers are exact, however large; others are what float64 makes of them.
    """
    value = Decimal(text)
    if value.is_finite() and value.adjusted() < MOST_DIGITS and value == int(value):
        return str(int(value))
    return repr(float(value))


def date_form(text: str) -> str:
    """A date as YYYY-MM-DD; a time of day that is not midnight UTC follows it."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    if moment.time() == datetime.min.time():
        return moment.date().isoformat()
    return moment.isoformat(" ")


def boolean_form(text: str) -> str:
    """True or False."""
    return BOOLEANS[text.lower()]


FORMS: Mapping[Type, Callable[[str], str]] = {
    "number": number_form,
    "boolean": boolean_form,
    "date": date_form,
    "text": str,
}
"""A trimmed text as a level of a column of this type."""


def float_form(value: float) -> str:
    """A float as the text that ``number_form`` leaves unchanged: 1.0 is 1."""
    if math.isnan(value):
        raise ValueError("a missing value is no level")
    return number_form(repr(value))
