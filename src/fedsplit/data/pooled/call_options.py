"""The constants in a call of a formula, each read as what a function takes."""

from __future__ import annotations

import math

from fedsplit.data.pooled.function import Constant, Options


def is_given(options: Options, name: str) -> bool:
    """Whether an argument is written, and is not NULL."""
    return options.get(name) is not None


def flag(options: Options, name: str, default: bool) -> bool:
    """TRUE or FALSE."""
    value = options.get(name, default)
    if isinstance(value, bool):
        return value
    raise ValueError(f"{name} must be TRUE or FALSE")


def whole(options: Options, name: str, default: int, lowest: int, highest: int) -> int:
    """A whole number within limits."""
    value = _number(options.get(name, default))
    if value is None or value != math.floor(value) or not lowest <= value <= highest:
        raise ValueError(f"{name} must be a whole number from {lowest} to {highest}")
    return int(value)


def number_or_flag(options: Options, name: str) -> float | bool:
    """A finite number, or TRUE or FALSE; TRUE if it is not written."""
    value = options.get(name, True)
    if isinstance(value, bool):
        return value
    number = _number(value)
    if number is None:
        raise ValueError(f"{name} must be a number, TRUE or FALSE")
    return number


def numbers(options: Options, name: str, infinite: bool = False) -> list[float]:
    """One or more numbers, in increasing order; ``infinite`` if they may be so."""
    found = [_number(each, infinite) for each in _values(options.get(name))]
    known = [each for each in found if each is not None]
    if not known or len(known) < len(found):
        raise ValueError(f"{name} must be numbers, as in {name}=c(1, 2)")
    return sorted(known)


def words(options: Options, name: str) -> list[str]:
    """One or more texts, each another one."""
    found = [str(each) for each in _values(options.get(name)) if isinstance(each, str)]
    if len(set(found)) < len(_values(options.get(name))) or not found:
        raise ValueError(f"{name} must be different words, as in {name}=c('low', 'high')")
    return found


def _values(value: Constant) -> tuple[str | float | bool | None, ...]:
    if isinstance(value, tuple):
        return value
    return (value,)


def _number(value: Constant, infinite: bool = False) -> float | None:
    """None unless it is a number."""
    match value:
        case bool():
            return None
        case int() | float() if math.isfinite(value) or (infinite and not math.isnan(value)):
            return float(value)
    return None
