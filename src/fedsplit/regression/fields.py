"""Options as fields of a dataclass.

A field has the type and the default of an option, the docstring of its class what is said of it:
its group, what stands for its value, and its text. Signatures, docstrings, commands, tables, and
the keys of files and of ``--set`` are made of them.
"""

from __future__ import annotations

import csv
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, wraps
from types import NoneType
from typing import (
    Any,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from fedsplit.checks import one_of
from fedsplit.errors import InputError, listed, nearest, shown

Group = Literal["model", "data", "privacy", "run", "network"]
"""What an option is about, in the order in which help texts and tables show the groups."""

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


class Description(NamedTuple):
    """What a docstring says of a parameter."""

    heading: str = "model"  # of the section it is in, in small letters: of an option, its group
    kind: str = ""  # what follows its name: of an option, what stands for the value in help texts
    text: str = ""  # one or two sentences for docstrings, help texts and tables


class Option(NamedTuple):
    """An option: a field of a record, with its description."""

    name: str
    type: Any
    default: Any
    group: str
    metavar: str
    text: str


@cache
def described(record: type) -> dict[str, Description]:
    """The parameters that the docstrings of a class and its bases describe, by name."""
    pattern = re.compile(
        r"^(?P<heading>\w+)\n-+$"
        r"|^(?P<names>\w[\w, ]*?)(?: : (?P<kind>.+))?\n(?P<text>(?: {4}.*\n?)+)",
        re.M,
    )
    parameters = {}
    for each in reversed(record.__mro__):
        heading = ""
        for part in pattern.finditer(inspect.cleandoc(vars(each).get("__doc__") or "")):
            if part["heading"]:
                heading = part["heading"].lower()
                continue
            text = " ".join(part["text"].split())
            for name in part["names"].split(", "):
                parameters[name] = Description(heading, part["kind"] or "", text)
    return parameters


def options_of(record: Any) -> dict[str, Option]:
    """The options that are the fields of a dataclass, by name."""
    about = described(record)
    # docstrings are gone in Python's -OO: options then have no text, and work as before
    return {
        each.name: Option(each.name, each.type, each.default, *about.get(each.name, Description()))
        for each in fields(record)
    }


def record_in(kind: Any) -> Any:
    """The record among the types that an option can have; None if there is none."""
    return next((each for each in get_args(kind) if is_dataclass(each)), None)


def settable(record: Any) -> dict[str, Option]:
    """The options that a text or a file can give: those of a type that is known here."""
    return {
        name: each
        for name, each in options_of(record).items()
        if not isinstance(each.type, str) and each.type is not object
    }


def keys_of(record: Any) -> dict[str, Any]:
    """The type of every key of ``--set``: fields of a record, and as ``dp.epsilon`` of theirs."""
    keys = {}
    for name, each in settable(record).items():
        inner = record_in(each.type)
        if inner is None:
            keys[name] = each.type
        else:
            kinds = get_type_hints(inner)
            keys |= {f"{name}.{part.name}": kinds[part.name] for part in fields(inner)}
    return keys


def _only(kind: Any) -> Any:
    """A type without the None that stands for its default."""
    kinds = [each for each in get_args(kind) if each is not NoneType]
    return kinds[0] if NoneType in get_args(kind) else kind


def check_type(name: str, value: Any, kind: Any, texts: str = "texts, as in ['-9', '.']") -> None:
    """Raise InputError for what is no value of a type; numbers and records have own checks."""
    if value is None and NoneType in get_args(kind):
        return
    kind = _only(kind)
    origin = get_origin(kind)
    if kind is bool:
        if type(value).__name__ != "bool":  # that of NumPy has the name too
            raise InputError(f"{name} must be True or False, not {shown(value)}")
    elif kind is str:
        if not isinstance(value, str):
            raise InputError(f"{name} must be text, not {shown(value)}")
    elif origin is Literal:
        one_of(name, value, get_args(kind))
    elif origin is Sequence:
        listing = isinstance(value, list | tuple | Set)
        if not listing or not all(isinstance(each, str) for each in value):
            raise InputError(f"{name} must be a list of {texts}, not {shown(value)}")
    elif origin is Mapping:
        if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value):
            raise InputError(
                f"{name} must be a dict with names of columns as keys, not {shown(value)}"
            )
        for column, each in value.items():
            check_type(f"{name} of {column}", each, get_args(kind)[1])


def assigned(record: Any, pairs: Iterable[str]) -> dict[str, Any]:
    """The values of fields from texts such as ``ridge=1`` and ``dp.epsilon=0.5``.

    Of a key with a point in it the first part may be left out, where no other key ends so.
    """
    known = keys_of(record)
    given: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        written, mark, text = pair.partition("=")
        ending = [key for key in known if key.endswith(f".{written.strip()}")]
        key = ending[0] if len(ending) == 1 and written.strip() not in known else written.strip()
        if parts := [each for each in known if each.startswith(f"{key}.")]:
            raise InputError(f"--set {key} is a table: its keys are {listed(parts, 20)}")
        if key not in known:
            raise InputError(f"--set: there is no option {key!r}: {nearest(key, known)}")
        if not mark:
            raise InputError(f"--set {key} needs a value, as in --set {key}=VALUE")
        table, _, name = key.rpartition(".")
        place = inner.setdefault(table, {}) if table else given
        if name in place:
            raise InputError(f"--set {key} is given twice")
        place[name] = read_text(f"--set {key}", known[key], text)
    kinds = {name: record_in(each.type) for name, each in settable(record).items()}
    return given | {name: record_of(kinds[name], name, each) for name, each in inner.items()}


def read_text(name: str, kind: Any, text: str) -> Any:
    """The value of a type that a text on the command line stands for."""
    kind = _only(kind)
    kinds = get_args(kind)
    if kind is bool:
        truth = {"true": True, "yes": True, "false": False, "no": False}
        if text.lower() not in truth:
            raise InputError(f"{name} must be true or false, not {text!r}")
        return truth[text.lower()]
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise InputError(f"{name} must be {what}, not {text!r}") from None
    if get_origin(kind) is Mapping:
        inner = get_args(kinds[1])[0] if get_origin(kinds[1]) is Sequence else None
        pairs = _pairs(name, text, numbers=inner is float)
        if inner is None:
            return pairs
        mark = ":" if inner is float else "|"  # levels may have colons in them
        return {
            column: [read_text(f"{name} of {column}", inner, part) for part in value.split(mark)]
            for column, value in pairs.items()
        }
    if get_origin(kind) in (Sequence, tuple):
        parts = (part.strip() for part in text.split(","))
        return [read_text(name, kinds[0], part) for part in parts if part]
    return text


def _pairs(name: str, text: str, numbers: bool) -> dict[str, str]:
    """Pairs as in ``ward=text,age=number``; one that has a comma in it is quoted.

    Names of coefficients, to which numbers belong, may have "=" in them, and so may levels.
    """
    pairs: dict[str, str] = {}
    for part in next(csv.reader([text], skipinitialspace=True), []):
        cut = part.rpartition("=") if numbers else part.partition("=")
        column, mark, value = (each.strip() for each in cut)
        if not mark or not column or not value:
            raise InputError(f"{name} takes COLUMN=..., as in ward=text, not {part!r}")
        if column in pairs:
            raise InputError(f"{name} takes COLUMN=... once for each column, {column} is twice")
        pairs[column] = value
    return pairs


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
            # quoted where the type is not imported
            kind = inspect.formatannotation(parameter.annotation).strip("'")
            text = textwrap.fill(described(record)[name].text, 92)
            lines.append(f"{name} : {kind.replace('collections.abc.', '')}")
            lines.append(textwrap.indent(text, "    "))
        text = inspect.cleandoc(function.__doc__ or "")
        call.__doc__ = text.replace("<parameters>", "\n".join(lines))
        return call

    return decorate
