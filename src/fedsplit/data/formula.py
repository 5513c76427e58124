"""A formula: columns, numbers, arithmetic and a short list of functions."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from fedsplit.arrays import Array
from fedsplit.data.categories import Level
from fedsplit.data.factors import TermFactor
from fedsplit.data.model_frame import ModelFrame
from fedsplit.data.parsing import UNMARKED, ParsedFormula, parse_formula
from fedsplit.errors import InputError

MOST_COLUMNS = 2_000
"""Of a design."""

MOST_CATEGORIES = 6
"""Of one term: formulaic's work grows eightfold with each."""

ROWS_AT_ONCE = 8_192
"""Columns become rows block by block, within the processor's cache and without a second copy."""


@dataclass(frozen=True)
class Formula:
    """``target ~ terms`` with every expression checked.

    Parameters
    ----------
    text : str
        As the user wrote it.
    """

    text: str

    def __post_init__(self) -> None:
        if len(self._parsed.left) != 1:
            raise self._error("it needs one target on the left, as in y ~ x")
        category = self._target.category
        # A target has one number per row, and a category has one column per level.
        if category is not None:
            raise self._error(f"the target cannot be {self.target}: use {{{category} == 'a'}}")
        if any(self.target_column in factor.columns for factor in self._right):
            raise self._error(f"{self.target_column} is on both sides")
        if self.intercept and any(factor.column == "Intercept" for factor in self._right):
            raise self._error("column Intercept: rename it, this is the constant's name")

    @property
    def target(self) -> str:
        """The expression on the left."""
        return self._target.text

    @property
    def target_column(self) -> str | None:
        """The column on the left, None if the target is an expression of columns."""
        return self._target.column

    @property
    def target_columns(self) -> list[str]:
        """The columns in the target."""
        return self._target.columns

    @property
    def grouped(self) -> tuple[str, str] | None:
        """The successes and the failures of a target ``cbind(successes, failures)``."""
        if self._target.counts is None:
            return None
        successes, failures = self._target.counts
        return successes.text, failures.text

    @cached_property
    def columns(self) -> list[str]:
        """Every column that is needed, the target's first, in the order of the formula."""
        factors = [self._target, *self._right]
        return list(dict.fromkeys(name for factor in factors for name in factor.columns))

    @cached_property
    def categories(self) -> set[str]:
        """The columns inside ``C()``, which are categories whatever they hold."""
        return {factor.category for factor in self._right if factor.category is not None}

    @property
    def intercept(self) -> bool:
        """Whether there is a constant term."""
        return any(not factors for factors in self._parsed.right)

    def without_intercept(self) -> Formula:
        """Return the same formula without a constant term."""
        if not self.intercept:
            return self
        return Formula(f"{self.text} - 1")

    def design(
        self, frame: pd.DataFrame, levels: Mapping[str, Sequence[Level]]
    ) -> tuple[list[str], Array]:
        """Code the terms as a matrix.

        Parameters
        ----------
        frame : (n, c) DataFrame
            The columns of the formula.
        levels : mapping of str to sequence
            The levels of each category.

        Returns
        -------
        names : list of str
            Of the p columns.
        A : (n, p) array
        """
        try:
            return self._design(ModelFrame(frame, levels))
        except InputError:
            raise
        except Exception as error:  # formulaic and numpy raise exceptions of many kinds
            raise self._error(_reason(error)) from None

    def response(self, frame: pd.DataFrame) -> Array:
        """Return the target's values, (n,), which must be numbers."""
        rows = ModelFrame(frame, {})
        try:
            with np.errstate(all="ignore"):
                if self.target_column is not None:
                    values = rows.numbers(self.target_column)
                else:
                    values = self._target.values(rows)
            return np.array(values, dtype=np.float64)
        except Exception as error:
            raise self._error(_reason(error)) from None

    def counts(self, frame: pd.DataFrame) -> tuple[Array, Array]:
        """Return the successes and the failures, (n,), of a grouped target."""
        if self._target.counts is None:
            raise self._error("the target is not cbind(successes, failures)")
        rows = ModelFrame(frame, {})
        try:
            with np.errstate(all="ignore"):
                parts = [
                    np.array(np.broadcast_to(part.values(rows), len(frame)), dtype=np.float64)
                    for part in self._target.counts
                ]
        except Exception as error:
            raise self._error(_reason(error)) from None
        return parts[0], parts[1]

    def _design(self, rows: ModelFrame) -> tuple[list[str], Array]:
        self._check_columns(rows)
        with np.errstate(all="ignore"):  # values that are not finite are found, and named, later
            used = {name: each for term in self._parsed.right for name, each in term.items()}
            values = {name: factor.values(rows) for name, factor in used.items()}
            matrix = self._parsed.terms.get_model_matrix(
                pd.DataFrame(index=range(len(rows.frame))), context=values, na_action="ignore"
            )
        # Not the names of the matrix, which has merged columns of equal names.
        names = [name.translate(UNMARKED) for name in matrix.model_spec.column_names]
        for name, count in Counter(names).items():
            if count > 1:
                raise ValueError(f"two columns would be named {name}: rename a column or a level")
        A = np.empty((len(rows.frame), len(names)))
        for start in range(0, len(A), ROWS_AT_ONCE):
            block = slice(start, start + ROWS_AT_ONCE)
            A[block] = matrix.iloc[block].to_numpy(dtype=np.float64)
        return names, A

    def _check_columns(self, rows: ModelFrame) -> None:
        """Raise ValueError, before any work is done, if the design would be too large."""
        terms = [list(factors.values()) for factors in self._parsed.right]
        for factors in terms:
            if sum(factor.is_category(rows) for factor in factors) > MOST_CATEGORIES:
                raise ValueError(f"a term has more than {MOST_CATEGORIES} categories")
        columns = sum(math.prod(factor.width(rows) for factor in factors) for factors in terms)
        if columns > MOST_COLUMNS:
            raise ValueError(
                f"its terms have about {columns} columns, more than {MOST_COLUMNS}: leave out some"
            )

    @cached_property
    def _parsed(self) -> ParsedFormula:
        try:
            return parse_formula(self.text)
        except Exception as error:  # a text can fail in as many ways
            raise self._error(_reason(error)) from None

    @property
    def _target(self) -> TermFactor:
        return self._parsed.left[0]

    @cached_property
    def _right(self) -> list[TermFactor]:
        return [factor for factors in self._parsed.right for factor in factors.values()]

    def _error(self, reason: str) -> InputError:
        parts = [repr(self.text), reason]
        for i, part in enumerate(parts):
            if len(part) > 400:
                parts[i] = part[:400] + "..."
        return InputError("formula " + ": ".join(parts))


def quoted(columns: Iterable[str]) -> str:
    """Return columns as a sum of terms, with backticks where a name needs them."""
    terms = []
    for name in columns:
        if "`" in name or name.endswith("\\") or not name:
            raise InputError(f"column {name}: rename it, a formula cannot quote this name")
        terms.append(name if re.fullmatch(r"[^\W\d]\w*", name) else f"`{name}`")
    return " + ".join(terms)


def _reason(error: Exception) -> str:
    """Return the first line of the message, in the user's own names."""
    match error:
        case RecursionError():
            return "it is nested too deeply"
        case MemoryError():
            return "it is too large"
    if "`.` operator" in str(error):
        return "name the columns, or give the target alone for all of them"
    # Formulaic marks places in a formula by colours and brackets of its own.
    text = re.sub(r"\x1b\[[0-9;]*m|[⧛⧚]", "", str(error))
    line = text.strip().split("\n")[0].translate(UNMARKED)
    return line or type(error).__name__
