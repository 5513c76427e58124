"""How a user wants files to be read, and what that makes of a value in a file of text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from fedsplit.data.types import (
    MISSING,
    Type,
    as_number,
    days,
    is_boolean,
    is_date,
    is_integer,
    is_number,
)
from fedsplit.errors import InputError

ValueClass: TypeAlias = Literal["missing", "integer", "decimal", "date", "boolean", "text"]
"""What a value in a file of text can be read as; text is what can be read as nothing else."""

DECIMAL_MARKS = (".", ",")
SWAPPED_MARKS = str.maketrans(".,", ",.")

LEADING_ZERO = re.compile(r"[+-]?0[0-9]")
"""How a code such as 09 begins, which is not the number 9."""

MISSING_VALUES: Mapping[Type, float | None] = {
    "number": math.nan,
    "boolean": math.nan,
    "date": math.nan,
    "text": None,
}
"""What stands for a missing value of each type."""


@dataclass(frozen=True)
class Reading:
    """What stands for a missing value, and how numbers are written.

    Parameters
    ----------
    na : tuple of str
        What stands for a missing value, besides ``MISSING``. A number or a date stands for every
        way to write it but that with leading zeros: -9 for -9.0 too, and not for -09.
    decimal : str
        The decimal mark of numbers in text, a point or a comma.
    """

    na: tuple[str, ...] = ()
    decimal: str = "."

    def __post_init__(self) -> None:
        object.__setattr__(self, "na", tuple(code.strip() for code in self.na))
        if self.decimal not in DECIMAL_MARKS:
            raise InputError(f"decimal must be '.' or ',', not {self.decimal!r}")

    def joined(self, other: Reading) -> Reading:
        """What both say: the codes of both, and a decimal comma if one has it."""
        decimal = max(self.decimal, other.decimal, key=DECIMAL_MARKS.index)
        return Reading(tuple(dict.fromkeys([*self.na, *other.na])), decimal)

    @cached_property
    def missing(self) -> frozenset[str]:
        """Every trimmed text that stands for a missing value."""
        return frozenset([*MISSING, *self.na])

    @cached_property
    def numbers(self) -> list[float]:
        """The user's codes that are numbers."""
        codes = map(self.with_point, self.na)
        return [float(code) for code in codes if is_number(code)]

    @cached_property
    def dates(self) -> list[float]:
        """The user's codes that are dates, as days since 1970-01-01 UTC."""
        return [days(code) for code in self.na if is_date(code)]

    def is_missing(self, text: str) -> bool:
        """Whether a trimmed text stands for a missing value."""
        if text in self.missing:
            return True
        if self.numbers and is_number(pointed := self.with_point(text)):
            return float(pointed) in self.numbers and not LEADING_ZERO.match(pointed)
        return bool(self.dates) and is_date(text) and days(text) in self.dates

    def plain(self, text: str) -> str:
        """A trimmed text, with a decimal point if it is a number with a decimal comma."""
        pointed = self.with_point(text)
        if pointed != text and is_number(pointed):
            return pointed
        return text

    def class_of(self, text: str) -> ValueClass:
        """What a trimmed text can be read as."""
        if self.is_missing(text):
            return "missing"
        pointed = self.with_point(text)
        if is_integer(pointed):
            return "integer"
        if is_number(pointed):
            return "decimal"
        if is_date(text):
            return "date"
        if is_boolean(text):
            return "boolean"
        return "text"

    def with_point(self, text: str) -> str:
        """Return a trimmed text in which the decimal mark of numbers is a point."""
        if self.decimal == ".":
            return text
        # A point is no part of a number that has a decimal comma.
        return text.translate(SWAPPED_MARKS)

    def read(self, value: str, wanted: Type) -> str | float | None:
        """A value as a type; None or NaN if it is missing.

        Raises
        ------
        ValueError
            If it is neither.
        """
        text = value.strip()
        if self.is_missing(text):
            return MISSING_VALUES[wanted]
        if wanted == "text":
            return self.plain(text)
        if wanted == "number":
            text = self.with_point(text)
        return as_number(text, wanted)


PLAIN = Reading()
"""How files are read unless a user says otherwise."""


def read_codes(text: str) -> Sequence[str]:
    """Codes for missing values from the command line, separated by commas."""
    return [code.strip() for code in text.split(",")]
