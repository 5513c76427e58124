"""Reading a formula: a text becomes a syntax tree, with the operators and precedences of R.

Nothing is evaluated, and a text takes as much time as it is long.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from fedsplit.data.formula.syntax import (
    BINARY,
    COMPARISONS,
    POWERS,
    PREFIX,
    Call,
    Name,
    Node,
    Number,
    Operation,
    Text,
)

MOST_CHARACTERS = 20_000
"""Of a formula."""

MOST_NESTED = 200
"""Operands inside one another; R's own parser has less room for brackets."""

TOKENS = re.compile(
    r"""\s++"""
    r"""|(?P<number>(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)L?(?![\w.])"""
    r"""|(?P<name>(?:[A-Za-z_.]|[^\x00-\x7f])(?:[A-Za-z0-9_.]|[^\x00-\x7f])*+)"""
    r"""|`(?P<quoted>[^`]++)`"""
    r"""|"(?P<double>(?:\\.|[^"\\])*+)"|'(?P<single>(?:\\.|[^'\\])*+)'"""
    r"""|(?P<symbol>\*\*|[<>=!]=|%[^%\s]*+%|[-+*/:^~<>!&|(){},=])""",
    re.DOTALL,
)

ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
"""What a character after a backslash stands for in a string."""


def parse(text: str) -> Node:
    """Return the tree of a text; raise ValueError if it is not in the language."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"it has {len(text)} characters, more than {MOST_CHARACTERS}")
    tokens = _tokens(text)
    if not tokens:
        raise ValueError("it is empty; it needs a target and terms, as in y ~ x")
    return _Parser(tokens).tree()


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
    found = []
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
            found.append(_Token(match.lastgroup, match[match.lastgroup]))
        start = match.end()
    return found


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

    def _take(self) -> _Token:
        token = self._next
        self._at += 1
        return token

    def _takes(self, symbol: str) -> bool:
        """Take a symbol if it comes next."""
        if self._next.symbol != symbol:
            return False
        self._at += 1
        return True

    def _expression(self, least: int) -> Node:
        """Read operands with the operators between them that have at least this precedence."""
        self._nested += 1
        if self._nested > MOST_NESTED:
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
        token = self._take()
        match token.kind, token.text:
            case "number", text:
                return _number(text)
            case "single" | "double", text:
                return Text(re.sub(r"\\(.)", _unescaped, text, flags=re.DOTALL))
            case "quoted", name:
                return Name(name, quoted=True)
            case "name", name:
                return self._call(name) if self._takes("(") else Name(name)
            case "symbol", "(":
                return self._closed(")")
            case "symbol", "{":
                return Call("", [self._closed("}")])
            case "symbol", symbol if symbol in PREFIX:
                return Operation(symbol, [self._expression(PREFIX[symbol])])
            case "end", _:
                raise ValueError(f"something is missing after {self._tokens[-1].text}")
        raise ValueError(f"a column or a number is missing before {token.text}")

    def _closed(self, closing: str) -> Node:
        """Read an expression, and the bracket after it."""
        node = self._expression(0)
        if not self._takes(closing):
            raise self._unexpected(closing)
        return node

    def _call(self, function: str) -> Call:
        """Read the arguments of a call, after the opening bracket."""
        args: list[Node] = []
        named: list[tuple[str, Node]] = []
        if self._takes(")"):
            return Call(function, args, named)
        while True:
            keyword = self._keyword()
            value = self._expression(0)
            if keyword is not None:
                named.append((keyword, value))
            elif named:
                raise ValueError(f"{function}(): arguments with a name come last")
            else:
                args.append(value)
            if self._takes(")"):
                return Call(function, args, named)
            if not self._takes(","):
                raise self._unexpected(")")

    def _keyword(self) -> str | None:
        """Read the name of an argument and =, if they come next."""
        if self._next.kind == "name":
            after = self._tokens[self._at + 1 : self._at + 2]
            if after and after[0].symbol == "=":
                self._at += 2
                return self._tokens[self._at - 2].text
        return None

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
    """A whole number as it is written, others in their shortest form."""
    value = float(text)
    if math.isinf(value):
        raise ValueError("a number in it is too large")
    if text.isdigit():
        return Number(text)
    return Number(repr(value))


def _unescaped(match: re.Match[str]) -> str:
    if match[1] not in ESCAPES:
        raise ValueError(f"{match[0]!r} in a string stands for nothing")
    return ESCAPES[match[1]]


def substituted(text: str, columns: str) -> str:
    """Return a formula with ``.`` replaced by a sum of terms, in brackets where it needs them."""
    pieces = []
    found = [match for match in TOKENS.finditer(text) if match.lastgroup is not None]
    texts = ["~", *(match[0] for match in found), "+"]
    end = 0
    for before, match, after in zip(texts, found, texts[2:], strict=False):
        if match["name"] == ".":
            plain = before in ("~", "+") and after in ("+", "-")
            pieces += [text[end : match.start()], columns if plain else f"({columns})"]
            end = match.end()
    return "".join([*pieces, text[end:]])
