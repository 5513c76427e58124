"""The factors that a formula's terms are products of."""

from __future__ import annotations

import ast
from dataclasses import dataclass

import formulaic.transforms
import numpy as np

from fedsplit.data.contrasts import read_contrasts
from fedsplit.data.expressions import ColumnExpression, Evaluator
from fedsplit.data.model_frame import ModelFrame


@dataclass(frozen=True)
class TermFactor:
    """A column, a category, or an expression of columns.

    Attributes
    ----------
    text : str
        As in the names of the design's columns.
    columns : list of str
        Those in it, from left to right.
    values : callable
        Called with a ModelFrame; returns the (n,) values.
    column : str, optional
        The column, if the factor is one and nothing else.
    category : str, optional
        The column inside ``C()``.
    counts : tuple of two TermFactor, optional
        Successes and failures, inside ``cbind()``.
    """

    text: str
    columns: list[str]
    values: Evaluator
    column: str | None = None
    category: str | None = None
    counts: tuple[TermFactor, TermFactor] | None = None

    @classmethod
    def of_column(cls, name: str) -> TermFactor:
        """Return a column: its numbers, or a category if it holds text."""
        if name in ("0", "1"):
            raise ValueError(f"column {name}: rename it, this is the constant of a formula")

        def values(rows: ModelFrame) -> object:
            if rows.holds_text(name):
                return rows.category(name)
            return rows.values(name)

        return cls(name, [name], values, column=name)

    @classmethod
    def of_expression(cls, text: str) -> TermFactor:
        """Return what an expression stands for, such as ``log(x)`` or ``C(g)``."""
        expression = ColumnExpression.parse(text)
        try:
            match expression.tree:
                case ast.Call(ast.Name("cbind"), [successes, failures], []):
                    return cls._of_counts(expression, successes, failures)
                case ast.Name() as node:
                    return cls.of_column(expression.name(node))
                case ast.Call(ast.Name("C"), [ast.Name() as node, *contrasts], []) if (
                    len(contrasts) <= 1
                ):
                    column = expression.name(node)
                    coding = read_contrasts(*contrasts)
                    return cls(
                        expression.text,
                        [column],
                        lambda rows: formulaic.transforms.C(rows.category(column), coding),
                        category=column,
                    )
            values = expression.number(expression.tree)
        except ValueError as error:
            raise ValueError(f"{expression.text}: {error}") from None
        # An expression without a column is a scalar.
        return cls(
            expression.text,
            expression.columns,
            lambda rows: np.broadcast_to(values(rows), len(rows.frame)),
        )

    @classmethod
    def _of_counts(
        cls, expression: ColumnExpression, successes: ast.expr, failures: ast.expr
    ) -> TermFactor:
        def values(rows: ModelFrame) -> object:
            raise ValueError("cbind() is for the target: cbind(successes, failures) ~ x")

        parts = []
        for node in (successes, failures):
            part = expression._replace(text=ast.unparse(node), columns=[])
            parts.append(cls(part.text, part.columns, part.number(node)))
        columns = list(dict.fromkeys(name for part in parts for name in part.columns))
        return cls(expression.text, columns, values, counts=(parts[0], parts[1]))

    def is_category(self, rows: ModelFrame) -> bool:
        """Return whether it is coded by levels."""
        if self.column is not None:
            return rows.holds_text(self.column)
        return self.category is not None

    def width(self, rows: ModelFrame) -> int:
        """Return at most how many columns of the design it has alone."""
        if self.is_category(rows):
            return len(rows.levels.get(self.columns[0], ()))
        return 1
