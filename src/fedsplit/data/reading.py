"""How a user wants files to be read, and what that makes of a value in a file of text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from fedsplit.data.types import MISSING, days, is_boolean, is_date, is_integer, is_number
from fedsplit.errors import InputError

ValueClass: TypeAlias = Literal["missing", "integer", "decimal", "date", "boolean", "text"]
"""What a value in a file of text can be read as; text is what can be read as nothing else."""

DECIMAL_MARKS = (".", ",")


@dataclass(frozen=True)
class Reading:
    """What stands for a missing value, and how numbers are written.

    Parameters
    ----------
    na : tuple of str
        What stands for a missing value, besides ``MISSING``. -9 stands for -9.0 too.
    decimal : str
        The decimal mark of numbers in text, a point or a comma.
    """

    na: tuple[str, ...] = ()
    decimal: str = "."

    def __post_init__(self) -> None:
        object.__setattr__(self, "na", tuple(code.strip() for code in self.na))
        if self.decimal not in DECIMAL_MARKS:
            raise InputError(f"decimal must be '.' or ',', not {self.decimal!r}")

    @cached_property
    def missing(self) -> frozenset[str]:
        """Every trimmed text that stands for a missing value."""
        return frozenset([*MISSING, *self.na])

    def is_missing(self, text: str) -> bool:
        """Whether a trimmed text stands for a missing value."""
        if text in self.missing:
            return True
        if not self.na:
            return False
        whole, mark, zeros = text.partition(self.decimal)
        return mark != "" and not zeros.strip("0") and whole in self.na

    def plain(self, text: str) -> str:
        """A trimmed text, with a decimal point if it is a number with a decimal comma."""
        if self.decimal == "." or "," not in text or "." in text:
            return text
        pointed = text.replace(",", ".")
        if is_number(pointed):
            return pointed
        return text

    def class_of(self, text: str) -> ValueClass:
        """What a trimmed text can be read as."""
        if self.is_missing(text):
            return "missing"
        if is_integer(text):
            return "integer"
        if self.is_number(text):
            return "decimal"
        if is_date(text):
            return "date"
        if is_boolean(text):
            return "boolean"
        return "text"

    def is_number(self, text: str) -> bool:
        """Whether a trimmed text is a number with this decimal mark."""
        if self.decimal != ".":
            if "." in text:
                return False
            text = text.replace(self.decimal, ".")
        return is_number(text)

    def read_text(self, value: str) -> str | None:
        """A value as text, None if it is missing."""
        text = value.strip()
        if self.is_missing(text):
            return None
        return self.plain(text)

    def read_number(self, value: str) -> float:
        """A value as a number, NaN if it is missing; ValueError if it is neither."""
        text = value.strip()
        if self.is_missing(text):
            return math.nan
        if self.is_number(text):
            return float(text.replace(",", "."))
        return self.read_boolean(text)

    def read_boolean(self, value: str) -> float:
        """A value as 0 or 1, NaN if it is missing; ValueError if it is neither."""
        text = value.strip()
        if self.is_missing(text):
            return math.nan
        if not is_boolean(text):
            raise ValueError(value)
        return float(text.lower() == "true")

    def read_date(self, value: str) -> float:
        """A value as days since 1970-01-01 UTC, NaN if it is missing; ValueError if neither."""
        text = value.strip()
        if self.is_missing(text):
            return math.nan
        if not is_date(text):
            raise ValueError(value)
        return days(text)


def read_codes(text: str) -> Sequence[str]:
    """Codes for missing values from the command line, separated by commas."""
    return [code.strip() for code in text.split(",")]
