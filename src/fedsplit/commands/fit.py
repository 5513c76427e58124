"""``fedsplit fit``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsplit import files
from fedsplit.commands.progress import live
from fedsplit.errors import InputError

if TYPE_CHECKING:
    from fedsplit.regression.estimate import Progress


def fit_command(
    data: Annotated[
        list[str],
        typer.Argument(
            help="One file a client (.csv, .tsv, .txt, .jsonl, .json, each also .gz, or .parquet), a glob in quotes, a "
            "folder, a TOML file that names clients by path or query, or one file with --group."
        ),
    ],
    formula: Annotated[
        str | None,
        typer.Option(help='The model, as in "visits ~ age + C(plan) + income"; text columns are categories.'),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="In the place of a formula: this column on all others."),
    ] = None,
    group: Annotated[str | None, typer.Option(help="The column of the one file that says whose row it is.")] = None,
    family: Annotated[
        str, typer.Option(help="gaussian, logistic, poisson, gamma (log link), multinomial or huber.")
    ] = "gaussian",
    ridge: Annotated[float, typer.Option(help="λ of (λ/2)‖coef‖² beside the sum of the losses.")] = 0.0,
    l1: Annotated[float, typer.Option("--l1", help="λ of λ‖coef‖₁ beside the sum of the losses.")] = 0.0,
    elastic_net: Annotated[str | None, typer.Option(metavar="L1,RIDGE", help="Both of these at once.")] = None,
    nonnegative: Annotated[str, typer.Option(metavar="NAME,...", help="Coefficients that must not be negative.")] = "",
    weights: Annotated[str | None, typer.Option(help="Column of precision weights.")] = None,
    offset: Annotated[str | None, typer.Option(help="Column that is added to the linear predictor.")] = None,
    exposure: Annotated[str | None, typer.Option(help="Column that multiplies the mean (poisson, gamma).")] = None,
    no_intercept: Annotated[bool, typer.Option("--no-intercept", help="Without a constant term.")] = False,
    standardize: Annotated[
        bool, typer.Option("--standardize", help="A penalty acts on columns of unit deviation over all clients.")
    ] = False,
    missing: Annotated[
        str,
        typer.Option(help="Missing values: drop their rows, fail, or fill numbers by the mean of all clients."),
    ] = "drop",
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse what could disclose single rows, in the place of a warning.")
    ] = False,
    tol: Annotated[float, typer.Option(help="Proved distance from the pooled fit, in standard errors.")] = 1e-9,
    rounds: Annotated[int, typer.Option(help="The most rounds, 10 or more.")] = 500,
    seed: Annotated[int, typer.Option(help="Seed of methods that draw.")] = 0,
    method: Annotated[str, typer.Option(help="One of fedsplit compare's methods.")] = "fedsplit",
    delta: Annotated[float, typer.Option(help="Huber's δ, in units of the target.")] = 1.345,
    out: Annotated[Path | None, typer.Option(help="Folder for the model, the trace and the page report.html.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object in the place of the table.")] = False,
) -> None:
    """Fit one regression over clients that keep their rows, and print the table that pooling would have given.

    Before the first round clients tell counts, level names and moments, and agree on columns and categories; in the
    rounds they answer with vectors as long as the table; at the end with their information matrix. The certificate says
    how far every coefficient is, at most, from the pooled fit.

    Exit status: 0 done, 1 tolerance not proved or a client without rows, 2 bad input, 130 interrupted.
    """
    from fedsplit.regression.fit import fit  # readers and formulas take a second to import

    if out is not None:
        files.check_writable(out)
    model = fit(
        data if len(data) > 1 else data[0],
        formula,
        target=target,
        group=group,
        family=family,
        ridge=ridge,
        l1=l1,
        elastic_net=None if elastic_net is None else _pair(elastic_net),
        nonnegative=[name.strip() for name in nonnegative.split(",") if name.strip()],
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
        progress=_show if live() else None,
    )
    if out is not None:
        model.write(out)
    typer.echo(json.dumps(model.to_dict(), indent=2, allow_nan=False) if as_json else model.summary())
    if out is not None and not as_json:
        typer.echo(f"\npage: {out / 'report.html'}")
    if not model.converged or (model.n_by_client == 0).any():
        raise typer.Exit(1)


def _pair(text: str) -> tuple[float, float]:
    try:
        l1, ridge = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--elastic-net is two numbers, as in 0.5,1, not {text!r}") from None
    return l1, ridge


def _show(now: Progress) -> None:
    gap = f"{'at most' if now.proved else 'about'} {now.gap:.1e}" if now.gap >= 0 else "not known"
    typer.echo(
        f"round {now.round:4}   gap {gap:<16}   clients {now.answered}/{now.clients}   floats {now.floats:,}", err=True
    )
