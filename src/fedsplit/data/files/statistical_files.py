"""Files of SPSS, Stata and SAS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedsplit.data.files.frame_files import Loaded
from fedsplit.data.files.value_labels import labelled

FUNCTIONS = {
    ".sav": "read_sav",
    ".zsav": "read_sav",
    ".dta": "read_dta",
    ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
}
"""Of pyreadstat, by the end of a file's name."""


def load_statistical(pyreadstat: Any, path: Path) -> Loaded:
    """Read a file; values that its author declared to be missing are missing."""
    read = getattr(pyreadstat, FUNCTIONS[path.suffix.lower()])
    frame, about = read(str(path))
    frame = frame.copy()
    codes = {}
    for name, labels in about.variable_value_labels.items():
        texts = labelled(frame[name], labels)
        if texts is not None:
            codes[name] = frame[name]
            frame[name] = texts
    return Loaded(frame, codes)
