"""A DataFrame in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from fedsplit.data.tables import check_names, fail, to_frame

KINDS_BY_INFERENCE = {
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
"""Kind of a column of objects, by what ``pandas.api.types.infer_dtype`` finds in it."""


@dataclass
class FrameTable:
    """A user's frame, which is never changed; a categorical column is text."""

    where: str
    frame: pd.DataFrame

    def kinds(self) -> dict[str, str]:
        names = list(self.frame.columns)
        if self.frame.columns.nlevels > 1:
            fail(self.where, "the columns have several levels: flatten them to one name per column")
        for name in names:
            if not isinstance(name, str):
                fail(self.where, f"the name of column {name!r} is not text: rename it")
        check_names(self.where, names)
        return {name: _kind(self.frame[name]) for name in names}

    def take(self, wanted: Mapping[str, str]) -> pd.DataFrame:
        columns = [self._values(name, kind) for name, kind in wanted.items()]
        return to_frame(list(wanted), columns)

    def _values(self, name: str, kind: str) -> np.ndarray[Any, Any]:
        """Return a column, (n,), as this kind."""
        series = self.frame[name]
        missing = series.isna().to_numpy()
        if kind in ("text", "date"):
            values = np.array([str(value) for value in series], dtype=object)
            values[missing] = None
            return values
        try:
            if missing.any():
                # numpy cannot convert pandas' own marks for missing values to float64.
                series = series.astype(object).where(~missing, np.nan)
            return np.array(series, dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            fail(self.where, f"column {name!r}: {error}")


def _kind(series: pd.Series) -> str:
    dtype = series.dtype
    # Before numbers: the categories of a categorical column may be numbers.
    if isinstance(dtype, pd.CategoricalDtype):
        return "text"
    if types.is_bool_dtype(dtype):
        return "boolean"
    if types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype):
        return "number"
    if types.is_datetime64_any_dtype(dtype):
        return "date"
    return KINDS_BY_INFERENCE.get(types.infer_dtype(series, skipna=True), "other")
