"""``fedsplit approve``, and the question that ``fedsplit client`` asks at its terminal."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from fedsplit.errors import InputError
from fedsplit.sites.studies.hashes import read_hash, short
from fedsplit.sites.studies.store import Studies
from fedsplit.texts import printable

LOOK = 0.5
"""Seconds between looks for studies that wait."""

QUESTION = "Approve this study? Type yes or no: "

ANSWERS = {"yes": "approved", "y": "approved", "no": "declined", "n": "declined"}


def state_folder() -> Path:
    """The folder of all clients of this user, by the XDG base directory specification."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "fedsplit"


def approve_command(
    study: Annotated[
        str | None,
        typer.Argument(metavar="[HASH]", help="Hash of a study, or its first digits."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of the client's state; by default those in ~/.local/state/fedsplit.",
        ),
    ] = None,
    decline: Annotated[
        bool,
        typer.Option(
            "--decline", help="Decline the study, also if it was approved before, at any time."
        ),
    ] = False,
) -> None:
    """Approve or decline a study that fedsplit client was asked to take part in.

    HASH is the study's hash or its first digits. Without it, the studies that wait are shown.

    Exit status: 0 done; 2 bad input, such as an unknown study.
    """
    found = [Studies(each) for each in client_folders(folder)]
    if study is None:
        if decline:
            raise InputError("give the hash of the study to decline")
        _show(found)
        return
    beginning = read_hash(study)
    known = [each for each in found if any(name.startswith(beginning) for name in each.hashes())]
    if len(known) != 1:
        where = "no client has" if not known else f"{len(known)} clients have"
        raise InputError(
            f"{where} a study that begins with {short(beginning)}: fedsplit approve lists those "
            "that wait, and --folder says of which client"
        )
    [studies] = known
    name = studies.find(beginning)
    verdict = "declined" if decline else "approved"
    studies.decide(name, verdict, "fedsplit approve")
    typer.echo(f"study {short(name)} is {verdict}")


def client_folders(folder: Path | None) -> list[Path]:
    """The folder of a client, or those of all clients of this user."""
    if folder is not None:
        if not folder.is_dir():
            raise InputError(f"{folder}: there is no such folder; fedsplit client makes it")
        return [folder]
    base = state_folder()
    if not base.is_dir():
        raise InputError(f"{base}: no client has run here; give its folder with --folder")
    return sorted(path for path in base.iterdir() if path.is_dir())


def _show(found: list[Studies]) -> None:
    waiting = 0
    for studies in found:
        for name in studies.pending():
            waiting += 1
            typer.echo(f"{studies.folder.parent}\n{printable(studies.words(name))}")
            typer.echo(f"fedsplit approve {name[:16]} [--decline]\n")
    if not waiting:
        typer.echo("no study waits")


def ask_at_terminal(folder: Path) -> Callable[[], None]:
    """Ask about studies that wait, in the background, where there is a terminal.

    The terminal belongs to this process, and the client's work is done by another: the two meet in
    the client's folder, where ``fedsplit approve`` decides, too.

    Returns
    -------
    callable
        Ends it.
    """
    stop = threading.Event()
    thread = threading.Thread(
        target=_ask_until, args=(Studies(folder), stop), name="approval", daemon=True
    )
    thread.start()
    return stop.set


def has_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def _ask_until(studies: Studies, stop: threading.Event) -> None:
    put_off: set[str] = set()
    while not stop.wait(LOOK):
        for name in studies.pending():
            if name in put_off or stop.is_set():
                continue
            verdict = _asked(studies, name, stop)
            if verdict is None:
                put_off.add(name)
            elif studies.decided(name) is None:
                studies.decide(name, verdict, "terminal")


def _asked(studies: Studies, name: str, stop: threading.Event) -> str | None:
    """What the owner says; None if nothing, or if it was decided elsewhere meanwhile."""
    typer.echo(f"\n{printable(studies.words(name))}", err=True)
    while True:
        typer.echo(QUESTION, err=True, nl=False)
        line = _line(lambda: stop.is_set() or studies.decided(name) is not None)
        if line is None:
            typer.echo("", err=True)
            return None
        if line.strip().lower() in ANSWERS:
            return ANSWERS[line.strip().lower()]


def _line(over: Callable[[], bool]) -> str | None:
    """A line from the terminal; None at its end, or once ``over`` says so.

    ``input`` would hold on to the terminal, and keep this process from ending.
    """
    while not over():
        ready, _, _ = select.select([0], [], [], LOOK)
        if ready:
            read = os.read(0, 4096)
            if not read:
                return None
            return read.decode(errors="replace")
    return None
