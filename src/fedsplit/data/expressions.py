"""Expressions of columns, read as syntax trees and computed by a table of what is known: nothing else can run."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import formulaic
import formulaic.transforms
import numpy as np
import pandas as pd
from formulaic.transforms.contrasts import ContrastsRegistry
from pandas.api.types import is_numeric_dtype

from fedsplit.arrays import Array
from fedsplit.data.categories import Level, categorical, texts

ELEMENTWISE = {
    name: getattr(np, name)
    for name in (
        "log",
        "log2",
        "log10",
        "log1p",
        "exp",
        "expm1",
        "sqrt",
        "abs",
        "sin",
        "cos",
        "tan",
        "floor",
        "sign",
    )
}
"""Functions of single values, written ``log(x)`` or ``np.log(x)``."""

CONTRASTS = {
    name: getattr(ContrastsRegistry, name)
    for name in ("treatment", "SAS", "sum", "helmert", "diff", "poly")
}
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

ARITHMETIC: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
EQUALITY: dict[type[ast.AST], Callable[..., Any]] = {ast.Eq: operator.eq, ast.NotEq: operator.ne}
ORDER: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}

PARTS = re.compile(
    r"""\\.|"(?:\\.|[^"\\])*+"|'(?:\\.|[^'\\])*+'|`(?P<quoted>[^`]+)`|(?P<word>(?:(?a:\w)|[^\x00-\x7f])++)"""
)
"""Of an expression: escapes and strings, which stay, quoted columns, and words."""


class Rows(NamedTuple):
    """A client's rows, and the levels of its categories."""

    frame: pd.DataFrame
    levels: Mapping[str, Sequence[Level]]

    def holds_text(self, column: str) -> bool:
        """Text at some client is text at all of them, and shows in the levels."""
        if column not in self.frame:
            raise ValueError(f"there is no column {column}")
        return not is_numeric_dtype(self.frame[column]) or any(
            isinstance(_, str) for _ in self.levels.get(column, ())
        )

    def values(self, column: str) -> Any:
        """Numbers as float64, text as objects."""
        if not self.holds_text(column):
            return self.frame[column].to_numpy(dtype=np.float64)
        return texts(self.frame[column]).to_numpy(dtype=object)

    def numbers(self, column: str) -> Array:
        if self.holds_text(column):
            raise ValueError(
                f"column {column} holds text: use it as a term, or compare it as in {column} == 'a'"
            )
        values: Array = self.values(column)
        return values

    def is_category(self, factor: Factor) -> bool:
        return factor.category is not None or (
            factor.column is not None and self.holds_text(factor.column)
        )

    def width(self, factor: Factor) -> int:
        """At most how many columns it has."""
        return len(self.levels.get(factor.columns[0], ())) if self.is_category(factor) else 1

    def coded(self, column: str) -> pd.Series:
        """The column as categories, with the index of a new frame."""
        if column not in self.levels:
            raise ValueError(f"column {column} is a category without levels")
        for level in self.levels[column]:
            if isinstance(level, str) and (level.startswith("__") or "]:" in level):
                raise ValueError(
                    f"column {column}: rename {level}: such a level has no column of its own in formulaic"
                )
        return categorical(column, self.frame[column], self.levels[column]).reset_index(drop=True)


Step: TypeAlias = Callable[[Rows], Any]


@dataclass(frozen=True)
class Factor:
    """A factor of a term: a column, a category, or an expression of columns.

    Attributes
    ----------
    text : str
        As in the names of the design's columns.
    columns : list
        Those in it, from left to right.
    values : callable
        What it is for some rows.
    column : str | None
        Where it is one and nothing else.
    category : str | None
        The column inside C().
    """

    text: str
    columns: list[str]
    values: Step
    column: str | None = None
    category: str | None = None

    @classmethod
    def of_column(cls, name: str) -> Factor:
        if name in ("0", "1"):
            raise ValueError(f"column {name}: rename it, this is the constant of a formula")

        def values(rows: Rows) -> Any:
            return rows.coded(name) if rows.holds_text(name) else rows.values(name)

        return cls(name, [name], values, column=name)

    @classmethod
    def of_expression(cls, text: str) -> Factor:
        """Read an expression: strings stay; quoted names, and words that Python would normalise, get stand-ins."""
        stem = "q_"
        names: dict[str, str] = {}
        written: dict[str, str] = {}
        while stem in text:
            stem += "_"

        def stand_in(match: re.Match[str]) -> str:
            name = match["quoted"] or match["word"]
            if name is None or (match["word"] and name.isascii()):
                return match[0]
            place = f"{stem}{len(names)}_"
            names[place], written[place] = name, match[0]
            return f" {place} "

        tree = ast.parse(PARTS.sub(stand_in, text).strip(), mode="eval").body
        plain = re.sub(rf"{stem}\d+_", lambda match: written[match[0]], ast.unparse(tree))
        reader = Reader(names, [])
        try:
            match tree:
                case ast.Name():
                    return cls.of_column(reader.name(tree))
                case ast.Call(
                    func=ast.Name("C"), args=[ast.Name() as name, *contrasts], keywords=[]
                ) if len(contrasts) < 2:
                    column, coding = reader.name(name), _contrasts(*contrasts)
                    return cls(
                        plain,
                        [column],
                        lambda rows: formulaic.transforms.C(rows.coded(column), coding),
                        category=column,
                    )
            step = reader.number(tree)
        except ValueError as error:
            raise ValueError(f"{plain}: {error}") from None
        return cls(plain, reader.columns, lambda rows: np.broadcast_to(step(rows), len(rows.frame)))


class Reader(NamedTuple):
    """Turns a syntax tree into functions of the rows: what is not known here cannot run.

    ``names`` has what the stand-ins in the tree are for; ``columns`` those met so far.
    """

    names: Mapping[str, str]
    columns: list[str]

    def name(self, node: ast.Name) -> str:
        return self.names.get(node.id, node.id)

    def number(self, node: ast.expr) -> Step:
        """Constants are float64: an integer's power could take forever."""
        match node:
            case ast.Constant(bool() | int() | float() as constant):
                try:
                    value = np.float64(constant)
                except OverflowError:
                    raise ValueError("a number in it is too large") from None
                return lambda rows: value
            case ast.Name():
                self.columns.append(name := self.name(node))
                return lambda rows: rows.numbers(name)
            case ast.UnaryOp(ast.USub() | ast.UAdd() as sign, operand):
                return _applied(ARITHMETIC[type(sign)], self.number(operand))
            case ast.BinOp(left, how, right) if type(how) in ARITHMETIC:
                return _applied(ARITHMETIC[type(how)], self.number(left), self.number(right))
            case ast.Compare(left, [how], [right]) if type(how) in ORDER:
                return _compared(ORDER[type(how)], self.number(left), self.number(right))
            case ast.Compare(left, [how], [right]) if type(how) in EQUALITY:
                if isinstance(left, ast.Constant) and isinstance(right, ast.Constant):
                    raise ValueError("a condition needs a column")
                return _compared(EQUALITY[type(how)], self.either(left), self.either(right))
            case ast.Compare():
                raise ValueError("a condition has one of < <= > >= == !=")
            case ast.Call():
                return self.call(node)
            case ast.Constant(str()):
                raise ValueError("text can only be compared with a column, as in g == 'a'")
            case ast.Constant(constant):
                raise ValueError(f"{constant!r} is not allowed")
            case ast.Attribute(attr=name):
                raise ValueError(f"{name} is not known")
        kind = getattr(node, "op", node)
        raise ValueError(f"{type(kind).__name__} is not allowed")

    def either(self, node: ast.expr) -> Step:
        """A number, or text: a string or a column."""
        match node:
            case ast.Constant(str() as text):
                return lambda rows: text
            case ast.Name():
                self.columns.append(name := self.name(node))
                return lambda rows: rows.values(name)
        return self.number(node)

    def call(self, node: ast.Call) -> Step:
        single = len(node.args) == 1 and not node.keywords
        match node.func:
            case ast.Name(name) | ast.Attribute(ast.Name("np"), name) if name in ELEMENTWISE:
                if single:
                    return _applied(ELEMENTWISE[name], self.number(node.args[0]))
                raise ValueError(f"{name} takes one column")
            case ast.Name("I"):
                if single:
                    return self.number(node.args[0])
                raise ValueError("write I(expression)")
            case ast.Name("C"):
                raise ValueError(
                    "write C(column) or C(column, contr.treatment('level')), as a factor of its own"
                )
            case ast.Name(name) if name in LEARNING:
                raise ValueError(
                    f"{name}() depends on the other rows of a client: {LEARNING[name]}"
                )
            case ast.Name() as function:
                raise ValueError(
                    f"{self.name(function)}() is not known: use {', '.join(ELEMENTWISE)}, I and C"
                )
            case ast.Attribute(attr=name):
                raise ValueError(f"{name} is not known: use {', '.join(ELEMENTWISE)}")
        raise ValueError(f"only a name can be called: {', '.join(ELEMENTWISE)}, I and C")


def _applied(function: Callable[..., Any], *steps: Step) -> Step:
    return lambda rows: function(*[step(rows) for step in steps])


def _compared(how: Callable[..., Any], left: Step, right: Step) -> Step:
    """1 where it is so and 0 elsewhere; text is like no number, and numpy would only say so row by row."""

    def compared(rows: Rows) -> Any:
        a, b = left(rows), right(rows)
        if len({isinstance(side, str) or side.dtype == object for side in (a, b)}) > 1:
            raise ValueError("text is compared with a number")
        return np.asarray(how(a, b), dtype=np.float64)

    return compared


def _contrasts(node: ast.expr | None = None) -> Any:
    """The coding of a category: ``contr.NAME``, or a call of it with constants."""
    match node:
        case None:
            return None
        case ast.Attribute(ast.Name("contr"), name) if name in CONTRASTS:
            return CONTRASTS[name]()
        case ast.Call(ast.Attribute(ast.Name("contr"), name), args, keywords) if name in CONTRASTS:
            named = {str(keyword.arg): _constant(keyword.value) for keyword in keywords}
            try:
                return CONTRASTS[name](*[_constant(each) for each in args], **named)
            except TypeError as error:
                raise ValueError(f"contr.{name}: {error}") from None
    raise ValueError(f"a coding is one of {', '.join(f'contr.{name}' for name in CONTRASTS)}")


def _constant(node: ast.expr) -> Level:
    match node:
        case ast.Constant(str() | bool() | int() | float() as value):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)):
            return -value
    raise ValueError("a coding takes constants only")
