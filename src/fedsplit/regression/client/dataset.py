"""A client's data: what it describes to the server, and the design that it makes of its rows.

Before the rounds only ``Description`` and ``Moments`` leave a client: counts, level names, moments.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedsplit.arrays import Array, Mask
from fedsplit.data.categories import Level, in_levels, level_codes
from fedsplit.data.client_data import GroupSource, Source
from fedsplit.data.column_statistics import Statistic
from fedsplit.data.design_columns import DesignColumns
from fedsplit.data.formula import Formula
from fedsplit.data.model_frame import ModelFrame, Schema
from fedsplit.data.numbers_as_text import check_numbers
from fedsplit.data.pooled import State
from fedsplit.data.pooled_functions import counted, extrapolated, function_of, outside
from fedsplit.data.texts import as_text
from fedsplit.data.types import Fit, Type
from fedsplit.errors import InputError, RowError, listed
from fedsplit.regression.client import disclosure
from fedsplit.regression.client.design import Design
from fedsplit.regression.client.findings import Finding
from fedsplit.regression.client.grouped import Trials, of_counts, whole
from fedsplit.regression.client.measuring import Measured, measure
from fedsplit.regression.families import FAMILIES


@dataclass(frozen=True)
class ColumnRequest:
    """The columns that the server wants to have described.

    Attributes
    ----------
    types : mapping of str to Type
        What each column that the formula, weights and offsets need is read as.
    categories : frozenset of str
        Those that were declared to be categories. Their levels are wanted, and those of text.
    filled : frozenset of str
        Those whose missing values will be filled. Rows with any other missing value are dropped.
    strict : bool
        Whether to refuse an answer that could disclose single rows.
    """

    types: Mapping[str, Type]
    categories: frozenset[str]
    filled: frozenset[str]
    strict: bool

    @property
    def coded(self) -> set[str]:
        """The columns whose levels are wanted."""
        text = {column for column, kind in self.types.items() if kind == "text"}
        return text | (self.types.keys() & self.categories)


@dataclass(frozen=True)
class Description:
    """What a client answers to a ``ColumnRequest``.

    Attributes
    ----------
    rows, kept : int
        How many rows there are, and how many of them are used.
    missing : mapping of str to int
        How many values each column lacks.
    levels : mapping
        The levels of each category, with the number of kept rows that have each.
    orders : mapping of str to bool
        The categories whose levels are in the order in which the client has them stored, and
        whether that order has a meaning, as that of small, medium and large.
    sums : mapping
        Of each column to be filled, how many values it has, and their sum.
    warnings : sequence of Finding
        What this could disclose of single rows.
    """

    rows: int
    kept: int
    missing: Mapping[str, int]
    levels: Mapping[str, Mapping[Level, int]]
    orders: Mapping[str, bool]
    sums: Mapping[str, tuple[int, float]]
    warnings: Sequence[Finding]


@dataclass(frozen=True)
class Plan:
    """How every client makes a design of its rows: plain values, to be sent and stored.

    Attributes
    ----------
    formula, family : str
    levels : mapping
        Of each category, over all clients.
    types : mapping of str to Type
        What each column is read as.
    classes : sequence
        Of a target column that is a class.
    fills : mapping of str to float
        What takes the place of a missing value.
    weights, offset, exposure : str or None
        Columns.
    state : mapping of str to State
        What functions such as ``poly(x, 2)`` know of the rows of all clients, by their text.
    """

    formula: str
    family: str
    levels: Mapping[str, Sequence[Level]]
    types: Mapping[str, Type] = field(default_factory=dict)
    classes: Sequence[Level] = ()
    fills: Mapping[str, float] = field(default_factory=dict)
    weights: str | None = None
    offset: str | None = None
    exposure: str | None = None
    state: Mapping[str, State] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, object]:
        """The fields alone: what is compiled from them is compiled again."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def schema(self) -> Schema:
        """What the clients agreed on, for the formula."""
        return Schema(self.levels, self.types, self.state)

    @cached_property
    def _design_columns(self) -> DesignColumns:
        return Formula(self.formula).compile(self.schema)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Plan:
        """A plan from its fields as JSON has them; before there were types, levels had them."""
        plan = cls(**record)
        if plan.types:
            return plan
        found: dict[str, Sequence[Any]] = dict(plan.levels)
        if plan.classes:
            found[str(Formula(plan.formula).target_column)] = plan.classes
        types: dict[str, Type] = dict.fromkeys(plan.columns, "number")
        for column, values in found.items():
            if any(isinstance(value, str) for value in values):
                types[column] = "text"
            elif all(isinstance(value, bool) for value in values):
                types[column] = "boolean"
        return replace(
            plan,
            types=types,
            levels={name: [as_text(value) for value in own] for name, own in plan.levels.items()},
            classes=[as_text(value) for value in plan.classes],
        )

    @property
    def shares(self) -> bool:
        """Whether the target is the share of successes among the trials that are the weights.

        It is a column of two classes that are not named, or an expression such as ``died / n``.
        """
        formula = Formula(self.formula)
        if not FAMILIES[self.family].binary or self.classes or formula.grouped is not None:
            return False
        return formula.target_column is not None or self.weights in formula.target_columns

    @property
    def columns(self) -> Sequence[str]:
        """The columns that a design is made from."""
        extra = [name for name in (self.weights, self.offset, self.exposure) if name is not None]
        return list(dict.fromkeys([*Formula(self.formula).columns, *extra]))

    @property
    def coded(self) -> set[str]:
        """The columns that are categories."""
        if self.classes:
            return {*self.levels, str(Formula(self.formula).target_column)}
        return set(self.levels)

    def read(self, source: Source, columns: Sequence[str], where: str) -> pd.DataFrame:
        """Some columns of a source, (n, len(columns)), as all clients read them."""
        unknown = [column for column in columns if column not in self.types]
        if unknown:
            raise InputError(f"{where}: the plan does not say what {listed(unknown)} holds")
        types = {column: self.types[column] for column in columns}
        return read_columns(source, types, self.coded, where)[0]

    @property
    def agreed(self) -> dict[str, str]:
        """The knots and breaks that nobody wrote, as R would be told, by the text of a function."""
        calls = {call.text: call for call in Formula(self.formula).pooled}
        reports = {
            text: function_of(calls[text]).report(calls[text].options, state)
            for text, state in self.state.items()
        }
        return {text: report for text, report in reports.items() if report}

    def rows(self, frame: pd.DataFrame) -> ModelFrame:
        """Complete rows, with what takes the place of missing values."""
        if self.fills:
            frame = frame.fillna(dict(self.fills))
        return ModelFrame(frame, self.schema)

    def has_values(self, frame: pd.DataFrame) -> Mask:
        """Which of complete rows, (n,), have a value in every function: ``cut`` may lack one."""
        return ~outside(Formula(self.formula).pooled, self.rows(frame))

    def design(self, frame: pd.DataFrame, where: str) -> tuple[list[str], Array, Array]:
        """The covariates as numbers.

        Parameters
        ----------
        frame : (n, c) DataFrame
            Complete rows, but for the columns to be filled.
        where : str
            Whose rows they are, for messages.

        Returns
        -------
        names : list of str
            Of the p columns.
        A : (n, p) array
        o : (n,) array
            Offsets.
        """
        rows = self.rows(frame)
        try:
            A, o = Formula(self.formula).evaluate(self._design_columns, rows.frame)
        except RowError as error:
            raise RowError(f"{where}: {error}", f"{where}: {error.public}") from None
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        names = self._design_columns.names
        if self.offset is not None:
            o += frame[self.offset].to_numpy(dtype=np.float64)
        if self.exposure is not None:
            exposure = frame[self.exposure].to_numpy(dtype=np.float64)
            _check(exposure > 0, frame, exposure, where, self.exposure, "an exposure is above zero")
            o += np.log(exposure)
        _check(np.isfinite(o), frame, o, where, "the offset", "it must be finite")
        finite = np.isfinite(A)
        if not finite.all():
            for i, name in enumerate(names):
                _check(finite[:, i], frame, A[:, i], where, name, "it must be finite")
        return names, A, o


def read_columns(
    source: Source, types: Mapping[str, Type], coded: Collection[str], where: str
) -> tuple[pd.DataFrame, dict[str, bool]]:
    """Read columns as all clients do.

    Parameters
    ----------
    source : Source
    types : mapping of str to Type
        Of each column.
    coded : collection of str
        Those that are categories.
    where : str
        Whose rows they are, for messages.

    Returns
    -------
    frame : (n, len(types)) DataFrame
        Numbers as float64, categories as categoricals of levels.
    orders : dict of str to bool
        As in ``Description``.
    """
    # Levels are made of text: as float64, whole numbers beyond 2**53 would merge.
    wanted: dict[str, Type] = {
        column: "text" if column in coded else kind for column, kind in types.items()
    }
    frame = source.read(wanted).reset_index(drop=True)
    orders = {}
    for column, kind in types.items():
        if column in coded:
            if isinstance(frame[column].dtype, pd.CategoricalDtype):
                orders[column] = bool(frame[column].cat.ordered)
            frame[column] = in_levels(where, column, frame[column], kind)
    return frame, orders


class Dataset:
    """One client's data, read from its source when they are first asked for.

    Parameters
    ----------
    source : Source
    name : str, optional
        Of the client, if it is not that of the source.
    """

    def __init__(self, source: Source, name: str | None = None) -> None:
        self.name = source.name
        if name is not None:
            self.name = name
        self._source = source
        # The complete rows of the last description, which is followed by a design of the same.
        self._described: tuple[ColumnRequest, pd.DataFrame] | None = None

    @property
    def path(self) -> Path | None:
        """The file that the rows come from, if they come from one."""
        return getattr(getattr(self._source, "table", None), "path", None)

    def columns(self) -> dict[str, Fit | None]:
        """What all columns can be read as."""
        return self._source.columns()

    def describe(self, request: ColumnRequest) -> Description:
        """Read some columns, and describe the rows that are complete in them."""
        where = f"client {self.name}"
        frame, orders = read_columns(self._source, request.types, request.coded, where)
        absent = frame.isna()
        filled = [column for column in request.types if column in request.filled]
        kept = frame[~absent.drop(columns=filled).any(axis=1)]
        self._described = request, kept
        levels: dict[str, dict[Level, int]] = {}
        for column in request.types:
            if column in request.coded:
                counts = kept[column].value_counts(sort=False)
                levels[column] = {level: int(count) for level, count in counts.items() if count}
                if column not in request.categories:
                    check_numbers(where, column, levels[column])
                disclosure.check_levels(self.name, column, levels[column])
        sums = {column: (int(kept[column].count()), float(kept[column].sum())) for column in filled}
        warnings = disclosure.in_columns(self.name, len(kept), levels, sums)
        disclosure.refuse(warnings, request.strict)
        warnings += self._notes()
        missing = {column: int(count) for column, count in absent.sum().items()}
        return Description(len(frame), len(kept), missing, levels, orders, sums, warnings)

    def _notes(self) -> list[Finding]:
        """What is to be known of how the rows are read."""
        return [
            Finding(self.name, f"client {self.name}: {note}", f"clients: {note}", self.name)
            for note in self._source.notes()
        ]

    def code(self, plan: Plan, strict: bool) -> tuple[Design, Sequence[Finding]]:
        """Make a design of the complete rows.

        Returns
        -------
        rows : Design
            The rows of positive weight.
        warnings : sequence of Finding
            What their moments could disclose of single rows; with ``strict`` an error instead.
            Splines with rows beyond their boundary.
        """
        where = f"client {self.name}"
        family = FAMILIES[plan.family]
        formula = Formula(plan.formula)
        frame = self._kept(plan)
        self._described = None  # not to be held in memory beside the design
        frame = frame[plan.has_values(frame)]
        names, A, o = plan.design(frame, where)
        b, w, at, groups = self._observed(plan, formula, frame)
        if len(b) == 0:
            raise InputError(f"{where}: no row has a weight above zero: leave it out")
        if at is not None:
            A, o = A[at], o[at]
            frame = frame.iloc[np.unique(at)]
        classes = family.count_classes(plan.classes)
        rows = Design(self.name, family, names, A, b, w, o, classes, groups=groups)
        levels = dict(plan.levels)
        condition: str | None = formula.target
        if plan.classes:
            levels[str(formula.target_column)] = plan.classes
            condition = None
        counts = self._used_levels(levels, frame)
        counts |= counted(formula.pooled, plan.rows(frame))
        warnings = disclosure.in_columns(self.name, rows.rows, counts, {})
        warnings += disclosure.in_rows(rows, condition)
        disclosure.refuse(warnings, strict)
        return rows, warnings + self._extrapolated(formula, plan.rows(frame))

    def _extrapolated(self, formula: Formula, rows: ModelFrame) -> list[Finding]:
        """The splines that have rows beyond their boundary, where they soon are huge."""
        return [
            Finding(
                self.name,
                f"client {self.name} has rows beyond the boundary knots of {text}",
                f"clients have rows beyond the boundary knots of {text}",
                self.name,
            )
            for text in extrapolated(formula.pooled, rows)
        ]

    def release(self) -> None:
        """Let go of rows that were read: only the way to them is kept."""
        self._described = None
        match self._source:
            case GroupSource(shared=shared):
                shared.kept = None

    def measure(self, plan: Plan, statistics: Mapping[str, Statistic], strict: bool) -> Measured:
        """Compute what functions such as ``poly`` need to know of the complete rows."""
        rows = plan.rows(self._kept(plan))
        return measure(self.name, Formula(plan.formula), rows, statistics, strict)

    def _kept(self, plan: Plan) -> pd.DataFrame:
        """The complete rows: those that were just described, or read again."""
        if self._described is not None:
            request, kept = self._described
            same = (request.types, request.coded, set(request.filled))
            if same == (plan.types, plan.coded, set(plan.fills)):
                return kept
        frame = plan.read(self._source, plan.columns, f"client {self.name}")
        return frame[~frame.isna().drop(columns=list(plan.fills)).any(axis=1)]

    def _observed(self, plan: Plan, formula: Formula, frame: pd.DataFrame) -> Trials:
        """The target and the weight of every row that is used.

        Its ``rows`` and ``groups`` are None where that is every row, and where none is a group.
        """
        w = np.ones(len(frame))
        if plan.weights is not None:
            w = frame[plan.weights].to_numpy(dtype=np.float64)
            valid = (w >= 0) & np.isfinite(w)
            why = "a weight is finite and not below zero"
            _check(valid, frame, w, f"client {self.name}", plan.weights, why)
        if formula.grouped is not None:
            return of_counts(*self._counts(plan, formula, frame), w)
        if plan.shares:
            share = self._shares(plan, formula, frame, w)
            return of_counts(w * share, w * (1.0 - share), np.ones_like(w))
        b = self._target(plan, formula, frame)
        used = np.flatnonzero(w > 0)
        if len(used) == len(b):
            return Trials(b, w)
        return Trials(b[used], w[used], used)

    def _counts(self, plan: Plan, formula: Formula, frame: pd.DataFrame) -> tuple[Array, Array]:
        """The successes and failures of every row, (n,)."""
        counts = formula.counts(frame, plan.schema)
        for name, values in zip(formula.grouped or (), counts, strict=True):
            why = "a count in cbind(successes, failures) is a whole number from 0 on"
            _check(whole(values), frame, values, f"client {self.name}", name, why)
        return counts

    def _shares(self, plan: Plan, formula: Formula, frame: pd.DataFrame, w: Array) -> Array:
        """The share of successes of every row, (n,), whose weight is the number of trials."""
        where = f"client {self.name}"
        share = formula.response(frame, plan.schema)
        valid = (share >= 0) & (share <= 1)
        _check(valid, frame, share, where, formula.target, "a share is between 0 and 1")
        valid = (share == 0) | (share == 1) | whole(w * share)
        why = f"times the trials in {plan.weights} it must be a whole number"
        _check(valid, frame, share, where, formula.target, why)
        return share

    def _target(self, plan: Plan, formula: Formula, frame: pd.DataFrame) -> Array:
        """The target as numbers, (n,)."""
        if plan.classes:
            column = str(formula.target_column)
            return level_codes(column, frame[column], plan.classes).astype(np.float64)
        family = FAMILIES[plan.family]
        b = formula.response(frame, plan.schema)
        valid = np.isfinite(b) & ~family.invalid(b)
        why = f"for {family.name} it must be {family.target}"
        _check(valid, frame, b, f"client {self.name}", formula.target, why)
        return b

    def _used_levels(
        self, categories: Mapping[str, Sequence[Level]], frame: pd.DataFrame
    ) -> dict[str, dict[Level, int]]:
        """How many rows of a design have each level.

        They may be others than those described: rows of weight zero are left out, and a server may
        ask for a design that it has had nothing described for.
        """
        found = {}
        for column, levels in categories.items():
            codes = level_codes(column, frame[column], levels)
            counts = np.bincount(codes[codes >= 0], minlength=len(levels))
            pairs = zip(levels, counts, strict=True)
            found[column] = {level: int(count) for level, count in pairs if count}
            disclosure.check_levels(self.name, column, found[column])
        return found


def _check(
    valid: Mask, frame: pd.DataFrame, values: Array, where: str, column: str, why: str
) -> None:
    """Raise RowError at the first of the values, (n,), that is not valid."""
    if not valid.all():
        first = int(np.argmin(valid))
        raise RowError(
            f"{where}, row {frame.index[first] + 1}: {column} is {values[first]:g}; {why}",
            f"{where}: {column} has {int((~valid).sum())} values that cannot be used; {why} "
            "(its own log says where)",
        )
