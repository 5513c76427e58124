"""What happens to a command that is stopped from outside."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from fedsplit.errors import TooFewClients
from fedsplit.remote.checkpoint import Checkpoint


class Terminated(BaseException):
    """SIGTERM has arrived."""


def raise_on_sigterm() -> None:
    """Let SIGTERM unwind the program as Ctrl-C does, so that files and processes are closed."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, handler)


@contextmanager
def resumable(checkpoint: Checkpoint | None) -> Iterator[None]:
    """Say how to resume a run that is stopped, where it keeps a checkpoint."""
    what = "interrupted"
    try:
        yield
    except (KeyboardInterrupt, Terminated, TooFewClients) as error:
        if isinstance(error, TooFewClients):
            what = "stopped"
        if checkpoint is not None and checkpoint.begun:
            typer.echo(
                f"fedsplit: {what}: resume it with the same command and --resume "
                f"{checkpoint.folder}",
                err=True,
            )
        raise
