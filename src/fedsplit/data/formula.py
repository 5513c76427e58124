"""A formula's own language: columns, numbers, arithmetic and a short list of functions, and nothing else.

A formula can come from another organisation, and formulaic evaluates its expressions as Python, some of them while it
parses. So it never sees one: each becomes a name before formulaic parses the terms, and its values are computed here,
from a syntax tree, by a table of what is known. Functions that learn from the rows they see are refused: each client
would learn another.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import formulaic
import numpy as np
import pandas as pd
from formulaic.parser import DefaultFormulaParser
from formulaic.parser.algos.tokenize import tokenize
from formulaic.parser.types import ASTNode, Token

from fedsplit.arrays import Array
from fedsplit.data.categories import Level
from fedsplit.data.expressions import Factor, Rows
from fedsplit.errors import InputError

MOST_CHARACTERS, MOST_TOKENS = 20_000, 5_000
"""Of a formula."""
MOST_COLUMNS, MOST_CATEGORIES = 2_000, 6
"""Of a design, and of categories in one term: formulaic's work grows eightfold with each."""
ROWS_AT_ONCE = 8_192
"""Columns become rows part by part, in the processor's cache and without another copy of them all."""
MOST_FACTORS, MOST_TERMS, MOST_WORK = 20, 10_000, 3_000_000
"""Of a term, of a product or power before equal ones are merged, and of terms over all steps of formulaic's parser."""

COLUMN, EXPRESSION, TICK = "\ufdd0", "\ufdd1", "\ufdd2"
"""What formulaic parses has a mark before each name, and one for a backtick in it: no text has these characters."""
PLAIN = str.maketrans({COLUMN: None, EXPRESSION: None, TICK: "`"})


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
        if self._left[0].category is not None:
            raise self._error(
                f"the target cannot be {self.target}: use {{{self._left[0].category} == 'a'}}"
            )
        if self.target_column in [name for factor in self._right for name in factor.columns]:
            raise self._error(f"{self.target_column} is on both sides")
        if self.intercept and "Intercept" in [factor.column for factor in self._right]:
            raise self._error("column Intercept: rename it, this is the constant's name")

    @property
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
        return self._left[0].columns

    @cached_property
    def columns(self) -> list[str]:
        """Every column that is needed, the target's first, in the order of the formula."""
        return list(
            dict.fromkeys(name for factor in (*self._left, *self._right) for name in factor.columns)
        )

    @cached_property
    def categories(self) -> set[str]:
        """The columns that C() makes categories, whatever is in them."""
        return {factor.category for factor in self._right if factor.category is not None}

    @property
    def intercept(self) -> bool:
        return any(not factors for factors in self._parsed.right)

    def without_intercept(self) -> Formula:
        """The same without a constant term."""
        return Formula(f"{self.text} - 1") if self.intercept else self

    def design(
        self, frame: pd.DataFrame, levels: Mapping[str, Sequence[Level]]
    ) -> tuple[list[str], Array]:
        """The names of the terms' columns and their values, (n, p), with these levels of each category."""
        try:
            return self._design(Rows(frame, levels))
        except InputError:
            raise
        except Exception as error:  # formulaic and numpy raise whatever they like
            raise self._error(_first_line(error)) from None

    def response(self, frame: pd.DataFrame) -> Array:
        """The target's values, (n,), where they are numbers."""
        target, rows = self._left[0], Rows(frame, {})
        try:
            with np.errstate(all="ignore"):
                values = (
                    rows.numbers(target.column)
                    if target.column is not None
                    else target.values(rows)
                )
            return np.array(values, dtype=np.float64)
        except Exception as error:
            raise self._error(_first_line(error)) from None

    def _design(self, rows: Rows) -> tuple[list[str], Array]:
        right = self._parsed.right
        if any(sum(map(rows.is_category, factors.values())) > MOST_CATEGORIES for factors in right):
            raise ValueError(f"a term has more than {MOST_CATEGORIES} categories")
        columns = sum(
            math.prod(rows.width(factor) for factor in factors.values()) for factors in right
        )
        if columns > MOST_COLUMNS:
            raise ValueError(
                f"its terms have about {columns} columns, more than {MOST_COLUMNS}: leave out some"
            )
        with np.errstate(all="ignore"):  # what is not finite is found, and named, afterwards
            used = {key: factor for factors in right for key, factor in factors.items()}
            values = {key: factor.values(rows) for key, factor in used.items()}
            matrix = self._parsed.terms.get_model_matrix(
                pd.DataFrame(index=range(len(rows.frame))), context=values, na_action="ignore"
            )
        names = [
            name.translate(PLAIN) for name in matrix.model_spec.column_names
        ]  # the matrix merges equal ones
        twice = [name for name, number in Counter(names).items() if number > 1]
        if twice:
            raise ValueError(f"two columns would be named {twice[0]}: rename a column or a level")
        A = np.empty((len(rows.frame), len(names)))
        for start in range(0, len(A), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            A[part] = matrix.iloc[part].to_numpy(dtype=np.float64)
        return names, A

    @cached_property
    def _parsed(self) -> Parsed:
        try:
            return _parse(self.text)
        except Exception as error:  # a text can fail in as many ways
            raise self._error(_first_line(error)) from None

    @property
    def _left(self) -> list[Factor]:
        return self._parsed.left

    @cached_property
    def _right(self) -> list[Factor]:
        return [factor for factors in self._parsed.right for factor in factors.values()]

    def _error(self, why: str) -> InputError:
        text, why = (
            part if len(part) <= 400 else part[:400] + "..." for part in (repr(self.text), why)
        )
        return InputError(f"formula {text}: {why}")


class Parsed(NamedTuple):
    """What formulaic made of a formula in which every column and expression is a marked name.

    left : the target.
    right : the factors of each term by their marked names; the constant has none.
    terms : the right side, for formulaic.
    """

    left: list[Factor]
    right: list[dict[str, Factor]]
    terms: formulaic.SimpleFormula


def quoted(columns: Iterable[str]) -> str:
    """Columns as terms of a formula."""
    names = list(columns)
    for name in names:
        if "`" in name or name.endswith("\\") or not name:
            raise InputError(f"column {name}: rename it, a formula cannot quote this name")
    return " + ".join(name if re.fullmatch(r"[^\W\d]\w*", name) else f"`{name}`" for name in names)


def _parse(text: str) -> Parsed:
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"it has {len(text)} characters, more than {MOST_CHARACTERS}")
    if any(mark in text for mark in (COLUMN, EXPRESSION, TICK)):
        raise ValueError("it has characters that are no text")
    if "``" in text:
        raise ValueError("a column needs a name between the backticks")
    tokens = list(tokenize(text))
    if len(tokens) > MOST_TOKENS:
        raise ValueError(
            f"it has {len(tokens)} names, numbers and operators, more than {MOST_TOKENS}"
        )
    factors: dict[str, Factor] = {}
    marked = " ".join(_marked(token, factors) for token in tokens)
    _check_size(DefaultFormulaParser().get_ast(marked))
    model = formulaic.Formula(marked)
    left, right = getattr(model, "lhs", None), getattr(model, "rhs", None)
    if not isinstance(left, formulaic.SimpleFormula) or not isinstance(
        right, formulaic.SimpleFormula
    ):
        raise ValueError(
            "it needs a target on the left of ~ and one set of terms on the right, as in y ~ x"
        )
    for term in right:
        if len(term.factors) > 1 and not any(factor.expr in factors for factor in term.factors):
            raise ValueError("a product of numbers is no term")
    targets = [factor for term in left for factor in term.factors]
    return Parsed(
        [factors[factor.expr] for factor in targets]
        if all(factor.expr in factors for factor in targets)
        else [],
        [
            {each.expr: factors[each.expr] for each in term.factors if each.expr in factors}
            for term in right
        ],
        right,
    )


def _marked(token: Token, factors: dict[str, Factor]) -> str:
    """A token as formulaic may see it: a name, a number, a bracket or an operator, and no expression."""
    text: str = token.token
    if token.kind in (Token.Kind.NAME, Token.Kind.PYTHON):
        factor = (
            Factor.of_column(text) if token.kind is Token.Kind.NAME else Factor.of_expression(text)
        )
        key = (EXPRESSION if factor.column is None else COLUMN) + factor.text.replace("`", TICK)
        factors[key] = factor
        return f"`{key}`"
    if token.kind is Token.Kind.OPERATOR and text == "in":
        return "%in%"
    known = {
        Token.Kind.OPERATOR: "+-*/:^~|",
        Token.Kind.VALUE: "0123456789.",
        Token.Kind.CONTEXT: "()[]",
    }
    if set(text) - set(known[token.kind]):
        raise ValueError(f"{text} is neither a column nor a number nor an operator of terms")
    return text


def _check_size(tree: ASTNode | Token | None) -> None:
    """Refuse what formulaic would take long to multiply out, by bounds of terms and factors from the bottom up."""
    nodes, work = [tree] if isinstance(tree, ASTNode) else [], 0
    for node in nodes:
        nodes.extend(arg for arg in node.args if isinstance(arg, ASTNode))
    sizes: dict[int, tuple[int, int]] = {}
    for node in reversed(nodes):
        (terms, factors), (more, others) = [
            *(sizes.get(id(arg), (1, 1)) for arg in node.args),
            (0, 0),
            (0, 0),
        ][:2]
        match node.operator.symbol:
            case "**" | "^":
                power = node.args[1]
                if not isinstance(power, Token) or power.token not in ("1", "2", "3"):
                    raise ValueError(
                        "a power of terms is 1, 2 or 3; write I(x**4) for that of a column"
                    )
                terms, factors = terms ** int(power.token), factors * int(power.token)
            case "*":
                terms, factors = terms + more + terms * more, factors + others
            case ":":
                terms, factors = terms * more, factors + others
            case "/":
                terms, factors = terms + more, terms * factors + others
            case "in":
                terms, factors = terms + more, factors + more * others
            case _:
                terms, factors = terms + more, max(factors, others)
        work += terms
        if terms > MOST_TERMS or factors > MOST_FACTORS or work > MOST_WORK:
            raise ValueError("its products have too many terms: leave out some")
        sizes[id(node)] = terms, factors


def _first_line(error: Exception) -> str:
    if isinstance(error, RecursionError | MemoryError):
        return "it is nested too deeply" if isinstance(error, RecursionError) else "it is too large"
    if "`.` operator" in str(error):
        return "name the columns, or give the target alone for all of them"
    line = re.sub(r"\x1b\[[0-9;]*m|[⧛⧚]", "", str(error)).strip().split("\n")[0].translate(PLAIN)
    return line or type(error).__name__
