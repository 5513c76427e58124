"""A formula's own language, checked: columns, numbers, arithmetic and a short list of functions, and nothing else.

Formulaic evaluates what is in a formula as Python. A formula can come from another organisation, so every expression is
read as a syntax tree first. Functions that learn from the rows they see are refused: each client would learn another.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import formulaic
import formulaic.parser.types
import formulaic.transforms
import numpy as np
import pandas as pd
from formulaic.errors import FormulaicError
from pandas.api.types import is_numeric_dtype

from fedsplit.arrays import Array
from fedsplit.errors import InputError

Level: TypeAlias = str | bool | int | float
"""A value of a category."""

ELEMENTWISE = {
    name: getattr(np, name)
    for name in ("log", "log2", "log10", "log1p", "exp", "expm1", "sqrt", "abs", "sin", "cos", "tan", "floor", "sign")
}
"""Functions of single values, written ``log(x)`` or ``np.log(x)``."""

CONTRASTS = ("treatment", "sas", "SAS", "sum", "helmert", "diff", "poly")
"""Codings of categories, written ``C(g, contr.treatment("b"))``."""

LEARNING = {
    "center": "the option standardize centres by the mean over all clients",
    "scale": "the option standardize scales by the deviation over all clients",
    "standardize": "the option of this name does so over all clients",
    "poly": "write x + I(x**2)",
    "bs": "use powers or C() of ranges",
    "cr": "use powers or C() of ranges",
    "cs": "use powers or C() of ranges",
    "cc": "use powers or C() of ranges",
    "te": "use products of columns",
    "lag": "put it into the file",
    "hashed": "use C()",
}
"""Formulaic's functions that depend on other rows, and what to do instead."""

OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.USub, ast.UAdd)
COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)

QUOTED = re.compile(r"`([^`]*)`")


class Factor(NamedTuple):
    """A factor of a term: a column, a number, or an expression of columns.

    ``quoted`` has the columns that are quoted because their names are no words, by what stands for them in the tree.
    """

    text: str
    column: str | None
    tree: ast.Expression
    quoted: Mapping[str, str]

    @classmethod
    def of(cls, factor: formulaic.parser.types.Factor) -> Factor:
        text: str = factor.expr
        if factor.eval_method is formulaic.parser.types.Factor.EvalMethod.LOOKUP:
            return cls(text, text, ast.Expression(ast.Name("column", ast.Load(), col_offset=0)), {"column": text})
        quoted: dict[str, str] = {}

        def stand_in(match: re.Match[str]) -> str:
            quoted[place := f"_quoted{len(quoted)}"] = match.group(1)
            return place

        return cls(text, None, ast.parse(QUOTED.sub(stand_in, text), mode="eval"), quoted)

    @property
    def names(self) -> list[str]:
        """The columns in it, from left to right."""
        functions = {id(node.func) for node in ast.walk(self.tree) if isinstance(node, ast.Call)}
        found = [
            (node.col_offset, self.quoted.get(node.id, node.id))
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Name) and id(node) not in functions and node.id not in ("np", "contr")
        ]
        return [name for _, name in sorted(found)]

    @property
    def categories(self) -> set[str]:
        """The columns inside C()."""
        calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        names = [call.args[0].id for call in calls if _is_call(call, "C") and isinstance(call.args[0], ast.Name)]
        return {self.quoted.get(name, name) for name in names}


@dataclass(frozen=True)
class Formula:
    """``target ~ terms`` with every expression checked.

    Attributes
    ----------
    text : str
        As given.
    """

    text: str

    def __post_init__(self) -> None:
        if len(self._left) != 1:
            raise self._error("it needs one target on the left, as in y ~ x")
        for factor in self._factors:
            for node in ast.walk(factor.tree):
                if why := _forbidden(node):
                    raise self._error(f"{factor.text}: {why}")
        if self.target_column in [name for factor in self._right for name in factor.names]:
            raise self._error(f"{self.target_column} is on both sides")

    @cached_property
    def target(self) -> str:
        """The expression on the left."""
        return self._left[0].text

    @property
    def target_column(self) -> str | None:
        """The column that the target is, where it is no expression of columns."""
        return self._left[0].column

    @property
    def target_columns(self) -> list[str]:
        """The columns in the target."""
        return self._left[0].names

    @cached_property
    def columns(self) -> list[str]:
        """Every column that is needed, the target's first, in the order of the formula."""
        return list(dict.fromkeys(name for factor in self._factors for name in factor.names))

    @cached_property
    def categories(self) -> set[str]:
        """The columns that C() makes categories, whatever is in them."""
        return {name for factor in self._factors for name in factor.categories}

    @property
    def intercept(self) -> bool:
        return any(factor.text == "1" for factor in self._right)

    def without_intercept(self) -> Formula:
        """The same without a constant term."""
        return Formula(f"{self.text} - 1") if self.intercept else self

    def design(self, frame: pd.DataFrame, levels: Mapping[str, Sequence[Level]]) -> tuple[list[str], Array]:
        """The names of the terms' columns and their values, (n, p), with these levels of each category."""
        coded = {column: categorical(column, frame[column], values) for column, values in levels.items()}
        text = {column: values for column, values in coded.items() if not is_numeric_dtype(frame[column])}
        frame = frame.assign(**text)

        def C(data: pd.Series, contrasts: object = None) -> object:  # noqa: N802  # its name in a formula
            return formulaic.transforms.C(coded[data.name], contrasts)

        matrix = self._evaluate(self._model.rhs, frame, {"C": C})
        names = [str(name) for name in matrix.columns]
        return names, np.array(matrix.to_numpy(dtype=np.float64), order="C")  # a copy: pandas' own cannot be written

    def response(self, frame: pd.DataFrame) -> Array:
        """The target's values, (n,), where they are numbers."""
        matrix = self._evaluate(self._model.lhs, frame, {})
        values: Array = matrix.to_numpy(dtype=np.float64)
        return values[:, 0]

    def _evaluate(self, side: formulaic.SimpleFormula, frame: pd.DataFrame, more: Mapping[str, object]) -> pd.DataFrame:
        try:
            with np.errstate(all="ignore"):  # what is not finite is found, and named, afterwards
                return side.get_model_matrix(frame, context={**ELEMENTWISE, "np": np, **more}, na_action="ignore")
        except Exception as error:  # formulaic passes on whatever the expressions raise
            raise self._error(_first_line(error)) from None

    @cached_property
    def _model(self) -> formulaic.Formula:
        try:
            model = formulaic.Formula(self.text)
            model.required_variables  # noqa: B018  # this parses the expressions
        except (FormulaicError, SyntaxError, ValueError, TypeError) as error:
            raise self._error(_first_line(error)) from None
        if not hasattr(model, "rhs") or not isinstance(model.rhs, formulaic.SimpleFormula):
            raise self._error("it needs a target on the left of ~ and one set of terms on the right, as in y ~ x")
        return model

    @cached_property
    def _left(self) -> list[Factor]:
        return [Factor.of(factor) for term in self._model.lhs for factor in term.factors]

    @cached_property
    def _right(self) -> list[Factor]:
        return [Factor.of(factor) for term in self._model.rhs for factor in term.factors]

    @property
    def _factors(self) -> list[Factor]:
        return self._left + self._right

    def _error(self, why: str) -> InputError:
        return InputError(f"formula {self.text!r}: {why}")


def categorical(column: str, values: pd.Series, levels: Sequence[Level]) -> pd.Series:
    """The values as categories with these levels; missing stays missing."""
    if is_numeric_dtype(values) and not any(isinstance(level, str) for level in levels):
        codes = pd.Index([float(level) for level in levels], dtype=np.float64).get_indexer(values)
    else:  # text at some client is text at all of them
        names = values.map(as_text, na_action="ignore") if is_numeric_dtype(values) else values
        codes = pd.Index([as_text(level) for level in levels], dtype=object).get_indexer(names.astype(object))
    unknown = (codes < 0) & values.notna().to_numpy()
    if unknown.any():
        raise InputError(f"column {column}: {as_text(values[unknown].iloc[0])} is none of its levels {listed(levels)}")
    return pd.Series(pd.Categorical.from_codes(codes, categories=pd.Index(levels)), index=values.index, name=column)


def as_text(level: Level) -> str:
    """A level as text: a whole number without decimals."""
    return str(int(level)) if isinstance(level, float) and level.is_integer() else str(level)


def listed(items: Iterable[object], most: int = 6) -> str:
    """The first few of them, for a message."""
    texts = [str(item) for item in items]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def quoted(columns: Iterable[str]) -> str:
    """Columns as terms of a formula."""
    return " + ".join(column if column.isidentifier() else f"`{column}`" for column in columns)


def _is_call(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _forbidden(node: ast.AST) -> str | None:
    """Why this part of an expression is not allowed."""
    if isinstance(node, ast.Call):
        return _forbidden_call(node)
    if isinstance(node, ast.Attribute):
        known = {"np": tuple(ELEMENTWISE), "contr": CONTRASTS}
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        return None if node.attr in known.get(owner, ()) else f"{node.attr} is not known"
    if isinstance(node, ast.Constant):
        return None if isinstance(node.value, int | float | str) else f"{node.value!r} is not allowed"
    if isinstance(node, ast.BinOp):
        return _forbidden_arithmetic(node)
    fine = (ast.Expression, ast.Name, ast.Load, ast.UnaryOp, ast.Compare, ast.keyword)
    return None if isinstance(node, (*fine, *OPERATORS, *COMPARISONS)) else f"{type(node).__name__} is not allowed"


def _forbidden_arithmetic(node: ast.BinOp) -> str | None:
    """Text is no number, and a power of numbers alone can be too large to compute."""
    if any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in (node.left, node.right)):
        return "text has no arithmetic"
    if isinstance(node.op, ast.Pow):
        power = node.right.operand if isinstance(node.right, ast.UnaryOp) else node.right
        small = isinstance(power, ast.Constant) and isinstance(power.value, int | float) and power.value <= 100
        columns = any(isinstance(part, ast.Name) for part in ast.walk(node.left))
        return None if small and columns else "a power is of a column, to a number of at most 100"
    return None


def _forbidden_call(call: ast.Call) -> str | None:
    if isinstance(call.func, ast.Attribute):
        return None  # checked as an attribute
    name = call.func.id if isinstance(call.func, ast.Name) else "this"
    if name in LEARNING:
        return f"{name}() depends on the other rows of a client: {LEARNING[name]}"
    if name == "C":
        plain = len(call.args) in (1, 2) and isinstance(call.args[0], ast.Name) and not call.keywords
        return None if plain else "write C(column) or C(column, contr.treatment('level'))"
    if name == "I":
        return None if len(call.args) == 1 and not call.keywords else "write I(expression)"
    if name in ELEMENTWISE:
        return None if len(call.args) == 1 and not call.keywords else f"{name} takes one column"
    return f"{name}() is not known: use {', '.join(ELEMENTWISE)}, I and C"


def _first_line(error: Exception) -> str:
    if "`.` operator" in str(error):
        return "name the columns, or give the target alone for all of them"
    return re.sub(r"\x1b\[[0-9;]*m|[⧛⧚]", "", str(error)).strip().split("\n")[0] or type(error).__name__
