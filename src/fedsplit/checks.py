"""What users pass, checked: what, which value, what is allowed."""

from __future__ import annotations

import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any

from fedsplit.errors import InputError


def number(name: str, value: Any, least: float = 0.0, strict: bool = True) -> float:
    """``value`` as a finite float above ``least`` (or at least that, where not strict)."""
    if (
        not _is(Real, value)
        or not math.isfinite(value)
        or value < least
        or (strict and value == least)
    ):
        allowed = "above" if strict else "of at least"
        raise InputError(f"{name} must be a finite number {allowed} {least:g}, not {value!r}")
    return float(value)


def count(name: str, value: Any, least: int = 1) -> int:
    """``value`` as an int of at least ``least``."""
    if not _is(Integral, value) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return int(value)


def one_of(name: str, value: object, known: Collection[str]) -> None:
    """Refuse a value that is not among those known."""
    if not isinstance(value, str) or value not in known:
        raise InputError(f"{name} {value!r} is not known: use one of {', '.join(known)}")


def instance(name: str, value: object, attribute: str) -> None:
    """Refuse a class, or anything without the attribute, where an object was meant."""
    if isinstance(value, type):
        raise InputError(f"{name}: pass an object, {value.__name__}(...), not the class")
    if not hasattr(value, attribute):
        raise InputError(f"{name}: {value!r} is not one")


def _is(kind: type, value: object) -> bool:
    """Whether ``value`` is of this kind of number; True and False are not meant as 1 and 0."""
    return isinstance(value, kind) and not isinstance(value, bool)
