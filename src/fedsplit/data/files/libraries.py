"""Files of other programs, each read by a library of its own."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from fedsplit.data.files.delimited import ROW_NAMES
from fedsplit.data.files.opening import CheckedGzip, check_file, open_text
from fedsplit.data.frames import SeriesColumn, frame_names
from fedsplit.data.tables import Column, Table, check_names, fail
from fedsplit.data.types import PLAIN, Reading, Type
from fedsplit.errors import InputError, listed
from fedsplit.files import check_archive


class Loaded(NamedTuple):
    """What is in a file, with notes on how it was read.

    Values with labels are categories in the frame, and ``codes`` has their numbers, by column.
    """

    frame: pd.DataFrame
    codes: Mapping[str, pd.Series] = {}
    notes: Sequence[str] = ()


class LibraryTable(Table):
    """A file that is read whole, by a function that is given a library, a module."""

    path: Path

    def __init__(
        self,
        name: str,
        where: str,
        path: Path,
        reading: Reading = PLAIN,
        *,
        load: Callable[[Any, Path], Loaded],
        library: str,
    ) -> None:
        super().__init__(name, where, path, reading)
        self._read_by = load
        self._library = library
        self._notes: Sequence[str] = ()

    def notes(self) -> Sequence[str]:
        self.names()  # which are read by now, as a rule
        return self._notes

    def _names(self) -> Sequence[str]:
        # Kept for those who then ask for columns, as everybody does.
        self._stamp = self._stamp_now()
        self._loaded = dict(self._load())
        return list(self._loaded)

    def _load(self, wanted: Mapping[str, Type | None] | None = None) -> Mapping[str, Column]:
        frame, codes, self._notes = self._whole()
        names = frame_names(self.where, frame)
        check_names(self.where, names)  # of which two could be one in a dictionary
        return {name: SeriesColumn(frame[name], codes.get(name)) for name in names}

    def _whole(self) -> Loaded:
        check_file(self.where, self.path)
        try:
            library = importlib.import_module(self._library)
        except ImportError:
            fail(
                self.where,
                f"reading {self.path.suffix} needs {self._library}: install it with "
                "pip install 'fedsplit[files]', or save the file as CSV",
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of styles, and of classes that are refused here
                return self._read_by(library, self.path)
        except InputError as error:
            fail(self.where, str(error).removeprefix(f"{self.path}: "))
        except Exception as error:  # a damaged file can fail anywhere in a library
            reason = str(error) or type(error).__name__
            fail(self.where, f"cannot be read as {self.path.suffix}: {reason}")


STATISTICAL = {
    ".sav": "read_sav",
    ".zsav": "read_sav",
    ".dta": "read_dta",
    ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
}
"""The functions of pyreadstat for files of SPSS, Stata and SAS, by the end of a file's name."""


def load_statistical(pyreadstat: Any, path: Path) -> Loaded:
    """Read a file of SPSS, Stata or SAS; values that its author declared missing are missing."""
    frame, about = getattr(pyreadstat, STATISTICAL[path.suffix.lower()])(str(path))
    frame = frame.copy()
    codes = {}
    for name, labels in about.variable_value_labels.items():
        if (texts := labelled(frame[name], labels)) is not None:
            codes[name] = frame[name]
            frame[name] = texts
    return Loaded(frame, codes)


def labelled(values: pd.Series, labels: Mapping[Any, str]) -> pd.Series | None:
    """Return a column with labels in the place of its values, as SPSS, Stata and R's haven do.

    It is an ordered categorical in the order of the values. None unless every value present has a
    label that no other has: a few labels often mark special values of a number, and equal ones
    would merge values.
    """
    words = not is_numeric_dtype(values)
    # Stata's and SAS' kinds of missing values have labels too; the values are missing.
    named = {
        code: str(label).strip()
        for code, label in labels.items()
        if isinstance(code, str) == words and pd.notna(code)
    }
    present = set(values.dropna())
    if not present or not present <= set(named):
        return None
    if not all(named.values()) or len(set(named.values())) < len(named):
        return None
    ordered = [named[code] for code in sorted(named)]
    texts = pd.Categorical(values.map(named), categories=ordered, ordered=True)
    return pd.Series(texts, index=values.index, name=values.name)


def load_xlsx(openpyxl: Any, path: Path) -> Loaded:
    """Read the only sheet that has values; its first row has the names."""
    check_archive(path)
    rows = _rows(openpyxl, path)
    names = ["" if cell is None else str(cell).strip() for cell in rows[0]]
    while names and not names[-1] and all(row[len(names) - 1] is None for row in rows):
        names.pop()
    if not any(names):
        raise InputError("its first row is empty: put the names of the columns there")
    columns = {i: pd.Series([row[i] for row in rows[1:]], dtype=object) for i in range(len(names))}
    if any(column.isna().any() for column in columns.values()):
        _check_cells(openpyxl, path)
    frame = pd.DataFrame(columns)
    frame.columns = names
    if not names[0] and len(names) > 1:
        return Loaded(frame.iloc[:, 1:], notes=[ROW_NAMES])
    return Loaded(frame)


def _rows(openpyxl: Any, path: Path) -> list[Sequence[Any]]:
    """Return the rows of the only sheet that has values, without those that are empty."""
    sheets: dict[str, list[Sequence[Any]]] = {}
    with closing(openpyxl.load_workbook(path, read_only=True, data_only=True)) as book:
        for sheet in book.worksheets:
            sheet.reset_dimensions()  # what the file says of them may be wrong
            rows = [row for row in sheet.values if any(cell is not None for cell in row)]
            width = max(map(len, rows), default=0)
            if rows:
                sheets[sheet.title] = [(*row, *[None] * (width - len(row))) for row in rows]
    if not sheets:
        raise InputError("the file is empty: it has no sheet with values")
    if len(sheets) > 1:
        raise InputError(
            f"it has {len(sheets)} sheets with values, {listed(sheets)}: keep one of them per file"
        )
    [rows] = sheets.values()
    return rows


def _check_cells(openpyxl: Any, path: Path) -> None:
    """Raise InputError if cells seem empty: a formula's without its value, or merged ones."""
    with (
        closing(openpyxl.load_workbook(path)) as book,
        closing(openpyxl.load_workbook(path, data_only=True)) as values,
    ):
        for sheet in book.worksheets:
            for merged in sheet.merged_cells.ranges:
                raise InputError(
                    f"cells {merged} are merged, and only the first has the value: separate them"
                )
            for row, stored in zip(sheet.rows, values[sheet.title].rows, strict=True):
                for cell, value in zip(row, stored, strict=True):
                    if cell.data_type == "f" and value.value is None:
                        raise InputError(
                            f"cell {cell.coordinate} is a formula without a value: open the file "
                            "in Excel and save it"
                        )


def load_json(json: Any, path: Path) -> Loaded:
    """Read one object per line, or one array of objects; a key that an object lacks is missing.

    By Python's parser: DuckDB's renames keys that differ only in case, and guesses whether a line
    is a row or a value.
    """
    columns: dict[str, list[object]] = {}
    rows = 0
    with open_text(str(path), path) as file:
        for place, entry in _entries(json, file):
            if not isinstance(entry, dict):
                raise InputError(f"{place}: expected an object with the columns as keys")
            for name, value in entry.items():
                own = columns.setdefault(name, [])
                own += [None] * (rows - len(own))
                own.append(value)
            rows += 1
    for own in columns.values():
        own += [None] * (rows - len(own))
    series = {name: pd.Series(own, dtype=object) for name, own in columns.items()}
    return Loaded(pd.DataFrame(series))


def _entries(json: Any, file: IO[str]) -> Iterator[tuple[str, object]]:
    """Yield the elements of the array, or the values of the lines, each with its place."""
    lines = ((number, line) for number, line in enumerate(file, 1) if line.strip())
    first, text = next(lines, (1, "[]"))
    if text.lstrip().startswith("["):
        # The array may go on over many lines.
        array = _parsed(json, "the array", text + file.read())
        for number, entry in enumerate(array, 1):
            yield f"entry {number}", entry
        return
    for number, line in chain([(first, text)], lines):
        yield f"line {number}", _parsed(json, f"line {number}", line)


def _parsed(json: Any, place: str, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except RecursionError:
        raise InputError(f"{place}: nested too deeply") from None
    except ValueError as error:
        raise InputError(f"{place}: {error}") from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object as a dict; without this, json keeps only the last of equal keys."""
    if len(entry := dict(pairs)) < len(pairs):
        raise ValueError("a key appears twice")
    return entry


class Classes(dict[str, Callable[[Any, Mapping[str, Any]], Any]]):
    """What makes a value of each class of R; one of an unknown class cannot be read."""

    def get(self, key: str, default: object = None) -> Any:
        return super().get(key, _unreadable)


def load_rds(rdata: Any, path: Path) -> Loaded:
    """Read a data frame; its factors are categories in the order of their levels."""
    known = rdata.conversion.DEFAULT_CLASS_MAP

    def data_frame(columns: Mapping[str, Any], about: Mapping[str, Any]) -> Any:
        plain = {name: _column(values) for name, values in columns.items()}
        return known["data.frame"](plain, about)

    frames = ("data.frame", "tbl_df", "tbl", "spec_tbl_df", "grouped_df", "data.table")
    classes = Classes(
        known,
        AsIs=lambda values, _: values,
        factor=lambda codes, about: _factor(codes, about["levels"], False),
        ordered=lambda codes, about: _factor(codes, about["levels"], True),
        Date=lambda values, _: _dates(values, 86_400),
        POSIXct=lambda values, _: _dates(values, 1),
        **dict.fromkeys(frames, data_frame),
    )
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"  # as gzip does, which is R's default
    if packed:  # perhaps far more than a table, which rdata would unpack at once
        with CheckedGzip(path) as unpacked:
            while unpacked.read1(1 << 20):
                pass
    frame = rdata.read_rds(path, constructor_dict=classes)
    if not isinstance(frame, pd.DataFrame):
        raise InputError("it holds no data frame: use saveRDS(as.data.frame(x), file)")
    return Loaded(frame.reset_index(drop=True).rename(columns=str))


def _column(values: Any) -> Any:
    """Return a column as a vector; R's ``scale`` makes it a matrix of one column."""
    shape = np.shape(values)
    if len(shape) < 2:
        return values
    return np.asarray(values)[:, 0] if shape[1] == 1 else _unreadable(values, {})


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


def _unreadable(values: Any, about: object) -> Any:
    """Return a column that no table reads, as long as this one."""
    return np.full(len(values), np.nan, dtype=np.complex128)
