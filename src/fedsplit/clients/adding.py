"""How the parts of several clients' answers become those of an answer about the sum of costs.

Each kind of part has one ``Rule``. Whatever is added is finite: what is not is counted beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.fixed_point import fits
from fedsplit.sums import Summands, Total


class Rule(NamedTuple):
    """How parts of one kind are added up."""

    add: Callable[[Summands, Array], None]  # adds the part of one client to its summands
    # reads the part, of a given shape, that the sum over all clients amounts to
    read: Callable[[Total, tuple[int, ...]], Array]


def _add_entries(to: Summands, entries: Array) -> None:
    usable = bool(fits(entries).all())
    # all or nothing: a vector of which some entries are left out points elsewhere
    to.add(entries if usable else np.zeros_like(entries))
    to.add([float(not usable)])


def _read_entries(total: Total, shape: tuple[int, ...]) -> Array:
    entries = total.take(*shape)
    return np.full(shape, np.nan) if total.count() else entries


def _add_values(to: Summands, values: Array) -> None:
    usable = fits(values)
    to.add(np.where(usable, values, 0.0))
    to.add(~usable)


def _read_values(total: Total, shape: tuple[int, ...]) -> Array:
    values = total.take(*shape)
    return np.where(total.take(*shape) > 0, np.inf, values)


def _add_squares(to: Summands, bounds: Array) -> None:
    # the square of a bound that is smaller would be below the unit, and count as none
    _add_values(to, np.square(np.where(bounds == 0, 0.0, np.maximum(bounds, 2.0**-50))))


def _read_root(total: Total, shape: tuple[int, ...]) -> Array:
    # more than the rounding of a root, and more than last digits that are random
    return np.asarray(np.sqrt(_read_values(total, shape)) * (1.0 + 2.0**-42))


@np.errstate(divide="ignore")  # a radius of 0 is a bound that is infinite, and the other way round
def _add_radii(to: Summands, radii: Array) -> None:
    _add_squares(to, 1.0 / radii)


@np.errstate(divide="ignore")
def _read_radius(total: Total, shape: tuple[int, ...]) -> Array:
    return 1.0 / _read_root(total, shape)


def _add_signs(to: Summands, signs: Array) -> None:
    for kind in (np.isnan(signs), signs < 0, signs == 0):  # the rest are positive
        to.add(kind)


def _read_sign(total: Total, shape: tuple[int, ...]) -> Array:
    unknown, negative, zero = (total.take(*shape) > 0 for _ in range(3))
    return np.select([unknown, negative, zero], [np.nan, -1.0, 0.0], 1.0)


SUM = Rule(_add_entries, _read_entries)
"""Entries of vectors and matrices; nan if those of a client cannot be added."""

VALUES = Rule(_add_values, _read_values)
"""Values of functions: where one of them is infinite, nan or too large, the sum is infinite."""

ROOT = Rule(_add_squares, _read_root)
"""Bounds that hold for every client: the root of the sum of squares, at least the largest one."""

RADIUS = Rule(_add_radii, _read_radius)
"""Radii that suit every client: the inverse of the root for the inverses, at most the smallest."""

SIGN = Rule(_add_signs, _read_sign)
"""Signs, of which the smallest counts; nan if one is unknown."""
