"""The process of ``fedsplit client`` that reads the rows and answers; it is supervised."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import typer

from fedsplit.commands.approving import close_question
from fedsplit.commands.client_options import ClientNetwork, Privacy
from fedsplit.commands.client_view import View
from fedsplit.commands.supervisor import BAD_INPUT, NOT_AUTHORISED, lifeline
from fedsplit.commands.terminal import print_error
from fedsplit.data.reading import Reading
from fedsplit.errors import InputError, NotAuthorised

CRASHED = 70
"""Exit status of a process that is to be restarted (EX_SOFTWARE of sysexits.h)."""


@dataclass(frozen=True)
class Configuration:
    """What the process is told by its supervisor.

    Attributes
    ----------
    server : str
        HOST:PORT.
    data : str
        The client's file.
    name : str
        Of the client.
    folder : Path
        Of its state; absolute.
    reading : Reading
        How the file is read.
    network : ClientNetwork
    privacy : Privacy
    prompted : bool
        Whether the owner is asked about studies at this terminal.
    restarted : bool
        Whether an earlier process has died.
    """

    server: str
    data: str
    name: str
    folder: Path
    reading: Reading
    network: ClientNetwork
    privacy: Privacy
    prompted: bool
    restarted: bool = False

    def line(self, restarted: bool = False) -> bytes:
        """One line of JSON."""
        return msgspec.json.encode(replace(self, restarted=restarted), enc_hook=str)

    @classmethod
    def read(cls, line: bytes) -> Configuration:
        """From the line."""

        def path(kind: Any, value: str) -> Any:
            return kind(value)

        return msgspec.json.decode(line, type=cls, dec_hook=path)


def report(text: str) -> None:
    """Print a line about the client."""
    typer.echo(f"fedsplit client: {text}", err=True)


def work() -> int:
    """Answer until the supervisor ends this process; returns its exit status."""
    os.umask(0o077)  # what is kept here is for its owner alone
    sys.excepthook = lambda *_: None  # a stack trace could have values of rows in it
    sys.unraisablehook = lambda _: None
    threading.excepthook = lambda _: None
    line, stop = lifeline()
    return status_of(Configuration.read(line), stop)


def status_of(chosen: Configuration, stop: threading.Event) -> int:
    """Answer a server's questions until ``stop`` is set; returns the exit status."""
    try:
        return _answer(chosen, stop)
    except NotAuthorised as error:
        print_error(error)
        return NOT_AUTHORISED
    except (InputError, OSError, ImportError) as error:  # a restart would not help
        print_error(error)
        return BAD_INPUT
    except Exception as error:
        report(f"it failed ({type(error).__name__})")
        return CRASHED


def _answer(chosen: Configuration, stop: threading.Event) -> int:
    from fedsplit.channels.folder_lock import alone
    from fedsplit.remote.https.client import run_client
    from fedsplit.remote.https.logs import quieten

    quieten()
    endpoint = chosen.network.endpoint(chosen.server, chosen.name)
    view = View(str(chosen.folder), chosen.prompted)
    with alone(chosen.folder):  # before anything there is read, or counted anew
        if not chosen.restarted:
            close_question(chosen.folder)
        site = chosen.privacy.site(
            chosen.name,
            chosen.data,
            chosen.folder,
            chosen.reading,
            chosen.network.credentials(),
            view,
            fresh=not chosen.restarted,
        )
        if not chosen.restarted:
            typer.echo(site.terms())
        try:
            run_client(endpoint, site.reply, status=view.line, stop=stop)
        except OSError as error:  # perhaps a full disk, which may pass: the process is restarted
            print_error(error)
            return CRASHED
    return 0


if __name__ == "__main__":
    sys.exit(work())
