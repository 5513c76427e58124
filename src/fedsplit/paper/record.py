"""What an experiment leaves on disk, and from which its figures and claims are made without computing."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from matplotlib.figure import Figure

from fedsplit import files
from fedsplit.arrays import Array

Table: TypeAlias = Mapping[str, Array]
"""Named columns of equal length."""

Watch: TypeAlias = Callable[[float, float], None]
"""Called as watch(share done, current gap) while an experiment runs."""


class Claim(NamedTuple):
    """One sentence of the paper that can be true or false, and what was measured here."""

    id: str
    claim: str
    paper: object
    measured: float | list[float]
    holds: bool
    reason: str = ""

    def as_json(self) -> dict[str, object]:
        """The claim as it stands in claims.json."""
        return self._asdict() | {"holds": bool(self.holds)}


@dataclass(frozen=True)
class Record:
    """The outcome of one experiment: tables of curves, and facts, single numbers that its claims need."""

    settings: Mapping[str, Any]
    tables: Mapping[str, Table]
    facts: Mapping[str, Any]
    seconds: float = 0.0

    def gap(self, name: str) -> Array:
        """The gap of one curve at the start and after each round."""
        return self.tables[name]["gap"]


@dataclass(frozen=True)
class Experiment:
    """One figure of the paper: how to compute it, draw it, and check what the paper says of it.

    ``choices`` are the settings on which the paper is silent, in words, shown beside the figure. ``cost`` is about how
    many seconds it takes, for progress and for doing the longest first.
    """

    name: str
    title: str
    choices: str
    settings: Mapping[str, Any]
    compute: Callable[[Mapping[str, Any], Watch], Record]
    draw: Callable[[Record], Mapping[str, Figure]]
    claims: Callable[[Record], list[Claim]]
    cost: float


def save(record: Record, folder: Path, key: str) -> None:
    """Write a record as one CSV a table and one JSON file for the rest."""
    meta = {
        "key": key,
        "settings": record.settings,
        "facts": record.facts,
        "seconds": record.seconds,
    }
    contents = {f"{name}.csv": _to_csv(table) for name, table in record.tables.items()}
    files.write_folder(folder, {"record.json": json.dumps(meta, indent=2), **contents})


def load(folder: Path) -> tuple[Record, str] | None:
    """A saved record and its key; None where there is none that is whole."""
    try:
        meta = json.loads((folder / "record.json").read_text(encoding="utf-8"))
        tables = {
            path.stem: _from_csv(path.read_text(encoding="utf-8"))
            for path in sorted(folder.glob("*.csv"))
        }
        return Record(meta["settings"], tables, meta["facts"], meta["seconds"]), str(meta["key"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _to_csv(table: Table) -> str:
    """Floats in full: what is read back is the same to the bit."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*(column.tolist() for column in table.values()), strict=True))
    return text.getvalue()


def _from_csv(text: str) -> Table:
    header, *rows = csv.reader(io.StringIO(text))
    columns = np.array(rows, dtype=np.float64).T
    return dict(zip(header, columns, strict=True))
