"""``fedsplit fit``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsplit import files
from fedsplit.commands import options
from fedsplit.commands.interrupts import resumable
from fedsplit.commands.progress import live, printable
from fedsplit.remote.members import Patience

if TYPE_CHECKING:
    from fedsplit.regression.result.model import Model
    from fedsplit.regression.server.search import Progress


def fit_command(
    data: Annotated[
        list[str],
        typer.Argument(
            help="One file a client (.csv, .tsv, .txt, .jsonl, .json, each also .gz, or .parquet), a glob in quotes, a "
            "folder, a TOML file that names clients by path or query, or one file with --group."
        ),
    ],
    formula: options.Formula = None,
    target: options.Target = None,
    group: Annotated[
        str | None, typer.Option(help="The column of the one file that says whose row it is.")
    ] = None,
    family: options.Family = "gaussian",
    ridge: options.Ridge = 0.0,
    l1: options.L1 = 0.0,
    elastic_net: options.ElasticNet = None,
    nonnegative: options.Nonnegative = "",
    weights: options.Weights = None,
    offset: options.Offset = None,
    exposure: options.Exposure = None,
    no_intercept: options.NoIntercept = False,
    standardize: options.Standardize = False,
    missing: options.Missing = "drop",
    strict: options.Strict = False,
    tol: options.Tol = 1e-9,
    rounds: options.Rounds = 500,
    seed: options.Seed = 0,
    method: options.Method = "fedsplit",
    delta: options.Delta = 1.345,
    engine: Annotated[
        str, typer.Option(help="Where clients are: local, in this process, or ray, on a cluster.")
    ] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of the Ray cluster; this machine where not given.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Ray workers; one for each core where not given.")
    ] = None,
    round_timeout: options.RoundTimeout = 60.0,
    give_up: options.GiveUp = 600.0,
    min_clients: options.MinClients = None,
    checkpoint: options.CheckpointFolder = None,
    checkpoint_every: options.Every = 1,
    resume: options.Resume = None,
    out: options.Out = None,
    as_json: options.Json = False,
) -> None:
    """Fit one regression over clients that keep their rows, and print the table that pooling would have given.

    Before the first round clients tell counts, level names and moments, and agree on columns and categories; in the
    rounds they answer with vectors as long as the table; at the end with their information matrix. The certificate says
    how far every coefficient is, at most, from the pooled fit.

    Exit status: 0 done, 1 tolerance not proved, or a client removed or without rows, 2 bad input, 130 interrupted.
    """
    from fedsplit.regression.server.fit import fit  # readers and formulas take a second to import

    if out is not None:
        files.check_writable(out)
    kept = options.checkpoint_in(checkpoint, resume, checkpoint_every)
    with resumable(kept):
        model = fit(
            data if len(data) > 1 else data[0],
            formula,
            target=target,
            group=group,
            family=family,
            ridge=ridge,
            l1=l1,
            elastic_net=options.pair(elastic_net),
            nonnegative=options.names(nonnegative),
            weights=weights,
            offset=offset,
            exposure=exposure,
            intercept=not no_intercept,
            standardize=standardize,
            missing=missing,
            strict=strict,
            tol=tol,
            rounds=rounds,
            seed=seed,
            method=method,
            delta=delta,
            engine=engine,
            address=address,
            cohorts=workers,
            patience=Patience(round_timeout, give_up, min_clients),
            checkpoint=kept,
            progress=show if live() else None,
        )
    if not present(model, out, as_json):
        raise typer.Exit(1)


def present(model: Model, out: Path | None, as_json: bool) -> bool:
    """Write the model where it is wanted, and print it; whether it is all that was asked for."""
    if out is not None:
        model.write(out)
    typer.echo(
        json.dumps(model.to_dict(), indent=2, allow_nan=False)
        if as_json
        else printable(model.summary())
    )
    if out is not None and not as_json:
        typer.echo(f"\npage: {out / 'report.html'}")
    return bool(model.converged and not model.removed and (model.n_by_client > 0).all())


def show(now: Progress) -> None:
    """A line a round."""
    gap = f"{'at most' if now.proved else 'about'} {now.gap:.1e}" if now.gap >= 0 else "not known"
    typer.echo(
        f"round {now.round:4}   gap {gap:<16}   clients {now.answered}/{now.clients}   floats {now.floats:,}",
        err=True,
    )
