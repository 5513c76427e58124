"""Expressions of columns, which compute what a short list of operations allows.

A syntax tree is turned into functions of our own by tables of what is known. Nothing else can run,
whoever wrote the formula. The functions of single rows have the values that R gives them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fedsplit.data.formula.constants import WORDS, bound, constant, options
from fedsplit.data.formula.pooled_functions import POOLED, ModelFrame, PooledCall
from fedsplit.data.formula.syntax import Call, Name, Node, Number, Operation, Text, written

Evaluator: TypeAlias = Callable[[ModelFrame], Any]
"""Computes an expression for some rows: an (n,) array, or a scalar if it has no column."""


class Function(NamedTuple):
    """A function of numbers, arrays (n,) and scalars; without parameters it takes any number.

    ``required`` of its parameters must be given.
    """

    apply: Callable[..., Any]
    parameters: tuple[str, ...] = ("x",)
    required: int = 1


def truth(x: Any) -> Any:
    """Return 1 for a number other than zero, 0 for zero, and NaN for NaN."""
    return np.where(np.isnan(x), np.nan, np.not_equal(x, 0.0))


def both(a: Any, b: Any) -> Any:
    """R's ``a & b``: false if one is, whatever the other is."""
    return np.where(np.equal(a, 0.0) | np.equal(b, 0.0), 0.0, truth(a) * truth(b))


def either(a: Any, b: Any) -> Any:
    """R's ``a | b``: true if one is, whatever the other is."""
    return np.where((truth(a) == 1.0) | (truth(b) == 1.0), 1.0, truth(a) + truth(b))


def negated(a: Any) -> Any:
    """R's ``!a``."""
    return 1.0 - truth(a)


def logarithm(x: Any, base: Any = None) -> Any:
    """R's ``log(x, base)``, exact for powers of 2 and 10."""
    if base is None:
        return np.log(x)
    if np.ndim(base) == 0 and base in (2.0, 10.0):
        return {2.0: np.log2, 10.0: np.log10}[float(base)](x)
    return np.log(x) / np.log(base)


def chosen(test: Any, yes: Any, no: Any) -> Any:
    """R's ``ifelse``; NaN where the condition is."""
    return np.where(np.isnan(test), np.nan, np.where(np.not_equal(test, 0.0), yes, no))


def rounded(x: Any, digits: Any = 0.0) -> Any:
    """R's ``round``: to the nearest number of so many digits, to an even last digit if two are.

    Numbers are compared as they are stored: 0.15 is a little less than 15/100, and becomes 0.1.
    """
    if np.ndim(digits) != 0 or not float(digits).is_integer() or abs(digits) > 300:
        raise ValueError("round() takes a whole number of digits")
    if digits == 0:
        return np.rint(x)
    # Powers of ten below one are not exact.
    up, down = (np.multiply, np.divide) if digits > 0 else (np.divide, np.multiply)
    power = 10.0 ** abs(float(digits))
    scaled = up(x, power)
    below, above = down(np.floor(scaled), power), down(np.ceil(scaled), power)
    to_below, to_above = np.subtract(x, below), np.subtract(above, x)
    even = np.fmod(np.floor(scaled), 2.0) == 0.0
    nearest = np.where((to_below < to_above) | (even & (to_below == to_above)), below, above)
    # A number that has no more digits than this stays as it is.
    with np.errstate(divide="ignore"):
        fine = digits + np.floor(np.log10(np.abs(x))) > 14
    return np.where(fine, x, nearest)


FUNCTIONS: dict[str, Function] = {
    **{
        name: Function(getattr(np, name))
        for name in (
            *("log2", "log10", "log1p", "exp", "expm1", "sqrt", "abs", "sign"),
            *("sin", "cos", "tan", "sinh", "cosh", "tanh", "floor", "ceil", "trunc"),
        )
    },
    "log": Function(logarithm, ("x", "base")),
    "asin": Function(np.arcsin),
    "acos": Function(np.arccos),
    "atan": Function(np.arctan),
    "ceiling": Function(np.ceil),
    "round": Function(rounded, ("x", "digits")),
    "pmin": Function(lambda *values: reduce(np.minimum, values), ()),
    "pmax": Function(lambda *values: reduce(np.maximum, values), ()),
    "ifelse": Function(chosen, ("test", "yes", "no"), required=3),
    "as.numeric": Function(np.positive),
}
"""By their names, which ``np.`` may precede."""

DEPENDENT = {
    **dict.fromkeys(("mean", "sum", "median", "sd", "var"), "center(x) or scale(x)"),
    **dict.fromkeys(("min", "max", "quantile", "range", "rank", "ntile"), "cut(x, breaks)"),
    "standardize": "scale(x)",
    **dict.fromkeys(("cr", "cs", "cc", "s", "te", "rcs"), "ns(x, knots=c(...))"),
    "hashed": "C(x)",
    **dict.fromkeys(("lag", "cumsum", "diff", "rev", "sort"), "a column of the file"),
}
"""Functions of other rows, which every client would compute from its own, and what to use."""

ARITHMETIC: dict[tuple[str, int], Callable[..., Any]] = {
    ("-", 1): operator.neg,
    ("+", 1): operator.pos,
    ("!", 1): negated,
    ("+", 2): operator.add,
    ("-", 2): operator.sub,
    ("*", 2): operator.mul,
    ("/", 2): operator.truediv,
    ("^", 2): operator.pow,
    ("**", 2): operator.pow,
    ("%%", 2): np.mod,
    ("%/%", 2): np.floor_divide,
    ("&", 2): both,
    ("|", 2): either,
}
"""By symbol and number of operands."""

COMPARISON: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Compiler:
    """Compiles syntax trees, and collects what they need.

    These are the columns in them, from left to right, and the calls of functions of all clients'
    rows.
    """

    def __init__(self) -> None:
        self.columns: list[str] = []
        self.calls: list[PooledCall] = []

    def number(self, node: Node) -> Evaluator:
        """Compile a tree whose value is a number; a condition is 1 or 0.

        A tree that is too deep raises RecursionError, here or when it is evaluated.
        """
        match node:
            case Number():
                # Not Python's integers, whose powers could take forever.
                value = np.float64(node.text)
                return lambda rows: value
            case Name(name, quoted=False) if isinstance(WORDS.get(name), bool):
                truth = np.float64(bool(WORDS[name]))
                return lambda rows: truth
            case _ if is_column(node):
                name = self.column(node)
                return lambda rows: rows.numbers(name)
            case Operation(symbol, sides) if (symbol, len(sides)) in ARITHMETIC:
                return _applied(ARITHMETIC[symbol, len(sides)], *map(self.number, sides))
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
        function = POOLED[node.function]
        arguments = bound(node, ("x", *function.parameters))
        if "x" not in arguments:
            raise ValueError(f"{node.function}() needs a column")
        inner = Compiler()
        x = inner.number(arguments.pop("x"))
        if inner.calls:
            raise ValueError(f"{inner.calls[0].text} cannot stand inside {node.function}()")

        def values(rows: ModelFrame) -> Any:
            return np.array(np.broadcast_to(x(rows), len(rows.frame)), dtype=np.float64)

        self.columns += inner.columns
        columns = tuple(dict.fromkeys(inner.columns))
        made = function.read(options(arguments))
        self.calls.append(PooledCall(written(node), made, values, columns))
        return self.calls[-1]

    def _comparison(self, symbol: str, left: Node, right: Node) -> Evaluator:
        """Compile a comparison of numbers, or of a column and a text, which may be a date."""
        match left, right:
            case (Text(), Number() | Text()) | (Number(), Text()):
                raise ValueError("a condition needs a column")
        column = next((each for each in (left, right) if is_column(each)), None)

        def side(node: Node) -> Evaluator:
            if isinstance(node, Text) and column is not None:
                name, text = self.column(column), node.value
                return lambda rows: rows.literal(name, text)
            return self._values(node) if symbol in ("==", "!=") else self.number(node)

        first, second, how = side(left), side(right), COMPARISON[symbol]

        def compared(rows: ModelFrame) -> Any:
            """Return 1 where the comparison holds, 0 where not, and NaN where a side is NaN."""
            a, b = np.asarray(first(rows)), np.asarray(second(rows))
            is_text = a.dtype.kind in "OU"
            # numpy would find text and numbers unequal, row by row and without an error.
            _check_alike(is_text == (b.dtype.kind in "OU"))
            holds = np.asarray(how(a, b), dtype=np.float64)
            return holds if is_text else np.where(np.isnan(a) | np.isnan(b), np.nan, holds)

        return compared

    def _values(self, node: Node) -> Evaluator:
        """Compile a side of a comparison for equality, which may be a column of text."""
        if not is_column(node):
            return self.number(node)
        name = self.column(node)
        return lambda rows: rows.values(name)

    def _matched(self, left: Node, right: Node) -> Evaluator:
        """Compile ``column %in% c("a", "b")``."""
        listed = constant(right)
        wanted = listed if isinstance(listed, tuple) else (listed,)
        texts = {value for value in wanted if isinstance(value, str)}
        values = self._values(left)
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
                call = self.call(node)
                if call.function.is_category:
                    raise ValueError(f"{call.text} is a category: make it a factor of its own")
                return call.single
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
        apply, parameters, required = FUNCTIONS[name]
        if not parameters:
            if not node.args or node.named:
                raise ValueError(f"{name}() takes columns and numbers")
            return _applied(apply, *map(self.number, node.args))
        given = bound(node, parameters)
        needed = parameters[:required]
        if not set(needed) <= set(given):
            raise ValueError(f"{name}() needs {', '.join(needed)}")
        # In the order of the parameters, of which the last may be absent.
        return _applied(apply, *(self.number(given[each]) for each in parameters if each in given))


def is_column(node: Node) -> bool:
    """Return whether a tree is a column and nothing else."""
    match node:
        case Name(name, quoted):
            return quoted or name not in WORDS
    return isinstance(node, Call) and node.function == "Q"


def _applied(function: Callable[..., Any], *operands: Evaluator) -> Evaluator:
    return lambda rows: function(*[operand(rows) for operand in operands])


def _check_alike(alike: bool) -> None:
    if not alike:
        raise ValueError("text is compared with a number")
