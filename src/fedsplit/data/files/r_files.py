"""R's .rds files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedsplit.data.files.libraries import Loaded, labelled
from fedsplit.data.files.opening import CheckedGzip
from fedsplit.errors import InputError

MISSING_INTEGER64 = np.iinfo(np.int64).min

FRAMES = ("tbl_df", "tbl", "spec_tbl_df", "grouped_df", "data.table")
"""Classes that a data frame of R can have besides ``data.frame``."""


class Classes(dict[str, Callable[[Any, Mapping[str, Any]], Any]]):
    """What makes a value of each class of R; one of an unknown class cannot be read."""

    def get(self, key: str, default: object = None) -> Any:
        return super().get(key, _unreadable)


def load_rds(rdata: Any, path: Path) -> Loaded:
    """Read a data frame; its factors are categories in the order of their levels."""
    known = rdata.conversion.DEFAULT_CLASS_MAP

    def frame(columns: Mapping[str, Any], about: Mapping[str, Any]) -> Any:
        plain = {name: _column(values) for name, values in columns.items()}
        return known["data.frame"](plain, about)

    def factor(ordered: bool) -> Callable[[Any, Mapping[str, Any]], Any]:
        return lambda codes, about: _factor(codes, about["levels"], ordered)

    classes = Classes(
        known,
        AsIs=lambda values, _: values,
        factor=factor(False),
        ordered=factor(True),
        Date=lambda values, _: _dates(values, 86_400),
        POSIXct=lambda values, _: _dates(values, 1),
        integer64=_integers,
        haven_labelled=_of_haven,
        haven_labelled_spss=_of_haven,
        **dict.fromkeys(("data.frame", *FRAMES), frame),
    )
    _check_unpacked(path)
    found = rdata.read_rds(path, constructor_dict=classes)
    if not isinstance(found, pd.DataFrame):
        raise InputError("it holds no data frame: use saveRDS(as.data.frame(x), file)")
    return Loaded(found.reset_index(drop=True).rename(columns=str))


def _check_unpacked(path: Path) -> None:
    """Raise InputError if R has packed far more than a table; rdata would unpack it at once."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"  # as gzip does, which is R's default
    if packed:
        with CheckedGzip(path) as unpacked:
            while unpacked.read1(1 << 20):
                pass


def _column(values: Any) -> Any:
    """Return a column as a vector; R's ``scale`` makes it a matrix of one column."""
    shape = np.shape(values)
    if len(shape) < 2:
        return values
    if shape[1] == 1:
        return np.asarray(values)[:, 0]
    return _unreadable(values, {})


def _factor(codes: Any, levels: Any, ordered: bool) -> Any:
    """Return a factor as a categorical; rows of the level NA are missing."""
    numbers = np.ma.filled(np.ma.asarray(codes), 0).astype(np.int64) - 1
    present = [level for level in levels if level is not None]
    place = {level: i for i, level in enumerate(present)}
    places = np.array([*(place.get(level, -1) for level in levels), -1])
    return pd.Categorical.from_codes(places[numbers], present, ordered=ordered)


def _dates(values: Any, unit: int) -> Any:
    """Return dates from numbers of ``unit`` seconds since 1970."""
    seconds = np.array(pd.array(values).to_numpy(dtype=np.float64, na_value=np.nan)) * unit
    return pd.to_datetime(np.round(seconds * 1e6), unit="us")


def _integers(values: Any, about: object) -> Any:
    """Return whole numbers of 64 bits, which R keeps in the place of doubles."""
    numbers = np.asarray(values, dtype=np.float64).view(np.int64)
    return pd.arrays.IntegerArray(numbers, numbers == MISSING_INTEGER64)


def _of_haven(values: Any, about: Mapping[str, Any]) -> Any:
    """Return a column that haven has read from another program's file."""
    series = pd.Series(values)
    if "na_values" in about:
        series = series.mask(series.isin(list(about["na_values"])))
    if "na_range" in about:
        low, high = about["na_range"]
        series = series.mask(series.between(low, high))
    labels = about.get("labels")
    if labels is not None:
        named = dict(
            zip(labels.to_numpy(), map(str, labels.coords["dim_0"].to_numpy()), strict=True)
        )
        texts = labelled(series, named)
        if texts is not None:
            return texts.array
    return series.array


def _unreadable(values: Any, about: object) -> Any:
    """Return a column that no table reads, as long as this one."""
    return np.full(len(values), np.nan, dtype=np.complex128)
