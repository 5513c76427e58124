"""Checks of what users pass; errors say what it is, which value it has, what is allowed."""

from __future__ import annotations

import sys
from collections.abc import Collection
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from fedsplit.errors import InputError, shown

if TYPE_CHECKING:
    from fedsplit.arrays import Array


def number(name: str, value: Any, least: float = 0.0, strict: bool = True) -> float:
    """``value`` as a finite float above ``least``, or at least ``least`` if not ``strict``."""
    allowed = "above" if strict else "of at least"
    if (
        not _is(Real, value)
        or not abs(value) <= sys.float_info.max  # whole numbers can be larger
        or value < least
        or (strict and value == least)
    ):
        raise InputError(f"{name} must be a finite number {allowed} {least:g}, not {shown(value)}")
    return float(value)


def share(name: str, value: Any, zero: bool = False, one: bool = True) -> float:
    """``value`` as a float between 0 and 1, and one of these only where it is allowed."""
    inside = _is(Real, value) and 0 <= value <= 1
    if not inside or (value == 0 and not zero) or (value == 1 and not one):
        raise InputError(f"{name} must be between 0 and 1, not {shown(value)}")
    return float(value)


def weights(name: str, values: object) -> Array:
    """``values`` as float64: a number of at least zero, or one for each coordinate."""
    import numpy as np  # which the command line starts without

    try:
        array: Array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"{name} must be a number or one number per coordinate, not {shown(values)}"
        ) from None
    if array.ndim > 1 or not (np.isfinite(array) & (array >= 0)).all():
        raise InputError(f"{name} must be finite and at least zero, not {shown(values)}")
    return array


def count(name: str, value: Any, least: int = 1) -> int:
    """``value`` as an int of at least ``least``."""
    if not _is(Integral, value) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, not {shown(value)}")
    return int(value)


def one_of(name: str, value: object, known: Collection[str]) -> None:
    """Raise InputError unless ``value`` is one of the strings ``known``."""
    if not isinstance(value, str) or value not in known:
        raise InputError(f"{name} {shown(value)} is not known: use one of {', '.join(known)}")


def instance(name: str, value: object, kind: str, *attributes: str) -> None:
    """Raise InputError unless ``value`` is an object, not a class, that has all the attributes.

    ``kind`` says what is expected, with its article: "a Loss".
    """
    if isinstance(value, type):
        raise InputError(f"{name}: pass an object, {value.__name__}(...), not the class")
    if not all(hasattr(value, attribute) for attribute in attributes):
        raise InputError(f"{name} must be {kind}, got {type(value).__name__}")


def _is(kind: type, value: object) -> bool:
    """Whether ``value`` is a number of this kind; True and False are not meant as 1 and 0."""
    return isinstance(value, kind) and not isinstance(value, bool)
