"""Files that another library reads into a frame."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from fedsplit.data.files.opening import check_file
from fedsplit.data.frames import FrameTable
from fedsplit.data.reading import PLAIN, Reading
from fedsplit.data.tables import Values, fail
from fedsplit.data.types import Fit, Type
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


@dataclass
class FrameFile:
    """A file that is read whole.

    Parameters
    ----------
    where : str
        What error messages call the file.
    path : Path
    load : callable
        Reads the file, given a library.
    library : str
        The module that ``load`` is called with.
    reading : Reading
    """

    where: str
    path: Path
    load: Callable[[Any, Path], Loaded]
    library: str
    reading: Reading = PLAIN
    # What ``fits`` has read, for the ``take`` that follows.
    _kept: Loaded | None = field(default=None, init=False, repr=False)

    def fits(self) -> dict[str, Fit | None]:
        self._kept = self._loaded()
        return self._table(self._kept.frame).fits()

    def take(self, wanted: Mapping[str, Type]) -> dict[str, Values]:
        loaded = self._loaded()
        self._kept = None  # not to be held in memory beside what is made of it
        frame = loaded.frame
        for name, kind in wanted.items():
            if name in loaded.codes and kind != "text":
                frame = frame.assign(**{name: loaded.codes[name]})
        return self._table(frame).take(wanted)

    def notes(self) -> Sequence[str]:
        return self._loaded().notes

    def _table(self, frame: pd.DataFrame) -> FrameTable:
        return FrameTable(self.where, frame, self.reading)

    def _loaded(self) -> Loaded:
        if self._kept is not None:
            return self._kept
        check_file(self.where, self.path)
        try:
            library = importlib.import_module(self.library)
        except ImportError:
            fail(
                self.where,
                f"reading {self.path.suffix} needs {self.library.split('.')[0]}: install it with "
                "pip install 'fedsplit[files]', or save the file as CSV",
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of styles, and of classes that are refused here
                return self.load(library, self.path)
        except InputError as error:
            fail(self.where, error)
        except Exception as error:  # a damaged file can fail anywhere in a library
            reason = str(error) or type(error).__name__
            fail(self.where, f"cannot be read as {self.path.suffix}: {reason}")
