"""Categories in a Parquet file: which columns are stored as such, and the order of their levels.

DuckDB reads the values but not this. What pandas notes in the file says which columns are
categories; an order with a meaning is in Arrow's dictionaries, which only pyarrow reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from fedsplit.data.categories import sort_levels
from fedsplit.data.files.sql import fetch
from fedsplit.data.tables import fail
from fedsplit.data.types import MISSING, is_number

NOTE = "select value from parquet_kv_metadata(?) where key = 'pandas'::blob"


def stored_categories(where: str, path: Path) -> dict[str, bool]:
    """Return the columns that are stored as categories, and whether their order has a meaning."""
    found = {}
    for note in fetch(where, NOTE, path)[0]:
        try:
            for column in json.loads(bytes(note))["columns"]:
                if column["pandas_type"] == "categorical":
                    found[column["field_name"]] = bool(column["metadata"]["ordered"])
        except (KeyError, TypeError, ValueError):
            fail(where, "what pandas has noted in it about its columns cannot be read")
    arrow = _pyarrow()
    if arrow is not None:
        for field in arrow.read_schema(path):
            if hasattr(field.type, "ordered"):  # a dictionary
                found[field.name] = bool(field.type.ordered)
    return found


def with_order(
    where: str, path: Path, column: str, values: Iterable[str | None], meant: bool
) -> pd.Categorical:
    """Return a column of text as a categorical in the order of its levels.

    An order without a meaning is not read, so that the first level does not depend on whether
    pyarrow is installed: levels are sorted then, as numbers if they are numbers.

    Parameters
    ----------
    where : str
    path : Path
    column : str
    values : (n,) iterable
        Trimmed texts, None where missing.
    meant : bool
        Whether the order has a meaning.
    """
    present = list(dict.fromkeys(value for value in values if value is not None))
    numbers = all(is_number(text) for text in present)
    order = sort_levels(present, "number" if numbers else "text")
    if meant:
        order = _dictionary(where, path, column) or order
    return pd.Categorical(values, categories=pd.Index(order, dtype=object), ordered=meant)


def _dictionary(where: str, path: Path, column: str) -> list[str]:
    """Return the texts of a column's dictionary, in its order; none if it has no dictionary."""
    arrow = _pyarrow()
    if arrow is None:
        fail(where, f"column {column!r} is an ordered category: install pyarrow to read its order")
    chunks = arrow.read_table(path, columns=[column]).column(column).unify_dictionaries().chunks
    if not chunks or not hasattr(chunks[0], "dictionary"):
        return []
    texts = [str(text).strip() for text in chunks[0].dictionary.to_pylist() if text is not None]
    return [text for text in dict.fromkeys(texts) if text not in MISSING]


def _pyarrow() -> Any:
    """Return pyarrow's reader of Parquet files, None if it is not installed."""
    try:
        from pyarrow import parquet
    except ImportError:
        return None
    return parquet
