"""How a category is coded by columns of numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from fedsplit.arrays import Array
from fedsplit.data.formula.constants import Options, bound, level_at, options, whole
from fedsplit.data.formula.syntax import Call, Name, Node, Text

Coded: TypeAlias = tuple[list[str], Array]
"""The names of k columns, and the values that each of the L levels has in them, (L, k)."""


def treatment(levels: Sequence[str], given: Options) -> Coded:
    """Code each level but the reference, which is the first one unless it is named."""
    return _without(levels, _reference(levels, given, 0))


def sas(levels: Sequence[str], given: Options) -> Coded:
    """Code each level but the last, or another reference."""
    return _without(levels, _reference(levels, given, len(levels) - 1))


def deviation(levels: Sequence[str], given: Options) -> Coded:
    """Compare each level but the last with the mean of all."""
    matrix = np.eye(len(levels), len(levels) - 1)
    matrix[-1] = -1.0
    return [f"S.{level}" for level in levels[:-1]], matrix


def helmert(levels: Sequence[str], given: Options) -> Coded:
    """Compare each level with the mean of those before, or of those after."""
    n = len(levels)
    matrix = np.triu(np.full((n, n - 1), -1.0))
    matrix[np.arange(1, n), np.arange(n - 1)] = np.arange(1, n)
    if given.get("scale", False):
        matrix /= np.arange(2, n + 1)
    if given.get("reverse", True):
        return [f"H.{level}" for level in levels[1:]], matrix
    return [f"H.{level}" for level in levels[:-1]], matrix[::-1, ::-1]


def difference(levels: Sequence[str], given: Options) -> Coded:
    """Compare each level with the one before, or with the one after."""
    n = len(levels)
    matrix = np.tile(np.arange(1, n) / n, (n, 1))
    matrix[np.triu_indices(n, m=n - 1)] -= 1.0
    if given.get("backward", True):
        return [f"D.{level}" for level in levels[1:]], matrix
    return [f"D.{level}" for level in levels[:-1]], -matrix


def polynomial(levels: Sequence[str], given: Options) -> Coded:
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


CODINGS: dict[str, tuple[Callable[[Sequence[str], Options], Coded], tuple[str, ...]]] = {
    "treatment": (treatment, ("base", "reference", "ref", "n")),
    "SAS": (sas, ("base", "reference", "ref", "n")),
    "sum": (deviation, ("n",)),
    "helmert": (helmert, ("n", "reverse", "scale")),
    "diff": (difference, ("n", "backward")),
    "poly": (polynomial, ("n", "scores")),
}
"""Each coding, and the arguments that it takes."""

MOST_LEVELS = 10_000

SPELLINGS = {
    **{f"contr.{name}": name for name in CODINGS},
    "contr.sdif": "diff",
    "Treatment": "treatment",
    "Sum": "sum",
    "Helmert": "helmert",
    "Diff": "diff",
    "Poly": "poly",
}
"""As in R, and as in patsy."""


@dataclass(frozen=True)
class Contrasts:
    """A coding with its arguments.

    Attributes
    ----------
    kind : str
        A key of ``CODINGS``.
    options : mapping
        Its arguments. ``place`` is the number of the reference, from 1.
    """

    kind: str = "treatment"
    options: Options = field(default_factory=dict)

    def coded(self, levels: Sequence[str]) -> Coded:
        """Return the columns for some levels."""
        size = whole(self.options, "n", len(levels), 1, MOST_LEVELS)
        if size != len(levels):
            raise ValueError(f"contr.{self.kind} is for {size} levels, there are {len(levels)}")
        code, _ = CODINGS[self.kind]
        return code(levels, self.options)


def read_contrasts(node: Node, more: Options) -> Contrasts:
    """Return the coding that a tree stands for, such as ``contr.sum`` or ``Treatment("b")``.

    Parameters
    ----------
    node : Node
    more : mapping
        The arguments after it in ``C(a, contr.treatment, base=2)``, where R counts levels.
    """
    match node:
        case Name(name, quoted=False) | Text(name) if name in SPELLINGS:
            call = Call(name, [])
        case Call(name) if name in SPELLINGS:
            call = node
        case _:
            raise ValueError(f"a coding is one of {', '.join(SPELLINGS)}")
    kind = SPELLINGS[name]
    _, parameters = CODINGS[kind]
    counted = parameters[0] == "base" and bool(call.args) and "base" in dict(call.named)
    if counted:  # R's contr.treatment(3, base=2), where base is the place of a level
        parameters = ("n", "base")
    given = dict(options(bound(call, parameters)))
    if counted:
        given["place"] = given.pop("base")
    if more and (set(more) != {"base"} or "base" not in parameters):
        raise ValueError(f"C() with {name} does not take {', '.join(more)}")
    if more:
        given["place"] = more["base"]
    return Contrasts(kind, given)


def _reference(levels: Sequence[str], given: Options, otherwise: int) -> int:
    """The place of the reference level, from 0."""
    place = given.get("place")
    if place is not None:
        if place not in range(1, len(levels) + 1):
            raise ValueError(f"base is the number of a level, from 1 to {len(levels)}")
        return int(place) - 1  # type: ignore[arg-type]  # it is in a range
    for name in ("base", "reference", "ref"):
        if given.get(name) is not None:
            return level_at(levels, given[name])
    return otherwise


def _without(levels: Sequence[str], reference: int) -> Coded:
    """One column for each level but one."""
    kept = [i for i in range(len(levels)) if i != reference]
    return [f"T.{levels[i]}" for i in kept], np.eye(len(levels))[:, kept]
