"""Columns in which a value that cannot be read as its type counts as missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import numpy as np

from fedsplit.data.categories import in_levels
from fedsplit.data.sources.client_data import Source
from fedsplit.data.tables import Values
from fedsplit.data.texts import Texts
from fedsplit.data.types import Type, as_number, level_form


def take_readable(
    source: Source, types: Mapping[str, Type], coded: Collection[str]
) -> dict[str, Values]:
    """Read columns without an error that would tell of a single row.

    Parameters
    ----------
    source : Source
    types : mapping of str to Type
        Of each column.
    coded : collection of str
        Those that are categories.

    Returns
    -------
    dict of str to Values
        Numbers as float64, NaN where a value is missing, infinite or no number; categories as
        categoricals of levels.
    """
    found = source.take(dict.fromkeys(types, "text"))
    for column, kind in types.items():
        if column in coded:
            levels = _readable(found[column], partial(level_form, kind=kind), None)
            found[column] = in_levels("", column, levels, kind)
        elif kind != "text":
            numbers = _readable(found[column], partial(as_number, kind=kind), math.nan)
            found[column] = np.where(np.isinf(numbers), math.nan, numbers)
    return found


def _readable(values: Values, read: Callable[[str], Any], missing: float | None) -> Values:
    """Return a column of texts as ``read`` has each, (n,); ``missing`` where it cannot."""
    texts = Texts.of(values)
    known = []
    for text in texts.distinct:
        try:
            known.append(read(text))
        except ValueError:
            known.append(missing)
    dtype = object if missing is None else np.float64
    return np.array([*known, missing], dtype=dtype)[texts.codes]
