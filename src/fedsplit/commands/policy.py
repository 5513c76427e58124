"""``fedsplit policy``."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import Annotated

import typer

from fedsplit.commands.help import Command
from fedsplit.commands.terminal import printable
from fedsplit.errors import InputError
from fedsplit.regression.client.guards.rules import Rules

policy_app = typer.Typer(
    help="Check the rules of a client's owner.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@policy_app.callback()
def _describe() -> None:
    """Check what the rules of a client's owner would allow."""


@policy_app.command("check", cls=Command)
def check_command(
    data: Annotated[str, typer.Argument(show_default=False)],
    policy: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The policy; by default the rules of --strict."),
    ] = None,
    formula: Annotated[
        str | None, typer.Option(metavar="FORMULA", help="A model to check, as fedsplit fit has.")
    ] = None,
    family: Annotated[str, typer.Option(metavar="NAME", help="Its family.")] = "gaussian",
) -> None:
    """Say what a policy would allow for a file, and what not. Nothing leaves this machine.

    DATA is the file that fedsplit client would have. With a formula, the model is coded as for a
    study of this client alone, and the guards look at it; at every point that a server asks about
    they look again.

    Exit status: 0 allowed, or no formula given; 1 the model would be refused; 2 bad input.
    """
    from fedsplit.data.sources.sources import sources  # pandas takes a second to import
    from fedsplit.sites.studies.policy import read_policy

    rules = Rules.strict()
    if policy is not None:
        rules = read_policy(policy)
    found = sources(data)
    if len(found) != 1:
        raise InputError(f"{data}: a client has one file, this names {len(found)}")
    columns = found[0].columns()
    rows = 0
    if columns:
        rows = len(found[0].read(dict.fromkeys(list(columns)[:1], "text")))
    typer.echo(f"{data}: {rows:,} rows, {len(columns)} columns\n")
    _print_allowed(rules, columns, rows)
    if formula is not None:
        why = _refusal(data, rules, formula, family)
        if why:
            _print("model", f"would be refused: {why}")
            raise typer.Exit(1)
        _print("model", "would be allowed, as far as this file can tell")


def _print_allowed(rules: Rules, columns: Iterable[str], rows: int) -> None:
    """Print the rules, and what they allow whatever the model is."""
    from fedsplit.sites.studies.policy import denied, in_words

    for line in in_words(rules):
        _print("rule", line)
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


def _refusal(data: str, rules: Rules, formula: str, family: str) -> str:
    """Why a model of a file would be refused; an empty text if it would not."""
    from fedsplit.data.sources.sources import sources
    from fedsplit.regression.client.dataset import Dataset
    from fedsplit.regression.client.dataset_cohort import DatasetCohort
    from fedsplit.regression.client.guards.answered import Answered
    from fedsplit.regression.fit import prepare
    from fedsplit.regression.options import FitOptions
    from fedsplit.remote.channel import LocalChannel
    from fedsplit.remote.members import Members
    from fedsplit.sites.studies.policy import objection
    from fedsplit.sites.studies.proposing import make_study

    options = FitOptions(None, formula, family=family)
    [source] = sources(data)
    members = dict.fromkeys(map(str, range(max(rules.sites, 1))), "")
    why = objection(rules, make_study(options, members, "", None))
    if why:
        return why
    dataset = Dataset(source)
    dataset.answered = Answered(dataset.name, None, partial(dataset.told, rules=rules))
    cohort = DatasetCohort([dataset], rules, not rules.matrices)
    try:
        prepare(Members(LocalChannel(cohort)), options)
    except InputError as error:
        return str(error)
    return ""
