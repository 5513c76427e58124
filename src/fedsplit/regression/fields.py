"""Options as fields of a dataclass.

A field has everything that there is to say about an option: type, default, check, description,
group, and its form on the command line. Signatures, docstrings, commands and tables are made of it.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import field, fields
from functools import wraps
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar

Group = Literal["model", "data", "privacy", "run", "network"]
"""What an option is about, in the order in which help texts and tables show the groups."""

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


class Option(NamedTuple):
    """What a field says about its option, apart from type and default.

    Attributes
    ----------
    text : str
        One or two sentences for docstrings, help texts and tables.
    group : Group
        The heading under which it is shown.
    check : callable, optional
        Takes the name and the value, and raises ``InputError`` for a value that cannot be used.
    metavar : str, optional
        What stands for the value in help texts. Without it the option is a flag, if it is boolean,
        and otherwise has no place on the command line.
    flag : str, optional
        The name on the command line, where it is not the field's.
    read : callable, optional
        The value from the text on the command line, where it is not simply of the field's type.
    """

    text: str
    group: Group
    check: Callable[[str, Any], object] | None = None
    metavar: str | None = None
    flag: str | None = None
    read: Callable[[str], object] | None = None


def option(default: T, text: str, group: Group, **details: Any) -> T:
    """A field with this default; ``details`` are the other attributes of ``Option``."""
    return field(default=default, metadata={"option": Option(text, group, **details)})


def options_of(record: Any) -> dict[str, Option]:
    """The options among the fields of a dataclass, by name."""
    return {
        each.name: each.metadata["option"] for each in fields(record) if "option" in each.metadata
    }


def with_options(record: Callable[P, T]) -> Callable[[Callable[[T], R]], Callable[P, R]]:
    """Turn a function of one record into a function of the record's fields.

    The signature and the parameters in the docstring (in place of its line ``<parameters>``) are
    those of the record, and a type checker sees them too.
    """

    def decorate(function: Callable[[T], R]) -> Callable[P, R]:
        signature = inspect.signature(record)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                # Python's own error would name the record's constructor.
                raise TypeError(f"{function.__name__}() {error}") from None
            return function(record(*args, **kwargs))

        result = inspect.signature(function).return_annotation
        vars(call)["__signature__"] = signature.replace(return_annotation=result)
        lines = ["Parameters", "----------"]
        for name, parameter in signature.parameters.items():
            kind = inspect.formatannotation(parameter.annotation).replace("collections.abc.", "")
            text = textwrap.fill(options_of(record)[name].text, 92)
            lines += [f"{name} : {kind}", textwrap.indent(text, "    ")]
        text = inspect.cleandoc(function.__doc__ or "")
        call.__doc__ = text.replace("<parameters>", "\n".join(lines))
        return call

    return decorate
