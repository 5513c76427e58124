"""``fedsplit approve``, and the question that ``fedsplit client`` asks at its terminal."""

from __future__ import annotations

import os
import select
import sys
import termios
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from fedsplit import files
from fedsplit.errors import InputError
from fedsplit.sites.studies.hashes import read_hash, short
from fedsplit.sites.studies.store import Studies, Verdict
from fedsplit.texts import printable

LOOK = 0.5
"""Seconds between looks for studies that wait."""

TRY_AGAIN = 5.0
"""Seconds before another attempt where nobody could be asked, or a decision not be written."""

QUESTION = 'Type "yes {digits}" to approve this study, or "no": '

ASKED = "asked at terminal"
"""The file in a client's folder with the question that waits for an answer."""

DIGITS = 4
"""Of the study's hash, which make a yes one to this study and to no other."""

Folder = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder of the client's state; by default those in ~/.local/state/fedsplit.",
    ),
]


def state_folder() -> Path:
    """The folder of all clients of this user, by the XDG base directory specification."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "fedsplit"


def approve_command(
    study: Annotated[
        str | None,
        typer.Argument(metavar="[HASH]", help="Hash of a study, or its first digits."),
    ] = None,
    folder: Folder = None,
    decline: Annotated[
        bool,
        typer.Option(
            "--decline", help="Decline the study, also if it was approved before, at any time."
        ),
    ] = False,
    allow_removal: Annotated[
        bool,
        typer.Option(
            "--allow-removal",
            help="With secure sums: let the others go on without this client if it is away for "
            "long. The server can then compute what this client alone has sent.",
        ),
    ] = False,
) -> None:
    """Approve or decline a study that fedsplit client was asked to take part in.

    HASH is the study's hash or its first digits, 16 at least. Without it, the pending studies are
    shown. An approval ends with the study's result, and after 30 days at the latest.

    Exit status: 0 done; 2 bad input, such as an unknown study or a folder of no client.
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
    verdict: Verdict = "approved"
    if decline:
        verdict = "declined"
    if decline and allow_removal:
        raise InputError("--allow-removal is for a study that is approved, not declined")
    studies.decide(name, verdict, "fedsplit approve", removal=allow_removal)
    typer.echo(f"study {short(name)} is {verdict}")


def client_folders(folder: Path | None) -> list[Path]:
    """The folder of a client, or those of all clients of this user."""
    if folder is not None:
        check_client_folder(folder)
        return [folder]
    base = state_folder()
    if not base.is_dir():
        raise InputError(f"{base}: no client has run here; give its folder with --folder")
    return sorted(path for path in base.iterdir() if path.is_dir())


def check_client_folder(folder: Path) -> None:
    """Raise InputError for a folder in which no client has ever run."""
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder; fedsplit client makes it")
    if not (folder / "settings").is_dir():
        raise InputError(
            f"{folder}: is not the folder of a client; give the one of fedsplit client --folder"
        )


def _show(found: list[Studies]) -> None:
    waiting = 0
    for studies in found:
        for name in studies.pending():
            waiting += 1
            typer.echo(f"{studies.folder.parent}\n{printable(studies.words(name))}")
            typer.echo(f"fedsplit approve {name[:16]} [--decline]\n")
    if not waiting:
        typer.echo("no study is pending")


def ask_at_terminal(folder: Path) -> Callable[[], None]:
    """Ask about pending studies, in the background, where there is a terminal.

    The terminal belongs to this process, and the client's work is done by another: the two meet in
    the client's folder, where ``fedsplit approve`` decides, too.

    Returns
    -------
    callable
        Ends it.
    """
    stop = threading.Event()
    studies = Studies(folder)
    # Those of before are asked about once the server has proposed them again.
    before = {name: studies.described(name) for name in studies.pending()}
    thread = threading.Thread(
        target=_ask_until, args=(studies, before, stop), name="approval", daemon=True
    )
    thread.start()
    return stop.set


def has_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def open_question(folder: Path) -> str:
    """The question that waits for an answer at the terminal now; empty if there is none."""
    path = folder / ASKED
    if not path.exists():
        return ""
    return path.read_text(encoding="utf-8")


def close_question(folder: Path) -> None:
    """Forget a question that a client which was killed had left open."""
    (folder / ASKED).unlink(missing_ok=True)


def _ask_until(studies: Studies, before: Mapping[str, int], stop: threading.Event) -> None:
    put_off = dict(before)
    told = ""
    while not stop.wait(LOOK):
        try:
            _ask_about_pending(studies, put_off, stop)
        except (OSError, termios.error) as error:  # a full disk, or a terminal that is gone
            text = f"fedsplit client: nobody can be asked about studies now ({error})"
            if text != told:
                with suppress(OSError):
                    typer.echo(text, err=True)
            told = text
            stop.wait(TRY_AGAIN)


def _ask_about_pending(studies: Studies, put_off: dict[str, int], stop: threading.Event) -> None:
    """Ask about each study that waits, unless its question was put off."""
    for name in studies.pending():
        described = studies.described(name)
        if put_off.get(name) == described or stop.is_set():
            continue
        if not decided_at_terminal(studies, name, stop):
            put_off[name] = described


def decided_at_terminal(studies: Studies, name: str, stop: threading.Event) -> bool:
    """Whether the owner has decided about a study, who is asked at the terminal."""
    answer = _asked(studies, name, stop)
    if answer is None:
        return False
    if studies.undecided(name):
        try:
            studies.decide(name, answer.verdict, "terminal", removal=answer.removal)
        except OSError as error:
            raise OSError(f"the answer about {short(name)} is not kept: {error}") from None
    return True


class Typed(NamedTuple):
    """What an owner typed.

    Attributes
    ----------
    verdict : Verdict
    removal : bool
        Whether secure sums may go on without this client.
    """

    verdict: Verdict
    removal: bool = False


def _asked(studies: Studies, name: str, stop: threading.Event) -> Typed | None:
    """What the owner says; None if nothing, or if it was decided elsewhere meanwhile."""
    typer.echo(f"\n{printable(studies.words(name))}", err=True)
    answers = {
        f"yes {name[:DIGITS]}": Typed("approved"),
        f"removal {name[:DIGITS]}": Typed("approved", removal=True),
        "no": Typed("declined"),
    }
    question = QUESTION.format(digits=name[:DIGITS])
    mark = studies.folder.parent / ASKED
    files.write_private(mark, question)
    try:
        while True:
            # Whatever was typed before the question was shown is no answer to it.
            termios.tcflush(0, termios.TCIFLUSH)
            typer.echo(question, err=True, nl=False)
            line = _line(lambda: stop.is_set() or not studies.undecided(name))
            if line is None:
                typer.echo("", err=True)
                return None
            answer = " ".join(line.lower().split())
            if answer in answers:
                return answers[answer]
    finally:
        mark.unlink(missing_ok=True)


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
