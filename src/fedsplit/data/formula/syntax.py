"""The syntax tree of a formula, and the text that a tree has in the names of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

POWER, UNARY = 14, 13
"""Precedences."""

POWERS = {"^": "^", "**": " ** "}
"""Operators, and how they are written between operands: as in R, and as in Python."""

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")

BINARY = {
    **dict.fromkeys(POWERS, POWER),
    ":": 12,
    **dict.fromkeys(("%in%", "%%", "%/%"), 11),
    **dict.fromkeys(("*", "/"), 10),
    **dict.fromkeys(("+", "-"), 9),
    **dict.fromkeys(COMPARISONS, 8),
    "&": 6,
    "|": 5,
    "~": 3,
}
"""R's precedence of each operator with two operands."""

PREFIX = {"-": UNARY, "+": UNARY, "!": 7, "~": 3}
"""R's precedence of each operator with one operand."""


@dataclass(frozen=True)
class Number:
    """A number, as it is in names of columns."""

    text: str

    @property
    def value(self) -> float:
        return float(self.text)


@dataclass(frozen=True)
class Text:
    """A string."""

    value: str


@dataclass(frozen=True)
class Name:
    """A column; a word such as TRUE or ``.`` unless backticks quote it."""

    name: str
    quoted: bool = False

    @property
    def word(self) -> str | None:
        """The name, unless it is quoted."""
        if self.quoted:
            return None
        return self.name


@dataclass(frozen=True)
class Call:
    """A call of a function. Braces are a call without a name: arithmetic, not terms."""

    function: str
    args: Sequence[Node]
    named: Sequence[tuple[str, Node]] = ()


@dataclass(frozen=True)
class Operation:
    """An operator with one operand or two."""

    symbol: str
    operands: Sequence[Node]


Node: TypeAlias = Number | Text | Name | Call | Operation


def written(node: Node) -> str:
    """Return a tree as text, with one way to space and bracket it."""
    match node:
        case Number(text):
            return text
        case Text(value):
            return repr(value)
        case Name(name, quoted):
            return f"`{name}`" if quoted else name
        case Call("", [inner]):
            return written(inner)
        case Call(function, args, named):
            parts = [written(arg) for arg in args]
            parts += [f"{name}={written(arg)}" for name, arg in named]
            return f"{function}({', '.join(parts)})"
        case Operation(symbol, [operand]):
            return symbol + _bracketed(operand, PREFIX[symbol])
        case Operation(symbol, [left, right]) if symbol in POWERS:
            # Of equal powers the last is done first, and a sign may follow: 2**-x**2.
            parts = [_bracketed(left, POWER + 1), _bracketed(right, UNARY)]
            return POWERS[symbol].join(parts)
        case Operation(symbol, [left, right]):
            own = BINARY[symbol]
            return f"{_bracketed(left, own)} {symbol} {_bracketed(right, own + 1)}"
    raise TypeError(f"{node!r} is no node")


def _bracketed(node: Node, least: int) -> str:
    """Return a tree as text, in brackets if it binds less tightly than ``least``."""
    match node:
        case Call("", [inner]):
            return _bracketed(inner, least)
        case Operation(symbol, [_]) if PREFIX[symbol] < least:
            return f"({written(node)})"
        case Operation(symbol, [_, _]) if BINARY[symbol] < least:
            return f"({written(node)})"
    return written(node)
