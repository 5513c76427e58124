"""The factors that a formula's terms are products of, and how categories are coded by columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array
from fedsplit.data.formula.constants import (
    Constant,
    Options,
    bound,
    constant,
    level_at,
    options,
    whole,
)
from fedsplit.data.formula.expressions import Compiler, Evaluator, is_column
from fedsplit.data.formula.pooled_functions import POOLED, ModelFrame, PooledCall, Schema
from fedsplit.data.formula.syntax import Call, Name, Node, Text, written

Columns: TypeAlias = tuple[list[str], Array]
"""The endings of the names of k columns, and the values of each of L levels in them, (L, k)."""


def treatment(levels: Sequence[str], given: Options, otherwise: int) -> Columns:
    """Code each level but a reference, which is at the place ``otherwise`` unless it is given."""
    reference = otherwise % len(levels)
    match given:
        case {"base": float(place)}:  # R counts levels
            if place not in range(1, len(levels) + 1):
                raise ValueError(f"base is the number of a level, from 1 to {len(levels)}")
            reference = int(place) - 1
        case {"base": level} | {"reference": level}:
            reference = level_at(levels, level)
    others = [i for i in range(len(levels)) if i != reference]
    return [f"T.{levels[i]}" for i in others], np.eye(len(levels))[:, others]


def deviation(levels: Sequence[str], given: Options) -> Columns:
    """Compare each level but the last with the mean of all."""
    matrix = np.eye(len(levels), len(levels) - 1)
    matrix[-1] = -1.0
    return [f"S.{level}" for level in levels[:-1]], matrix


def helmert(levels: Sequence[str], given: Options) -> Columns:
    """Compare each level with the mean of those before."""
    n = len(levels)
    matrix = np.triu(np.full((n, n - 1), -1.0))
    matrix[np.arange(1, n), np.arange(n - 1)] = np.arange(1, n)
    return [f"H.{level}" for level in levels[1:]], matrix


def difference(levels: Sequence[str], given: Options) -> Columns:
    """Compare each level with the one before."""
    n = len(levels)
    matrix = np.tile(np.arange(1, n) / n, (n, 1))
    matrix[np.triu_indices(n, m=n - 1)] -= 1.0
    return [f"D.{level}" for level in levels[1:]], matrix


def polynomial(levels: Sequence[str], given: Options) -> Columns:
    """Code the places of the levels, or their scores, by orthonormal polynomials."""
    n = len(levels)
    scores = given.get("scores")
    if scores is None:
        scores = tuple(float(i) for i in range(1, n + 1))
    if not isinstance(scores, tuple) or len(set(scores)) != n or len(scores) != n:
        raise ValueError(f"contr.poly: scores must be {n} different numbers, one for each level")
    x = np.array(scores, dtype=np.float64)
    Q, R = np.linalg.qr(np.vander((x - x.mean()) / np.ptp(x), n, increasing=True))
    matrix = Q * np.sign(np.diag(R))
    endings = [".L", ".Q", ".C", *(f"^{degree}" for degree in range(4, n))]
    return endings[: n - 1], matrix[:, 1:]


class ContrastCoding(NamedTuple):
    """A way to code a category, and the names of its arguments, in order."""

    code: Callable[[Sequence[str], Options], Columns]
    parameters: tuple[str, ...] = ("n",)


CODINGS = {
    "contr.treatment": ContrastCoding(partial(treatment, otherwise=0), ("reference", "base", "n")),
    "contr.SAS": ContrastCoding(partial(treatment, otherwise=-1), ("reference", "base", "n")),
    "contr.sum": ContrastCoding(deviation),
    "contr.helmert": ContrastCoding(helmert),
    "contr.sdif": ContrastCoding(difference),
    "contr.poly": ContrastCoding(polynomial, ("n", "scores")),
}
"""By their names in R."""
CODINGS |= {name.title(): CODINGS[f"contr.{name}"] for name in ("treatment", "sum", "helmert")}


def read_contrasts(node: Node, more: Options) -> tuple[str, Options]:
    """Return the coding that a tree stands for, such as ``contr.sum`` or ``Treatment("b")``.

    It is one of ``CODINGS``, with its arguments. ``more`` are those that come after it, as in
    ``C(a, contr.treatment, base=2)``.
    """
    match node:
        case Name(name, quoted=False) | Text(name) if name in CODINGS:
            call = Call(name, [])
        case Call(name) if name in CODINGS:
            call = node
        case _:
            raise ValueError(f"a coding is one of {', '.join(CODINGS)}")
    parameters = CODINGS[name].parameters
    if (
        call.args and "base" in parameters and "base" in dict(call.named)
    ):  # contr.treatment(3, base=2)
        parameters = ("n", "base")
    if more and not ("base" in parameters and set(more) == {"base"}):
        raise ValueError(f"C() with {name} does not take {', '.join(more)}")
    return name, {**options(bound(call, parameters)), **more}


@dataclass(frozen=True)
class Category:
    """A column, or what a function of one makes, coded by levels.

    Those ``first`` come before the others, and if it is ``complete`` there are no others. The
    ``coding`` is one of ``CODINGS``, with its arguments.
    """

    of: str | PooledCall
    first: tuple[Constant, ...] = ()
    complete: bool = False
    coding: tuple[str, Options] = ("contr.treatment", {})

    def levels(self, schema: Schema) -> list[str]:
        """Return the levels, in the order of the codes."""
        if isinstance(self.of, PooledCall):
            return self.of.labels(schema)
        if self.of not in schema.levels:
            raise ValueError(f"column {self.of} is a category without levels")
        return list(schema.levels[self.of])

    def codes(self, rows: ModelFrame) -> NDArray[np.intp]:
        """Return the number of each row's level, (n,)."""
        return self.of.values(rows) if isinstance(self.of, PooledCall) else rows.codes(self.of)

    def coded(self, schema: Schema, full: bool) -> tuple[list[str], Array]:
        """Return how names of columns end, and the values of each code, (L + 1, k).

        The last row, at -1, is for values that are missing.
        """
        levels = self.levels(schema)
        places = [level_at(levels, level) for level in self.first]
        others = [i for i in range(len(levels)) if i not in places]
        if self.complete and others:
            raise ValueError(f"levels: {levels[others[0]]} is not among them")
        if len(levels) < 2 and not full:
            only = ", ".join(levels) or "none"
            raise ValueError(f"a category needs two levels, there is {only}: leave it out")
        order = [*places, *others]
        endings = [levels[i] for i in order]
        matrix: Array = np.eye(len(levels))
        if not full:
            name, given = self.coding
            size = whole(given, "n", len(levels), 1, 10_000)
            if size != len(levels):
                raise ValueError(f"{name} is for {size} levels, there are {len(levels)}")
            endings, matrix = CODINGS[name].code(endings, given)
        table = np.full((len(levels) + 1, matrix.shape[1]), np.nan)
        table[order] = matrix
        return [f"[{ending}]" for ending in endings], table


@dataclass(frozen=True)
class TermFactor:
    """A column, a category, or an expression of columns; ``text`` is its name in the design's.

    Attributes
    ----------
    column : str or None
        The column, if the factor is one and nothing else.
    category : Category or None
        Also of a column, which is one if it holds text.
    numbers : callable or None
        Called with a ModelFrame; returns the (n,) values, or a scalar.
    call : PooledCall or None
        A function of all clients' rows with any number of columns; ``calls`` has those inside, too.
    """

    text: str
    columns: Sequence[str] = ()
    column: str | None = None
    category: Category | None = None
    numbers: Evaluator | None = None
    call: PooledCall | None = None
    calls: Sequence[PooledCall] = ()

    @classmethod
    def of(cls, node: Node) -> TermFactor:
        """Return what a tree stands for, such as ``x``, ``log(x)`` or ``C(g)``."""
        compiler = Compiler()
        try:
            factor = cls._of(node, compiler)
        except ValueError as error:
            raise ValueError(f"{written(node)}: {error}") from None
        columns = list(dict.fromkeys(compiler.columns))
        return replace(factor, columns=columns, calls=tuple(compiler.calls))

    @classmethod
    def _of(cls, node: Node, compiler: Compiler) -> TermFactor:
        text = written(node)
        match node:
            case Call("", [Name() as inner]):
                return cls._of(inner, compiler)
            case Name() | Call("Q"):
                name = compiler.column(node)
                numbers = compiler.number(node)
                return cls(name, column=name, category=Category(name), numbers=numbers)
            case Call("C" | "factor" | "as.factor" | "relevel"):
                return cls(text, category=_category(node, compiler))
            case Call(function) if function in POOLED:
                call = compiler.call(node)
                if call.function.is_category:
                    return cls(text, category=Category(call))
                return cls(text, call=call)
        return cls(text, numbers=compiler.number(node))

    def as_category(self, schema: Schema) -> Category | None:
        """Return how it is coded by levels, None if it has numbers."""
        if self.column is not None and not schema.holds_text(self.column):
            return None
        return self.category

    def endings(self, schema: Schema) -> list[str]:
        """Return how the names of its columns end, if it has numbers."""
        return [""] if self.call is None else self.call.labels(schema)

    def values(self, rows: ModelFrame) -> Array:
        """Return its numbers, (n, k)."""
        if self.call is not None:
            columns: Array = self.call.values(rows)
            if columns.shape[1] != len(self.endings(rows.schema)):
                raise ValueError(f"{self.text} has another number of columns than was agreed")
            return columns
        if self.numbers is None:
            raise ValueError(f"{self.text} is a category, and has no numbers")
        # An expression without a column is a scalar.
        values: Array = np.broadcast_to(self.numbers(rows), len(rows.frame)).reshape(-1, 1)
        return values

    def number(self, rows: ModelFrame) -> Array:
        """Return its numbers, (n,), if it is one column."""
        values = self.values(rows)
        if values.shape[1] != 1:
            raise ValueError(f"{self.text} has {values.shape[1]} columns: one is needed")
        return values[:, 0]


def _category(node: Node, compiler: Compiler) -> Category:
    """Read ``C(a, coding)``, ``factor(a)``, ``relevel(a, ref="b")``, also one in the other."""
    match node:
        case _ if is_column(node):
            return Category(compiler.column(node))
        case Call(function) if function in POOLED:
            call = compiler.call(node)
            if call.function.is_category:
                return Category(call)
        case Call("C" | "factor" | "as.factor", [inner], []):
            return _category(inner, compiler)
        case Call("C", [inner, *coding], named) if len(coding) <= 1:
            category = _category(inner, compiler)
            coding = coding or [Name("contr.treatment")]
            return replace(category, coding=read_contrasts(coding[0], options(dict(named))))
        case Call("factor", [inner, *_]):
            category = _category(inner, compiler)
            first = constant(bound(node, ("x", "levels")).get("levels", Text("")))
            if isinstance(first, tuple):
                return replace(category, first=first, complete=True)
        case Call("relevel", [inner, *_]):
            category = _category(inner, compiler)
            given = bound(node, ("x", "ref"))
            if "ref" in given:
                return replace(category, first=(constant(given["ref"]),))
    raise ValueError(
        "write C(column), C(column, Treatment('level')), factor(column) or "
        "relevel(column, ref='level'), as a factor of its own"
    )
