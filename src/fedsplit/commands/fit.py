"""``fedsplit fit``."""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import fedsplit as fs
from fedsplit.commands.help import Command, application
from fedsplit.commands.interrupts import resumable
from fedsplit.commands.options import CORE, Json, Set, with_fit_options
from fedsplit.commands.terminal import in_options, live, say, wrapped
from fedsplit.errors import InputError, NotConverged
from fedsplit.texts import printable

if TYPE_CHECKING:
    from fedsplit.regression.server.federation import Progress

fit_app = application()


@fit_app.command("fit", cls=Command)
@with_fit_options(*CORE)
def fit_command(
    data: Annotated[list[str], typer.Argument(show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the model, its trace and its page."),
    ] = None,
    as_json: Json = False,
    assignments: Set = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep a checkpoint in this folder, so that the run can be resumed.",
            rich_help_panel="Run",
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Resume the run whose checkpoint is in this folder; the result is the same to "
            "the bit.",
            rich_help_panel="Run",
        ),
    ] = None,
    **chosen: Any,
) -> None:
    """Fit one regression over clients that keep their rows, and print the pooled table.

    Example: fedsplit fit site_*.csv --formula "visits ~ age + C(plan)" --family poisson
    fedsplit fit all.parquet --group hospital --formula "y ~ x" --out result
    fedsplit fit study.toml site_*.csv

    DATA is one file per client (.csv, .tsv, .txt, .jsonl, .json, each also .gz, .parquet, .xlsx,
    .rds, or a file of SPSS, Stata or SAS), a glob in quotes, a folder, a TOML file that names
    clients by path or query, or one file together with --group. A TOML file with a table [model],
    such as a study, gives options of fs.fit; those of the command line come before it.

    Before the first round, clients report counts, the names of categories, and moments. In each
    round they answer with vectors as long as the table and an information matrix, or with vectors
    alone, and a matrix for the proof. The certificate bounds the distance of every coefficient from
    the pooled fit.

    With dp, noise is added to all that leaves a client, and the table is another estimate than the
    pooled fit.

    Exit status: 0 done; 1 tolerance not proved, a coefficient that would grow without bound, or a
    client that was removed or has no complete row; 2 bad input; 130 or 143 interrupted.
    """
    from fedsplit.regression.model_file import with_models

    if out is not None:
        fs.Model.check_folder(out)
    clients, model_options = with_models(data)
    kept = _kept(checkpoint, resume)
    with resumable(kept), warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConverged)  # the table says so, and the exit status
        model = fs.fit(
            clients if len(clients) > 1 else clients[0],
            **{**model_options, **chosen},
            checkpoint=kept,
            progress=show if live() else None,
        )
    if out is not None:
        model.write(out)
    if not present(model, out, as_json):
        raise typer.Exit(1)


def _kept(checkpoint: Path | None, resume: Path | None) -> fs.Checkpoint | None:
    """The checkpoint, to be resumed or new, if there is one."""
    if resume is None:
        return None if checkpoint is None else fs.Checkpoint(checkpoint)
    if checkpoint not in (None, resume):
        raise InputError(
            "--checkpoint and --resume name two folders: a run continues in the folder from "
            "which it is resumed"
        )
    return fs.Checkpoint(resume, resume=True)


def present(model: fs.Model, out: Path | None, as_json: bool) -> bool:
    """Print a model, and where its page is.

    Returns whether the tolerance is proved for every coefficient, with the rows of every client.
    """
    if as_json:
        typer.echo(json.dumps(model.to_dict(), indent=2, allow_nan=False))
    else:
        text = in_options(model.summary())
        if sys.stdout.isatty():
            text = wrapped(text, shutil.get_terminal_size().columns)
        typer.echo(printable(text))
        if out is not None:
            typer.echo(f"\npage: {out / 'report.html'}")
    return model.complete


def show(now: Progress) -> None:
    """Print one line for a round."""
    gap = "not known"
    if now.gap >= 0:
        gap = f"{'at most' if now.proved else 'about'} {now.gap:.1e}"
    say(
        f"round {now.round:4}   gap {gap:<16}   clients {now.answered}/{now.clients}   "
        f"floats {now.floats:,}"
    )
