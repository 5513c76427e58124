"""The options of commands, made from the fields of records."""

# No `from __future__ import annotations` here: Typer needs the types of the fields.

import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass
from dataclasses import fields as dataclass_fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar, get_args

import typer

from fedsplit.channels.checkpoint import Checkpoint
from fedsplit.channels.members import Patience
from fedsplit.errors import InputError
from fedsplit.regression.client.privacy import Privacy, read_ranges
from fedsplit.regression.fields import Group, Option, option, options_of
from fedsplit.regression.options import FitOptions

T = TypeVar("T")

NO_TLS = "Use neither encryption nor keys, for tests on one machine."

Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON object instead of the table.")
]


@dataclass(frozen=True, kw_only=True)
class Resilience:
    """How a run deals with absent clients, and with being stopped."""

    round_timeout: float = option(
        60.0,
        "Seconds after which a round of remote clients closes; later answers are dropped.",
        "run",
        metavar="SECONDS",
    )
    give_up: float = option(
        600.0, "Seconds after which an absent client is removed.", "run", metavar="SECONDS"
    )
    min_clients: int | None = option(
        None,
        "Fewest clients with which the run continues after removals; all of them by default.",
        "run",
        metavar="N",
    )
    checkpoint: Path | None = option(
        None,
        "Keep a checkpoint in this folder, so that the run can be resumed.",
        "run",
        metavar="DIR",
    )
    checkpoint_every: int = option(
        1, "Number of rounds between writes of the checkpoint.", "run", metavar="N"
    )
    resume: Path | None = option(
        None,
        "Resume the run whose checkpoint is in this folder; the result is the same to the bit.",
        "run",
        metavar="DIR",
    )

    @property
    def patience(self) -> Patience:
        """How long to wait for clients."""
        return Patience(self.round_timeout, self.give_up, self.min_clients)

    @property
    def kept(self) -> Checkpoint | None:
        """The checkpoint, to be resumed or new, if there is one."""
        if self.resume is None:
            if self.checkpoint is None:
                return None
            return Checkpoint(self.checkpoint, every=self.checkpoint_every)
        if self.checkpoint not in (None, self.resume):
            raise InputError(
                "--checkpoint and --resume name two folders: a run continues in the folder from "
                "which it is resumed"
            )
        return Checkpoint(self.resume, every=self.checkpoint_every, resume=True)


@dataclass(frozen=True, kw_only=True)
class PrivacyOptions:
    """Differential privacy on the command line: the fields of ``fs.Privacy``."""

    dp_epsilon: float | None = option(
        None,
        "ε of differential privacy for all answers together. It needs the next three options too.",
        "privacy",
        metavar="E",
    )
    dp_delta: float | None = option(None, "δ of differential privacy.", "privacy", metavar="D")
    dp_clip: float | None = option(
        None,
        "Length at which rows of the design, in their declared units, are scaled down.",
        "privacy",
        metavar="R",
    )
    dp_rounds: int | None = option(
        None, "Number of questions, among which ε and δ are divided.", "privacy", metavar="T"
    )
    dp_score: float | None = option(
        None,
        "Bound on the residual |φ'| of a row, where the family has none.",
        "privacy",
        metavar="C",
    )
    dp_weight: float | None = option(
        None,
        "Bound on the weight φ'' of a row, where the family has none.",
        "privacy",
        metavar="W",
    )
    dp_ranges: Mapping[str, tuple[str, str]] | None = option(
        None,
        "Ranges of columns of the design, which are scaled to them; values outside are moved in.",
        "privacy",
        metavar="COEFFICIENT=LOW:HIGH,...",
        read=read_ranges,
    )
    dp_site_rows: int | None = option(
        None,
        "Protect whole clients of up to so many rows, in the place of one row.",
        "privacy",
        metavar="N",
    )
    dp_colluding: int = option(
        0,
        "With secure sums, how many clients may tell the server their share of the noise.",
        "privacy",
        metavar="N",
    )
    dp_seed: int | None = option(
        None, "Seed of simulated noise, which gives no privacy.", "privacy", metavar="N"
    )

    @property
    def privacy(self) -> Privacy | None:
        """What ``fit`` takes; None if no option was given."""
        given = {each.name: getattr(self, each.name) for each in dataclass_fields(self)}
        if all(given[each.name] == each.default for each in dataclass_fields(self)):
            return None
        needed = ("dp_epsilon", "dp_delta", "dp_clip", "dp_rounds")
        lacking = [name for name in needed if given[name] is None]
        if lacking:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in lacking)
            raise InputError(f"differential privacy needs {flags} too")
        return Privacy(**{name.removeprefix("dp_"): value for name, value in given.items()})


def take(record: type[T], chosen: dict[str, Any]) -> T:
    """Take the options of a record out of those of a command."""
    return record(**{name: chosen.pop(name) for name in options_of(record) if name in chosen})


def with_whole_formula(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a model between organisations, with every column named in the formula."""
    from fedsplit.federation.regression import whole_formula  # pandas takes a second to import

    formula = whole_formula(FitOptions(None, **chosen))
    return {**chosen, "formula": formula.text, "target": None}


def with_fields(
    *fields: Field[Any],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace ``**chosen`` in the signature of a command by the options among these fields.

    ``chosen`` then has their values, as the record of the fields takes them. An option whose text
    needs to be read and is not given is left out, so that the record's own default holds.
    """
    groups = get_args(Group)
    shown = [each for each in fields if "option" in each.metadata and on_command_line(each)]
    shown.sort(key=lambda each: groups.index(each.metadata["option"].group))
    readers = {each.name: each.metadata["option"].read for each in shown}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def call(**given: Any) -> None:
            for name, read in readers.items():
                if read is not None and (text := given.pop(name)) is not None:
                    given[name] = read(text)
            command(**given)

        signature = inspect.signature(command, eval_str=True)
        own = [each for each in signature.parameters.values() if each.kind != each.VAR_KEYWORD]
        vars(call)["__signature__"] = signature.replace(
            parameters=[*own, *(_parameter(each) for each in shown)]
        )
        return call

    return decorate


def on_command_line(field: Field[Any]) -> bool:
    """Whether an option can be given on the command line."""
    return field.type is bool or field.metadata["option"].metavar is not None


def spelled(field: Field[Any]) -> str:
    """The name of an option on the command line; a flag that is on by default can be negated."""
    name = field.metadata["option"].flag or f"--{field.name.replace('_', '-')}"
    if field.default is True:
        return f"{name}/--no-{name[2:]}"
    return name


def _parameter(field: Field[Any]) -> inspect.Parameter:
    """An option as Typer reads it from a signature."""
    about: Option = field.metadata["option"]
    kind, default = field.type, field.default
    if about.read is not None:
        kind, default = str | None, None
    info = typer.Option(
        spelled(field),
        metavar=about.metavar,
        help=about.text,
        rich_help_panel=about.group.capitalize(),
    )
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, info],
    )
