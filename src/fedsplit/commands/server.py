"""``fedsplit server``."""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from fedsplit import files
from fedsplit.checks import number
from fedsplit.commands.fit import present, show
from fedsplit.commands.interrupts import resumable
from fedsplit.commands.keys import EXTRA
from fedsplit.commands.options import Json, Resilience, with_fields
from fedsplit.commands.progress import live, printable
from fedsplit.errors import InputError, TooFewClients, listed
from fedsplit.regression.options import FitOptions, names
from fedsplit.remote.messages import HELLO, MessageChannel, Transport, read_identity

if TYPE_CHECKING:
    from fedsplit.regression.server.search import Progress
    from fedsplit.remote.flower.server import Hub

LOOK, GREETING, RETURN = 0.25, 30.0, 60.0
"""Seconds between looks at who is there, for a greeting, and for clients to return to a run that is resumed."""

NOT_HERE = ("group", "seed", "method", "engine", "address", "cohorts")
"""Options of ``fit`` that are about clients in this process or on a cluster."""


class Present(Protocol):
    """Who is there, by name."""

    def present(self) -> Mapping[str, object]: ...


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
    **chosen: Any,
) -> None:
    """Fit one regression with clients in other organisations, which run fedsplit client.

    The server waits for the clients, agrees with them on columns and categories, runs the rounds,
    and prints the table and the proof. Clients connect to the server. Only their answers leave
    them, never their rows. The run is kept in OUT/checkpoint until it is done, and can be resumed.

    Exit status: 0 done; 1 tolerance not proved, or a client is missing, was removed or has no
    complete row; 2 bad input; 130 or 143 interrupted.
    """
    if importlib.util.find_spec("flwr") is None:
        raise InputError(EXTRA)
    # Flower is an extra, and takes seconds to import.
    from fedsplit.regression.server.fit import fit_over
    from fedsplit.remote.flower.server import Hub

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
    options = FitOptions(None, **chosen, patience=patience, checkpoint=checkpoint, progress=report)
    allowed = _allowed(keys, insecure)
    with resumable(checkpoint), _hub(Hub, keys, allowed, host, port) as hub:
        if resilience.resume is not None:
            who = list(checkpoint.about().get("clients", ()))
            gather(hub, who, len(who), min(wait, RETURN), least=0)
        else:
            who = gather(hub, *_wanted(clients, allowed), wait, resilience.min_clients)
        _check_versions(hub, sorted(set(who) & set(hub.present())))
        try:
            model = fit_over(MessageChannel(hub, who), options)
        except InputError:
            if not reported:  # the model is at fault: there is nothing to resume
                checkpoint.discard()
            raise
    complete = present(model, out, as_json)
    checkpoint.discard()
    if not complete:
        raise typer.Exit(1)


def _allowed(keys: Path | None, insecure: bool) -> Mapping[str, bytes] | None:
    """Who may join, by name; None is everybody."""
    if (keys is None) != insecure:
        raise InputError(
            "name a folder of fedsplit keys with --keys, or say --insecure for a test on one machine"
        )
    if keys is None:
        return None
    from fedsplit.remote.keys import read_public_keys

    return read_public_keys(keys)


def _hub(
    make: type[Hub], keys: Path | None, allowed: Mapping[str, bytes] | None, host: str, port: int
) -> Hub:
    if keys is None:
        return make(host or "127.0.0.1", port, None, None, None)
    return make(host or "0.0.0.0", port, keys / "server.crt", keys / "server.key", allowed)


def _wanted(clients: str, allowed: Mapping[str, bytes] | None) -> tuple[list[str], int]:
    """The names of those who may come, as far as they are known, and how many are to."""
    if re.fullmatch(r"[1-9]\d*", clients.strip()):
        if allowed is not None and int(clients) > len(allowed):
            raise InputError(
                f"--clients: {clients} are wanted and there are {len(allowed)} keys: make more"
            )
        return list(allowed or ()), int(clients)
    wanted = names(clients)
    if not wanted or len(set(wanted)) < len(wanted) or re.fullmatch(r"[-+\d.]+", clients.strip()):
        raise InputError(
            f"--clients is a number, or different names with commas between them, not {clients!r}"
        )
    for name in wanted:
        if allowed is not None and name not in allowed:
            raise InputError(f"--clients: there is no key of {name}, there are {listed(allowed)}")
    return wanted, len(wanted)


def gather(
    hub: Present, known: Sequence[str], wanted: int, wait: float, least: int | None
) -> list[str]:
    """Wait for so many clients, with a list of who is there and who is missing; their names in order."""
    end, shown = time.monotonic() + wait, None
    while True:
        there = sorted(name for name in hub.present() if name in known or len(known) < wanted)
        if there != shown:
            typer.echo(printable(_listing(there, known, wanted)), err=True)
            shown = there
        if len(there) >= wanted:
            return there[:wanted]
        if time.monotonic() >= end:
            if least is not None and len(there) >= least:
                return there
            missing = [name for name in known if name not in there]
            who = f" ({listed(missing)} did not)" if len(known) == wanted else ""
            raise TooFewClients(
                f"{len(there)} of {wanted} clients came within {wait:g} seconds{who}: start fedsplit client there, "
                "or wait longer with --wait"
            )
        time.sleep(LOOK)


def _listing(there: Sequence[str], known: Sequence[str], wanted: int) -> str:
    missing = [name for name in known if name not in there] if len(known) == wanted else []
    absent = f"; missing: {', '.join(missing)}" if missing else ""
    return f"clients {len(there)} of {wanted}: {', '.join(there) or 'nobody yet'}{absent}"


def _check_versions(transport: Transport, names: Sequence[str]) -> None:
    for name, (letter, _, _) in transport.send(dict.fromkeys(names, HELLO), GREETING).items():
        if letter is None:
            continue  # the handshake waits for it
        hello = read_identity(letter)
        if hello.name != name:
            raise InputError(
                f"client {name} calls itself {hello.name}: start it with --name {name}"
            )
