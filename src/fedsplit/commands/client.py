"""``fedsplit client``."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import Annotated, Any

import typer

from fedsplit.commands import client_process
from fedsplit.commands.approving import ask_at_terminal, has_terminal, state_folder
from fedsplit.commands.client_options import ClientNetwork, Data, Decimal, Folder, Na, Name, Privacy
from fedsplit.commands.client_process import Configuration, report
from fedsplit.commands.keys import check_extra
from fedsplit.commands.options import take, with_fields
from fedsplit.commands.supervisor import INTERRUPTED, NOT_AUTHORISED, supervise
from fedsplit.commands.terminal import print_error
from fedsplit.data.reading import Reading, read_codes
from fedsplit.errors import NotAuthorised
from fedsplit.sites.studies.hashes import read_whole_hash


@with_fields(*fields(Privacy), *fields(ClientNetwork))
def client_command(
    server: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address of the server.")],
    data: Data,
    name: Name = None,
    na: Na = "",
    decimal: Decimal = ".",
    folder: Folder = None,
    **chosen: Any,
) -> None:
    """Take part in fits with the rows of a file, which stay on this machine.

    The client connects to a server, which proposes a study. Once its owner has approved that, the
    client answers its questions, and no others. At the start it prints what will leave this
    machine. It runs until it is stopped: it reconnects when the server is away, and is restarted
    when its process dies.

    No rule can promise that nothing is learnt of a person. Sums over several rows are told, and
    they narrow down what each of these rows can be, the more so with every study. Who knows the
    other rows of a sum, or other columns of a row, can work out the rest. That something was
    refused, and how long an answer took, says a little too.

    Exit status: 2 bad input; 75 its key or certificate is not authorised (not issued yet, expired,
    revoked), so that the coordinator has to act before it is started again; 130 interrupted; 143
    terminated.
    """
    check_extra()
    network = take(ClientNetwork, chosen)
    privacy = take(Privacy, chosen)
    name = network.name(name, data)
    try:
        _check(server, name, network, privacy)
    except NotAuthorised as error:
        print_error(error)
        raise typer.Exit(NOT_AUTHORISED) from None
    folder = (folder or state_folder() / name).absolute()
    prompted = privacy.approve == "ask" and has_terminal()
    reading = Reading(tuple(read_codes(na)), decimal)
    chosen_here = Configuration(server, data, name, folder, reading, network, privacy, prompted)
    if prompted:
        ask_at_terminal(folder)
    command = [sys.executable, "-P", "-m", client_process.__name__]
    status = supervise(command, chosen_here.line(), chosen_here.line(restarted=True), report)
    if status == INTERRUPTED:
        if prompted:
            typer.echo(err=True)  # after the question that is on the screen
        report(f"stopped; its studies and its log are kept in {folder}")
    raise typer.Exit(status)


def _check(server: str, name: str, network: ClientNetwork, privacy: Privacy) -> None:
    """Raise InputError, before any row is read, for options and files that cannot be used."""
    if privacy.approve not in ("ask", "always"):
        read_whole_hash(privacy.approve)
    network.endpoint(server, name).tls()
    privacy.rules()
