"""``fedsplit server``."""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from fedsplit import files
from fedsplit.checks import number
from fedsplit.commands import options
from fedsplit.commands.fit import present, show
from fedsplit.commands.interrupts import resumable
from fedsplit.commands.keys import EXTRA
from fedsplit.commands.progress import live, printable
from fedsplit.errors import InputError, TooFewClients, listed
from fedsplit.remote.members import Patience
from fedsplit.remote.messages import HELLO, MessageChannel, Transport, read_identity

if TYPE_CHECKING:
    from fedsplit.regression.server.search import Progress
    from fedsplit.remote.flower.server import Hub

LOOK, GREETING, RETURN = 0.25, 30.0, 60.0
"""Seconds between looks at who is there, for a greeting, and for clients to return to a run that is resumed."""


class Present(Protocol):
    """Who is there, by name."""

    def present(self) -> Mapping[str, object]: ...


def server_command(
    clients: Annotated[
        str,
        typer.Option(help="How many clients to wait for, or their names with commas between them."),
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="Folder for the model, the trace, the page report.html and the checkpoint."
        ),
    ],
    formula: options.Formula = None,
    target: options.Target = None,
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
    delta: options.Delta = 1.345,
    keys: Annotated[
        Path | None,
        typer.Option(help="Folder that fedsplit keys made: the certificate, and who may join."),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Without encryption and keys: for tests on one machine."),
    ] = False,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 127.0.0.1 with --insecure where not given.")
    ] = "",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8000,
    wait: Annotated[
        float, typer.Option(help="Seconds to wait for the clients before the first round.")
    ] = 3600.0,
    round_timeout: options.RoundTimeout = 60.0,
    give_up: options.GiveUp = 600.0,
    min_clients: options.MinClients = None,
    checkpoint_every: options.Every = 1,
    resume: options.Resume = None,
    as_json: options.Json = False,
) -> None:
    """Fit one regression with clients in other organisations, each of whom runs fedsplit client.

    Waits until the clients are there, agrees with them on columns and categories, runs the rounds, and ends with the
    table, the proof and a page. Clients dial in; only their answers arrive, never their rows. The run is kept in
    OUT/checkpoint until it is done, and can be resumed.

    Exit status: 0 done, 1 tolerance not proved, or clients missing, removed or without rows, 2 bad input, 130 or 143
    interrupted.
    """
    if importlib.util.find_spec("flwr") is None:
        raise InputError(EXTRA)
    from fedsplit.regression.server.fit import fit_over, make_settings
    from fedsplit.remote.flower.server import Hub  # Flower is an extra, and takes seconds to import

    settings = make_settings(
        family=family, ridge=ridge, l1=l1, elastic_net=options.pair(elastic_net),
        nonnegative=options.names(nonnegative), weights=weights, offset=offset, exposure=exposure,
        intercept=not no_intercept, standardize=standardize, missing=missing, strict=strict, tol=tol, rounds=rounds,
        delta=delta,
    )  # fmt: skip
    patience = Patience(round_timeout, give_up, min_clients)
    number("wait", wait)
    files.check_writable(out)
    kept = options.checkpoint_in(None if resume else out / "checkpoint", resume, checkpoint_every)
    allowed = _allowed(keys, insecure)
    with resumable(kept), _hub(Hub, keys, allowed, host, port) as hub:
        if resume is not None and kept is not None:
            who = list(kept.about().get("clients", ()))
            gather(hub, who, len(who), min(wait, RETURN), least=0)
        else:
            who = gather(hub, *_wanted(clients, allowed), wait, min_clients)
        _check_versions(hub, sorted(set(who) & set(hub.present())))
        began = False

        def report(now: Progress) -> None:
            nonlocal began
            began = True
            if live():
                show(now)

        channel = MessageChannel(hub, who)
        try:
            model = fit_over(channel, formula, target, None, settings, patience, kept, report)
        except InputError:
            if kept is not None and not began:  # a model that cannot be is not worth going on with
                kept.discard()
            raise
    complete = present(model, out, as_json)
    if kept is not None:
        kept.discard()
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
    names = options.names(clients)
    if not names or len(set(names)) < len(names) or re.fullmatch(r"[-+\d.]+", clients.strip()):
        raise InputError(
            f"--clients is a number, or different names with commas between them, not {clients!r}"
        )
    for name in names:
        if allowed is not None and name not in allowed:
            raise InputError(f"--clients: there is no key of {name}, there are {listed(allowed)}")
    return names, len(names)


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
