"""How a user wants files to be read, and what that makes of a value in a file of text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from fedsplit.arrays import Array
from fedsplit.data.types import (
    MISSING,
    Type,
    as_number,
    days,
    is_boolean,
    is_date,
    is_number,
)
from fedsplit.errors import InputError

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
