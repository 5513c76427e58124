"""Files of other programs, each read by a library of its own."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pandas.api.types import is_numeric_dtype

from fedsplit.data.files.opening import check_file
from fedsplit.data.frames import SeriesColumn, frame_names
from fedsplit.data.reading import PLAIN, Reading
from fedsplit.data.tables import Column, Table, check_names, fail
from fedsplit.data.types import Type
from fedsplit.errors import InputError


class Loaded(NamedTuple):
    """What is in a file.

    Attributes
    ----------
    frame : (n, c) DataFrame
        Values with labels are categories in it.
    codes : mapping of str to (n,) Series
        The numbers that have labels in ``frame``, by column.
    notes : sequence of str
        What a user should know of how it was read.
    """

    frame: pd.DataFrame
    codes: Mapping[str, pd.Series] = {}
    notes: Sequence[str] = ()


class LibraryTable(Table):
    """A file that is read whole.

    Parameters
    ----------
    name, where, path, reading
        As in ``Table``.
    load : callable
        Reads the file, given a library.
    library : str
        The module that ``load`` is called with.
    """

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
        self._loaded = self._read()
        return list(self._loaded)

    def _load(self, wanted: Mapping[str, Type | None]) -> Mapping[str, Column]:
        return self._read()

    def _read(self) -> dict[str, Column]:
        loaded = self._whole()
        self._notes = loaded.notes
        names = frame_names(self.where, loaded.frame)
        check_names(self.where, names)
        return {name: SeriesColumn(loaded.frame[name], loaded.codes.get(name)) for name in names}

    def _whole(self) -> Loaded:
        check_file(self.where, self.path)
        try:
            library = importlib.import_module(self._library)
        except ImportError:
            fail(
                self.where,
                f"reading {self.path.suffix} needs {self._library.split('.')[0]}: install it with "
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
