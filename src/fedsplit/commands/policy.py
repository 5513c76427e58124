"""``fedsplit policy``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from itertools import zip_longest
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsplit.commands.help import Command
from fedsplit.commands.options import spelled, with_fields, with_whole_formula
from fedsplit.data.reading import Reading
from fedsplit.errors import InputError
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.regression.options import FitOptions
from fedsplit.texts import printable

if TYPE_CHECKING:
    from fedsplit.data.tables import Source

policy_app = typer.Typer(
    help="Check the rules of a client's owner.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@policy_app.callback()
def _describe() -> None:
    """Check what the rules of a client's owner would allow."""


OF_MODEL = [
    each
    for each in fields(FitOptions)
    if each.metadata["option"].group in ("model", "data")
    and each.name not in ("data", "group", "method", "seed")
]
"""The options of a study's model, and of how a file is read."""


@policy_app.command("check", cls=Command)
@with_fields(*OF_MODEL)
def check_command(
    data: Annotated[str, typer.Argument(show_default=False)],
    policy: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The policy; by default the rules of --strict."),
    ] = None,
    **chosen: Any,
) -> None:
    """Say what a policy would allow for a file, and what not. Nothing leaves this machine.

    DATA is the file that fedsplit client would have, read with the same --na and --decimal. With
    --formula or --target, the model is coded as for a study of this client alone, and the guards
    look at it; at every point that a server asks about they look again. Give the options that
    fedsplit server will have, since --columns, --weights or --missing may decide.

    Exit status: 0 allowed, or no model given; 1 the model would be refused; 2 bad input.
    """
    from fedsplit.data.sources.sources import sources  # pandas takes a second to import
    from fedsplit.sites.studies.policy import read_policy

    rules = Rules.strict()
    if policy is not None:
        rules = read_policy(policy)
    options = _model(chosen)
    reading = Reading(tuple(chosen.get("na") or ()), chosen["decimal"])
    found = sources(data, reading=reading)
    if len(found) != 1:
        raise InputError(f"{data}: a client has one file, this names {len(found)}")
    columns = found[0].names()
    rows = 0
    if columns:
        rows = len(found[0].read(dict.fromkeys(columns[:1], "text")))
    typer.echo(f"{data}: {rows:,} rows, {len(columns)} columns\n")
    _print_allowed(rules, columns, rows)
    if options is not None:
        why = _refusal(found[0], rules, options)
        if why:
            _print("model", f"would be refused: {why}")
            raise typer.Exit(1)
        _print("model", "would be allowed, as far as this file can tell")


def _model(chosen: Mapping[str, Any]) -> FitOptions | None:
    """The model to check; None if none is given."""
    if chosen["formula"] is None and chosen["target"] is None:
        for each in OF_MODEL:
            if each.name in ("na", "decimal"):
                continue
            if chosen.get(each.name, each.default) != each.default:
                raise InputError(f"{spelled(each)} is about a model: give its --formula, too")
        return None
    return FitOptions(None, **with_whole_formula(chosen))


def _print_allowed(rules: Rules, columns: Iterable[str], rows: int) -> None:
    """Print the rules, and what they allow whatever the model is."""
    from fedsplit.sites.studies.policy import denied, in_words

    for title, line in zip_longest(["rules"], in_words(rules), fillvalue=""):
        _print(title, line)
    typer.echo("")
    by_rule: dict[str, list[str]] = {}
    for name in columns:
        by_rule.setdefault(denied(rules, name), []).append(name)
    _print("columns", f"may be used: {', '.join(by_rule.pop('', ['none']))}")
    for rule, names in by_rule.items():
        _print("", f"may not ({rule}): {', '.join(names)}")
    most = rules.most_parameters(rows)
    if rows < rules.rows:
        _print("rows", f"{rows:,} are fewer than {rules.rows}: every model is refused (least_rows)")
    else:
        _print("rows", f"enough for models with up to {most:,} parameters")


def _print(title: str, text: str) -> None:
    """A text under a title, wrapped."""
    margin = " " * 9
    lines = wrap(printable(text), 88, initial_indent=f"{title:<9}", subsequent_indent=margin)
    typer.echo("\n".join(lines))


def _refusal(source: Source, rules: Rules, options: FitOptions) -> str:
    """Why a model of a file would be refused; an empty text if it would not."""
    from fedsplit.channels.channel import LocalChannel
    from fedsplit.channels.members import Members
    from fedsplit.regression.client.dataset import Dataset
    from fedsplit.regression.client.dataset_cohort import DatasetCohort
    from fedsplit.regression.fit import prepare
    from fedsplit.sites.studies.policy import objection
    from fedsplit.sites.studies.proposing import make_study

    members = dict.fromkeys(map(str, range(max(rules.sites, 1))), "")
    why = objection(rules, make_study(options, members, "", None))
    if why:
        return why
    dataset = Dataset(source)
    cohort = DatasetCohort([dataset], rules, not rules.matrices)
    try:
        prepare(Members(LocalChannel(cohort)), options)
    except InputError as error:
        return str(error).removeprefix(f"client {dataset.name}: ")
    return ""
