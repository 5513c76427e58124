"""Options as fields of a dataclass.

A field has everything that there is to say about an option: type, default, check, description,
group, and its form on the command line. Signatures, docstrings, commands and tables are made of it.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from functools import wraps
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, get_args

from fedsplit.errors import InputError, listed, nearest

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


def record_in(kind: Any) -> Any:
    """The record among the types that an option can have; None if a text says which."""
    kinds = get_args(kind)
    return next((each for each in kinds if is_dataclass(each) and str not in kinds), None)


def settable(record: Any) -> dict[str, Field[Any]]:
    """The fields that a file can give: flags, those with a form as text, and records of these."""
    return {
        each.name: each
        for each in fields(record)
        if (about := each.metadata.get("option")) is not None
        and (each.type is bool or about.metavar is not None or record_in(each.type))
    }


def record_of(kind: Any, name: str, values: Mapping[str, object]) -> Any:
    """A record from a table of a file, whose keys are names of its fields."""
    known = {each.name: each for each in fields(kind)}
    for key in values:
        if key not in known:
            raise InputError(f"{name} has no {key!r}: {nearest(key, known, 20)}")
    needed = [
        each.name
        for each in known.values()
        if each.default is MISSING and each.default_factory is MISSING
    ]
    if lacking := [each for each in needed if each not in values]:
        raise InputError(f"{name} needs {listed(lacking)} too")
    return kind(**values)


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
