"""Constants that are written in a formula, as arguments of functions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsplit.data.formula.syntax import Call, Name, Node, Number, Operation, Text, written
from fedsplit.data.pooled.function import Constant, Options
from fedsplit.data.types import boolean_form, float_form, is_boolean, is_number, number_form
from fedsplit.errors import listed

WORDS: dict[str, Constant] = {
    **dict.fromkeys(("TRUE", "True"), True),
    **dict.fromkeys(("FALSE", "False"), False),
    **dict.fromkeys(("NULL", "None"), None),
    "Inf": float("inf"),
}
"""Words of R and Python; a column of such a name needs backticks."""

MOST_VALUES = 1_000
"""Of a sequence."""

Scalar = str | float | bool


def constant(node: Node) -> Constant:
    """Return the value of a constant; raise ValueError if the tree is not one."""
    match node:
        case Number():
            return node.value
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
    if len(node.args) > len(parameters):
        raise ValueError(f"{node.function}() takes {_known(parameters)}")
    found = dict(zip(parameters, node.args, strict=False))
    for name, value in node.named:
        if name not in parameters or name in found:
            raise ValueError(f"{node.function}() takes {_known(parameters)}, {name} cannot be used")
        found[name] = value
    return found


def options(arguments: dict[str, Node]) -> Options:
    """Return arguments that are constants; raise ValueError if one is not."""
    return {name: constant(node) for name, node in arguments.items()}


def level_at(levels: Sequence[str], wanted: Constant) -> int:
    """Return the place of a level that a formula names: 1, "1" and "01" are the level 1."""
    match wanted:
        case bool():
            forms = [str(wanted)]
        case float() | int():
            forms = [float_form(float(wanted))]
        case str():
            forms = [wanted.strip()]
        case _:
            raise ValueError("a level is one text or number")
    if is_number(forms[0]):
        forms.append(number_form(forms[0]))
    if is_boolean(forms[0]):
        forms.append(boolean_form(forms[0]))
    for form in forms:
        if form in levels:
            return list(levels).index(form)
    raise ValueError(f"{forms[0]} is none of the levels {listed(levels)}")


def _scalar(node: Node) -> Scalar:
    value = constant(node)
    if value is None or isinstance(value, tuple):
        raise ValueError("c() takes numbers and texts")
    return value


def _sequence(node: Call) -> tuple[float, ...]:
    """R's ``seq(from, to, by)`` or ``seq(from, to, length.out=n)``."""
    given = options(bound(node, ("from", "to", "by", "length.out")))
    match given:
        case {"from": float(first), "to": float(last), "by": float(step)} if len(given) == 3:
            # As in R, the last value may be missed by a rounding error.
            count = np.floor((last - first) / step + 1e-10) + 1 if step else np.inf
            if not 1 <= count <= MOST_VALUES:
                raise ValueError(f"seq() has 1 to {MOST_VALUES} values")
            return tuple(first + step * i for i in range(int(count)))
        case {"from": float(first), "to": float(last), "length.out": float(count)} if (
            len(given) == 3 and 2 <= count <= MOST_VALUES
        ):
            return tuple(float(value) for value in np.linspace(first, last, int(count)))
    raise ValueError("write seq(from, to, by) or seq(from, to, length.out=n)")


def _known(parameters: Sequence[str]) -> str:
    return "no arguments" if not parameters else "the arguments " + ", ".join(parameters)
