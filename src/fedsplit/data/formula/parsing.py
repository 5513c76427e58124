"""Reading a formula: a text becomes a syntax tree, with the operators and precedences of R.

Nothing is evaluated, and nothing recurs: a text takes as much time as it is long.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
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


@dataclass
class _Open:
    """A bracket that is not closed yet, with what a call has in it so far.

    Attributes
    ----------
    closing : str
        The bracket that closes it.
    function : str or None
        The function that is called, "" for braces, None if brackets only group.
    args : list
        Its arguments.
    named : list
        Its arguments with a name.
    keyword : str or None
        The name of the next one.
    """

    closing: str
    function: str | None = None
    args: list[Node] = field(default_factory=list)
    named: list[tuple[str, Node]] = field(default_factory=list)
    keyword: str | None = None


class _Pending(NamedTuple):
    """An operator whose last operand has not ended yet."""

    symbol: str
    precedence: int
    operands: int


class _Parser:
    """Operators wait until one that binds less tightly, or a bracket, ends their last operand."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._operands: list[Node] = []
        self._waiting: list[_Pending | _Open] = []
        self._ended = False  # whether the token before this one ended an operand

    def tree(self) -> Node:
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            self._at += 1
            if self._ended:
                self._continue(token)
            else:
                self._begin(token)
        if not self._ended:
            raise ValueError(f"something is missing after {self._tokens[-1].text}")
        opened = self._reduce(0)
        if opened is not None:
            raise ValueError(f"a matching {opened.closing} is missing")
        return self._operands[0]

    def _begin(self, token: _Token) -> None:
        """Take a token where an operand begins."""
        match token.kind, token.text:
            case "number", text:
                self._push(_number(text))
            case "single" | "double", text:
                self._push(Text(re.sub(r"\\(.)", _unescaped, text, flags=re.DOTALL)))
            case "quoted", name:
                self._push(Name(name, quoted=True))
            case "name", name:
                self._name(name)
            case "symbol", "(":
                self._waiting.append(_Open(")"))
            case "symbol", "{":
                self._waiting.append(_Open("}", ""))
            case "symbol", symbol if symbol in PREFIX:
                self._waiting.append(_Pending(symbol, PREFIX[symbol], 1))
            case _, text:
                raise ValueError(f"a column or a number is missing before {text}")

    def _name(self, name: str) -> None:
        """Begin a call, name an argument, or take the name of a column."""
        match self._next(), self._waiting[-1:]:
            case "(", _:
                self._at += 1
                opened = _Open(")", name)
                if self._next() == ")":
                    self._at += 1
                    self._call(opened)
                else:
                    self._waiting.append(opened)
            case "=", [_Open(function=str(function), keyword=None) as opened] if function:
                self._at += 1
                opened.keyword = name
            case _:
                self._push(Name(name))

    def _next(self) -> str | None:
        """The symbol that comes next."""
        if self._at < len(self._tokens) and self._tokens[self._at].kind == "symbol":
            return self._tokens[self._at].text
        return None

    def _continue(self, token: _Token) -> None:
        """Take a token where an operand has ended."""
        match token.kind, token.text:
            case "symbol", symbol if symbol in BINARY:
                self._operator(symbol)
            case "symbol", "," | ")" | "}" as symbol:
                opened = self._reduce(0)
                if opened is None or symbol not in (opened.closing, ","):
                    raise ValueError(f"there is no bracket that {symbol} could close")
                self._close(opened, symbol)
            case _, text:
                if text.startswith("%"):
                    raise ValueError(f"{text} is neither a column, a number nor an operator")
                raise ValueError(f"an operator is missing before {text}")

    def _operator(self, symbol: str) -> None:
        # Of equal operators the first is done first, but for powers the last.
        self._reduce(BINARY[symbol] + (symbol in POWERS or symbol in COMPARISONS))
        match self._waiting[-1:]:
            case [_Pending(before)] if before in COMPARISONS and symbol in COMPARISONS:
                raise ValueError("a condition has one of < <= > >= == !=")
        self._waiting.append(_Pending(symbol, BINARY[symbol], 2))
        self._ended = False

    def _close(self, opened: _Open, symbol: str) -> None:
        """End what is in brackets, or an argument."""
        if not opened.function and symbol == ",":
            raise ValueError("a comma is for the arguments of a function")
        if opened.function is None:
            self._waiting.pop()
            return
        value = self._operands.pop()
        if opened.keyword is not None:
            opened.named.append((opened.keyword, value))
        elif opened.named:
            raise ValueError(f"{opened.function}(): arguments with a name come last")
        else:
            opened.args.append(value)
        opened.keyword = None
        self._ended = False
        if symbol == opened.closing:
            self._waiting.pop()
            self._call(opened)

    def _call(self, opened: _Open) -> None:
        nodes = [*opened.args, *(value for _, value in opened.named)]
        depth = 1 + max((node.depth for node in nodes), default=0)
        self._push(Call(str(opened.function), opened.args, opened.named, depth))

    def _push(self, node: Node) -> None:
        self._operands.append(node)
        self._ended = True

    def _reduce(self, precedence: int) -> _Open | None:
        """Apply the operators that bind at least so tightly; return the bracket before them."""
        while self._waiting:
            match self._waiting[-1]:
                case _Open() as opened:
                    return opened
                case _Pending(symbol, own, count):
                    if own < precedence:
                        return None
                    self._waiting.pop()
                    operands = self._operands[-count:]
                    del self._operands[-count:]
                    depth = 1 + max(node.depth for node in operands)
                    self._operands.append(Operation(symbol, operands, depth))
        return None


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
