"""The options of commands, made from the fields of ``FitOptions``."""

# No `from __future__ import annotations` here: Typer needs the types of the fields.

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, TypeAlias, get_args

import typer

from fedsplit.errors import InputError
from fedsplit.regression.fields import Group, Option, assigned, keys_of, options_of, read_text
from fedsplit.regression.options import FitOptions

CORE = (
    *("formula", "target", "family", "ridge", "l1", "reference"),
    *("group", "weights", "offset", "exposure", "columns", "missing", "types", "levels"),
    *("strict", "secure", "tol", "method", "rounds", "engine"),
)
"""Options of ``fit`` that are options of the command too; the others are keys of ``--set``."""

NAMES = tuple(options_of(FitOptions))
"""All options of ``fit``."""

Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON object instead of the table.")
]

Set: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any other option of fs.fit by its name, as in --set firth=true or --set "
        "dp.epsilon=1; may be repeated. The keys are "
        f"{', '.join(key for key in keys_of(FitOptions) if key not in CORE)}.",
    ),
]


def with_fit_options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace ``**chosen`` in the signature of a command by these options of ``fit``.

    ``chosen`` then has those that a user gave, as ``fit`` takes them. A command that has a
    parameter ``assignments`` of the type ``Set`` is given what its texts say in ``chosen`` too.
    """
    groups = get_args(Group)
    known = options_of(FitOptions)
    shown = sorted((known[name] for name in names), key=lambda each: groups.index(each.group))

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def call(**given: Any) -> None:
            for each in shown:
                if (value := given.pop(each.name)) is None:
                    continue
                if isinstance(value, str):
                    value = read_text(spelled(each), each.type, value)
                given[each.name] = value
            for name, value in assigned(FitOptions, given.pop("assignments", None) or []).items():
                if name in given:
                    raise InputError(f"{name} is given twice, by --{name} and by --set")
                given[name] = value
            command(**given)

        signature = inspect.signature(command, eval_str=True)
        own = [
            each.replace(kind=each.KEYWORD_ONLY)
            for each in signature.parameters.values()
            if each.kind != each.VAR_KEYWORD
        ]
        vars(call)["__signature__"] = signature.replace(parameters=[*map(_parameter, shown), *own])
        return call

    return decorate


def spelled(option: Option) -> str:
    """The name of an option on the command line."""
    return f"--{option.name.replace('_', '-')}"


def _parameter(option: Option) -> inspect.Parameter:
    """An option as Typer reads it from a signature; None if it is not given."""
    kind = option.type if option.type in (bool, int, float) else str
    default = option.default
    text = option.text
    if isinstance(default, str | int | float) and not isinstance(default, bool):
        text += f" [default: {default}]"
    info = typer.Option(
        spelled(option),
        metavar=option.metavar or None,
        help=text,
        show_default=False,
        rich_help_panel=option.group.capitalize(),
    )
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, info],
    )
