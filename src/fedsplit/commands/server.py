"""``fedsplit server``."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsplit import files
from fedsplit.checks import number
from fedsplit.commands.fit import present, show
from fedsplit.commands.interrupts import discarding, resumable
from fedsplit.commands.keys import check_extra
from fedsplit.commands.options import Json, Resilience, with_fields
from fedsplit.commands.studies import approved_by_all, keep_study, signed_study
from fedsplit.commands.terminal import live, printable
from fedsplit.errors import InputError, TooFewClients, listed
from fedsplit.regression.options import FitOptions, names
from fedsplit.remote.messages import HELLO, MessageChannel, Transport, read_identity

if TYPE_CHECKING:
    from fedsplit.regression.server.search import Progress
    from fedsplit.remote.https.server import HttpsServer

POLL = 0.25
"""Seconds between looks at who is connected."""

GREETING = 30.0
"""Seconds that clients have to say who they are."""

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
    columns: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Covariates of --target, or what '.' in the formula stands for: clients do not "
            "tell the names of their columns.",
            rich_help_panel="Model",
        ),
    ] = "",
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
        if live():
            show(now)

    patience = resilience.patience
    chosen = _with_whole_formula(chosen, columns)
    options = FitOptions(None, **chosen, patience=patience, checkpoint=checkpoint, progress=report)
    with resumable(checkpoint), _opened(keys, insecure, host, port, metrics) as server:
        if server.warning:
            typer.echo(f"fedsplit: warning: {server.warning}", err=True)
        allowed = None
        if server.allowed is not None:
            allowed = server.allowed.names
        if resilience.resume is not None:
            who = list(checkpoint.about().get("clients", ()))
            gather(server.present, who, len(who), min(wait, RETURN), least=0)
        else:
            who = gather(server.present, *_wanted(clients, allowed), wait, resilience.min_clients)
        there = [name for name in who if name in server.present()]
        _check_identities(server, there)
        study, signature = signed_study(options, who, keys, resilience.min_clients)
        keep_study(study, out, resilience.resume is not None)
        proposal = approved_by_all(server, study, signature, there)
        with discarding(checkpoint, reported):
            model = fit_over(MessageChannel(server, who, study.hash), options)
        proposal.finish(list(server.present()), model.converged, pooled_summary(model))
    complete = present(model, out, as_json)
    checkpoint.discard()
    if not complete:
        raise typer.Exit(1)


def _with_whole_formula(chosen: Mapping[str, Any], columns: str) -> dict[str, Any]:
    """The options of the model, with every column named in the formula."""
    from fedsplit.regression.server.proposing import whole_formula  # as above

    formula = whole_formula(FitOptions(None, **chosen), names(columns))
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


def _wanted(clients: str, allowed: Sequence[str] | None) -> tuple[list[str], int]:
    """The names of the clients that may come, as far as they are known, and how many must."""
    if re.fullmatch(r"[1-9]\d*", clients.strip()):
        if allowed is not None and int(clients) > len(allowed):
            raise InputError(
                f"--clients: {clients} clients are wanted, but there are keys for {len(allowed)}: "
                "make more keys"
            )
        return list(allowed or ()), int(clients)
    wanted = names(clients)
    if not wanted or len(set(wanted)) < len(wanted) or re.fullmatch(r"[-+\d.]+", clients.strip()):
        raise InputError(
            f"--clients must be a number, or different names separated by commas, not {clients!r}"
        )
    for name in wanted:
        if allowed is not None and name not in allowed:
            raise InputError(f"--clients: there is no key for {name}, only for {listed(allowed)}")
    return wanted, len(wanted)


def gather(
    present: Callable[[], Iterable[str]],
    known: Sequence[str],
    wanted: int,
    wait: float,
    least: int | None,
) -> list[str]:
    """Wait for clients, and print who is there and who is missing whenever that changes.

    Parameters
    ----------
    present : callable
        Gives the names of the clients that are connected.
    known : sequence of str
        Names of clients; others are welcome where these are fewer than ``wanted``.
    wanted : int
        How many clients to wait for.
    wait : float
        Seconds to wait for them.
    least : int or None
        How many are enough when that time is over; None is all.

    Returns
    -------
    list of str
        Names of at most ``wanted`` clients, sorted.
    """
    end = time.monotonic() + wait
    shown = None
    while True:
        there = sorted(name for name in present() if name in known or len(known) < wanted)
        missing = []
        if len(known) == wanted:
            missing = [name for name in known if name not in there]
        if there != shown:
            text = f"clients {len(there)} of {wanted}: {', '.join(there) or 'nobody yet'}"
            if missing:
                text += f"; missing: {', '.join(missing)}"
            typer.echo(printable(text), err=True)
            shown = there
        if len(there) >= wanted:
            return there[:wanted]
        if time.monotonic() >= end:
            if least is not None and len(there) >= least:
                return there
            who = f" ({listed(missing)} did not)" * bool(missing)
            raise TooFewClients(
                f"{len(there)} of {wanted} clients came within {wait:g} seconds{who}: start "
                "fedsplit client there, or wait longer with --wait"
            )
        time.sleep(POLL)


def _check_identities(transport: Transport, names: Sequence[str]) -> None:
    """Raise InputError for a client of another version, or with the name of another."""
    replies = transport.send(dict.fromkeys(names, HELLO), GREETING)
    for name, (message, _, _) in replies.items():
        if message is None:
            continue  # the handshake waits for it
        identity = read_identity(message)
        if identity.name != name:
            raise InputError(
                f"client {name} calls itself {identity.name}: start it with --name {name}"
            )
