"""``fedsplit server``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsplit import files
from fedsplit.checks import number
from fedsplit.commands.fit import present
from fedsplit.commands.gathering import gather, identified, wanted_clients
from fedsplit.commands.interrupts import discarding, resumable
from fedsplit.commands.keys import check_extra
from fedsplit.commands.options import Json, Resilience, with_fields
from fedsplit.commands.server_view import ServerView
from fedsplit.commands.studies import approved_by_all, keep_study, signed_study, telling_failure
from fedsplit.errors import InputError, listed
from fedsplit.regression.options import FitOptions
from fedsplit.remote.messages import MessageChannel

if TYPE_CHECKING:
    from fedsplit.regression.result.model import Model
    from fedsplit.regression.server.search import Progress
    from fedsplit.remote.https.server import HttpsServer

RETURN = 60.0
"""The most seconds to wait for clients to return to a run that is resumed."""

NOT_HERE = ("group", "na", "decimal", "seed", "method", "engine", "address", "cohorts")
"""Options of ``fit`` that are about clients in this process or on a cluster."""


@with_fields(
    *(each for each in fields(FitOptions) if each.name not in NOT_HERE),
    *(each for each in fields(Resilience) if each.name != "checkpoint"),
)
def server_command(
    clients: Annotated[
        str,
        typer.Option(metavar="N|NAME,...", help="Number of clients to wait for, or their names."),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Folder for the model, its trace, its page and the checkpoint."
        ),
    ],
    as_json: Json = False,
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder made by fedsplit keys: the certificate, and the clients that may join.",
            rich_help_panel="Network",
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Use neither encryption nor keys, for tests on one machine.",
            rich_help_panel="Network",
        ),
    ] = False,
    host: Annotated[
        str,
        typer.Option(
            metavar="HOST",
            help="Address to listen on; by default all, or 127.0.0.1 with --insecure.",
            rich_help_panel="Network",
        ),
    ] = "",
    port: Annotated[
        int,
        typer.Option(
            min=1, max=65535, metavar="N", help="Port to listen on.", rich_help_panel="Network"
        ),
    ] = 8000,
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="How long to wait for the clients before the first round.",
            rich_help_panel="Network",
        ),
    ] = 3600.0,
    metrics: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            metavar="PORT",
            help="Port of 127.0.0.1 for /health and /metrics; off by default.",
            rich_help_panel="Network",
        ),
    ] = None,
    **chosen: Any,
) -> None:
    """Fit one regression with clients in other organisations, which run fedsplit client.

    The server waits for the clients, proposes the study to them (OUT/study.json), and waits until
    the owner of each has approved it. Then it agrees with them on columns and categories, runs the
    rounds, and prints the table and the proof. Clients connect to the server. Only their answers
    leave them, never their rows. The run is kept in OUT/checkpoint until it is done, and can be
    resumed.

    Exit status: 0 done; 1 tolerance not proved, or a client is missing, was removed or has no
    complete row; 2 bad input; 130 or 143 interrupted.
    """
    check_extra()
    from fedsplit.regression.fit import fit_over  # pandas takes a second to import
    from fedsplit.regression.result.table import pooled_summary

    if chosen["resume"] is None:
        chosen["checkpoint"] = out / "checkpoint"
    resilience = Resilience.taken_from(chosen)
    number("wait", wait)
    files.check_writable(out)
    checkpoint = resilience.kept
    assert checkpoint is not None  # either folder is set above
    reported: list[Progress] = []

    def report(now: Progress) -> None:
        reported.append(now)
        view.progress(now)

    patience = resilience.patience
    chosen = _with_whole_formula(chosen)
    options = FitOptions(None, **chosen, patience=patience, checkpoint=checkpoint, progress=report)
    with (
        resumable(checkpoint),
        _opened(keys, insecure, host, port, metrics) as server,
        ServerView(server.clients) as view,
    ):
        if server.warning:
            typer.echo(f"fedsplit: warning: {server.warning}", err=True)
        allowed = None
        if server.allowed is not None:
            allowed = server.allowed.names
        if resilience.resume is not None:
            who = list(checkpoint.about().get("clients", ()))
            gather(server.present, who, len(who), min(wait, RETURN), 0, view.gathered)
        else:
            known, wanted = wanted_clients(clients, allowed)
            least = resilience.min_clients
            who = gather(server.present, known, wanted, wait, least, view.gathered)
        there = _among(who, server.present)
        may = identified(server, there, resilience.min_clients)
        if resilience.resume is None:
            who = [name for name in who if name in may or name not in there]
        there = may
        study, signature = signed_study(options, who, keys, resilience.min_clients)
        keep_study(study, out, resilience.resume is not None)
        proposal = approved_by_all(server, study, signature, there, view)
        view.fits(who)
        present_now = partial(_among, who, server.present)
        with discarding(checkpoint, reported), telling_failure(proposal, present_now):
            model = fit_over(MessageChannel(server, who, study.hash), options)
        proposal.finish(present_now(), model.converged, pooled_summary(model))
    complete = present(model, out, as_json)
    checkpoint.discard()
    if not complete:
        typer.echo(f"fedsplit: {_advice(model)}", err=True)
        raise typer.Exit(1)


def _among(who: Sequence[str], present: Callable[[], Iterable[str]]) -> list[str]:
    """Those of some clients that are connected."""
    found = set(present())
    return [name for name in who if name in found]


def _advice(model: Model) -> str:
    """Why a table is not that of all clients to the tolerance, and what to do about it."""
    if model.removed:
        return (
            f"the table is without {listed(model.removed)}: to have all, mend what is said above, "
            "and fit again into another folder"
        )
    if not model.converged:
        return "the tolerance is not proved: allow more rounds with --rounds, or add a --ridge"
    if model.not_estimable:
        return "some coefficients are not determined by the data: leave their columns out"
    return "a client has no complete row: see the table of clients, or use --missing"


def _with_whole_formula(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the model, with every column named in the formula."""
    from fedsplit.sites.studies.proposing import whole_formula  # as above

    formula = whole_formula(FitOptions(None, **chosen))
    return {**chosen, "formula": formula.text, "target": None}


def _opened(
    keys: Path | None, insecure: bool, host: str, port: int, metrics: int | None
) -> HttpsServer:
    """A server with these keys, or one without keys and TLS."""
    from fedsplit.remote.https.server import HttpsServer  # takes a while to import

    if (keys is None) != insecure:
        raise InputError(
            "give a folder made by fedsplit keys with --keys, or --insecure for a test on one "
            "machine"
        )
    anywhere = "0.0.0.0"
    if insecure:
        anywhere = "127.0.0.1"
    return HttpsServer(host or anywhere, port, keys, metrics=metrics)
