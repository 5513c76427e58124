"""Labels of values, as SPSS, Stata and R's haven have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype


def labelled(values: pd.Series, labels: Mapping[Any, str]) -> pd.Series | None:
    """Return a column with labels in the place of its values.

    Parameters
    ----------
    values : (n,) Series
    labels : mapping
        Labels of values.

    Returns
    -------
    (n,) Series of an ordered categorical dtype, or None
        In the order of the values. None unless every value present has a label that no other has:
        a few labels often mark special values of a number, and equal ones would merge values.
    """
    words = not is_numeric_dtype(values)
    # Stata's and SAS' kinds of missing values have labels too; the values are missing.
    named = {
        code: str(label).strip()
        for code, label in labels.items()
        if isinstance(code, str) == words and pd.notna(code)
    }
    if not set(values.dropna()) <= set(named) or len(set(named.values())) < len(named):
        return None
    if values.isna().all() or not all(named.values()):
        return None
    ordered = [named[code] for code in sorted(named)]
    texts = pd.Categorical(values.map(named), categories=ordered, ordered=True)
    return pd.Series(texts, index=values.index, name=values.name)
