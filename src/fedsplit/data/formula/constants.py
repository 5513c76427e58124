"""Constants that are written in a formula, and how the arguments of functions are read of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeGuard

import numpy as np

from fedsplit.data.formula.syntax import Call, Name, Node, Number, Operation, Text, written
from fedsplit.data.types import FORMS, float_form, is_boolean, is_number, number_form
from fedsplit.errors import listed

Scalar: TypeAlias = str | float | bool

Constant: TypeAlias = Scalar | tuple[Scalar, ...] | None
"""A value that is written in a formula: ``"a"``, ``2``, ``TRUE``, ``NULL`` or ``c(1, 2)``."""

Options: TypeAlias = Mapping[str, Constant]
"""Arguments of a call, by name; those that are not written are absent."""

WORDS: dict[str, Constant] = {
    **dict.fromkeys(("TRUE", "True"), True),
    **dict.fromkeys(("FALSE", "False"), False),
    **dict.fromkeys(("NULL", "None"), None),
    "Inf": float("inf"),
}
"""Words of R and Python; a column of such a name needs backticks."""


def constant(node: Node) -> Constant:
    """Return the value of a constant; raise ValueError if the tree is not one."""
    match node:
        case Number(text):
            return float(text)
        case Text(value):
            return value
        case Name(name, quoted=False) if name in WORDS:
            return WORDS[name]
        case Operation("-" | "+" as sign, [Number() | Name() as operand]):
            match constant(operand):
                case float(number):
                    return float(f"{sign}1") * number
        case Call("c", args, []):
            return tuple(_scalar(arg) for arg in args)
        case Call("seq"):
            return _sequence(node)
    raise ValueError(f"{written(node)} must be a constant, such as 2, 'a', TRUE or c(1, 2)")


def bound(node: Call, parameters: Sequence[str]) -> dict[str, Node]:
    """Return the arguments of a call by the names of its parameters."""
    known = "the arguments " + ", ".join(parameters) if parameters else "no arguments"
    if len(node.args) > len(parameters):
        raise ValueError(f"{node.function}() takes {known}")
    arguments = dict(zip(parameters, node.args, strict=False))
    for name, value in node.named:
        if name not in parameters or name in arguments:
            raise ValueError(f"{node.function}() takes {known}, {name} cannot be used")
        arguments[name] = value
    return arguments


def options(arguments: dict[str, Node]) -> Options:
    """Return arguments that are constants; raise ValueError if one is not."""
    return {name: constant(node) for name, node in arguments.items()}


def flag(given: Options, name: str, default: bool) -> bool:
    """Read TRUE or FALSE."""
    value = given.get(name, default)
    if isinstance(value, bool):
        return value
    raise ValueError(f"{name} must be TRUE or FALSE")


def whole(given: Options, name: str, default: int, lowest: int, highest: int) -> int:
    """Read a whole number within limits."""
    value = given.get(name, default)
    if not _is_number(value) or not lowest <= value <= highest or value != math.floor(value):
        raise ValueError(f"{name} must be a whole number from {lowest} to {highest}")
    return int(value)


def number_or_flag(given: Options, name: str) -> float | bool:
    """Read a finite number, or TRUE or FALSE; TRUE if it is not written."""
    value = given.get(name, True)
    if isinstance(value, bool) or (_is_number(value) and math.isfinite(value)):
        return value
    raise ValueError(f"{name} must be a number, TRUE or FALSE")


def numbers(given: Options, name: str, infinite: bool = False) -> tuple[float, ...] | None:
    """Read one or more numbers in increasing order, if there are any; some may be infinite."""
    values = _values(given, name)
    if values is None:
        return None
    read = [float(value) for value in values if _is_number(value)]
    if not values or len(read) < len(values) or not (infinite or all(map(math.isfinite, read))):
        raise ValueError(f"{name} must be numbers, as in {name}=c(1, 2)")
    return tuple(sorted(read))


def words(given: Options, name: str) -> tuple[str, ...] | None:
    """Read one or more texts, all different, if there are any."""
    values = _values(given, name)
    if values is None:
        return None
    read = [value for value in values if isinstance(value, str)]
    if not values or len(set(read)) < len(values):
        raise ValueError(f"{name} must be different words, as in {name}=c('low', 'high')")
    return tuple(read)


def level_at(levels: Sequence[str], wanted: Constant) -> int:
    """Return the place of a level that a formula names: 1, "1" and "01" are the level 1."""
    if wanted is None or isinstance(wanted, tuple):
        raise ValueError("a level is one text or number")
    text = float_form(wanted) if isinstance(wanted, float) else str(wanted).strip()
    forms = [text]
    if is_number(text):
        forms.append(number_form(text))
    if is_boolean(text):
        forms.append(FORMS["boolean"](text))
    for form in forms:
        if form in levels:
            return list(levels).index(form)
    raise ValueError(f"{text} is none of the levels {listed(levels)}")


def _values(given: Options, name: str) -> tuple[Scalar, ...] | None:
    value = given.get(name)
    return value if value is None or isinstance(value, tuple) else (value,)


def _is_number(value: object) -> TypeGuard[float]:
    """Return whether a constant is a number, infinite ones included, and no boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _scalar(node: Node) -> Scalar:
    value = constant(node)
    if value is None or isinstance(value, tuple):
        raise ValueError("c() takes numbers and texts")
    return value


def _sequence(node: Call, most: int = 1_000) -> tuple[float, ...]:
    """Return R's ``seq(from, to, by)`` or ``seq(from, to, length.out=n)``, of at most 1000."""
    given = options(bound(node, ("from", "to", "by", "length.out")))
    match given:
        case {"from": float(first), "to": float(last), "by": float(step)} if len(given) == 3:
            # As in R, the last value may be missed by a rounding error.
            count = np.floor((last - first) / step + 1e-10) + 1 if step else np.inf
            if not 1 <= count <= most:
                raise ValueError(f"seq() has 1 to {most} values")
            return tuple(first + step * i for i in range(int(count)))
        case {"from": float(first), "to": float(last), "length.out": float(count)} if (
            len(given) == 3 and 2 <= count <= most
        ):
            return tuple(float(value) for value in np.linspace(first, last, int(count)))
    raise ValueError("write seq(from, to, by) or seq(from, to, length.out=n)")
