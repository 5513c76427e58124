"""The syntax of formulas: trees, how a text becomes one by R's precedences, and how one is written.

Nothing is evaluated, and a text takes as much time as it is long.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

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

TOKENS = re.compile(
    r"""\s++"""
    r"""|(?P<number>(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)L?(?![\w.])"""
    r"""|(?P<name>(?:[A-Za-z_.]|[^\x00-\x7f])(?:[A-Za-z0-9_.]|[^\x00-\x7f])*+)"""
    r"""|`(?P<quoted>[^`]++)`"""
    r"""|"(?P<double>(?:\\.|[^"\\])*+)"|'(?P<single>(?:\\.|[^'\\])*+)'"""
    r"""|(?P<symbol>\*\*|[<>=!]=|%[^%\s]*+%|[-+*/:^~<>!&|(){},=])""",
    re.DOTALL,
)


@dataclass(frozen=True)
class Number:
    """A number, as it is in names of columns."""

    text: str


@dataclass(frozen=True)
class Text:
    """A string."""

    value: str


@dataclass(frozen=True)
class Name:
    """A column; a word such as TRUE or ``.`` unless backticks quote it."""

    name: str
    quoted: bool = False


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
            parts = [*map(written, args), *(f"{name}={written(arg)}" for name, arg in named)]
            return f"{function}({', '.join(parts)})"
        case Operation(symbol, [operand]):
            return symbol + _bracketed(operand, PREFIX[symbol])
        case Operation(symbol, [left, right]) if symbol in POWERS:
            # Of equal powers the last is done first, and a sign may follow: 2**-x**2.
            return POWERS[symbol].join([_bracketed(left, POWER + 1), _bracketed(right, UNARY)])
        case Operation(symbol, [left, right]):
            own = BINARY[symbol]
            return f"{_bracketed(left, own)} {symbol} {_bracketed(right, own + 1)}"
    raise TypeError(f"{node!r} is no node")


def _bracketed(node: Node, least: int) -> str:
    """Return a tree as text, in brackets if it binds less tightly than ``least``."""
    match node:
        case Call("", [inner]):
            return _bracketed(inner, least)
        case Operation(symbol, operands):
            if (PREFIX if len(operands) == 1 else BINARY)[symbol] < least:
                return f"({written(node)})"
    return written(node)


def parse(text: str) -> Node:
    """Return the tree of a text; raise ValueError if it is not in the language."""
    most = 20_000
    if len(text) > most:
        raise ValueError(f"it has {len(text)} characters, more than {most}")
    tokens = _tokens(text)
    if not tokens:
        raise ValueError("it is empty; it needs a target and terms, as in y ~ x")
    return _Parser(tokens).tree()


def substituted(text: str, columns: str) -> str:
    """Return a formula with ``.`` replaced by a sum of terms, in brackets where it needs them."""
    pieces = []
    tokens = [match for match in TOKENS.finditer(text) if match.lastgroup is not None]
    texts = ["~", *(match[0] for match in tokens), "+"]
    end = 0
    for before, match, after in zip(texts, tokens, texts[2:], strict=False):
        if match["name"] == ".":
            plain = before in ("~", "+") and after in ("+", "-")
            pieces += [text[end : match.start()], columns if plain else f"({columns})"]
            end = match.end()
    return "".join([*pieces, text[end:]])


class _Token(NamedTuple):
    kind: str
    text: str

    @property
    def symbol(self) -> str:
        """The operator or bracket that it is; empty if it is neither."""
        return self.text if self.kind == "symbol" else ""


END = _Token("end", "")
"""What comes after the last token."""


def _tokens(text: str) -> list[_Token]:
    tokens = []
    start = 0
    while start < len(text):
        match = TOKENS.match(text, start)
        if match is None:
            rest = text[start:]
            if rest.startswith("``"):
                raise ValueError("a column needs a name between the backticks")
            if rest[0] in "`\"'":
                raise ValueError(f"a matching {rest[0]} is missing")
            raise ValueError(f"{rest[:20]!r} begins with neither a column nor an operator")
        if match.lastgroup is not None:
            tokens.append(_Token(match.lastgroup, match[match.lastgroup]))
        start = match.end()
    return tokens


class _Parser:
    """Precedence climbing: an operand, then every operator that binds tightly enough."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._nested = 0

    def tree(self) -> Node:
        """Return the tree of all tokens."""
        node = self._expression(0)
        if self._next is not END:
            raise self._unexpected()
        return node

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else END

    def _takes(self, symbol: str) -> bool:
        """Take a symbol if it comes next."""
        if self._next.symbol != symbol:
            return False
        self._at += 1
        return True

    def _expression(self, least: int) -> Node:
        """Read operands with the operators between them that have at least this precedence."""
        self._nested += 1
        if self._nested > 200:  # R's own parser has less room for brackets
            raise ValueError("it is nested too deeply")
        node = self._operand()
        compared = False
        while (symbol := self._next.symbol) in BINARY and BINARY[symbol] >= least:
            if compared and symbol in COMPARISONS:
                raise ValueError("a condition has one of < <= > >= == !=")
            compared = symbol in COMPARISONS
            self._at += 1
            # Of equal operators the first is done first, but for powers the last.
            right = self._expression(BINARY[symbol] + (symbol not in POWERS))
            node = Operation(symbol, [node, right])
        self._nested -= 1
        return node

    def _operand(self) -> Node:
        """Read what is between operators: a number, a name, a call, or something in brackets."""
        token = self._next
        self._at += 1
        match token.kind, token.text:
            case "number", text:
                return _number(text)
            case "single" | "double", text:
                return Text(re.sub(r"\\(.)", _unescaped, text, flags=re.DOTALL))
            case "quoted", name:
                return Name(name, quoted=True)
            case "name", name:
                return self._call(name) if self._takes("(") else Name(name)
            case "symbol", "(" | "{":
                node = self._expression(0)
                closing = ")" if token.text == "(" else "}"
                if not self._takes(closing):
                    raise self._unexpected(closing)
                return node if closing == ")" else Call("", [node])
            case "symbol", symbol if symbol in PREFIX:
                return Operation(symbol, [self._expression(PREFIX[symbol])])
            case "end", _:
                raise ValueError(f"something is missing after {self._tokens[-1].text}")
        raise ValueError(f"a column or a number is missing before {token.text}")

    def _call(self, function: str) -> Call:
        """Read the arguments of a call, after the opening bracket."""
        args: list[Node] = []
        named: list[tuple[str, Node]] = []
        if self._takes(")"):
            return Call(function, args, named)
        while True:
            match self._tokens[self._at : self._at + 2]:
                case [_Token("name", keyword), _Token("symbol", "=")]:
                    self._at += 2
                    named.append((keyword, self._expression(0)))
                case _ if named:
                    raise ValueError(f"{function}(): arguments with a name come last")
                case _:
                    args.append(self._expression(0))
            if self._takes(")"):
                return Call(function, args, named)
            if not self._takes(","):
                raise self._unexpected(")")

    def _unexpected(self, closing: str = "") -> ValueError:
        """Return what is wrong where an operator or this bracket should be."""
        token = self._next
        if token is END:
            return ValueError(f"a matching {closing} is missing")
        match token.symbol:
            case ")" | "}" as bracket:
                return ValueError(f"there is no bracket that {bracket} could close")
            case ",":
                return ValueError("a comma is for the arguments of a function")
            case symbol if symbol.startswith("%"):
                return ValueError(f"{symbol} is neither a column, a number nor an operator")
        return ValueError(f"an operator is missing before {token.text}")


def _number(text: str) -> Number:
    """Return a whole number as it is written, others in their shortest form."""
    value = float(text)
    if math.isinf(value):
        raise ValueError("a number in it is too large")
    return Number(text if text.isdigit() else repr(value))


def _unescaped(match: re.Match[str]) -> str:
    """Return what a character after a backslash stands for in a string."""
    escapes = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
    if match[1] not in escapes:
        raise ValueError(f"{match[0]!r} in a string stands for nothing")
    return escapes[match[1]]
