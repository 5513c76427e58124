"""A file of JSON objects, one per row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any

import pandas as pd

from fedsplit.data.files.opening import open_text
from fedsplit.data.frames import SeriesColumn
from fedsplit.data.tables import Column, Table, fail
from fedsplit.data.types import Type


class JsonTable(Table):
    """One object per line, or one array of objects; a key that an object lacks is missing there.

    Read with Python's parser: DuckDB's renames keys that differ only in case, and guesses whether
    a line is a row or a value.
    """

    path: Path

    def _names(self) -> Sequence[str]:
        return list(dict.fromkeys(chain.from_iterable(self._objects())))

    def _load(self, wanted: Mapping[str, Type | None]) -> Mapping[str, Column]:
        columns: dict[str, list[object]] = {name: [] for name in wanted}
        for entry in self._objects():
            for name, values in columns.items():
                values.append(entry.get(name))
        return {
            name: SeriesColumn(pd.Series(values, dtype=object)) for name, values in columns.items()
        }

    def _objects(self) -> Iterator[dict[str, object]]:
        with open_text(self.where, self.path) as file:
            for place, entry in self._entries(file):
                if not isinstance(entry, dict):
                    fail(self.where, f"{place}: expected an object with the columns as keys")
                yield entry

    def _entries(self, file: IO[str]) -> Iterator[tuple[str, object]]:
        """Yield the elements of the array, or the values of the lines, each with its place."""
        lines = ((number, line) for number, line in enumerate(file, 1) if line.strip())
        first, text = next(lines, (1, "[]"))
        if text.lstrip().startswith("["):
            # The array may go on over many lines.
            array = self._parse("the array", text + file.read())
            for number, entry in enumerate(array, 1):
                yield f"entry {number}", entry
            return
        for number, line in chain([(first, text)], lines):
            yield f"line {number}", self._parse(f"line {number}", line)

    def _parse(self, place: str, text: str) -> Any:
        try:
            return json.loads(text, object_pairs_hook=_unique)
        except RecursionError:
            fail(self.where, f"{place}: nested too deeply")
        except ValueError as error:
            fail(self.where, f"{place}: {error}")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object as a dict; without this, json keeps only the last of equal keys."""
    if len(entry := dict(pairs)) < len(pairs):
        raise ValueError("a key appears twice")
    return entry
