"""A DataFrame in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from fedsplit.data.reading import PLAIN, Reading
from fedsplit.data.tables import Values, check_names, fail
from fedsplit.data.texts import as_written, distinct, fit_of_texts, read_texts
from fedsplit.data.types import DAY, EMPTY, Fit, Type, share


@dataclass
class FrameTable:
    """A user's frame, which is never changed."""

    where: str
    frame: pd.DataFrame
    reading: Reading = PLAIN

    def fits(self) -> dict[str, Fit | None]:
        names = list(self.frame.columns)
        if self.frame.columns.nlevels > 1:
            fail(self.where, "the columns have several levels: flatten them to one name per column")
        for name in names:
            if not isinstance(name, str):
                fail(self.where, f"the name of column {name!r} is not text: rename it")
        check_names(self.where, names)
        return {name: _fit(self._known(name), self.reading) for name in names}

    def take(self, wanted: Mapping[str, Type]) -> dict[str, Values]:
        return {name: self._values(name, kind) for name, kind in wanted.items()}

    def notes(self) -> Sequence[str]:
        return ()

    def _values(self, name: str, kind: Type) -> Values:
        """Return a column, (n,), as this type."""
        series = self._known(name)
        match _stored(series), kind:
            case ("number", "number") | ("boolean", "number" | "boolean"):
                return np.array(series.to_numpy(dtype=np.float64, na_value=np.nan))
            case "date", "date":
                return _days(series)
            case "category", "text":
                return _category(series, self.reading)
        codes, values = distinct(series)
        written = [as_written(value, self.reading) for value in values]
        texts = np.array([*written, None], dtype=object)[codes]
        return read_texts(self.where, name, texts, "text", kind, self.reading)

    def _known(self, name: str) -> pd.Series:
        """Return a column without the numbers and dates that are codes for a missing value."""
        series = self.frame[name]
        match _stored(series):
            case "number" if self.reading.numbers:
                return series.mask(series.isin(self.reading.numbers))
            case "date" if self.reading.dates:
                return series.mask(np.isin(_days(series), self.reading.dates))
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


def _fit(series: pd.Series, reading: Reading) -> Fit | None:
    stored = _stored(series)
    present = series.dropna()
    if stored == "other":
        return None
    if present.empty:
        return EMPTY
    match stored:
        case "number":
            numbers = present.to_numpy(dtype=np.float64)
            whole = np.isfinite(numbers) & (np.floor(numbers) == numbers)
            integer = share(int(np.count_nonzero(whole)), len(present))
            return Fit(integer, "all", "none", "none", "none")
        case "boolean":
            return Fit("none", "none", "none", "all", "none")
        case "date":
            return Fit("none", "none", "all", "none", "none")
    codes, values = distinct(present)
    counts = []
    texts = 0
    try:
        for value, count in zip(values, np.bincount(codes, minlength=len(values)), strict=True):
            text = as_written(value, reading)
            if not reading.is_missing(text):
                counts.append((text, int(count)))
                texts += int(count) * isinstance(value, str)
    except (TypeError, ValueError, OverflowError):  # it has no form as text
        return None
    return fit_of_texts(counts, texts, reading)._replace(category=stored == "category")


def _category(series: pd.Series, reading: Reading) -> pd.Categorical:
    """Return a categorical column with its categories as text, in their order."""
    read = [
        reading.read(as_written(category, reading), "text") for category in series.cat.categories
    ]
    known = [text for text in dict.fromkeys(read) if text is not None]
    kept = pd.Index(known, dtype=object)
    positions = np.append(kept.get_indexer(pd.Index(read, dtype=object)), -1)
    codes = positions[series.cat.codes.to_numpy()]
    return pd.Categorical.from_codes(codes, kept, ordered=series.cat.ordered)


def _days(series: pd.Series) -> np.ndarray[Any, Any]:
    """Return dates as days since 1970-01-01 UTC."""
    if series.dt.tz is not None:
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    moments = series.to_numpy().astype("datetime64[us]")
    values: np.ndarray[Any, Any] = moments.astype(np.int64) / np.float64(DAY)
    values[np.isnat(moments)] = np.nan
    return values
