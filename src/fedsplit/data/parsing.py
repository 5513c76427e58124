"""Parsing a formula without evaluating it.

A formula can come from another organisation, and formulaic evaluates its expressions as Python,
some of them while it parses. So it never sees one: each column and each expression becomes a
marked name before formulaic parses the terms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import formulaic
from formulaic.parser import DefaultFormulaParser
from formulaic.parser.algos.tokenize import tokenize
from formulaic.parser.types import ASTNode, Token

from fedsplit.data.factors import TermFactor

MOST_CHARACTERS, MOST_TOKENS = 20_000, 5_000
"""Of a formula."""

MOST_FACTORS, MOST_TERMS = 20, 10_000
"""Of a term, and of a product or power before equal terms are merged."""

MOST_WORK = 3_000_000
"""Terms over all steps of formulaic's parser."""

COLUMN, EXPRESSION, BACKTICK = "\ufdd0", "\ufdd1", "\ufdd2"
"""Marks before a name, and in place of a backtick in one: characters that no text has."""

UNMARKED = str.maketrans({COLUMN: None, EXPRESSION: None, BACKTICK: "`"})
"""For ``str.translate``: turns marked names into what the user wrote."""

PLAIN_CHARACTERS = {
    Token.Kind.OPERATOR: "+-*/:^~|",
    Token.Kind.VALUE: "0123456789.",
    Token.Kind.CONTEXT: "()[]",
}
"""The characters of everything else that formulaic may see."""


class ParsedFormula(NamedTuple):
    """What formulaic made of a formula with marked names.

    Attributes
    ----------
    left : list of TermFactor
        The factors on the left; empty if there is a number among them.
    right : list of dict
        The factors of each term by their marked names; the constant has none.
    terms : formulaic.SimpleFormula
        The right side.
    """

    left: list[TermFactor]
    right: list[dict[str, TermFactor]]
    terms: formulaic.SimpleFormula


def parse_formula(text: str) -> ParsedFormula:
    """Parse ``target ~ terms``; raise an exception of any kind if that fails."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"it has {len(text)} characters, more than {MOST_CHARACTERS}")
    if any(mark in text for mark in (COLUMN, EXPRESSION, BACKTICK)):
        raise ValueError("it has characters that are not text")
    if "``" in text:
        raise ValueError("a column needs a name between the backticks")
    tokens = list(tokenize(text))
    if len(tokens) > MOST_TOKENS:
        raise ValueError(
            f"it has {len(tokens)} names, numbers and operators, more than {MOST_TOKENS}"
        )
    factors: dict[str, TermFactor] = {}
    marked = " ".join(_marked(token, factors) for token in tokens)
    _check_size(DefaultFormulaParser().get_ast(marked))
    model = formulaic.Formula(marked)
    left: Any = getattr(model, "lhs", None)
    right: Any = getattr(model, "rhs", None)
    if not all(isinstance(side, formulaic.SimpleFormula) for side in (left, right)):
        raise ValueError(
            "it needs a target on the left of ~ and one set of terms on the right, as in y ~ x"
        )
    targets = [factor.expr for term in left for factor in term.factors]
    if any(name not in factors for name in targets):
        targets = []
    terms = []
    for term in right:
        names = [factor.expr for factor in term.factors]
        terms.append({name: factors[name] for name in names if name in factors})
        if len(names) > 1 and not terms[-1]:
            raise ValueError("a product of numbers is not a term")
    return ParsedFormula([factors[name] for name in targets], terms, right)


def _marked(token: Token, factors: dict[str, TermFactor]) -> str:
    """Return a token as formulaic may see it, and add the factor it stands for to ``factors``."""
    text: str = token.token
    match token.kind:
        case Token.Kind.NAME:
            factor = TermFactor.of_column(text)
        case Token.Kind.PYTHON:
            factor = TermFactor.of_expression(text)
        case Token.Kind.OPERATOR if text == "in":
            return "%in%"
        case _:
            if set(text) - set(PLAIN_CHARACTERS[token.kind]):
                raise ValueError(f"{text} is neither a column, a number nor an operator of terms")
            return text
    mark = EXPRESSION if factor.column is None else COLUMN
    name = mark + factor.text.replace("`", BACKTICK)
    factors[name] = factor
    return f"`{name}`"


def _check_size(tree: ASTNode | Token | None) -> None:
    """Raise ValueError if formulaic would take long to multiply the terms out.

    Every operator's result is bounded by a number of terms, each of so many factors, from the
    leaves of the tree up.
    """
    operators: list[ASTNode] = []
    reached = [tree]
    for node in reached:
        if isinstance(node, ASTNode):
            operators.append(node)
            reached.extend(node.args)
    work = 0
    sizes: dict[int, tuple[int, int]] = {}
    for node in reversed(operators):
        # A leaf is one term of one factor; the operand that a unary operator lacks has none.
        operands = [sizes.get(id(arg), (1, 1)) for arg in node.args] + [(0, 0), (0, 0)]
        (terms, factors), (more, others) = operands[:2]
        match node.operator.symbol:
            case "**" | "^":
                power = getattr(node.args[1], "token", None)
                if power not in ("1", "2", "3"):
                    raise ValueError(
                        "a power of terms is 1, 2 or 3; write I(x**4) for that of a column"
                    )
                terms **= int(power)
                factors *= int(power)
            case "*":
                terms += more + terms * more
                factors += others
            case ":":
                terms *= more
                factors += others
            case "/":  # every term on the right is multiplied by all terms on the left
                factors = terms * factors + others
                terms += more
            case "in":
                factors += more * others
                terms += more
            case _:
                factors = max(factors, others)
                terms += more
        work += terms
        if terms > MOST_TERMS or factors > MOST_FACTORS or work > MOST_WORK:
            raise ValueError("its products have too many terms: leave out some")
        sizes[id(node)] = (terms, factors)
