"""``fedsplit keys``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsplit import files
from fedsplit.errors import InputError

EXTRA = "clients elsewhere need Flower: pip install 'fedsplit[flower]'"

TOLD = """\
{folder}, for a server at {hosts}, valid for {days} days:

  stays with the server   server.crt, server.key, clients/*.pub
  to each client          its own clients/NAME.key, over a safe channel, and ca.crt
  nobody                  ca.key: it could sign other servers, keep it offline

Delete clients/*.key here once they are handed over: {clients}.
"""


def keys_command(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder for the keys; nothing there is written over."),
    ],
    clients: Annotated[str, typer.Option(metavar="NAME,...", help="The clients, one key each.")],
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="A name or address under which clients reach the server; may be repeated."
        ),
    ] = None,
    days: Annotated[
        int, typer.Option(help="For how long the server's certificate is valid.")
    ] = 365,
) -> None:
    """Make the keys of a federation: the server's certificate for TLS, and a key for each client.

    A server with these keys lets only these clients in, and knows each by its key.
    """
    try:
        from fedsplit.remote.keys import make_keys
    except ImportError:
        raise InputError(EXTRA) from None

    names = [name.strip() for name in clients.split(",") if name.strip()]
    hosts = host or ["localhost", "127.0.0.1"]
    files.check_writable(folder)
    make_keys(folder, names, hosts, days)
    typer.echo(
        TOLD.format(
            folder=folder, hosts=", ".join(hosts), days=days, clients=", ".join(names)
        ).rstrip("\n")
    )
