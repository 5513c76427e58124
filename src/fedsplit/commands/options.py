"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from fedsplit.errors import InputError
from fedsplit.remote.checkpoint import Checkpoint

Formula: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help='The model, as in "visits ~ age + C(plan) + income"; text columns are categories.'
    ),
]
Target: TypeAlias = Annotated[
    str | None, typer.Option(help="In the place of a formula: this column on all others.")
]
Family: TypeAlias = Annotated[
    str, typer.Option(help="gaussian, logistic, poisson, gamma (log link), multinomial or huber.")
]
Ridge: TypeAlias = Annotated[
    float, typer.Option(help="λ of (λ/2)‖coef‖² beside the sum of the losses.")
]
L1: TypeAlias = Annotated[
    float, typer.Option("--l1", help="λ of λ‖coef‖₁ beside the sum of the losses.")
]
ElasticNet: TypeAlias = Annotated[
    str | None, typer.Option(metavar="L1,RIDGE", help="Both of these at once.")
]
Nonnegative: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME,...", help="Coefficients that must not be negative.")
]
Weights: TypeAlias = Annotated[str | None, typer.Option(help="Column of precision weights.")]
Offset: TypeAlias = Annotated[
    str | None, typer.Option(help="Column that is added to the linear predictor.")
]
Exposure: TypeAlias = Annotated[
    str | None, typer.Option(help="Column that multiplies the mean (poisson, gamma).")
]
NoIntercept: TypeAlias = Annotated[
    bool, typer.Option("--no-intercept", help="Without a constant term.")
]
Standardize: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--standardize", help="A penalty acts on columns of unit deviation over all clients."
    ),
]
Missing: TypeAlias = Annotated[
    str,
    typer.Option(
        help="Missing values: drop their rows, fail, or fill numbers by the mean of all clients."
    ),
]
Strict: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--strict", help="Refuse what could disclose single rows, in the place of a warning."
    ),
]
Tol: TypeAlias = Annotated[
    float, typer.Option(help="Proved distance from the pooled fit, in standard errors.")
]
Rounds: TypeAlias = Annotated[int, typer.Option(help="The most rounds, 10 or more.")]
Seed: TypeAlias = Annotated[int, typer.Option(help="Seed of methods that draw.")]
Method: TypeAlias = Annotated[str, typer.Option(help="One of fedsplit compare's methods.")]
Delta: TypeAlias = Annotated[float, typer.Option(help="Huber's δ, in units of the target.")]
Out: TypeAlias = Annotated[
    Path | None, typer.Option(help="Folder for the model, the trace and the page report.html.")
]
Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON object in the place of the table.")
]
RoundTimeout: TypeAlias = Annotated[
    float, typer.Option(help="Seconds after which a round closes; later answers are dropped.")
]
GiveUp: TypeAlias = Annotated[
    float, typer.Option(help="Seconds after which an absent client is removed.")
]
MinClients: TypeAlias = Annotated[
    int | None,
    typer.Option(
        help="The fewest clients for which the run goes on without those removed; all where not given."
    ),
]
CheckpointFolder: TypeAlias = Annotated[
    Path | None,
    typer.Option("--checkpoint", help="Folder that keeps the run, so that it can be resumed."),
]
Every: TypeAlias = Annotated[
    int,
    typer.Option("--checkpoint-every", min=1, help="Write the checkpoint after so many rounds."),
]
Resume: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="Go on with the run that is kept in this folder, to the same bits."),
]


def pair(text: str | None) -> tuple[float, float] | None:
    """The two numbers of --elastic-net."""
    if text is None:
        return None
    try:
        l1, ridge = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--elastic-net is two numbers, as in 0.5,1, not {text!r}") from None
    return l1, ridge


def names(text: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def checkpoint_in(folder: Path | None, resume: Path | None, every: int) -> Checkpoint | None:
    """The checkpoint that --checkpoint and --resume ask for."""
    if folder is not None and resume is not None and folder != resume:
        raise InputError(
            "--checkpoint and --resume name two folders: a run goes on in the one that it is resumed from"
        )
    if resume is not None:
        return Checkpoint(resume, every=every, resume=True)
    return None if folder is None else Checkpoint(folder, every=every)
