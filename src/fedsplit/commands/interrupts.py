"""What happens to a command that is stopped from outside."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

import fedsplit as fs
from fedsplit.errors import NotWritten, TooFewClients


class Terminated(BaseException):
    """SIGTERM has arrived."""


def raise_on_sigterm() -> None:
    """Let SIGTERM unwind the program as Ctrl-C does, so that files and processes are closed."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, handler)


@contextmanager
def resumable(checkpoint: fs.Checkpoint | None) -> Iterator[None]:
    """Say how to resume a run that is stopped, where it keeps a checkpoint."""
    try:
        yield
    except (KeyboardInterrupt, Terminated, TooFewClients, NotWritten, OSError) as error:
        what = "interrupted" if isinstance(error, KeyboardInterrupt | Terminated) else "stopped"
        if checkpoint is not None and checkpoint.begun:
            typer.echo(
                f"fedsplit: {what}: resume it with the same command and --resume "
                f"{checkpoint.folder}",
                err=True,
            )
        raise
