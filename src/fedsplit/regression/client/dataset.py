"""A client's data: what it answers before rows are coded, and the design that it makes of them.

Before the rounds only counts, names of levels, sums and ``Moments`` leave a client.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsplit.data.tables import Source
from fedsplit.data.texts import Level, Texts, check_looks, level_codes, level_counts
from fedsplit.data.types import declaration, level_form
from fedsplit.errors import InputError, RowError, listed
from fedsplit.regression.client.column_types import locally_typed
from fedsplit.regression.client.design import Design
from fedsplit.regression.client.guards.ledger import DisclosureLedger
from fedsplit.regression.client.guards.rules import (
    Finding,
    Rules,
    check_digits,
    check_levels,
    check_range,
    in_columns,
    in_rows,
    in_sums,
    refuse,
)
from fedsplit.regression.client.noise import BoundedRows, bounded_rows
from fedsplit.regression.client.plan import Plan, ReadRows
from fedsplit.regression.client.questions import RowCounts, SurveyAnswer
from fedsplit.regression.client.statistics import OfArgument, TableRows
from fedsplit.regression.families.response import Targets, check_rows, of_counts, whole
from fedsplit.regression.privacy import Privacy
from fedsplit.statistic import RowSum, Statistic


class Dataset:
    """One client's data, read from its source when they are first asked for.

    Parameters
    ----------
    name : str, optional
        Of the client, if it is not that of the source.
    ids : (n,) array of int, optional
        The number of each row among all that the client has ever had; by default its place.

    Attributes
    ----------
    ledger : DisclosureLedger
        What was disclosed of the rows.
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
        self.ledger = DisclosureLedger()
        self.private: list[str] = []
        # The rows of the last survey, which is followed by a design of the same.
        self._read: ReadRows | None = None

    def survey(self, plan: Plan, rules: Rules) -> tuple[SurveyAnswer, Plan | None]:
        """Answer what the columns of a plan hold, before or after types are agreed on.

        With it comes the plan by which rows were counted, if they were: names and types of columns
        are no sums.
        """
        names = tuple(self._source.names()) if plan.draft else ()
        profiles = self._source.columns(plan.needed) if plan.draft else {}
        with suppress(*_deferred(plan, rules)):
            typed = self._typed(plan)
            if typed is not None:
                counts = self._count(typed, rules)
                for column, declared in () if plan.draft else plan.levels.items():
                    _check_declared(self.name, column, declared, counts.levels.get(column, {}))
                return SurveyAnswer(names, profiles, counts), typed
        return SurveyAnswer(names, profiles, None), None

    def _typed(self, plan: Plan) -> Plan | None:
        """A plan that has types: of a draft those that this client alone would give it, if any."""
        if not plan.draft:
            return plan
        profiles = self._source.columns(plan.needed)
        return locally_typed(plan.expanded(self._source.names()), profiles)

    def counted(self, plan: Plan) -> tuple[NDArray[np.intp], Callable[[], list[RowSum]]]:
        """The numbers of the rows that were counted, and what makes the sums over them."""
        frame = self.complete(plan)

        def sums() -> list[RowSum]:
            one = np.ones((len(frame), 1))
            columns = [one[:, 0]]
            for name in plan.types:
                if name in plan.categorical:
                    codes = frame[name].cat.codes.to_numpy()
                    columns += [(codes == code).astype(np.float64) for code in np.unique(codes)]
            return [RowSum(np.column_stack(columns), one)]

        return self.numbers(frame), sums

    def table_rows(
        self, plan: Plan, statistics: Mapping[str, Statistic], rules: Rules
    ) -> tuple[TableRows, list[Finding]] | None:
        """The complete rows that functions such as ``poly`` depend on, with what is to be said.

        None for a draft whose functions have arguments that this client cannot read by itself: the
        type of a category depends on all clients.
        """
        with suppress(*_deferred(plan, rules)):
            typed = self._typed(plan)
            used = {column for call in plan.parsed.pooled for column in call.columns}
            if typed is not None and not (plan.draft and used & typed.categorical):
                return self._table_rows(typed, statistics, rules)
        return None

    def _table_rows(
        self, plan: Plan, statistics: Mapping[str, Statistic], rules: Rules
    ) -> tuple[TableRows, list[Finding]]:
        rows = TableRows(self.name, plan, plan.rows(self.complete(plan)), rules.withheld)
        if rows.frame.frame.empty:  # there is nothing that a rule could be about
            return rows, []
        known = {each.text: each for each in statistics.values() if isinstance(each, OfArgument)}
        columns = {text: rows.argument(text) for text in known}
        sums: Counter[str] = Counter()
        for call in plan.parsed.pooled:
            if call.text in known:
                sums.update(dict.fromkeys(call.columns, known[call.text].statistic.sums))
        warnings = in_sums(self.name, columns, sums, rules)
        warnings += in_columns(self.name, int(plan.has_values(rows.frame.frame).sum()), {}, rules)
        refuse(warnings, rules)
        if rules.refuse:
            for text, each in known.items():
                for part in each.statistic.part(columns[text], rules.withheld).disclosed():
                    check_digits(self.name, [text] * part.left.shape[1], part.left)
        return rows, warnings

    def numbers(self, frame: pd.DataFrame) -> NDArray[np.intp]:
        """The numbers of rows, whose index has their places in the source."""
        places: NDArray[np.intp] = frame.index.to_numpy(dtype=np.intp)
        return places if self._ids is None else self._ids[places]

    def persons(self, column: str) -> NDArray[np.intp]:
        """Whose row each row is, (n,), by a column; rows without a value are one person."""
        if column not in self._source.names():
            raise InputError(f"client {self.name}: there is no column {column}")
        values = self._source.take({column: "text"})[column]
        codes: NDArray[np.intp] = pd.factorize(values, use_na_sentinel=False)[0]
        return codes

    def _count(self, plan: Plan, rules: Rules) -> RowCounts:
        """Read the columns of a plan, and count the rows that are complete in them."""
        read = self._rows_of(plan)
        levels = {}
        for column in plan.types:
            if column in plan.categorical:
                every = Texts.of(read.frame[column].array).counts()
                levels[column] = {level: count for level, count in every if count}
                if column not in plan.categories:
                    check_looks(f"client {self.name}", column, levels[column])
                check_levels(self.name, column, levels[column])
        complete = len(read.frame)
        warnings = in_columns(self.name, complete, levels, rules)
        refuse(warnings, rules)
        warnings += self._notes(read.merged)
        orders = {column: each for column, each in read.orders.items() if column in levels}
        return RowCounts(plan.types, read.rows, complete, read.missing, levels, orders, warnings)

    def complete(self, plan: Plan) -> pd.DataFrame:
        """The rows that lack no value in the columns of a plan."""
        return self._rows_of(plan).frame

    def _rows_of(self, plan: Plan) -> ReadRows:
        """The rows by a plan, which are not read again if the last question was about the same."""
        if self._read is None or self._read.key != plan.rows_key:
            self._read = None
            self._read = plan.rows_of(self._source, f"client {self.name}")
        return self._read

    def _notes(self, merged: Mapping[str, str]) -> list[Finding]:
        """What is to be known of how the rows are read."""
        notes = [
            f"codes such as {code} in column {column} are read as numbers, so that {code} and "
            f"{level_form(code, 'number')} are one level: give {declaration(column, 'text')} to "
            "keep them apart"
            for column, code in merged.items()
        ]
        return [
            Finding(self.name, f"client {self.name}: {note}", f"clients: {note}", self.name)
            for note in [*self._source.notes(), *notes]
        ]

    def code(self, plan: Plan, rules: Rules) -> Design:
        """Make a design of the complete rows of positive weight.

        What its moments could disclose of single rows is an error if the rules say so.
        """
        where = f"client {self.name}"
        frame = self.complete(plan)
        self._read = None  # not to be held in memory beside the design
        valued = plan.has_values(frame)
        if not valued.all():
            frame = frame[valued]
        A, o = plan.design(frame, where)
        b, w, at, groups = trials(plan, frame, where)
        row_ids = self.numbers(frame)
        if len(b) == 0:
            raise InputError(f"{where}: no row has a weight above zero: leave it out")
        if at is not None:
            A, o, row_ids = A[at], o[at], row_ids[at]
            frame = frame.iloc[np.unique(at)]
        rows = Design(self.name, plan, A, b, w, o, row_ids, groups)
        disclosed = self._disclosed(rows, frame, rules)
        # beyond their boundary splines soon are huge
        doubtful = [
            Finding.of_client(self.name, f"rows beyond the boundary knots of {call.text}")
            for call in plan.parsed.pooled
            if call.function.extrapolates(call.argument(plan.rows(frame)))
        ]
        if what := plan.chosen_family.remark(b, plan.parsed.target):
            doubtful.append(Finding.of_client(self.name, what))
        if rules.refuse:
            # whether the largest value of a row is beyond a number of the server's choice, or one
            # value is not whole
            self.private += [each.one for each in doubtful]
            doubtful = []
        rows.warnings = disclosed + doubtful
        return rows

    def _disclosed(self, rows: Design, frame: pd.DataFrame, rules: Rules) -> list[Finding]:
        """What the moments of a design could disclose; an error instead if the rules say so.

        The levels that its rows have may be others than those described: rows of weight zero are
        left out, and a server may ask for a design that it has had nothing described for.
        """
        plan, formula = rows.plan, rows.plan.parsed
        levels = dict(plan.levels)
        condition: str | None = formula.target
        if plan.classes:
            levels[str(formula.target_column)] = plan.classes
            condition = None
        counts = {}
        for column, known in levels.items():
            every = level_counts(known, level_codes(column, frame[column], known))
            counts[column] = {level: count for level, count in every.items() if count}
            check_levels(self.name, column, counts[column])
        for call in formula.pooled:
            if call.function.is_category:
                codes = call.values(plan.rows(frame))
                counts[call.text] = level_counts(call.labels(plan.schema), codes)
        found = in_columns(self.name, rows.rows, counts, rules)
        found += in_rows(rows, condition, rules)
        refuse(found, rules)
        if rules.refuse:
            columns = np.column_stack([rows.b, rows.A])
            check_digits(self.name, [formula.target, *plan.names], columns)
            others = np.column_stack([rows.w, rows.o])
            check_range(self.name, ["the weights", "the offset"], others)
        return found

    def bounded(self, plan: Plan, privacy: Privacy) -> BoundedRows:
        """The rows that fit what a study declares, each of bounded length."""
        return bounded_rows(self._source, plan, privacy, f"client {self.name}")

    def release(self) -> None:
        """Let go of rows that were read: only the way to them is kept."""
        self._read = None
        self._source.release()


def _check_declared(
    client: str, column: str, declared: Sequence[Level], present: Mapping[Level, int]
) -> None:
    """Raise RowError if a client has a level that is not declared."""
    others = [level for level in present if level not in set(declared)]
    if others:
        where = f"client {client}: column {column}"
        raise RowError(
            f"{where} has the level{'s' * (len(others) > 1)} {listed(others)}, "
            f"which the study does not declare; it declares {listed(declared)}",
            f"{where} has levels that the study does not declare (its own log says which)",
        )


def _deferred(plan: Plan, rules: Rules) -> tuple[type[Exception], ...]:
    """The errors in columns of a draft that are left to the next question.

    The coordinator may have something else to say first. Not so under rules that refuse, where an
    answer that is left out would be a refusal that nobody counts.
    """
    return (InputError,) if plan.draft and not rules.refuse else ()


def trials(plan: Plan, frame: pd.DataFrame, where: str) -> Targets:
    """The target and the weight of every row that is used.

    Its ``rows`` and ``groups`` are None where that is every row, and where none is a group.
    """
    w = plan.row_weights(frame)
    if plan.weights is not None:
        why = "a weight is finite and not below zero"
        check_rows((w >= 0) & np.isfinite(w), frame, w, where, plan.weights, why)
    match plan.chosen_family.response(plan, frame, where):
        case {"successes": successes, "failures": failures}:
            return of_counts(successes, failures, w)
        case {"share": share}:
            whole_counts = (share == 0) | (share == 1) | whole(w * share)
            why = f"times the trials in {plan.weights} it must be a whole number"
            target = plan.parsed.target
            check_rows(whole_counts, frame, share, where, target, why)
            return of_counts(w * share, w * (1.0 - share), np.ones_like(w))
        case {"target": b}:
            used = np.flatnonzero(w > 0)
            if len(used) == len(b):
                return Targets(b, w)
            return Targets(b[used], w[used], used)
    raise TypeError("a response that is neither a target nor a count")
