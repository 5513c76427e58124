"""A DataFrame in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from fedsplit.data.table import check_names, fail, framed

INFERRED = {
    "empty": "number",
    "integer": "number",
    "floating": "number",
    "mixed-integer-float": "number",
    "decimal": "number",
    "boolean": "boolean",
    "string": "text",
    "date": "date",
    "datetime": "date",
    "datetime64": "date",
}
"""Kinds by what pandas finds in a column of objects."""


@dataclass
class FrameTable:
    """A user's frame, which is never changed; a category is text."""

    where: str
    frame: pd.DataFrame

    def kinds(self) -> dict[str, str]:
        names = list(self.frame.columns)
        if self.frame.columns.nlevels > 1:
            fail(self.where, "the columns have several levels: flatten them to one name a column")
        for name in names:
            if not isinstance(name, str):
                fail(self.where, f"column {name!r} is not named by text: rename it")
        check_names(self.where, names)
        return {name: _kind(self.frame[name]) for name in names}

    def take(self, wanted: Mapping[str, str]) -> pd.DataFrame:
        return framed(wanted, [self._values(name, kind) for name, kind in wanted.items()])

    def _values(self, name: str, kind: str) -> np.ndarray[Any, Any]:
        series = self.frame[name]
        missing = series.isna().to_numpy()
        if kind in ("text", "date"):
            values = np.array([str(value) for value in series], dtype=object)
            values[missing] = None
            return values
        try:
            return np.array(
                series.astype(object).where(~missing, np.nan) if missing.any() else series,
                dtype=np.float64,
            )
        except (TypeError, ValueError, OverflowError) as error:
            fail(self.where, f"column {name!r}: {error}")


def _kind(series: pd.Series) -> str:
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return "text"
    if types.is_bool_dtype(dtype):
        return "boolean"
    if types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype):
        return "number"
    if types.is_datetime64_any_dtype(dtype):
        return "date"
    return INFERRED.get(types.infer_dtype(series, skipna=True), "other")
