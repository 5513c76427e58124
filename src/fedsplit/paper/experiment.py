"""What an experiment is, what it measured, and what the paper claims of that.

Measurements are saved, so that figures and claims can be made from them again without computing.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from fedsplit import files
from fedsplit.arrays import Array
from fedsplit.plots import Columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Watch: TypeAlias = Callable[[float, float], None]
"""Called as ``watch(share, gap)`` while an experiment runs: how much is done, and F(x) - F*."""


@dataclass(frozen=True)
class Measurements:
    """The outcome of one experiment.

    Attributes
    ----------
    settings : mapping
        The settings of the experiment.
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


class Claim(NamedTuple):
    """A sentence of the paper that can be true or false, with what was measured here.

    Attributes
    ----------
    id : str
        Its key in claims.json.
    claim : str
    paper : object
        The paper's number or words.
    measured : float or list of float
        What is not finite, such as the time of a run that never arrives, is null in claims.json.
    holds : bool
    reason : str
        Why it does not hold, or how far it does.
    """

    id: str
    claim: str
    paper: object
    measured: float | list[float]
    holds: bool
    reason: str = ""


def claims_of(
    figure: str, sentences: Mapping[str, str], findings: Mapping[str, tuple[Any, ...]]
) -> list[Claim]:
    """Put each sentence about a figure together with the other fields of its claim."""
    return [Claim(f"{figure}-{key}", sentences[key], *finding) for key, finding in findings.items()]


@dataclass(frozen=True)
class Experiment:
    """One figure of the paper: how to compute it, draw it, and check what the paper says of it.

    Parameters
    ----------
    name : str
        The name of the figure, as in ``fedsplit reproduce NAME``.
    title : str
    choices : str
        The settings on which the paper is silent, in words; shown beside the figure.
    settings : mapping
        Sizes, seeds and numbers of rounds, in JSON's types.
    compute : callable
        Called as ``compute(settings, watch)``; returns the measurements.
    draw : callable
        Called with the measurements; returns figures by the names of their files.
    claims : callable
        Called with the measurements; returns the claims.
    cost : float
        About how many seconds it takes, for the progress bar and to start the longest first.
    """

    name: str
    title: str
    choices: str
    settings: Mapping[str, Any]
    compute: Callable[[Mapping[str, Any], Watch], Measurements]
    draw: Callable[[Measurements], Mapping[str, Figure]]
    claims: Callable[[Measurements], list[Claim]]
    cost: float
