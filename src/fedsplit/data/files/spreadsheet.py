"""Excel's .xlsx files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd

from fedsplit.data.files.delimited import ROW_NAMES
from fedsplit.data.files.libraries import Loaded
from fedsplit.errors import InputError, listed
from fedsplit.files import check_archive


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
    found: dict[str, list[Sequence[Any]]] = {}
    with closing(openpyxl.load_workbook(path, read_only=True, data_only=True)) as book:
        for sheet in book.worksheets:
            sheet.reset_dimensions()  # what the file says of them may be wrong
            rows = [row for row in sheet.values if any(cell is not None for cell in row)]
            width = max(map(len, rows), default=0)
            if rows:
                found[sheet.title] = [(*row, *[None] * (width - len(row))) for row in rows]
    if not found:
        raise InputError("the file is empty: it has no sheet with values")
    if len(found) > 1:
        raise InputError(
            f"it has {len(found)} sheets with values, {listed(found)}: keep one of them per file"
        )
    [rows] = found.values()
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
