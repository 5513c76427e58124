"""What an experiment measured.

It is saved, so that figures and claims can be made from it again without computing.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsplit import files
from fedsplit.arrays import Array
from fedsplit.plots import Columns


@dataclass(frozen=True)
class Measurements:
    """The outcome of one experiment.

    Attributes
    ----------
    settings : mapping
        Those of the experiment.
    tables : mapping of str to table
        Curves; a table has named columns of equal length.
    facts : mapping
        Single numbers that the claims need.
    seconds : float
        How long the computation took.
    key : str
        What it was computed from, see ``reproduction.key_of``.
    """

    settings: Mapping[str, Any]
    tables: Mapping[str, Columns]
    facts: Mapping[str, Any]
    seconds: float = 0.0
    key: str = ""

    def gap(self, name: str) -> Array:
        """Return the gaps F(x) - F* of a curve, (T + 1,), at the start and after each round."""
        return self.tables[name]["gap"]

    def save(self, folder: Path) -> None:
        """Write one CSV file per table, and a JSON file for the rest."""
        rest = {
            "key": self.key,
            "settings": self.settings,
            "facts": self.facts,
            "seconds": self.seconds,
        }
        contents = {"record.json": json.dumps(rest, indent=2)}
        for name, table in self.tables.items():
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(table)
            # csv writes Python's floats in full, so that they are read back to the bit.
            writer.writerows(zip(*(column.tolist() for column in table.values()), strict=True))
            contents[f"{name}.csv"] = text.getvalue()
        files.write_folder(folder, contents)


def load(folder: Path) -> Measurements | None:
    """Read what ``Measurements.save`` wrote; None if there is nothing, or not all of it."""
    try:
        rest = json.loads((folder / "record.json").read_text(encoding="utf-8"))
        tables = {}
        for path in sorted(folder.glob("*.csv")):
            with path.open(encoding="utf-8", newline="") as file:
                header, *rows = csv.reader(file)
            columns = np.array(rows, dtype=np.float64).T
            tables[path.stem] = dict(zip(header, columns, strict=True))
        return Measurements(
            rest["settings"], tables, rest["facts"], rest["seconds"], str(rest["key"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
