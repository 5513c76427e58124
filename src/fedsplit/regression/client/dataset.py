"""A client's data: what it describes to the server, and the design that it makes of its rows.

Before the rounds only ``Description`` and ``Moments`` leave a client: counts, level names, moments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsplit.data.categories import Level, counted_levels, level_codes
from fedsplit.data.formula.formula import Formula
from fedsplit.data.formula.model_frame import ModelFrame, Schema
from fedsplit.data.formula.pooled_functions import counted, extrapolated
from fedsplit.data.look_alikes import check_looks
from fedsplit.data.pooled.column_statistics import Statistic
from fedsplit.data.sources.client_data import GroupSource, Source
from fedsplit.data.tables import Table, is_missing, to_frame
from fedsplit.data.types import declaration, level_form
from fedsplit.errors import InputError, listed
from fedsplit.regression.client.description import ColumnRequest, Description
from fedsplit.regression.client.design import Design
from fedsplit.regression.client.findings import Finding
from fedsplit.regression.client.guards import disclosure
from fedsplit.regression.client.guards.answered import Answered, Asked, SinglesOut
from fedsplit.regression.client.guards.blocks import (
    Block,
    of_description,
)
from fedsplit.regression.client.guards.matrices import Ledger
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.regression.client.introduction import Introduction, first_statistics
from fedsplit.regression.client.measuring import Measured, measure
from fedsplit.regression.client.observed import observed
from fedsplit.regression.client.plan import Plan, read_columns
from fedsplit.regression.client.privacy.bounded_rows import BoundedRows, bounded_rows
from fedsplit.regression.client.privacy.privacy import Privacy
from fedsplit.regression.client.schema import Wanted
from fedsplit.regression.families import FAMILIES


class Dataset:
    """One client's data, read from its source when they are first asked for.

    Parameters
    ----------
    source : Source
    name : str, optional
        Of the client, if it is not that of the source.
    ids : (n,) array of int, optional
        The number of each row among all that the client has ever had; by default its place.

    Attributes
    ----------
    answered : Answered
        The columns that were told of.
    histograms : callable
        Called with a name for a column; returns the ledger of its histograms.
    private : list of str
        What the owner alone should know of the last answers.
    """

    def __init__(
        self, source: Source, name: str | None = None, ids: NDArray[np.intp] | None = None
    ) -> None:
        self.name = source.name
        if name is not None:
            self.name = name
        self._source = source
        self._ids = ids
        self.answered = Answered(self.name)
        self.histograms: Callable[[str], Ledger] = lambda column: Ledger()
        self.private: list[str] = []
        # The complete rows of the last description, which is followed by a design of the same.
        self._described: tuple[ColumnRequest, pd.DataFrame] | None = None
        self._merged: Mapping[str, str] = {}
        # What was asked for then, and told.
        self._told: tuple[object, Description] | None = None

    @property
    def path(self) -> Path | None:
        """The file that the rows come from, if they come from one."""
        return self._source.path if isinstance(self._source, Table) else None

    def introduce(self, wanted: Wanted, rules: Rules) -> Introduction:
        """Tell what can be told before the server has decided anything.

        What there is to complain of is left to the questions that follow: the server may have
        something else to say first. Not so under rules that refuse: a part that is left out would
        be a refusal that nobody counts.
        """
        names = self._source.names()
        columns = self._source.columns(wanted.asked(names))
        later: tuple[type[Exception], ...] = (InputError,)
        if rules.refuse:
            later = ()
        description = measured = None
        request = None
        with suppress(InputError):  # this depends on what the columns are, which is told
            request = wanted.request_of(self.name, columns)
        if request is not None:
            with suppress(*later):
                description = self.describe(request, rules)
        if request is None or description is None:
            return Introduction(columns, tuple(names))
        with suppress(*later):
            measured = self._first_measures(wanted, request, rules)
        return Introduction(columns, tuple(names), request, description, measured)

    def _first_measures(
        self, wanted: Wanted, request: ColumnRequest, rules: Rules
    ) -> Measured | None:
        """What functions such as ``poly`` ask for first, if that needs nothing of other clients."""
        formula = Formula(wanted.formula)
        used = {column for call in formula.pooled for column in call.columns}
        if not formula.pooled or used & request.coded or not self._described:
            return None
        rows = ModelFrame(self._described[1], Schema({}, request.types))
        statistics = first_statistics(formula)
        asked = Asked(request=request, formula=wanted.formula, statistics=statistics)
        return self._measured(formula, rows, statistics, rules, asked)

    def _measured(
        self,
        formula: Formula,
        rows: ModelFrame,
        statistics: Mapping[str, Statistic],
        rules: Rules,
        asked: Asked,
    ) -> Measured:
        admit = partial(self._admit, rules, asked)
        now = self.answered.of_now(asked)
        return measure(self.name, formula, rows, statistics, rules, admit, self.histograms, now)

    def _admit(self, rules: Rules, asked: Asked, made: Callable[[], Block]) -> None:
        """Refuse columns that, with all that was answered before, single out rows."""
        if rules.refuse:
            block = made()
            self.admit(asked, block._replace(rows=self.numbers(block.rows)), rules)

    def admit(self, asked: Asked, block: Block, rules: Rules) -> None:
        """Refuse columns that, with all that was answered before, single out rows; say why."""
        try:
            self.answered.admit(asked, block, rules)
        except SinglesOut as error:
            lacking = [
                column
                for column in sorted(self.answered.sometimes(asked))
                if self._lacks(column, error.rows)
            ]
            if not lacking:
                raise
            raise SinglesOut(
                f"{error}. Rows that lack {listed(lacking)} are left out of some models and not of "
                "others: models of one project need the same option columns",
                error.rows,
            ) from None

    def _lacks(self, column: str, rows: Sequence[int]) -> bool:
        """Whether one of some rows has no value in a column."""
        missing = np.asarray(pd.isna(self._source.take({column: "text"})[column]))
        numbers = self.numbers(np.arange(len(missing)))
        return bool(missing[np.isin(numbers, rows)].any())

    def numbers(self, places: NDArray[np.intp]) -> NDArray[np.intp]:
        """The numbers of rows that are at these places of the source."""
        if self._ids is None:
            return places
        return self._ids[places]

    def describe(self, request: ColumnRequest, rules: Rules) -> Description:
        """Read some columns, and describe the rows that are complete in them.

        The rows are not read again if the same has just been asked for.
        """
        # categories beyond those that are coded say nothing
        asked = request.types, request.coded, request.others, rules
        if self._described is not None and self._told is not None and self._told[0] == asked:
            return self._told[1]
        self._told = None
        description = self._describe(request, rules)
        self._told = asked, description
        return description

    def _describe(self, request: ColumnRequest, rules: Rules) -> Description:
        rows, kept, missing, orders = self._read(request)
        levels = self._levels(request, kept)
        warnings = disclosure.in_columns(self.name, len(kept), levels, rules)
        disclosure.refuse(warnings, rules)
        made = partial(of_description, kept, request)
        self._admit(rules, Asked(request=request), made)
        warnings += self._notes()
        return Description(rows, len(kept), missing, levels, orders, warnings)

    def complete_in(self, request: ColumnRequest) -> pd.DataFrame:
        """The rows that are complete in some columns; InputError if these cannot be described."""
        _, kept, _, _ = self._read(request)
        self._levels(request, kept)
        return kept

    def _read(
        self, request: ColumnRequest
    ) -> tuple[int, pd.DataFrame, dict[str, int], dict[str, bool]]:
        """How many rows there are, those that are complete, and of each column its gaps and order.

        The complete ones are kept for a design of the same columns.
        """
        where = f"client {self.name}"
        found, orders, self._merged = read_columns(
            self._source, request.types, request.as_levels, where
        )
        absent = {column: is_missing(values) for column, values in found.items()}
        kept = frame = to_frame(found)
        incomplete = np.any([*absent.values(), np.zeros(len(frame), dtype=bool)], axis=0)
        if incomplete.any():
            kept = frame[~incomplete]
        self._described = request, kept
        missing = {column: int(np.sum(each)) for column, each in absent.items()}
        meant = {column: each for column, each in orders.items() if column in request.coded}
        return len(frame), kept, missing, meant

    def _levels(self, request: ColumnRequest, rows: pd.DataFrame) -> dict[str, dict[Level, int]]:
        """How many rows have each level of each category."""
        levels = {}
        for column in request.types:
            if column in request.coded:
                levels[column] = counted_levels(rows[column].array)
                if column not in request.categories:
                    check_looks(f"client {self.name}", column, levels[column])
                disclosure.check_levels(self.name, column, levels[column])
        return levels

    def _notes(self) -> list[Finding]:
        """What is to be known of how the rows are read."""
        merged = [
            f"codes such as {code} in column {column} are read as numbers, so that {code} and "
            f"{level_form(code, 'number')} are one level: give {declaration(column, 'text')} to "
            "keep them apart"
            for column, code in self._merged.items()
        ]
        return [
            Finding(self.name, f"client {self.name}: {note}", f"clients: {note}", self.name)
            for note in [*self._source.notes(), *merged]
        ]

    def code(self, plan: Plan, rules: Rules) -> tuple[Design, Sequence[Finding]]:
        """Make a design of the complete rows.

        Returns
        -------
        rows : Design
            The rows of positive weight.
        warnings : sequence of Finding
            What their moments could disclose of single rows; an error instead if the rules say so.
            Splines with rows beyond their boundary.
        """
        where = f"client {self.name}"
        family = FAMILIES[plan.family]
        formula = Formula(plan.formula)
        frame = self.complete(plan)
        self._described = None  # not to be held in memory beside the design
        valued = plan.has_values(frame)
        if not valued.all():
            frame = frame[valued]
        names, A, o = plan.design(frame, where)
        b, w, at, groups = observed(self.name, plan, formula, frame)
        index = self.numbers(frame.index.to_numpy(dtype=np.intp))
        if len(b) == 0:
            raise InputError(f"{where}: no row has a weight above zero: leave it out")
        if at is not None:
            A, o = A[at], o[at]
            index = index[at]
            frame = frame.iloc[np.unique(at)]
        classes = family.count_classes(plan.classes)
        rows = Design(self.name, family, names, A, b, w, o, classes, groups=groups, index=index)
        warnings = self._disclosed(plan, rows, frame, rules)
        doubtful = self._extrapolated(formula, plan.rows(frame))
        if family.counts and np.any(b != np.floor(b)):
            doubtful.append(self._not_counts(formula.target))
        if rules.refuse:
            # whether the largest value of a row is beyond a number of the server's choice, or one
            # value is not whole
            self.private += [each.one for each in doubtful]
            doubtful = []
        return rows, warnings + doubtful

    def _disclosed(
        self, plan: Plan, rows: Design, frame: pd.DataFrame, rules: Rules
    ) -> list[Finding]:
        """What the moments of a design could disclose; an error instead if the rules say so."""
        formula = Formula(plan.formula)
        levels = dict(plan.levels)
        condition: str | None = formula.target
        if plan.classes:
            levels[str(formula.target_column)] = plan.classes
            condition = None
        counts = self._used_levels(levels, frame)
        counts |= counted(formula.pooled, plan.rows(frame))
        found = disclosure.in_columns(self.name, rows.rows, counts, rules)
        found += disclosure.in_rows(rows, condition, rules)
        disclosure.refuse(found, rules)
        if rules.refuse:
            told = np.column_stack([rows.b, rows.A])
            disclosure.check_digits(self.name, [formula.target, *rows.columns], told)
            others = np.column_stack([rows.w, rows.o])
            disclosure.check_range(self.name, ["the weights", "the offset"], others)
        return found

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

    def _not_counts(self, target: str) -> Finding:
        """A target that should be a count, and is not whole in some rows."""
        what = (
            f"values of {target} that are not whole, though it should be a count: for a rate, fit "
            "the count, and name in exposure= the column of what it is per"
        )
        return Finding(
            self.name, f"client {self.name} has {what}", f"clients have {what}", self.name
        )

    def bounded(self, plan: Plan, privacy: Privacy) -> BoundedRows:
        """The rows that fit what a study declares, each of bounded length."""
        return bounded_rows(self._source, plan, privacy, f"client {self.name}")

    def release(self) -> None:
        """Let go of rows that were read: only the way to them is kept."""
        self._described = None
        match self._source:
            case GroupSource(shared=shared):
                shared.kept = None

    def measure(self, plan: Plan, statistics: Mapping[str, Statistic], rules: Rules) -> Measured:
        """Compute what functions such as ``poly`` need to know of the complete rows."""
        rows = plan.rows(self.complete(plan))
        asked = Asked(plan=plan, statistics=statistics)
        return self._measured(Formula(plan.formula), rows, statistics, rules, asked)

    def complete(self, plan: Plan) -> pd.DataFrame:
        """The complete rows: those that were just described, or read again."""
        if self._described is not None:
            request, kept = self._described
            if (request.types, request.coded) == (plan.types, plan.coded):
                return kept
        columns = list(dict.fromkeys([*plan.columns, *plan.others]))
        frame = plan.read(self._source, columns, f"client {self.name}")
        return frame[~frame.isna().any(axis=1)]

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
