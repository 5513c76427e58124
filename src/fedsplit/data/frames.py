"""Frames in memory: of pandas, or of whatever hands over its columns as Arrow or by narwhals."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from fedsplit.data.tables import Column, Table, Values, fail
from fedsplit.data.texts import Texts, class_counts, number_counts, profile_of, unreadable
from fedsplit.data.types import (
    DAY,
    EMPTY,
    PLAIN,
    ColumnProfile,
    Reading,
    Type,
    date_form,
    float_form,
    number_form,
)
from fedsplit.errors import InputError


def in_pandas(data: Any) -> Any:
    """Return a frame or a column of any library in pandas, and everything else as it is.

    What speaks Arrow's PyCapsule interface, as frames of polars, pyarrow and DuckDB do, needs
    pyarrow; other frames, such as Modin's, are taken if narwhals knows them. Categories keep their
    order, and whole numbers beside missing values stay whole.
    """
    if isinstance(data, pd.DataFrame | pd.Series):
        return data
    if hasattr(data, "__arrow_c_stream__"):
        try:
            arrow = importlib.import_module("pyarrow")
        except ImportError:
            what = f"{type(data).__module__.split('.')[0]}.{type(data).__name__}"
            raise InputError(
                f"a {what} is read by pyarrow: install it with pip install 'fedsplit[parquet]', or "
                "convert the frame to pandas"
            ) from None
        try:
            rows = arrow.RecordBatchReader.from_stream(data).read_all()
        except arrow.ArrowInvalid:  # it is a column
            rows = data if isinstance(data, arrow.ChunkedArray) else arrow.chunked_array(data)
        # The types of pandas for those of Arrow that missing values would turn into others.
        whole = [f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)]
        whole_numbers = {getattr(arrow, name.lower())(): types.pandas_dtype(name) for name in whole}
        return rows.to_pandas(types_mapper={**whole_numbers, arrow.bool_(): pd.BooleanDtype()}.get)
    try:
        narwhals = importlib.import_module("narwhals")
    except ImportError:  # nothing but narwhals could say what this is
        return data
    frame = narwhals.from_native(data, pass_through=True)
    if isinstance(frame, narwhals.LazyFrame):
        frame = frame.collect()
    return frame.to_pandas() if isinstance(frame, narwhals.DataFrame) else data


def as_pandas(data: object) -> pd.DataFrame | None:
    """Return a frame of any library as one of pandas, which stays as it is; None if it is none."""
    frame = in_pandas(data)
    return frame if isinstance(frame, pd.DataFrame) else None


class FrameTable(Table):
    """A user's frame, which is never changed; messages call it by the client's name."""

    def __init__(self, name: str, frame: pd.DataFrame, reading: Reading = PLAIN) -> None:
        super().__init__(name, name, reading=reading)
        self._frame = frame

    def _names(self) -> Sequence[str]:
        return frame_names(self.where, self._frame)

    def _load(self, wanted: Mapping[str, Type | None]) -> Mapping[str, Column]:
        return {name: SeriesColumn(self._frame[name]) for name in wanted}


def frame_names(where: str, frame: pd.DataFrame) -> list[str]:
    """Return the names of a frame's columns; InputError unless each is a text."""
    if frame.columns.nlevels > 1:
        fail(where, "the columns have several levels: flatten them to one name per column")
    for name in frame.columns:
        if not isinstance(name, str):
            fail(where, f"the name of column {name!r} is not text: rename it")
    return list(frame.columns)


class SeriesColumn:
    """A column of pandas, whose dtype says what it is stored as.

    If it has labels of numbers, these are ``codes``. Numbers whose texts would not be those of the
    table are not ``exact``.
    """

    def __init__(
        self, series: pd.Series, codes: pd.Series | None = None, exact: bool = True
    ) -> None:
        self._series = series
        self._codes = codes
        self._exact = exact

    def offers(self, kind: Type) -> bool:
        return self._exact or kind != "text"

    def profile(self, reading: Reading) -> ColumnProfile | None:
        stored = _stored(self._series)
        if stored == "other":
            return None
        present = _known(self._series, reading).dropna()
        if present.empty:
            return EMPTY
        match stored:
            case "number":
                return profile_of(number_counts(present.to_numpy(dtype=np.float64)), 0)
            case "boolean":
                return EMPTY._replace(boolean="all")
            case "date":
                return EMPTY._replace(date="all")
        codes, values = distinct(present)
        counts = np.bincount(codes, minlength=len(values)).tolist()
        try:
            texts = [as_written(value, reading) for value in values]
        except (TypeError, ValueError, OverflowError):  # it has no form as text
            return None
        classes = class_counts(zip(texts, counts, strict=True), reading)
        stored_texts = sum(
            count
            for value, text, count in zip(values, texts, counts, strict=True)
            if isinstance(value, str) and not reading.is_missing(text)
        )
        return profile_of(classes, stored_texts)._replace(category=stored == "category")

    def values(self, where: str, name: str, kind: Type, reading: Reading) -> Values:
        series = self._series if self._codes is None or kind == "text" else self._codes
        series = _known(series, reading)
        match _stored(series), kind:
            case ("number", "number") | ("boolean", "number" | "boolean"):
                return np.array(series.to_numpy(dtype=np.float64, na_value=np.nan))
            case "date", "date":
                return _days(series)
            case "category", "text":
                return _category(series, reading)
        codes, values = distinct(series)
        texts = Texts([as_written(value, reading) for value in values], codes)
        refused = partial(unreadable, where, name, kind)
        return texts.read(partial(reading.read, kind=kind), kind, refused)


def distinct(series: pd.Series) -> tuple[np.ndarray[Any, Any], list[Any]]:
    """Return the position of each row's value among the others, -1 if it is missing; the values.

    The values of a column of mixed types are not merged: 1 would be the same as True.
    """
    if isinstance(series.dtype, pd.CategoricalDtype):
        return series.array.codes, list(series.array.categories)
    if series.dtype == object and types.infer_dtype(series, skipna=True) != "string":
        present = series.notna().to_numpy()
        return np.where(present, np.cumsum(present) - 1, -1), list(series[present])
    codes, values = pd.factorize(series)
    return codes, list(values)


def as_written(value: object, reading: Reading = PLAIN) -> str:
    """Return a value that is not missing as a file of text would have it, in its form as a level.

    A value of any other type than a column can have raises TypeError.
    """
    match value:
        case str():
            return value.strip()
        case bool() | np.bool_():
            return str(bool(value))
        case date():
            return date_form(value.isoformat())
        case int() | np.integer():
            number = str(int(value))
        case float() | np.floating():
            number = float_form(float(value))
        case Decimal():
            number = number_form(str(value))
        case _:
            what = "neither a number, a date, a boolean nor text"
            raise TypeError(f"{type(value).__name__} is {what}")
    return number.replace(".", reading.decimal)


def _known(series: pd.Series, reading: Reading) -> pd.Series:
    """Return a column without the numbers and dates that are codes for a missing value."""
    match _stored(series):
        case "number" if reading.number_codes:
            return series.mask(series.isin(reading.number_codes))
        case "date" if reading.date_codes:
            return series.mask(np.isin(_days(series), reading.date_codes))
    return series


def _stored(series: pd.Series) -> str:
    """Return what the dtype says: a type, category, objects, or other."""
    dtype = series.dtype
    # Before numbers: the categories of a categorical column may be numbers.
    if isinstance(dtype, pd.CategoricalDtype):
        return "category"
    if types.is_bool_dtype(dtype):
        return "boolean"
    if types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype):
        return "number"
    if types.is_datetime64_any_dtype(dtype):
        return "date"
    if types.is_object_dtype(dtype) or types.is_string_dtype(dtype):
        return "objects"
    return "other"


def _category(series: pd.Series, reading: Reading) -> pd.Categorical:
    """Return a categorical column with its categories as text, in their order."""
    texts = [reading.read(as_written(each, reading), "text") for each in series.cat.categories]
    known = pd.Index([text for text in dict.fromkeys(texts) if text is not None], dtype=object)
    positions = np.append(known.get_indexer(pd.Index(texts, dtype=object)), -1)
    codes = positions[series.cat.codes.to_numpy()]
    return pd.Categorical.from_codes(codes, known, ordered=series.cat.ordered)


def _days(series: pd.Series) -> np.ndarray[Any, Any]:
    """Return dates as days since 1970-01-01 UTC."""
    if series.dt.tz is not None:
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    moments = series.to_numpy().astype("datetime64[us]")
    values: np.ndarray[Any, Any] = moments.astype(np.int64) / np.float64(DAY)
    values[np.isnat(moments)] = np.nan
    return values
