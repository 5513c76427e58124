"""The columns of a design: what they are named, and how each is made of the factors' values.

They follow from a formula and from what the clients agreed on, and are worked out once. A client
then computes with arrays only.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsplit.arrays import Array
from fedsplit.data.formula.factors import Category, TermFactor
from fedsplit.data.formula.pooled_functions import ModelFrame, Schema
from fedsplit.data.formula.terms import Sides, Term

MOST_COLUMNS = 2_000
"""The most columns of a design."""


@dataclass(frozen=True)
class FactorColumns:
    """The k columns of the factor at a place in one term, and how their names end.

    Those of a category are looked up in a table, (L + 1, k), of the values of each level.
    """

    place: int
    endings: list[str]
    table: Array | None = None

    def values(self, values: NDArray[Any]) -> Array:
        """Return the columns, (n, k), for the factor's codes, (n,), or numbers, (n, k)."""
        return values if self.table is None else self.table[values]


@dataclass(frozen=True)
class DesignColumns:
    """The p columns of a formula's terms, by what the clients agreed on.

    A factor of all terms is coded by levels, as ``categories`` says, or has numbers. Of the
    factors of one term the first changes fastest over its columns. With ``intercept`` a column of
    ones comes first.
    """

    schema: Schema
    names: list[str]
    factors: Sequence[TermFactor]
    categories: Sequence[Category | None]
    terms: Sequence[Sequence[FactorColumns]]
    intercept: bool
    offsets: Sequence[TermFactor]

    def design(self, frame: pd.DataFrame) -> Array:
        """Return the (n, p) design of some rows."""
        rows = ModelFrame(frame, self.schema)
        with np.errstate(all="ignore"):  # values that are not finite are found, and named, later
            values: list[NDArray[Any]] = [
                factor.values(rows) if category is None else category.codes(rows)
                for factor, category in zip(self.factors, self.categories, strict=True)
            ]
            A = np.empty((len(frame), len(self.names)))
            # a block of so many rows stays within the processor's cache
            block = 8_192
            for start in range(0, len(A), block):
                self._fill(A[start : start + block], start, values)
        return A

    def offset(self, frame: pd.DataFrame) -> Array:
        """Return the sum of the formula's offsets, (n,)."""
        rows = ModelFrame(frame, self.schema)
        total = np.zeros(len(frame))
        with np.errstate(all="ignore"):
            for factor in self.offsets:
                total += factor.number(rows)
        return total

    def _fill(self, A: Array, start: int, values: Sequence[NDArray[Any]]) -> None:
        """Compute the rows of a block in place."""
        at = 0
        if self.intercept:
            A[:, 0] = 1.0
            at = 1
        rows = slice(start, start + len(A))
        for blocks in self.terms:
            parts = [block.values(values[block.place][rows]) for block in blocks]
            product = parts[0]
            for part in parts[1:]:
                product = (part[:, :, None] * product[:, None, :]).reshape(len(A), -1)
            A[:, at : at + product.shape[1]] = product
            at += product.shape[1]


def compile_design(sides: Sides, schema: Schema, constant: bool = True) -> DesignColumns:
    """Work out the columns of a formula's terms; raise ValueError if there cannot be such.

    Without ``constant`` a constant term has no column.
    """
    categories = [factor.as_category(schema) for factor in sides.factors]
    coded = {place for place, category in enumerate(categories) if category is not None}
    widths = [
        len((factor.endings if category is None else category.levels)(schema))
        for factor, category in zip(sides.factors, categories, strict=True)
    ]
    columns = sum(math.prod(widths[place] for place in term) for term in sides.terms)
    if columns + sides.intercept > MOST_COLUMNS:  # before any work is done
        raise ValueError(
            f"its terms have about {columns} columns, more than {MOST_COLUMNS}: leave out some"
        )
    full = fully_coded(sides.terms, coded, sides.intercept)
    terms: list[list[FactorColumns]] = []
    intercept = sides.intercept and constant
    names = ["Intercept"] * intercept
    for term in sides.terms:
        blocks = [
            _block(place, sides.factors[place], categories[place], schema, (term, place) in full)
            for place in sorted(term)
        ]
        terms.append(blocks)
        names += _names(term, blocks, sides.factors)
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"two columns would be named {name}: rename a column or a level")
    return DesignColumns(schema, names, sides.factors, categories, terms, intercept, sides.offsets)


def fully_coded(
    terms: Sequence[Term], categories: set[int], intercept: bool
) -> set[tuple[Term, int]]:
    """Return the categories that have a column for every level, each with the term it is in.

    R's rule: a category in a term is coded by contrasts if the rest of the term is empty, or is
    part of a term before it. Without a constant the first category of all is coded fully, too.
    """
    full = set()
    before: set[frozenset[int]] = set()
    for term in terms:
        for place in categories & set(term):
            rest = frozenset(term) - {place}
            if rest and not any(rest <= other for other in before):
                full.add((term, place))
        before.add(frozenset(term))
    if not intercept:
        for term in terms:
            inside = sorted(categories & set(term))
            if inside:
                full.add((term, inside[0]))
                break
    return full


def _block(
    place: int, factor: TermFactor, category: Category | None, schema: Schema, full: bool
) -> FactorColumns:
    if category is None:
        return FactorColumns(place, factor.endings(schema))
    try:
        return FactorColumns(place, *category.coded(schema, full))
    except ValueError as error:
        raise ValueError(f"{factor.text}: {error}") from None


def _names(term: Term, blocks: Sequence[FactorColumns], factors: Sequence[TermFactor]) -> list[str]:
    """Return the names of a term's columns, with its factors in the order of the formula."""
    names = []
    for cell in itertools.product(*[block.endings for block in reversed(blocks)]):
        endings = dict(zip([block.place for block in reversed(blocks)], cell, strict=True))
        names.append(":".join(factors[place].text + endings[place] for place in term))
    return names
