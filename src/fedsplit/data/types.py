"""What a value can be read as, how a user says that it is, and the form in which it is a level.

These functions of single values are the only place that says what a number or a date is, for every
format of files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from fedsplit.errors import InputError

if TYPE_CHECKING:
    from fedsplit.arrays import Array

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


ValueClass: TypeAlias = Literal["missing", "integer", "decimal", "date", "boolean", "text"]
"""What a value in a file of text can be read as; text is what can be read as nothing else."""

LEADING_ZERO = re.compile(r"[+-]?0[0-9]")
"""How a code such as 09 begins, which is not the number 9."""


@dataclass(frozen=True)
class Reading:
    """What stands for a missing value, how numbers and dates are written, what columns are called.

    Parameters
    ----------
    na : tuple of str
        What stands for a missing value, besides ``MISSING``. A number or a date stands for every
        way to write it but that with leading zeros: -9 for -9.0 too, and not for -09.
    decimal : str
        The decimal mark of numbers in text, a point or a comma.
    dates : str
        How dates are written in text besides 2020-01-31, in the codes of ``strptime``, as in
        ``%d/%m/%Y``; empty if they are not.
    rename : mapping of str to str
        The names by which a model knows columns, by their names in the file.
    """

    na: tuple[str, ...] = ()
    decimal: str = "."
    dates: str = ""
    rename: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "na", tuple(code.strip() for code in self.na))
        if self.decimal not in (".", ","):
            raise InputError(f"decimal must be '.' or ',', not {self.decimal!r}")
        if self.dates:
            _check_dates(self.dates)

    def joined(self, other: Reading) -> Reading:
        """Return the codes and names of both; a decimal comma and dates if one has them."""
        decimal = max(self.decimal, other.decimal, key=".,".index)
        codes = tuple(dict.fromkeys([*self.na, *other.na]))
        return Reading(codes, decimal, other.dates or self.dates, {**self.rename, **other.rename})

    @cached_property
    def missing(self) -> frozenset[str]:
        """Every trimmed text that stands for a missing value."""
        return frozenset([*MISSING, *self.na])

    @cached_property
    def number_codes(self) -> list[float]:
        """The user's codes that are numbers."""
        return [float(code) for code in map(self.with_point, self.na) if is_number(code)]

    @cached_property
    def date_codes(self) -> list[float]:
        """The user's codes that are dates, as days since 1970-01-01 UTC."""
        return [days(code) for code in map(self.with_iso_date, self.na) if is_date(code)]

    def is_missing(self, text: str) -> bool:
        """Return whether a trimmed text stands for a missing value."""
        if text in self.missing:
            return True
        if self.number_codes and is_number(pointed := self.with_point(text)):
            return float(pointed) in self.number_codes and not LEADING_ZERO.match(pointed)
        if not self.date_codes:
            return False
        date = self.with_iso_date(text)
        return is_date(date) and days(date) in self.date_codes

    def class_of(self, text: str) -> ValueClass:
        """Return what a trimmed text can be read as."""
        if self.is_missing(text):
            return "missing"
        pointed = self.with_point(text)
        if is_number(pointed):
            return "integer" if float(pointed).is_integer() else "decimal"
        if is_date(self.with_iso_date(text)):
            return "date"
        return "boolean" if is_boolean(text) else "text"

    def with_point(self, text: str) -> str:
        """Return a trimmed text in which the decimal mark of numbers is a point."""
        # A point is no part of a number that has a decimal comma.
        return text if self.decimal == "." else text.translate(str.maketrans(".,", ",."))

    def with_iso_date(self, text: str) -> str:
        """Return a trimmed text, as 2020-01-31 if it is a date in the user's format."""
        if not self.dates:
            return text
        try:
            moment = datetime.strptime(text, self.dates)
        except ValueError:
            return text
        return moment.isoformat(" ").removesuffix(" 00:00:00")

    def read(self, value: str, kind: Type) -> str | float | None:
        """Return a value as a type; None or NaN if it is missing; ValueError if it is neither.

        Text is trimmed; a number in it has a decimal point, and a date is as 2020-01-31.
        """
        text = value.strip()
        if self.is_missing(text):
            return None if kind == "text" else math.nan
        if kind == "text":
            pointed = self.with_point(text)
            return pointed if is_number(pointed) else self.with_iso_date(text)
        text = self.with_iso_date(text) if kind == "date" else self.with_point(text)
        return as_number(text, kind)

    def numbers(self, cells: Sequence[str]) -> Array | None:
        """Read many cells as numbers, (n,), much faster than one at a time; NaN where missing.

        None if a cell is, or may be, neither a number nor missing: then each has to be looked at.
        """
        import numpy as np  # which commands that only name types need not load

        together = "".join(cells)
        # What float() takes beyond our numbers: 1_000, digits of other scripts, and NAN.
        if "_" in together or not together.isascii():
            return None
        missing = self.missing
        written: Iterable[str] = cells
        if self.decimal != ".":
            written = [cell if cell in missing else self.with_point(cell) for cell in cells]
        try:
            values = np.array(
                [math.nan if cell in missing else float(cell) for cell in written], np.float64
            )
        except ValueError:
            return None
        if not all(cells[i] in missing for i in np.flatnonzero(np.isnan(values)).tolist()):
            return None
        if self.number_codes:
            for i in np.flatnonzero(np.isin(values, self.number_codes)).tolist():
                if self.is_missing(cells[i].strip()):
                    values[i] = math.nan
        return values


PLAIN = Reading()
"""How files are read unless a user says otherwise."""


def _check_dates(form: str) -> None:
    """Raise InputError unless a format has day, month and year, and cannot misread 2001-02-03."""
    day = datetime(2001, 2, 3)

    def reread(written: str) -> datetime | None:
        try:
            return datetime.strptime(day.strftime(written), form)
        except ValueError:
            return None

    if reread(form) != day:
        raise InputError(
            f"dates must be a format with day, month and year, as in '%d/%m/%Y', not {form!r}"
        )
    if reread("%Y-%m-%d") not in (day, None):
        raise InputError(
            f"dates: {form!r} would read 2001-02-03 as another day than everybody else does: "
            "write the dates in the file as 2001-02-03"
        )
