"""Values as text, and columns of text read as what all clients have agreed on."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from fedsplit.data.look_alikes import advice_on_number
from fedsplit.data.reading import Reading, ValueClass
from fedsplit.data.tables import DTYPES, Values, one_line
from fedsplit.data.types import (
    ColumnProfile,
    Type,
    date_form,
    declaration,
    float_form,
    is_number,
    number_form,
    share,
)
from fedsplit.errors import RowError


class Texts(NamedTuple):
    """The texts of a column, each distinct one once.

    Attributes
    ----------
    distinct : sequence of str
        In the order in which they first appear.
    codes : (n,) array of int
        The place of every row's text among them, -1 where it is missing.
    """

    distinct: Sequence[str]
    codes: NDArray[Any]

    @classmethod
    def of(cls, values: Values, few: int = 1000) -> Texts:
        """Return the texts of a column: objects, None where missing, or a categorical.

        Parameters
        ----------
        values : (n,) sequence, array or categorical
        few : int
            Values up to which a dictionary is faster than pandas: small clients have few of them,
            and there are many such clients.
        """
        if isinstance(values, pd.Categorical):
            return cls(list(values.categories), values.codes)
        if len(values) > few:
            codes, texts = pd.factorize(np.asarray(values, dtype=object))
            return cls(list(texts), codes)
        places: dict[str | None, int] = {None: -1}
        numbers = [places.setdefault(text, len(places) - 1) for text in values]
        del places[None]
        return cls(list(places), np.array(numbers, dtype=np.intp))  # type: ignore[arg-type]  # None is out

    def counts(self) -> Iterable[tuple[str, int]]:
        """Return each text with its number of rows."""
        counts = np.bincount(self.codes + 1, minlength=len(self.distinct) + 1)[1:]
        return zip(self.distinct, counts.tolist(), strict=True)

    def read(self, where: str, column: str, wanted: Type, reading: Reading, start: int = 0) -> Any:
        """Return the values as a type, as ``Table.take`` does.

        Parameters
        ----------
        where, column : str
            For messages.
        wanted : Type
        reading : Reading
        start : int
            How many rows of the column there are before these.
        """
        known: list[Any] = []
        for code, text in enumerate(self.distinct):
            try:
                known.append(reading.read(text, wanted))
            except ValueError:
                row = start + int(np.argmax(self.codes == code)) + 1
                raise unreadable(where, column, wanted, text.strip(), row) from None
        known.append(None if wanted == "text" else np.nan)
        return np.array(known, dtype=DTYPES[wanted])[self.codes]


def class_counts(texts: Iterable[tuple[str, int]], reading: Reading) -> Counter[ValueClass]:
    """Return how many rows are of each class, from the rows of each text."""
    found: Counter[ValueClass] = Counter()
    for text, count in texts:
        found[reading.class_of(text.strip())] += count
    return found


def profile_of(counts: Counter[ValueClass], stored_texts: int | None = None) -> ColumnProfile:
    """Return what a column can be read as, from how many of its rows are of each class.

    Parameters
    ----------
    counts : Counter of ValueClass
    stored_texts : int, optional
        How many of the rows are stored as text, if the table says what they are stored as.
    """
    total = sum(counts.values()) - counts["missing"]
    texts = counts["text"] if stored_texts is None else stored_texts
    return ColumnProfile(
        integer=share(counts["integer"], total),
        decimal=share(counts["integer"] + counts["decimal"], total),
        date=share(counts["date"], total),
        boolean=share(counts["boolean"], total),
        text=share(texts, total),
    )


def unreadable(where: str, column: str, wanted: Type, text: str, row: int) -> RowError:
    """The error that a row of a column, counted from 1, has a value that is not of a type."""
    everywhere = f"or have the column read as text everywhere, by {declaration(column, 'text')}"
    own = f"correct it, give na={[text]} if it stands for a missing value, {everywhere}"
    # What is said to others has no value of a row in it.
    public = f"correct it, name in na= what stands for a missing value, {everywhere}"
    if wanted == "number" and "," in text:
        own = public = advice_on_number([text]) or public
    return RowError(
        one_line(where, f"column {column!r}, row {row}: {text!r} is no {wanted}: {own}"),
        one_line(where, f"column {column!r} has a value that is no {wanted}: {public}"),
    )


def distinct(series: pd.Series) -> tuple[np.ndarray[Any, Any], list[Any]]:
    """Return the position of each row's value among the others, -1 if it is missing; the values.

    The values of a column of mixed types are not merged: 1 would be the same as True.
    """
    if isinstance(series.dtype, pd.CategoricalDtype):
        return series.array.codes, list(series.array.categories)
    if series.dtype == object and types.infer_dtype(series, skipna=True) != "string":
        present = series.notna().to_numpy()
        codes = np.where(present, np.cumsum(present) - 1, -1)
        return codes, list(series[present])
    codes, values = pd.factorize(series)
    return codes, list(values)


def appearance(text: str) -> str:
    """Return what a text looks like: accents in one form, plain spaces, nothing invisible."""
    visible = "".join(mark for mark in text if unicodedata.category(mark) != "Cf")
    return " ".join(unicodedata.normalize("NFKC", visible).split())


def as_written(value: object, reading: Reading) -> str:
    """Return a value that is not missing as a file of text would have it."""
    text = as_text(value)
    if isinstance(value, str) or not is_number(text):
        return text
    return text.replace(".", reading.decimal)


@singledispatch
def as_text(value: object) -> str:
    """Return a value that is not missing as the text that it is as a level."""
    raise TypeError(f"{type(value).__name__} is neither a number, a date, a boolean nor text")


@as_text.register
def _of_text(value: str) -> str:
    return value.strip()


@as_text.register(bool | np.bool_)
def _of_boolean(value: bool) -> str:
    return str(bool(value))


@as_text.register(int | np.integer)
def _of_integer(value: int) -> str:
    return str(int(value))


@as_text.register(float | np.floating)
def _of_float(value: float) -> str:
    return float_form(float(value))


@as_text.register
def _of_decimal(value: Decimal) -> str:
    return number_form(str(value))


@as_text.register
def _of_date(value: date) -> str:
    return date_form(value.isoformat())
