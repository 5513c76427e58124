"""JSON: objects a line, or one array of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from fedsplit.data.frames import FrameTable
from fedsplit.data.table import fail, opened


@dataclass
class JsonTable:
    """One object a row; a key that an object does not have is missing there.

    Python's parser: DuckDB's renames keys that differ in case, and guesses whether a line is a row or a value.
    """

    where: str
    path: Path

    def kinds(self) -> dict[str, str]:
        types: dict[str, set[type]] = {}
        for record in self._records():
            for name, value in record.items():
                types.setdefault(name, set()).add(type(value))
        if not types:
            fail(self.where, "it has no columns")
        return {name: _kind(found - {type(None)}) for name, found in types.items()}

    def take(self, wanted: Mapping[str, str]) -> pd.DataFrame:
        columns: dict[str, list[object]] = {name: [] for name in wanted}
        for record in self._records():
            for name, values in columns.items():
                values.append(record.get(name))
        return FrameTable(self.where, pd.DataFrame(columns, dtype=object)).take(wanted)

    def _records(self) -> Iterator[dict[str, object]]:
        with opened(self.where, self.path) as file:
            rows = ((f"line {number}", line) for number, line in enumerate(file, 1) if line.strip())
            place, first = next(rows, ("line 1", "[]"))
            if first.lstrip().startswith("["):
                array = self._parse("the array", first + file.read())
                found = ((f"entry {number}", record) for number, record in enumerate(array, 1))
            else:
                found = (
                    (place, self._parse(place, line))
                    for place, line in chain([(place, first)], rows)
                )
            for place, record in found:
                if not isinstance(record, dict):
                    fail(self.where, f"{place}: expected an object with the columns as keys")
                yield record

    def _parse(self, place: str, text: str) -> Any:
        try:
            return json.loads(text, object_pairs_hook=_unique)
        except RecursionError:
            fail(self.where, f"{place}: nested too deeply")
        except ValueError as error:
            fail(self.where, f"{place}: {error}")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object whose keys are all different."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _kind(types: set[type]) -> str:
    if types <= {int, float}:
        return "number"
    return {bool: "boolean", str: "text"}.get(types.pop(), "other") if len(types) == 1 else "other"
