"""``fedsplit fit``."""

from __future__ import annotations

import csv
import io
import json
import shlex
import warnings
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsplit.commands.interrupts import resumable
from fedsplit.commands.options import Json, PrivacyOptions, Resilience, take, with_fields
from fedsplit.commands.terminal import in_options, live
from fedsplit.errors import NotConverged
from fedsplit.regression.options import FitOptions, Settings
from fedsplit.texts import printable

if TYPE_CHECKING:
    from fedsplit.regression.result.model import Model
    from fedsplit.regression.server.federation import Progress


@with_fields(*fields(FitOptions), *fields(Resilience), *fields(PrivacyOptions))
def fit_command(
    data: Annotated[list[str], typer.Argument(show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the model, its trace and its page."),
    ] = None,
    as_json: Json = False,
    **chosen: Any,
) -> None:
    """Fit one regression over clients that keep their rows, and print the pooled table.

    DATA is one file per client (.csv, .tsv, .txt, .jsonl, .json, each also .gz, .parquet, .xlsx,
    .rds, or a file of SPSS, Stata or SAS), a glob in quotes, a folder, a TOML file that names
    clients by path or query, or one file together with --group.

    Before the first round, clients report counts, the names of categories, and moments. In each
    round they answer with vectors as long as the table and an information matrix, or with vectors
    alone, and a matrix for the proof. The certificate bounds the distance of every coefficient from
    the pooled fit.

    With --dp-epsilon, noise is added to all that leaves a client, and the table is another estimate
    than the pooled fit.

    Exit status: 0 done; 1 tolerance not proved, a coefficient that would grow without bound, or a
    client that was removed or has no complete row; 2 bad input; 130 or 143 interrupted.
    """
    from fedsplit.regression.fit import fit  # pandas takes a second to import
    from fedsplit.regression.result.io import check_folder

    if out is not None:
        check_folder(out)
    resilience = take(Resilience, chosen)
    chosen["dp"] = take(PrivacyOptions, chosen).privacy
    checkpoint = resilience.kept
    progress = None
    if live():
        progress = show
    with resumable(checkpoint), warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConverged)  # the table says so, and the exit status
        model = fit(
            data if len(data) > 1 else data[0],
            **chosen,
            patience=resilience.patience,
            checkpoint=checkpoint,
            progress=progress,
        )
    if out is not None:
        model.write(out)
    done = present(model, out, as_json)
    if model.run.summed and model.settings.dp is None and not as_json:
        typer.echo(f"\na study declares: {printable(declaration(model.settings))}")
    if not done:
        raise typer.Exit(1)


def declaration(settings: Settings) -> str:
    """The options by which a study with secure sums says what this fit has looked up."""
    levels = {column: "|".join(each) for column, each in settings.declared_levels.items()}
    found = {"--types": settings.declared, "--levels": levels}
    return " ".join(
        f"{flag} {shlex.quote(_in_one_line(pairs))}" for flag, pairs in found.items() if pairs
    )


def _in_one_line(pairs: Mapping[str, str]) -> str:
    """Pairs as the options take them: one that has a comma in it is quoted."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(f"{key}={value}" for key, value in pairs.items())
    return text.getvalue()


def present(model: Model, out: Path | None, as_json: bool) -> bool:
    """Print a model, and where its page is.

    Returns whether the tolerance is proved for every coefficient, with the rows of every client.
    """
    if as_json:
        typer.echo(json.dumps(model.to_dict(), indent=2, allow_nan=False))
    else:
        typer.echo(printable(in_options(model.summary())))
        if out is not None:
            typer.echo(f"\npage: {out / 'report.html'}")
    return model.complete


def show(now: Progress) -> None:
    """Print one line for a round."""
    gap = "not known"
    if now.gap >= 0:
        gap = f"{'at most' if now.proved else 'about'} {now.gap:.1e}"
    typer.echo(
        f"round {now.round:4}   gap {gap:<16}   clients {now.answered}/{now.clients}   "
        f"floats {now.floats:,}",
        err=True,
    )
