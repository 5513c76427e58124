"""Designs of frames by a formula, for tests: columns of text and categories get their levels."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedsplit.arrays import Array
from fedsplit.data.formula.formula import Formula
from fedsplit.data.formula.pooled_functions import Schema
from fedsplit.data.types import Type, float_form


def coded(
    frame: pd.DataFrame, levels: Mapping[str, Sequence[str]], **known: Any
) -> tuple[pd.DataFrame, Schema]:
    """The frame as a client has it, and what the clients agreed on: text where a level is."""
    types: dict[str, Type] = {}
    columns = {}
    for name, values in frame.items():
        numeric = pd.api.types.is_numeric_dtype(values)
        words = any(not level.replace(".", "").isdigit() for level in levels.get(str(name), ()))
        types[str(name)] = "number" if numeric and not words else "text"
        columns[name] = values
        if name in levels or not numeric:
            texts = [float_form(each) if numeric else each for each in values]
            columns[name] = pd.Categorical(texts)
    types |= known.pop("types", {})
    return pd.DataFrame(columns, frame.index), Schema(levels, types, **known)


def design(
    formula: Formula, frame: pd.DataFrame, levels: Mapping[str, Sequence[str]]
) -> tuple[list[str], Array]:
    """The names of the columns of a design, and the columns, (n, p)."""
    rows, schema = coded(frame, levels)
    columns = formula.compile(schema)
    return columns.names, formula.evaluate(columns, rows)[0]
