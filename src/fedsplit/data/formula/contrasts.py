"""How a category is coded by columns of numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

from fedsplit.arrays import Array
from fedsplit.data.formula.constants import Options, bound, level_at, options, whole
from fedsplit.data.formula.syntax import Call, Name, Node, Text

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


@dataclass(frozen=True)
class Contrasts:
    """A coding, by its name in ``CODINGS``, with its arguments."""

    name: str = "contr.treatment"
    options: Options = field(default_factory=dict)

    def coded(self, levels: Sequence[str]) -> Columns:
        """Return the columns for some levels."""
        size = whole(self.options, "n", len(levels), 1, 10_000)
        if size != len(levels):
            raise ValueError(f"{self.name} is for {size} levels, there are {len(levels)}")
        return CODINGS[self.name].code(levels, self.options)


def read_contrasts(node: Node, more: Options) -> Contrasts:
    """Return the coding that a tree stands for, such as ``contr.sum`` or ``Treatment("b")``.

    Parameters
    ----------
    node : Node
    more : mapping
        The arguments after it in ``C(a, contr.treatment, base=2)``.
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
    return Contrasts(name, {**options(bound(call, parameters)), **more})
