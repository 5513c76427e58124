"""A client's side of the handshake: what it tells of its columns, and the coding of its rows as agreed.

Only what ``Description`` and ``Moments`` hold leaves a client before the rounds: counts, level names and moments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from fedsplit.arrays import Array, Mask
from fedsplit.data.categories import Level, categorical
from fedsplit.data.client_data import Source
from fedsplit.data.formula import Formula
from fedsplit.errors import InputError, RowError
from fedsplit.regression.client import disclosure as guards
from fedsplit.regression.client.design import Design
from fedsplit.regression.families import FAMILIES

MOSTLY = 0.8
"""Text of which more than this share are numbers is a column of numbers with mistakes."""


@dataclass(frozen=True)
class ColumnRequest:
    """The server's first question.

    columns : those that the formula, weights and offsets need.
    categories : those whose levels are wanted even where they are numbers.
    filled : those whose missing values will be filled, where they are numbers; rows with another one are dropped.
    strict : whether to refuse an answer that could tell of single rows.
    """

    columns: tuple[str, ...]
    categories: frozenset[str]
    filled: frozenset[str]
    strict: bool


@dataclass(frozen=True)
class Description:
    """What a client tells first.

    kinds : of the columns: "number", "boolean", "text", or "empty" where every value is missing.
    rows, kept : how many rows there are, and how many of them are used.
    missing : how many values are missing in each column.
    levels : for each category its levels, and how many of the kept rows have each.
    sums : for each column to be filled, how many values it has, and their sum.
    warnings : what this could tell of single rows.
    """

    kinds: Mapping[str, str]
    rows: int
    kept: int
    missing: Mapping[str, int]
    levels: Mapping[str, Mapping[Level, int]]
    sums: Mapping[str, tuple[int, float]]
    warnings: Sequence[str]


@dataclass(frozen=True)
class Plan:
    """What all clients agree on: plain values, to be sent and stored."""

    formula: str
    family: str
    levels: Mapping[str, Sequence[Level]]
    classes: Sequence[Level] = ()
    fills: Mapping[str, float] = field(default_factory=dict)
    weights: str | None = None
    offset: str | None = None
    exposure: str | None = None

    @property
    def columns(self) -> Sequence[str]:
        """Those that rows are coded from."""
        extra = [name for name in (self.weights, self.offset, self.exposure) if name is not None]
        return list(dict.fromkeys([*Formula(self.formula).columns, *extra]))

    def design(self, frame: pd.DataFrame, where: str) -> tuple[list[str], Array, Array]:
        """Names of columns, their values (n, p), and the offset (n,), of complete rows; ``where`` is for errors."""
        frame = frame.fillna(dict(self.fills))
        try:
            names, A = Formula(self.formula).design(frame, self.levels)
        except RowError as error:
            raise RowError(f"{where}: {error}", f"{where}: {error.public}") from None
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        o = np.zeros(len(frame))
        if self.offset is not None:
            o += frame[self.offset].to_numpy(dtype=np.float64)
        if self.exposure is not None:
            exposure = frame[self.exposure].to_numpy(dtype=np.float64)
            _refuse(
                exposure <= 0, frame, exposure, where, self.exposure, "an exposure is above zero"
            )
            o += np.log(exposure)
        _refuse(~np.isfinite(o), frame, o, where, "the offset", "it must be finite")
        for column, bad in (
            zip(names, ~np.isfinite(A).T, strict=True) if not np.isfinite(A).all() else ()
        ):
            _refuse(bad, frame, A[:, names.index(column)], where, column, "it must be finite")
        return names, A, o


class Dataset:
    """One client's data, read from its source when it is first asked for."""

    def __init__(self, source: Source, name: str | None = None) -> None:
        self.name = source.name if name is None else name
        self._source = source
        self._complete: pd.DataFrame | None = None

    @property
    def path(self) -> Path | None:
        """The file that the rows come from, where they come from one."""
        return getattr(getattr(self._source, "table", None), "path", None)

    def columns(self) -> dict[str, str]:
        """All the columns, with their kinds."""
        return self._source.columns()

    def describe(self, request: ColumnRequest) -> Description:
        """Read the columns, keep the complete rows, and tell what is in them."""
        columns = self._source.columns()
        frame = self._read(request.columns)
        absent = frame.isna()
        kinds = {
            column: "empty"
            if absent[column].all()
            else "text"
            if columns[column] == "date"
            else columns[column]
            for column in request.columns
        }
        filled = [
            column
            for column in request.columns
            if column in request.filled and kinds[column] != "text"
        ]
        named = [
            column
            for column in request.columns
            if column in request.categories or kinds[column] == "text"
        ]
        self._complete = frame = frame[~absent.drop(columns=filled).any(axis=1)]
        levels = {
            column: self._levels(frame, column, kinds[column], column in request.categories)
            for column in named
        }
        sums = {
            column: (int(frame[column].count()), float(frame[column].sum())) for column in filled
        }
        warnings = guards.of_columns(self.name, len(frame), levels, sums)
        guards.refuse(warnings, request.strict)
        missing = {column: int(number) for column, number in absent.sum().items()}
        return Description(kinds, len(absent), len(frame), missing, levels, sums, warnings)

    def code(self, plan: Plan, strict: bool) -> tuple[Design, Sequence[str]]:
        """The rows as numbers, as agreed, and what their moments could tell of single rows."""
        where, frame = f"client {self.name}", self._kept(plan)
        names, A, o = plan.design(frame, where)
        b = self._target(plan, frame)
        w = (
            np.ones(len(b))
            if plan.weights is None
            else frame[plan.weights].to_numpy(dtype=np.float64)
        )
        if plan.weights is not None:
            _refuse(
                ~((w >= 0) & np.isfinite(w)),
                frame,
                w,
                where,
                plan.weights,
                "a weight is finite and not below zero",
            )
            used = w > 0
            A, b, w, o, frame = A[used], b[used], w[used], o[used], frame[used]
        if len(b) == 0:
            raise InputError(f"{where}: no row has a weight above zero: leave it out")
        family = FAMILIES[plan.family]
        classes = family.count_classes(plan.classes)
        rows = Design(self.name, family, names, A, b, w, o, classes)
        warnings = guards.of_columns(self.name, len(b), self._used_levels(plan, frame), {})
        warnings += guards.of_rows(rows, None if plan.classes else Formula(plan.formula).target)
        guards.refuse(warnings, strict)
        return rows, warnings

    def _read(self, columns: Sequence[str]) -> pd.DataFrame:
        return self._source.read(columns).reset_index(drop=True)

    def _kept(self, plan: Plan) -> pd.DataFrame:
        """The complete rows: those that were just described, or read again."""
        kept, self._complete = self._complete, None
        if kept is not None and set(plan.columns) <= set(kept.columns):
            return kept
        frame = self._read(plan.columns)
        return frame[~frame.isna().drop(columns=list(plan.fills)).any(axis=1)]

    def _target(self, plan: Plan, frame: pd.DataFrame) -> Array:
        formula, family, where = Formula(plan.formula), FAMILIES[plan.family], f"client {self.name}"
        if plan.classes:
            column = str(formula.target_column)
            classes = categorical(column, frame[column], plan.classes)
            codes: Array = classes.cat.codes.to_numpy(dtype=np.float64)
            return codes
        b = formula.response(frame)
        wrong = ~np.isfinite(b) | family.invalid(b)
        _refuse(
            wrong, frame, b, where, formula.target, f"for {family.name} it must be {family.target}"
        )
        return b

    def _used_levels(self, plan: Plan, frame: pd.DataFrame) -> dict[str, dict[Level, int]]:
        """How many of the rows that are used have each level: ``describe`` may not have been asked for these."""
        target = {str(Formula(plan.formula).target_column): plan.classes} if plan.classes else {}
        found = {}
        for column, levels in ({**plan.levels, **target}).items():
            counts = categorical(column, frame[column], levels).value_counts(sort=False)
            found[column] = {
                level: int(number) for level, number in zip(levels, counts, strict=True) if number
            }
            guards.check_names(self.name, column, found[column])
        return found

    def _levels(self, frame: pd.DataFrame, column: str, kind: str, meant: bool) -> dict[Level, int]:
        counts = frame[column].value_counts()
        levels = {_level(value, kind): int(number) for value, number in sorted(counts.items())}
        if kind == "text" and not meant:
            self._check_text(column, counts)
        guards.check_names(self.name, column, levels)
        return levels

    def _check_text(self, column: str, counts: pd.Series) -> None:
        """Refuse a column of numbers that a few other cells have made text."""
        numbers = pd.to_numeric(pd.Series(counts.index), errors="coerce").notna().to_numpy()
        if not numbers.all() and counts[numbers].sum() > MOSTLY * counts.sum():
            what, advice = (
                "holds numbers, but",
                f"correct the file, or write C({column}) if it is a category",
            )
            raise RowError(
                f"client {self.name}: column {column} {what} {counts.index[~numbers][0]!r} is none: {advice}",
                f"client {self.name}: column {column} {what} also other text: {advice}",
            )


def _level(value: object, kind: str) -> Level:
    """A value as a level: numbers that are whole as int, booleans as bool."""
    if isinstance(value, str):
        return value
    number = float(value)  # type: ignore[arg-type]  # a source gives text or numbers
    if kind == "boolean":
        return bool(number)
    return int(number) if number.is_integer() else number


def _refuse(
    wrong: Mask, frame: pd.DataFrame, values: Array, where: str, column: str, why: str
) -> None:
    """Say which row is the first wrong one, and why."""
    if wrong.any():
        first = int(np.argmax(wrong))
        raise RowError(
            f"{where}, row {frame.index[first] + 1}: {column} is {values[first]:g}; {why}",
            f"{where}: {column} has {int(wrong.sum())} values that cannot be used; {why} (its own log says where)",
        )
