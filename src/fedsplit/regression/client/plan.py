"""A plan says how every client makes numbers of its rows, from the columns of its source.

A plan is a value: it travels, it has a hash, and two clients with the same plan compute the same
columns. It grows by ``dataclasses.replace``, from the draft that a user wrote to the plan on whose
types, levels and states all clients agreed. There is no other record of how rows become numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import NamedTuple, Self

import numpy as np
import pandas as pd

from fedsplit.arrays import Array, Mask
from fedsplit.data.formula.design_columns import DesignColumns
from fedsplit.data.formula.formula import Formula
from fedsplit.data.formula.pooled_functions import ModelFrame, Schema
from fedsplit.data.pooled.function import State
from fedsplit.data.tables import Source, Values, is_missing, to_frame
from fedsplit.data.texts import Level, in_levels, merged_codes, readable
from fedsplit.data.types import Type
from fedsplit.errors import InputError, RowError, listed
from fedsplit.regression.families import FAMILIES, family_of
from fedsplit.regression.families.family import Family
from fedsplit.regression.families.response import check_rows


@dataclass(frozen=True)
class BasicPlan:
    """A plan of columns that the clients' tables have."""

    formula: str
    family: str
    # the levels of each category over all clients, the reference first; in a draft those that are
    # declared
    levels: Mapping[str, Sequence[Level]] = field(default_factory=dict)
    # what each column is read as; in a draft those that are declared
    types: Mapping[str, Type] = field(default_factory=dict)
    # the classes of a target column, the reference first; empty if it holds numbers
    classes: Sequence[Level] = ()
    # columns, or expressions over columns
    weights: str | None = None
    offset: str | None = None
    exposure: str | None = None
    # what functions such as ``poly(x, 2)`` know of the rows of all clients, by their text
    state: Mapping[str, State] = field(default_factory=dict)
    others: Sequence[str] = ()  # columns that only decide which rows are complete
    # Columns that the formula, the family, the user or a file declares to be categories. A column
    # of text is one without being declared.
    categories: Sequence[str] = ()
    # whether types and levels are still to be agreed on: those that it has are declared
    draft: bool = False
    excluded: Sequence[str] = ()  # columns that ``.`` in the formula of a draft does not stand for
    # those of the family, by name; others are as the table of families has them
    parameters: Mapping[str, float] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, object]:
        """The fields alone: what is compiled from them is compiled again."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def parsed(self) -> Formula:
        """The formula, read."""
        return Formula(self.formula)

    @cached_property
    def chosen_family(self) -> Family:
        """The family with its parameters."""
        return family_of(self.family, self.parameters)

    @cached_property
    def schema(self) -> Schema:
        """What the clients agreed on, for the formula."""
        return Schema(self.levels, self.types, self.state)

    @property
    def width(self) -> int:
        """The number of columns of a design."""
        return len(self.names)

    @property
    def names(self) -> list[str]:
        """The names of the columns of a design."""
        return self.design_columns.names

    @cached_property
    def design_columns(self) -> DesignColumns:
        """What its columns are made of; a constant that the loss absorbs is none of them."""
        return self.parsed.compile(self.schema, self.chosen_family.absorbs == "nothing")

    @property
    def shares(self) -> bool:
        """Whether the target is the share of successes among the trials that are the weights.

        It is a column of two classes that are not named, or an expression such as ``died / n``.
        """
        formula = self.parsed
        if not self.chosen_family.binary or self.classes or formula.grouped is not None:
            return False
        return formula.target_column is not None or self.weights in formula.target_columns

    @property
    def extra(self) -> list[str]:
        """The weights, offset and exposure that there are."""
        named = (self.weights, self.offset, self.exposure)
        return [text for text in named if text is not None]

    @cached_property
    def columns(self) -> list[str]:
        """The columns of a table that a design is made from."""
        return list(dict.fromkeys([*self.parsed.columns, *columns_of(*self.extra)]))

    @property
    def needed(self) -> list[str] | None:
        """The columns in which a row must have a value; None for all, if there is a ``.``."""
        return None if self.parsed.open else [*self.columns, *self.others]

    @cached_property
    def categorical(self) -> set[str]:
        """The columns that have levels."""
        text = {column for column, kind in self.types.items() if kind == "text"}
        classes = {str(self.parsed.target_column)} if self.classes else set()
        return {*self.levels, *self.categories, *(text - set(self.others)), *classes}

    def expanded(self, present: Iterable[str]) -> Self:
        """The plan with the columns that ``.`` stands for, among those that are present."""
        if not self.parsed.open:
            return self
        columns = (name for name in present if name not in self.excluded)
        return replace(self, formula=self.parsed.expanded(columns).text)

    def read(
        self, source: Source, columns: Sequence[str], where: str
    ) -> tuple[dict[str, Values], dict[str, bool], dict[str, str]]:
        """Some columns of a source as all clients read them, categories as their levels.

        With them come the categories that the source stores as such, and whether their order has a
        meaning; and, by category, a code such as 01 that was read as the number 1.
        """
        types = self._types(columns, where)
        coded = self._coded(types)
        # Levels are made of text: as float64, whole numbers beyond 2**53 would merge.
        values = source.take({name: "text" if name in coded else types[name] for name in types})
        orders, merged = {}, {}
        for name in filter(coded.__contains__, types):
            own, kind = values[name], types[name]
            if isinstance(own, pd.Categorical):
                orders[name] = bool(own.ordered)
            if code := merged_codes(own, kind):
                merged[name] = code
            values[name] = in_levels(where, name, own, kind)
        return values, orders, merged

    def read_covariates(self, source: Source, where: str) -> pd.DataFrame:
        """The columns that predictions need, (n, c)."""
        targets = self.parsed.target_columns
        columns = [column for column in self.parsed.columns if column not in targets]
        columns += columns_of(self.offset, self.exposure)
        if columns:
            return to_frame(self.read(source, columns, where)[0])
        # Without covariates any column does: it says how many rows there are.
        return source.read({source.names()[0]: "text"})[[]]

    def read_leniently(self, source: Source, columns: Sequence[str], where: str) -> pd.DataFrame:
        """Some columns of a source, in which values of another type than theirs are missing."""
        try:
            return to_frame(self.read(source, columns, where)[0])
        except InputError:  # also of a file that cannot be read at all, which then fails again
            types = self._types(columns, where)
            texts = source.take(dict.fromkeys(types, "text"))
            return to_frame(readable(texts, types, self._coded(types)))

    def _types(self, columns: Sequence[str], where: str) -> dict[str, Type]:
        unknown = [column for column in columns if column not in self.types]
        if unknown:
            raise InputError(f"{where}: the plan does not say what {listed(unknown)} holds")
        return {column: self.types[column] for column in columns}

    def _coded(self, types: Mapping[str, Type]) -> set[str]:
        """The columns that are read as categories, whether or not their levels are disclosed."""
        return self.categorical | {name for name, kind in types.items() if kind == "text"}

    @property
    def agreed(self) -> dict[str, str]:
        """The knots and breaks that nobody wrote, as arguments in R, by the text of a function."""
        calls = {call.text: call for call in self.parsed.pooled}
        reports = {text: calls[text].function.report(state) for text, state in self.state.items()}
        return {text: report for text, report in reports.items() if report}

    def rows(self, frame: pd.DataFrame) -> ModelFrame:
        """Complete rows, for the formula."""
        return ModelFrame(frame, self.schema)

    def has_values(self, frame: pd.DataFrame) -> Mask:
        """Which of complete rows, (n,), have a value in every function: ``cut`` may lack one.

        A function whose state is still to be agreed leaves no row out.
        """
        valued = np.ones(len(frame), dtype=np.bool_)
        for call in self.parsed.pooled:
            known = call.text in self.state or call.function.agreement() is None
            if call.function.is_category and known:
                valued &= call.values(self.rows(frame)) >= 0
        return valued

    def numbers(self, text: str, frame: pd.DataFrame) -> Array:
        """A column of complete rows, or an expression over columns, as numbers, (n,)."""
        if text in frame:
            values: Array = frame[text].to_numpy(dtype=np.float64)
            return values
        return as_formula(text).response(frame, self.schema)

    def row_weights(self, frame: pd.DataFrame) -> Array:
        """The weights of complete rows, (n,)."""
        return np.ones(len(frame)) if self.weights is None else self.numbers(self.weights, frame)

    def design(self, frame: pd.DataFrame, where: str) -> tuple[Array, Array]:
        """The covariates of complete rows, (n, p), and the offsets, (n,)."""
        try:
            A, o = self.parsed.evaluate(self.design_columns, frame)
            if self.offset is not None:
                o += self.numbers(self.offset, frame)
            if self.exposure is not None:
                exposure = self.numbers(self.exposure, frame)
        except RowError as error:
            raise RowError(f"{where}: {error}", f"{where}: {error.public}") from None
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        if self.exposure is not None:
            why = "an exposure is above zero"
            check_rows(exposure > 0, frame, exposure, where, self.exposure, why)
            o += np.log(exposure)
        check_rows(np.isfinite(o), frame, o, where, "the offset", "it must be finite")
        finite = np.isfinite(A)
        if not finite.all():
            for i, name in enumerate(self.names):
                check_rows(finite[:, i], frame, A[:, i], where, name, "it must be finite")
        return A, o


@dataclass(frozen=True)
class DerivedColumn:
    """A column that no table has: the mean that a fitted model predicts for each row.

    Any client computes it from the plan and the coefficients, so that no value of it ever travels.
    """

    plan: BasicPlan  # the plan of the fitted model
    coefficients: Sequence[float]  # those of the columns of its design

    @classmethod
    def of(cls, plan: Plan, coefficients: Sequence[float] | Array) -> DerivedColumn:
        """The means of a model whose plan has no derived columns itself."""
        if plan.derived:
            raise InputError("a derived column is made of the columns of tables alone")
        own = {each.name: getattr(plan, each.name) for each in fields(BasicPlan)}
        return cls(BasicPlan(**own), [float(each) for each in coefficients])

    def __post_init__(self) -> None:
        plan = self.plan
        if plan.draft or plan.family not in FAMILIES or len(self.coefficients) != plan.width:
            raise InputError("a derived column needs a plan, and a coefficient for each column")
        if len(plan.chosen_family.blocks(plan.classes)) > 1:
            raise InputError(f"a derived column is one mean a row, {plan.family} has several")

    def values(self, source: Source, where: str) -> Array:
        """The predicted means, (n,); NaN for a row that lacks a covariate."""
        plan = self.plan
        frame = plan.read_covariates(source, where)
        complete = ~frame.isna().any(axis=1).to_numpy()
        complete[complete] = plan.has_values(frame[complete])
        A, o = plan.design(frame[complete], where)
        means = plan.chosen_family.link.mean(A @ np.array(self.coefficients) + o)
        values: Array = np.full(len(frame), np.nan)
        values[complete] = means
        return values


@dataclass(frozen=True)
class Plan(BasicPlan):
    """A plan whose weights, offset, exposure and terms may name derived columns."""

    # Columns beside those of the tables. Their own plans have none, so that the type of a message
    # is not recursive.
    derived: Mapping[str, DerivedColumn] = field(default_factory=dict)

    @cached_property
    def columns(self) -> list[str]:
        """The columns of a table that a design is made from; derived ones are computed."""
        return [name for name in super().columns if name not in self.derived]

    @cached_property
    def rows_key(self) -> tuple[object, ...]:
        """By what a client recognises rows that it has read: all that they depend on.

        Levels and states are no part of it, so that rows that were read for a survey of a draft
        serve for the plan that is agreed on.
        """
        return dict(self.types), self.categorical, set(self.others), dict(self.derived)

    def rows_of(self, source: Source, where: str) -> ReadRows:
        """Read the columns of the plan, and compute those that are derived."""
        columns = [*self.columns, *self.others]
        values, orders, merged = self.read(source, columns, where)
        for name, column in self.derived.items():
            values[name] = column.values(source, where)
        absent = {column: is_missing(own) for column, own in values.items()}
        frame = to_frame(values)
        rows = len(frame)
        incomplete = np.any([*absent.values(), np.zeros(rows, dtype=bool)], axis=0)
        if incomplete.any():
            frame = frame[~incomplete]
        missing = {column: int(np.sum(absent[column])) for column in columns}
        return ReadRows(self.rows_key, rows, frame, missing, orders, merged)


@dataclass(frozen=True)
class Coding:
    """How clients code their rows as numbers."""

    plan: Plan  # what all clients agreed on
    strict: bool  # whether to refuse answers that could disclose single rows
    names: tuple[str, ...]  # the clients of the cohort that take part; empty for all of them


class ReadRows(NamedTuple):
    """A client's rows by a plan."""

    key: tuple[object, ...]  # what they depend on, as in ``Plan.rows_key``
    rows: int  # the number of all rows
    # (n, c): those that lack no value, with their places in the source as the index
    frame: pd.DataFrame
    missing: dict[str, int]  # the number of missing values of each column
    # of the categories, as ``BasicPlan.read`` returns them
    orders: dict[str, bool]
    merged: dict[str, str]


@lru_cache(maxsize=64)
def as_formula(expression: str) -> Formula:
    """The formula whose target is an expression: one reader serves both."""
    return Formula(f"I({expression}) ~ 1")


def columns_of(*texts: str | None) -> list[str]:
    """The columns of weights, offset and exposure: expressions, or names of columns.

    A text that is no expression over columns, such as ``person years``, is a name. A name that
    could be an expression, such as ``a-b``, is quoted by backticks as in a formula.
    """
    columns = []
    for text in texts:
        if text is not None:
            try:
                columns += as_formula(text).columns or [text]
            except InputError:
                columns.append(text)
    return columns
