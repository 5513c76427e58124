"""How every client makes a design of its rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedsplit.arrays import Array, Mask
from fedsplit.data.categories import Level, in_levels, merged_codes, readable
from fedsplit.data.formula.design_columns import DesignColumns
from fedsplit.data.formula.formula import Formula
from fedsplit.data.formula.model_frame import ModelFrame, Schema
from fedsplit.data.formula.pooled_functions import outside
from fedsplit.data.pooled.function import State
from fedsplit.data.sources.client_data import Source
from fedsplit.data.tables import Values, to_frame
from fedsplit.data.texts import as_text
from fedsplit.data.types import Type
from fedsplit.errors import InputError, RowError, listed
from fedsplit.regression.families import FAMILIES


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
    weights, offset, exposure : str or None
        Columns.
    state : mapping of str to State
        What functions such as ``poly(x, 2)`` know of the rows of all clients, by their text.
    others : sequence of str
        Columns that only decide which rows are complete.
    """

    formula: str
    family: str
    levels: Mapping[str, Sequence[Level]]
    types: Mapping[str, Type] = field(default_factory=dict)
    classes: Sequence[Level] = ()
    weights: str | None = None
    offset: str | None = None
    exposure: str | None = None
    state: Mapping[str, State] = field(default_factory=dict)
    others: Sequence[str] = ()

    def __getstate__(self) -> dict[str, object]:
        """The fields alone: what is compiled from them is compiled again."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def schema(self) -> Schema:
        """What the clients agreed on, for the formula."""
        return Schema(self.levels, self.types, self.state)

    @property
    def width(self) -> int:
        """How many columns a design has."""
        return len(self.names)

    @property
    def names(self) -> list[str]:
        """Of the columns of a design."""
        return self._design_columns.names

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
        types, coded = self._types(columns, where)
        return to_frame(read_columns(source, types, coded, where).values)

    def read_leniently(self, source: Source, columns: Sequence[str], where: str) -> pd.DataFrame:
        """The same, but values that cannot be read as what they should be are missing."""
        types, coded = self._types(columns, where)
        try:
            return to_frame(read_columns(source, types, coded, where).values)
        except InputError:  # also of a file that cannot be read at all, which then fails again
            texts = source.take(dict.fromkeys(types, "text"))
            return to_frame(readable(texts, types, coded))

    def _types(self, columns: Sequence[str], where: str) -> tuple[dict[str, Type], set[str]]:
        """What some columns are read as, and which of them are categories."""
        unknown = [column for column in columns if column not in self.types]
        if unknown:
            raise InputError(f"{where}: the plan does not say what {listed(unknown)} holds")
        types = {column: self.types[column] for column in columns}
        text = {column for column in self.others if types.get(column) == "text"}
        return types, self.coded | text

    @property
    def agreed(self) -> dict[str, str]:
        """The knots and breaks that nobody wrote, as R would be told, by the text of a function."""
        calls = {call.text: call for call in Formula(self.formula).pooled}
        reports = {text: calls[text].function.report(state) for text, state in self.state.items()}
        return {text: report for text, report in reports.items() if report}

    def rows(self, frame: pd.DataFrame) -> ModelFrame:
        """Complete rows, for the formula."""
        return ModelFrame(frame, self.schema)

    def has_values(self, frame: pd.DataFrame) -> Mask:
        """Which of complete rows, (n,), have a value in every function: ``cut`` may lack one."""
        return ~outside(Formula(self.formula).pooled, self.rows(frame))

    def design(self, frame: pd.DataFrame, where: str) -> tuple[list[str], Array, Array]:
        """The covariates as numbers.

        Parameters
        ----------
        frame : (n, c) DataFrame
            Complete rows.
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
            check_rows(
                exposure > 0, frame, exposure, where, self.exposure, "an exposure is above zero"
            )
            o += np.log(exposure)
        check_rows(np.isfinite(o), frame, o, where, "the offset", "it must be finite")
        finite = np.isfinite(A)
        if not finite.all():
            for i, name in enumerate(names):
                check_rows(finite[:, i], frame, A[:, i], where, name, "it must be finite")
        return names, A, o


class ReadColumns(NamedTuple):
    """Columns as all clients read them.

    Attributes
    ----------
    values : dict of str to Values
        Numbers as float64, categories as categoricals of levels.
    orders : dict of str to bool
        As in ``Description``.
    merged : dict of str to str
        By category, a code such as 01 that was read as the number 1.
    """

    values: dict[str, Values]
    orders: dict[str, bool]
    merged: dict[str, str]


def read_columns(
    source: Source, types: Mapping[str, Type], coded: Collection[str], where: str
) -> ReadColumns:
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
    """
    # Levels are made of text: as float64, whole numbers beyond 2**53 would merge.
    wanted: dict[str, Type] = {
        column: "text" if column in coded else kind for column, kind in types.items()
    }
    found = source.take(wanted)
    orders = {}
    merged = {}
    for column, values in list(found.items()):
        if column not in coded:
            continue
        if isinstance(values, pd.Categorical):
            orders[column] = bool(values.ordered)
        if code := merged_codes(values, types[column]):
            merged[column] = code
        found[column] = in_levels(where, column, values, types[column])
    return ReadColumns(found, orders, merged)


def check_rows(
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
