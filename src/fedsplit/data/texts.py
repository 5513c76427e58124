"""Values as text, and columns of text read as what all clients have agreed on."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from functools import singledispatch
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from fedsplit.data.reading import Reading
from fedsplit.data.tables import one_line
from fedsplit.data.types import (
    FORMS,
    Fit,
    Type,
    date_form,
    fit_of_counts,
    float_form,
    is_boolean,
    is_date,
    is_integer,
    is_number,
    number_form,
)
from fedsplit.errors import RowError


def fit_of_texts(counts: Iterable[tuple[str, int]], texts: int, reading: Reading) -> Fit:
    """What a column can be read as.

    Parameters
    ----------
    counts : iterable of (str, int)
        Each trimmed text that is not missing, with its number of rows.
    texts : int
        How many of these rows are stored as text.
    reading : Reading
    """
    total = integer = decimal = date = boolean = 0
    for text, count in counts:
        number = reading.with_point(text)
        total += count
        integer += count * is_integer(number)
        decimal += count * is_number(number)
        date += count * is_date(text)
        boolean += count * is_boolean(text)
    return fit_of_counts(total, (integer, decimal, date, boolean, texts))


def read_texts(
    where: str,
    column: str,
    values: np.ndarray[Any, Any],
    stored: Type,
    wanted: Type,
    reading: Reading,
) -> np.ndarray[Any, Any]:
    """Read a column of text, each distinct value once.

    Parameters
    ----------
    where, column : str
        For messages.
    values : (n,) array of objects
        ``str``, or None where missing.
    stored : Type
        What the table has the column as; a file without types has text.
    wanted : Type
    reading : Reading

    Returns
    -------
    (n,) array
        As ``Table.take`` returns it.
    """
    codes, found = pd.factorize(values)
    texts = [text.strip() for text in found]
    read: list[Any] = []
    for code, text in enumerate(texts):
        try:
            read.append(_read(text, stored, wanted, reading))
        except ValueError:
            raise unreadable(where, column, wanted, text, codes == code) from None
    if wanted == "text":
        known = np.array([*read, None], dtype=object)
    else:
        known = np.array([*read, np.nan], dtype=np.float64)
    found_values: np.ndarray[Any, Any] = known[codes]
    return found_values


def unreadable(
    where: str, column: str, wanted: Type, text: str, rows: np.ndarray[Any, Any]
) -> RowError:
    """The error that some rows, (n,), of a column have a value that is not of the type wanted."""
    advice = (
        "correct it, name it with --na if it stands for a missing value, or have the column read "
        f"as text everywhere, as in --types {column}=text"
    )
    first = int(np.argmax(rows)) + 1
    return RowError(
        one_line(where, f"column {column!r}, row {first}: {text!r} is no {wanted}: {advice}"),
        one_line(where, f"column {column!r} has a value that is no {wanted}: {advice}"),
    )


def _read(text: str, stored: Type, wanted: Type, reading: Reading) -> Any:
    if stored != "text":  # as the database writes it
        reading = replace(reading, decimal=".")
    value = reading.read(text, wanted)
    if isinstance(value, str):
        return FORMS[stored](value)
    return value


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
