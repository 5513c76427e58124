"""``fedsplit keys``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsplit import files
from fedsplit.errors import InputError
from fedsplit.regression.options import names

EXTRA = "clients in other organisations need Flower: pip install 'fedsplit[flower]'"

INSTRUCTIONS = """\
{folder}, for a server at {hosts}, valid for {days} days:

  stays with the server   server.crt, server.key, clients/*.pub
  to each client          its own clients/NAME.key, over a secure channel, and ca.crt
  to nobody               ca.key: it can sign certificates of other servers, keep it offline

Delete clients/*.key here once they are handed over: {clients}."""


def keys_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR")],
    clients: Annotated[
        str, typer.Option(metavar="NAME,...", help="Names of the clients, which get one key each.")
    ],
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="Name or address at which clients reach the server; may be repeated. By default "
            "localhost and 127.0.0.1.",
        ),
    ] = None,
    days: Annotated[
        int, typer.Option(metavar="N", help="Days for which the server's certificate is valid.")
    ] = 365,
) -> None:
    """Make the keys of a federation: the server's certificate for TLS, and one key per client.

    DIR is the folder for the keys; files that are there are not overwritten. A server with these
    keys admits only these clients, and knows each by its key.
    """
    try:
        from fedsplit.remote.keys import make_keys
    except ImportError:
        raise InputError(EXTRA) from None

    wanted = names(clients)
    hosts = host or ["localhost", "127.0.0.1"]
    files.check_writable(folder)
    make_keys(folder, wanted, hosts, days)
    typer.echo(
        INSTRUCTIONS.format(
            folder=folder, hosts=", ".join(hosts), days=days, clients=", ".join(wanted)
        )
    )
