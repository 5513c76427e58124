"""Functions of single rows that a formula may call, with the values that R gives them."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from fedsplit.arrays import Array


class Function(NamedTuple):
    """A function of numbers.

    Attributes
    ----------
    apply : callable
        Takes arrays (n,) and scalars.
    parameters : tuple of str
        The names of its arguments.
    required : int
        How many of them must be given.
    many : bool
        Whether more arguments, without a name, may follow.
    """

    apply: Callable[..., Any]
    parameters: tuple[str, ...] = ("x",)
    required: int = 1
    many: bool = False


def truth(x: Any) -> Any:
    """Return 1 for a number other than zero, 0 for zero, and NaN for NaN."""
    return np.where(np.isnan(x), np.nan, np.not_equal(x, 0.0))


def both(a: Any, b: Any) -> Any:
    """R's ``a & b``: false if one is, whatever the other is."""
    return np.where(np.equal(a, 0.0) | np.equal(b, 0.0), 0.0, truth(a) * truth(b))


def either(a: Any, b: Any) -> Any:
    """R's ``a | b``: true if one is, whatever the other is."""
    return np.where((truth(a) == 1.0) | (truth(b) == 1.0), 1.0, truth(a) + truth(b))


def negated(a: Any) -> Any:
    """R's ``!a``."""
    return 1.0 - truth(a)


def logarithm(x: Any, base: Any = None) -> Any:
    """R's ``log(x, base)``, exact for powers of 2 and 10."""
    if base is None:
        return np.log(x)
    if np.ndim(base) == 0 and base in (2.0, 10.0):
        return {2.0: np.log2, 10.0: np.log10}[float(base)](x)
    return np.log(x) / np.log(base)


def chosen(test: Any, yes: Any, no: Any) -> Any:
    """R's ``ifelse``; NaN where the condition is."""
    return np.where(np.isnan(test), np.nan, np.where(np.not_equal(test, 0.0), yes, no))


def rounded(x: Any, digits: Any = 0.0) -> Any:
    """R's ``round``: to the nearest number of so many digits, to an even last digit if two are.

    Numbers are compared as they are stored: 0.15 is a little less than 15/100, and becomes 0.1.
    """
    if np.ndim(digits) != 0 or not float(digits).is_integer() or abs(digits) > 300:
        raise ValueError("round() takes a whole number of digits")
    if digits == 0:
        return np.rint(x)
    power = 10.0 ** abs(float(digits))
    # Powers of ten below one are not exact.
    if digits > 0:
        scaled = np.multiply(x, power)
        below, above = np.floor(scaled) / power, np.ceil(scaled) / power
    else:
        scaled = np.divide(x, power)
        below, above = np.floor(scaled) * power, np.ceil(scaled) * power
    to_below, to_above = np.subtract(x, below), np.subtract(above, x)
    even = np.fmod(np.floor(scaled), 2.0) == 0.0
    nearest = np.where((to_below < to_above) | (even & (to_below == to_above)), below, above)
    # A number that has no more digits than this stays as it is.
    with np.errstate(divide="ignore"):
        fine = digits + np.floor(np.log10(np.abs(x))) > 14
    return np.where(fine, x, nearest)


def _folded(function: Callable[[Any, Any], Any]) -> Callable[..., Array]:
    return lambda *values: reduce(function, values)


FUNCTIONS: dict[str, Function] = {
    **{
        name: Function(getattr(np, name))
        for name in (
            *("log2", "log10", "log1p", "exp", "expm1", "sqrt", "abs", "sign"),
            *("sin", "cos", "tan", "sinh", "cosh", "tanh", "floor", "ceil", "trunc"),
        )
    },
    "log": Function(logarithm, ("x", "base")),
    "asin": Function(np.arcsin),
    "acos": Function(np.arccos),
    "atan": Function(np.arctan),
    "ceiling": Function(np.ceil),
    "round": Function(rounded, ("x", "digits")),
    "pmin": Function(_folded(np.minimum), many=True),
    "pmax": Function(_folded(np.maximum), many=True),
    "ifelse": Function(chosen, ("test", "yes", "no"), required=3),
    "as.numeric": Function(np.positive),
}
"""By their names, which ``np.`` may precede."""

DEPENDENT = {
    **dict.fromkeys(("mean", "sum", "median", "sd", "var"), "center(x) or scale(x)"),
    **dict.fromkeys(("min", "max", "quantile", "range", "rank", "ntile"), "cut(x, breaks)"),
    "standardize": "scale(x)",
    **dict.fromkeys(("cr", "cs", "cc", "s", "te", "rcs"), "ns(x, knots=c(...))"),
    "hashed": "C(x)",
    **dict.fromkeys(("lag", "cumsum", "diff", "rev", "sort"), "a column of the file"),
}
"""Functions of other rows, which every client would compute from its own, and what to use."""
