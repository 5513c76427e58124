"""A formula: columns, numbers, arithmetic and a short list of functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pandas as pd

from fedsplit.arrays import Array
from fedsplit.data.formula.constants import WORDS
from fedsplit.data.formula.design_columns import DesignColumns, compile_design
from fedsplit.data.formula.factors import Category, TermFactor
from fedsplit.data.formula.pooled_functions import ModelFrame, PooledCall, Schema
from fedsplit.data.formula.syntax import parse, substituted
from fedsplit.data.formula.terms import Sides, read_terms
from fedsplit.errors import InputError


@dataclass(frozen=True)
class Formula:
    """``target ~ terms``, as the user wrote it, with every expression checked."""

    text: str

    def __post_init__(self) -> None:
        match self._sides.left:
            # A target has one number per row, and a category has one column per level.
            case [TermFactor(column=None, category=Category(), columns=[column, *_])]:
                raise self._error(f"the target cannot be {self.target}: use {{{column} == 'a'}}")
        if self.target_column in {name for factor in self._right for name in factor.columns}:
            raise self._error(f"{self.target_column} is on both sides")
        if self.intercept and any(factor.column == "Intercept" for factor in self._sides.factors):
            raise self._error("column Intercept: rename it, this is the constant's name")

    @property
    def target(self) -> str:
        """The expression on the left."""
        parts = ", ".join(factor.text for factor in self._sides.left)
        return f"{self.call}({parts})" if self.call else parts

    @property
    def call(self) -> str:
        """What a target of two columns is called by, ``cbind`` or ``Surv``; else empty."""
        return self._sides.call

    @property
    def target_column(self) -> str | None:
        """The column on the left, None if the target is an expression of columns."""
        return None if self.call else self._sides.left[0].column

    @property
    def target_columns(self) -> list[str]:
        """The columns in the target."""
        return _columns(self._sides.left)

    @property
    def grouped(self) -> tuple[str, str] | None:
        """The successes and the failures of a target ``cbind(successes, failures)``."""
        if self.call != "cbind":
            return None
        successes, failures = self._sides.left
        return successes.text, failures.text

    @cached_property
    def columns(self) -> list[str]:
        """Every column that is needed, the target's first, in the order of the formula."""
        return _columns([*self._sides.left, *self._right])

    @cached_property
    def categories(self) -> set[str]:
        """The columns inside ``C()`` and the like, which are categories whatever they hold."""
        return {
            factor.category.of
            for factor in self._sides.factors
            if factor.column is None
            and factor.category is not None
            and isinstance(factor.category.of, str)
        }

    @property
    def has_offset(self) -> bool:
        """Whether a term is ``offset()``."""
        return bool(self._sides.offsets)

    @cached_property
    def pooled(self) -> list[PooledCall]:
        """The calls of functions of all clients' rows, each once."""
        calls = [call for factor in (*self._sides.left, *self._right) for call in factor.calls]
        return list({call.text: call for call in calls}.values())

    @property
    def intercept(self) -> bool:
        """Whether there is a constant term."""
        return self._sides.intercept

    @property
    def open(self) -> bool:
        """Whether ``.`` stands for columns that are not known yet."""
        return self._sides.open

    def without_intercept(self) -> Formula:
        """Return the same formula without a constant term."""
        if not self.intercept:
            return self
        plain = Formula(f"{self.text} - 1")
        if not plain.intercept and plain._sides.terms == self._sides.terms:
            return plain
        left, right = self.text.split("~", 1)
        return Formula(f"{left}~ ({right}) - 1")  # a condition would take the number for its own

    def expanded(self, columns: Iterable[str]) -> Formula:
        """Return the formula with ``.`` replaced by all of these columns but the target's."""
        others = [name for name in columns if name not in self.target_columns]
        return Formula(substituted(self.text, quoted(others) or "1"))

    def compile(self, schema: Schema, constant: bool = True) -> DesignColumns:
        """Work out the columns of the design, once for all clients.

        Without ``constant`` a constant term has no column, and categories are coded as beside it:
        for losses in which it cancels.
        """
        if self.open:
            raise self._error("name the columns, the ones that . stands for are not known here")
        with self._named_errors():
            return compile_design(self._sides, schema, constant)

    def evaluate(self, columns: DesignColumns, frame: pd.DataFrame) -> tuple[Array, Array]:
        """Return the (n, p) design and the (n,) offsets of some rows."""
        with self._named_errors():
            return columns.design(frame), columns.offset(frame)

    def response(self, frame: pd.DataFrame, schema: Schema | None = None) -> Array:
        """Return the target's values, (n,), which must be numbers."""
        if self.call:
            raise self._error(f"a target by {self.call}() has two columns")
        return self._numbers(self._sides.left[0], frame, schema)

    def pair(self, frame: pd.DataFrame, schema: Schema | None = None) -> tuple[Array, Array]:
        """Return both columns, (n,), of a target that has two, such as successes and failures."""
        if not self.call:
            raise self._error("the target is one column")
        first, second = (self._numbers(part, frame, schema) for part in self._sides.left)
        return first, second

    def _numbers(self, factor: TermFactor, frame: pd.DataFrame, schema: Schema | None) -> Array:
        rows = ModelFrame(frame, schema or Schema({}))
        with self._named_errors(), np.errstate(all="ignore"):
            return np.array(factor.number(rows), dtype=np.float64)

    @cached_property
    def _sides(self) -> Sides:
        with self._named_errors():
            return _read(self.text)

    @property
    def _right(self) -> Sequence[TermFactor]:
        return [*self._sides.factors, *self._sides.offsets]

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Name the formula, and give one line, whatever fails in it: NumPy fails in many ways."""
        try:
            yield
        except InputError:
            raise
        except RecursionError:
            raise self._error("it is nested too deeply") from None
        except MemoryError:
            raise self._error("it is too large") from None
        except Exception as error:
            reason = str(error).strip().split("\n")[0] or type(error).__name__
            raise self._error(reason) from None

    def _error(self, reason: str) -> InputError:
        longest = 400
        parts = (repr(self.text), reason)
        shown = (part if len(part) <= longest else part[:longest] + "..." for part in parts)
        return InputError("formula " + ": ".join(shown))


def _columns(factors: Sequence[TermFactor]) -> list[str]:
    """Return the columns in some factors, each once."""
    return list(dict.fromkeys(name for factor in factors for name in factor.columns))


@lru_cache(maxsize=64)
def _read(text: str) -> Sides:
    """Return what a formula says; every client has the same few formulas."""
    return read_terms(parse(text))


def quoted(columns: Iterable[str]) -> str:
    """Return columns as a sum of terms, with backticks where a name needs them."""
    terms = []
    for name in columns:
        if "`" in name or not name:
            raise InputError(f"column {name}: rename it, a formula cannot quote this name")
        plain = name not in WORDS and re.fullmatch(r"[^\W\d][\w.]*", name)
        terms.append(name if plain else f"`{name}`")
    return " + ".join(terms)
