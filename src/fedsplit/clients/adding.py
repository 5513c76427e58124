"""How the parts of several clients' answers become those of an answer about the sum of costs.

Values, gradients and Hessians are added. A bound that has to hold for every client becomes the root
of the sum of squares, which is at least the largest of them; a radius the inverse of such a root. A
sign becomes the smallest one, by counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from fedsplit.arrays import Array
from fedsplit.fixed_point import fits
from fedsplit.sums import Summands, Total

Together: TypeAlias = Literal["sum", "values", "root", "radius", "sign"]
"""How a part is added up: entries, or function values, which may be infinite; bounds; radii;
signs."""

TINY = 2.0**-50
"""A bound that is smaller and not 0 counts as this: its square has to be above the unit."""

ROOM = 1.0 + 2.0**-42
"""More than the rounding of a root, and more than last digits that are random."""


def _add_entries(to: Summands, entries: Array) -> None:
    """Entries, and whether they cannot be added."""
    usable = bool(fits(entries).all())
    to.add(entries if usable else np.zeros_like(entries))
    to.add([float(not usable)])


def _read_entries(total: Total, shape: tuple[int, ...]) -> Array:
    found = total.take(*shape)
    if total.count():
        found = np.full(shape, np.nan)
    return found


def _add_values(to: Summands, values: Array) -> None:
    """Values, and which of them are infinite, nan, or too large to be added."""
    usable = fits(values)
    to.add(np.where(usable, values, 0.0))
    to.add(~usable)


def _read_values(total: Total, shape: tuple[int, ...]) -> Array:
    found = total.take(*shape)
    return np.where(total.take(*shape) > 0, np.inf, found)


def _add_squares(to: Summands, bounds: Array) -> None:
    """Squares of bounds from 0 to inf."""
    _add_values(to, np.square(np.where(bounds == 0, 0.0, np.maximum(bounds, TINY))))


def _read_root(total: Total, shape: tuple[int, ...]) -> Array:
    return np.asarray(np.sqrt(_read_values(total, shape)) * ROOM)


def _add_radii(to: Summands, radii: Array) -> None:
    with np.errstate(divide="ignore"):
        _add_squares(to, 1.0 / radii)


def _read_radius(total: Total, shape: tuple[int, ...]) -> Array:
    with np.errstate(divide="ignore"):
        return 1.0 / _read_root(total, shape)


def _add_signs(to: Summands, signs: Array) -> None:
    """Whether a sign is nan, negative, or zero."""
    to.add(np.isnan(signs))
    to.add(signs < 0)
    to.add(signs == 0)


def _read_sign(total: Total, shape: tuple[int, ...]) -> Array:
    unknown, negative, zero = (total.take(*shape) > 0 for _ in range(3))
    return np.select([unknown, negative, zero], [np.nan, -1.0, 0.0], 1.0)


class Rule(NamedTuple):
    """How a client adds its part to others, and how the sum is read."""

    add: Callable[[Summands, Array], None]
    read: Callable[[Total, tuple[int, ...]], Array]


RULES: Mapping[Together, Rule] = {
    "sum": Rule(_add_entries, _read_entries),
    "values": Rule(_add_values, _read_values),
    "root": Rule(_add_squares, _read_root),
    "radius": Rule(_add_radii, _read_radius),
    "sign": Rule(_add_signs, _read_sign),
}


def add_parts(together: Mapping[str, Together], parts: Mapping[str, Array]) -> list[Summands]:
    """What each of k clients adds, of parts that are (k, ...)."""
    k = len(next(iter(parts.values())))
    found = []
    for j in range(k):
        own = Summands()
        for name, how in together.items():
            RULES[how].add(own, np.asarray(parts[name][j]))
        found.append(own)
    return found


def read_parts(
    together: Mapping[str, Together], shapes: Mapping[str, tuple[int, ...]], total: Total
) -> dict[str, Array]:
    """The parts of one client whose cost is the sum of all, each (1, ...)."""
    found = {}
    for name, how in together.items():
        shape = shapes.get(name, ())
        # a number is read as one entry
        found[name] = RULES[how].read(total, shape or (1,)).reshape(1, *shape)
    return found
