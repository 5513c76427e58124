"""Expressions of columns, which compute what a short list of operations allows.

An expression is read as a syntax tree and turned into functions by tables of what is known.
Nothing else can run, whoever wrote the formula.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fedsplit.data.model_frame import ModelFrame

Evaluator: TypeAlias = Callable[[ModelFrame], Any]
"""Computes an expression for some rows: an (n,) array, or a scalar if it has no column."""

ELEMENTWISE = {
    name: getattr(np, name)
    for name in (
        *("log", "log2", "log10", "log1p", "exp", "expm1", "sqrt", "abs"),
        *("sin", "cos", "tan", "floor", "sign"),
    )
}
"""Functions of single values, written ``log(x)`` or ``np.log(x)``."""

STATEFUL = {
    "center": "the option standardize centres by the mean over all clients",
    "scale": "the option standardize scales by the deviation over all clients",
    "standardize": "the option of this name does so over all clients",
    "poly": "write x + I(x**2)",
    "bs": "use powers or C() of ranges",
    "cr": "use powers or C() of ranges",
    "cs": "use powers or C() of ranges",
    "cc": "use powers or C() of ranges",
    "te": "use products of columns",
    "lag": "compute it in the file",
    "hashed": "use C()",
}
"""Formulaic's functions that depend on other rows, and what to use instead.

Each client would compute another function, because it sees only its own rows.
"""

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

NAMES = re.compile(
    r"""\\.|"(?:\\.|[^"\\])*+"|'(?:\\.|[^'\\])*+'"""
    r"""|`(?P<quoted>[^`]+)`|(?P<word>(?:(?a:\w)|[^\x00-\x7f])++)"""
)
"""Columns between backticks and bare words; escapes and strings match too, to be skipped whole."""


class ColumnExpression(NamedTuple):
    """A syntax tree in which stand-ins replace the names that Python cannot have or would change.

    Attributes
    ----------
    text : str
        As in the names of the design's columns.
    tree : ast.expr
    names : mapping of str to str
        The column that each stand-in is for.
    columns : list of str
        Those compiled so far, from left to right.
    """

    text: str
    tree: ast.expr
    names: Mapping[str, str]
    columns: list[str]

    @classmethod
    def parse(cls, text: str) -> ColumnExpression:
        """Read an expression; strings stay as they are."""
        stem = "q_"
        while stem in text:
            stem += "_"
        names: dict[str, str] = {}
        written: dict[str, str] = {}

        def stand_in(match: re.Match[str]) -> str:
            name = match["quoted"] or match["word"]
            # Python normalises words that are not ASCII: ｘ would become the column x.
            if name is None or (match["word"] and name.isascii()):
                return match[0]
            place = f"{stem}{len(names)}_"
            names[place] = name
            written[place] = match[0]
            return f" {place} "

        tree = ast.parse(NAMES.sub(stand_in, text).strip(), mode="eval").body
        plain = re.sub(rf"{stem}\d+_", lambda match: written[match[0]], ast.unparse(tree))
        return cls(plain, tree, names, [])

    def name(self, node: ast.Name) -> str:
        """Return the column of a name."""
        return self.names.get(node.id, node.id)

    def number(self, node: ast.expr) -> Evaluator:
        """Compile a tree whose value is a number.

        Constants are float64 because a power of Python's integers could take forever.
        """
        match node:
            case ast.Constant(bool() | int() | float() as constant):
                try:
                    value = np.float64(constant)
                except OverflowError:
                    raise ValueError("a number in it is too large") from None
                return lambda rows: value
            case ast.Name():
                name = self.name(node)
                self.columns.append(name)
                return lambda rows: rows.numbers(name)
            case ast.UnaryOp(ast.USub() | ast.UAdd() as sign, operand):
                return _applied(ARITHMETIC[type(sign)], self.number(operand))
            case ast.BinOp(left, how, right) if type(how) in ARITHMETIC:
                return _applied(ARITHMETIC[type(how)], self.number(left), self.number(right))
            case ast.Compare():
                return self._comparison(node)
            case ast.Call():
                return self._call(node)
            case ast.Constant(str()):
                raise ValueError("text can only be compared with a column, as in g == 'a'")
            case ast.Constant(constant):
                raise ValueError(f"{constant!r} is not allowed")
            case ast.Attribute(attr=name):
                raise ValueError(f"{name} is not known")
        kind = getattr(node, "op", node)
        raise ValueError(f"{type(kind).__name__} is not allowed")

    def _comparison(self, node: ast.Compare) -> Evaluator:
        match node:
            case ast.Compare(left, [how], [right]) if type(how) in ORDER:
                return _compared(ORDER[type(how)], self.number(left), self.number(right))
            case ast.Compare(ast.Constant(), [how], [ast.Constant()]) if type(how) in EQUALITY:
                raise ValueError("a condition needs a column")
            case ast.Compare(left, [how], [right]) if type(how) in EQUALITY:
                return _compared(EQUALITY[type(how)], self._either(left), self._either(right))
        raise ValueError("a condition has one of < <= > >= == !=")

    def _either(self, node: ast.expr) -> Evaluator:
        """Compile a tree whose value is a number or text: a string or a column."""
        match node:
            case ast.Constant(str() as text):
                return lambda rows: text
            case ast.Name():
                name = self.name(node)
                self.columns.append(name)
                return lambda rows: rows.values(name)
        return self.number(node)

    def _call(self, node: ast.Call) -> Evaluator:
        single = len(node.args) == 1 and not node.keywords
        known = ", ".join(ELEMENTWISE)
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
            case ast.Name(name) if name in STATEFUL:
                raise ValueError(f"{name}() depends on a client's other rows: {STATEFUL[name]}")
            case ast.Name() as function:
                raise ValueError(f"{self.name(function)}() is not known: use {known}, I and C")
            case ast.Attribute(attr=name):
                raise ValueError(f"{name} is not known: use {known}")
        raise ValueError(f"only a name can be called: {known}, I and C")


def _applied(function: Callable[..., Any], *operands: Evaluator) -> Evaluator:
    return lambda rows: function(*[operand(rows) for operand in operands])


def _compared(how: Callable[..., Any], left: Evaluator, right: Evaluator) -> Evaluator:
    """Return 1 where the comparison holds and 0 elsewhere."""

    def compared(rows: ModelFrame) -> Any:
        sides = [left(rows), right(rows)]
        # numpy would find text and numbers unequal, row by row and without an error.
        if len({np.asarray(side).dtype.kind in "OU" for side in sides}) > 1:
            raise ValueError("text is compared with a number")
        return np.asarray(how(*sides), dtype=np.float64)

    return compared
