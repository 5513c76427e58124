"""Expressions of columns, which compute what a short list of operations allows.

A syntax tree is turned into functions of our own by tables of what is known. Nothing else can run,
whoever wrote the formula.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from fedsplit.data.formula.constants import WORDS, bound, constant, options
from fedsplit.data.formula.functions import DEPENDENT, FUNCTIONS, both, either, negated
from fedsplit.data.formula.model_frame import ModelFrame
from fedsplit.data.formula.pooled_functions import POOLED, PooledCall
from fedsplit.data.formula.syntax import Call, Name, Node, Number, Operation, Text, written

Evaluator: TypeAlias = Callable[[ModelFrame], Any]
"""Computes an expression for some rows: an (n,) array, or a scalar if it has no column."""

MOST_DEPTH = 250
"""Of an expression: its parts are evaluated one inside the other."""

UNARY: dict[str, Callable[[Any], Any]] = {
    "-": operator.neg,
    "+": operator.pos,
    "!": negated,
}
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "^": operator.pow,
    "**": operator.pow,
    "%%": np.mod,
    "%/%": np.floor_divide,
    "&": both,
    "|": either,
}
COMPARISON: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
EQUALITY = ("==", "!=")


class Expression:
    """Compiles syntax trees, and keeps what they need.

    Attributes
    ----------
    columns : list of str
        Those in the trees compiled so far, from left to right.
    calls : list of PooledCall
        The calls in them of functions of all clients' rows.
    """

    def __init__(self) -> None:
        self.columns: list[str] = []
        self.calls: list[PooledCall] = []
        self._depth = 0

    def number(self, node: Node) -> Evaluator:
        """Compile a tree whose value is a number; a condition is 1 or 0."""
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise ValueError("it is nested too deeply")
        evaluator = self._compiled(node)
        self._depth -= 1
        return evaluator

    def _compiled(self, node: Node) -> Evaluator:
        match node:
            case Number():
                # Not Python's integers, whose powers could take forever.
                value = np.float64(node.value)
                return lambda rows: value
            case Name(name, quoted=False) if isinstance(WORDS.get(name), bool):
                truth = np.float64(bool(WORDS[name]))
                return lambda rows: truth
            case _ if is_column(node):
                name = self.column(node)
                return lambda rows: rows.numbers(name)
            case Operation(symbol, [operand]) if symbol in UNARY:
                return _applied(UNARY[symbol], self.number(operand))
            case Operation(symbol, [left, right]) if symbol in ARITHMETIC:
                return _applied_to_both(ARITHMETIC[symbol], self.number(left), self.number(right))
            case Operation(symbol, [left, right]) if symbol in COMPARISON:
                return self._comparison(symbol, left, right)
            case Operation("%in%", [left, right]):
                return self._matched(left, right)
            case Operation(":"):
                raise ValueError("a:b is a product of terms: write a * b for that of numbers")
            case Call():
                return self._call(node)
            case Text():
                raise ValueError("text can only be compared with a column, as in g == 'a'")
        raise ValueError("~ stands once, between target and terms")

    def column(self, node: Node) -> str:
        """Take a column; raise ValueError if the tree is not one."""
        match node:
            case Name(".", quoted=False):
                raise ValueError(". stands for all other columns as a term only")
            case Name(name) | Call("Q", [Text(name)], []) if name and is_column(node):
                self.columns.append(name)
                return name
            case Call("Q"):
                raise ValueError('write Q("name of a column")')
        raise ValueError(f"{written(node)} is not a column")

    def call(self, node: Call) -> PooledCall:
        """Compile a call of a function of all clients' rows."""
        signature = POOLED[node.function]
        arguments = bound(node, ("x", *signature.parameters))
        if "x" not in arguments:
            raise ValueError(f"{node.function}() needs a column")
        inner = Expression()
        x = inner.number(arguments.pop("x"))
        if inner.calls:
            raise ValueError(f"{inner.calls[0].text} cannot stand inside {node.function}()")
        function = signature.read(options(arguments))
        columns = tuple(dict.fromkeys(inner.columns))

        def values(rows: ModelFrame) -> Any:
            return np.array(np.broadcast_to(x(rows), len(rows.frame)), dtype=np.float64)

        self.columns += inner.columns
        found = PooledCall(written(node), function, values, columns)
        self.calls.append(found)
        return found

    def _comparison(self, symbol: str, left: Node, right: Node) -> Evaluator:
        how = COMPARISON[symbol]
        match left, right:
            case (Text(), Number() | Text()) | (Number(), Text()):
                raise ValueError("a condition needs a column")
            case _, Text(text) if is_column(left):
                values = self._values(left, symbol)
                return _compared(how, values, _literal(self.columns[-1], text))
            case Text(text), _ if is_column(right):
                values = self._values(right, symbol)
                return _compared(how, _literal(self.columns[-1], text), values)
        return _compared(how, self._values(left, symbol), self._values(right, symbol))

    def _values(self, node: Node, symbol: str) -> Evaluator:
        """Compile a side of a comparison; texts of a column can only be equal or not."""
        if symbol not in EQUALITY or not is_column(node):
            return self.number(node)
        name = self.column(node)
        return lambda rows: rows.values(name)

    def _matched(self, left: Node, right: Node) -> Evaluator:
        """Compile ``column %in% c("a", "b")``."""
        found = constant(right)
        wanted = found if isinstance(found, tuple) else (found,)
        texts = {value for value in wanted if isinstance(value, str)}
        values = self._values(left, "==")
        name = self.columns[-1] if is_column(left) else ""

        def matched(rows: ModelFrame) -> Any:
            own = np.asarray(values(rows))
            if own.dtype.kind == "O":
                _check_alike(len(texts) == len(wanted))
                return np.array([value in texts for value in own], dtype=np.float64)
            literal = [rows.literal(name, each) if each in texts else each for each in wanted]
            _check_alike(not any(isinstance(each, str) for each in literal))
            return np.isin(own, np.array(literal, dtype=np.float64)).astype(np.float64)

        return matched

    def _call(self, node: Call) -> Evaluator:
        name = node.function.removeprefix("np.")
        match node:
            case Call("" | "I", [inner], []):
                return self.number(inner)
            case Call(function) if function in POOLED:
                return _single(self.call(node))
            case Call() if name in FUNCTIONS:
                return self._function(node, name)
            case Call("I"):
                raise ValueError("write I(expression)")
            case Call("C" | "factor" | "as.factor" | "relevel" | "ordered" as function):
                raise ValueError(
                    f"write {function}(column), with a coding or a level, as a factor of its own"
                )
            case Call("offset"):
                raise ValueError("offset() is a term of its own, as in y ~ x + offset(log(t))")
            case Call("cbind"):
                raise ValueError("cbind() is for the target: cbind(successes, failures) ~ x")
        if name in DEPENDENT:
            raise ValueError(
                f"{name}() depends on a client's other rows: use {DEPENDENT[name]} instead"
            )
        known = ", ".join(sorted([*FUNCTIONS, *POOLED]))
        raise ValueError(f"{node.function}() is not known: use I, C, {known}")

    def _function(self, node: Call, name: str) -> Evaluator:
        function = FUNCTIONS[name]
        if function.many:
            if not node.args or node.named:
                raise ValueError(f"{name}() takes columns and numbers")
            return _applied_to_all(function.apply, [self.number(arg) for arg in node.args])
        given = bound(node, function.parameters)
        needed = function.parameters[: function.required]
        if not set(needed) <= set(given):
            raise ValueError(f"{name}() needs {', '.join(needed)}")
        compiled = {each: self.number(arg) for each, arg in given.items()}
        if list(compiled) == ["x"]:
            return _applied(function.apply, compiled["x"])
        apply = function.apply
        return lambda rows: apply(**{each: part(rows) for each, part in compiled.items()})


def is_column(node: Node) -> bool:
    """Whether a tree is a column and nothing else."""
    match node:
        case Name():
            return node.word not in WORDS
        case Call("Q"):
            return True
    return False


def _single(call: PooledCall) -> Evaluator:
    """Return what computes a function of all clients' rows that has one column."""
    if call.function.is_category:
        raise ValueError(f"{call.text} is a category: make it a factor of its own")

    def values(rows: ModelFrame) -> Any:
        found = call.values(rows)
        if found.shape[1] != 1:
            raise ValueError(f"{call.text} has several columns: make it a term of its own")
        return found[:, 0]

    return values


def _literal(column: str, text: str) -> Evaluator:
    return lambda rows: rows.literal(column, text)


def _applied(function: Callable[[Any], Any], operand: Evaluator) -> Evaluator:
    return lambda rows: function(operand(rows))


def _applied_to_both(
    function: Callable[[Any, Any], Any], left: Evaluator, right: Evaluator
) -> Evaluator:
    return lambda rows: function(left(rows), right(rows))


def _applied_to_all(function: Callable[..., Any], operands: list[Evaluator]) -> Evaluator:
    return lambda rows: function(*[operand(rows) for operand in operands])


def _compared(how: Callable[[Any, Any], Any], left: Evaluator, right: Evaluator) -> Evaluator:
    """Return 1 where the comparison holds, 0 where not, and NaN where a side is NaN."""

    def compared(rows: ModelFrame) -> Any:
        first, second = np.asarray(left(rows)), np.asarray(right(rows))
        texts = [side.dtype.kind in "OU" for side in (first, second)]
        # numpy would find text and numbers unequal, row by row and without an error.
        _check_alike(texts[0] == texts[1])
        holds = np.asarray(how(first, second), dtype=np.float64)
        if texts[0]:
            return holds
        return np.where(np.isnan(first) | np.isnan(second), np.nan, holds)

    return compared


def _check_alike(alike: bool) -> None:
    if not alike:
        raise ValueError("text is compared with a number")
