"""Which clients a server waits for, and who they say they are."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence

import typer

from fedsplit.errors import InputError, TooFewClients, listed
from fedsplit.regression.options import names
from fedsplit.remote.messages import HELLO, Transport, read_identity
from fedsplit.texts import printable

PRESENCE_POLL_SECONDS = 0.25
"""Seconds between looks at who is connected."""

HELLO_SECONDS = 30.0
"""Seconds that clients have to say who they are."""


def wanted_clients(clients: str, allowed: Sequence[str] | None) -> tuple[list[str], int]:
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


def check_enough(wanted: int, least: int | None) -> None:
    """Raise InputError where a run could not even begin with the clients that it waits for."""
    if least is not None and least > wanted:
        raise InputError(
            f"--min-clients {least} is more than the {wanted} of --clients: lower it, or wait for "
            "more clients"
        )


def gather(
    present: Callable[[], Iterable[str]],
    known: Sequence[str],
    wanted: int,
    wait: float,
    least: int | None,
    report: Callable[[Sequence[str], int, Sequence[str]], object],
) -> list[str]:
    """Wait for clients.

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
    report : callable
        Called with who is there, how many are wanted, and who is missing.

    Returns
    -------
    list of str
        Names of at most ``wanted`` clients, sorted.
    """
    end = time.monotonic() + wait
    while True:
        there = sorted(name for name in present() if name in known or len(known) < wanted)
        missing = []
        if len(known) == wanted:
            missing = [name for name in known if name not in there]
        report(there, wanted, missing)
        if len(there) >= wanted:
            return there[:wanted]
        if time.monotonic() >= end:
            if least is not None and len(there) >= least:
                return there
            who = ""
            if missing:
                who = f" ({listed(missing)} did not)"
            raise TooFewClients(
                f"{len(there)} of {wanted} clients came within {wait:g} seconds{who}: start "
                "fedsplit client there, or wait longer with --wait"
            )
        time.sleep(PRESENCE_POLL_SECONDS)


def identified(transport: Transport, names: Sequence[str], least: int | None) -> list[str]:
    """Ask clients who they are; returns those that can take part.

    A client of another version, or with the name of another, is left out where at least ``least``
    others are there.

    Raises
    ------
    InputError
        Where it cannot be left out.
    """
    replies = transport.send(dict.fromkeys(names, HELLO), HELLO_SECONDS)
    wrong = {}
    for name, (message, _, _) in replies.items():
        if message is None:
            continue  # the handshake waits for it
        try:
            stated = read_identity(message, name).name
        except InputError as error:
            wrong[name] = str(error)
            continue
        if stated != name:
            wrong[name] = f"client {name} calls itself {stated[:64]}: start it with --name {name}"
    rest = [name for name in names if name not in wrong]
    if wrong and (least is None or len(rest) < max(1, least)):
        raise InputError(next(iter(wrong.values())))
    for text in wrong.values():
        typer.echo(printable(f"fedsplit: warning: left out: {text}"), err=True)
    return rest
