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
    """Let SIGTERM unwind the program as ctrl-C does, so that files are closed and processes ended."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, handler)


@contextmanager
def resumable(checkpoint: Checkpoint | None) -> Iterator[None]:
    """Say how to go on, where a run that keeps a checkpoint is stopped."""
    try:
        yield
    except (KeyboardInterrupt, Terminated, TooFewClients) as error:
        if checkpoint is not None and checkpoint.begun:
            what = "stopped" if isinstance(error, TooFewClients) else "interrupted"
            typer.echo(
                f"fedsplit: {what}: go on with the same command and --resume {checkpoint.folder}",
                err=True,
            )
        raise
