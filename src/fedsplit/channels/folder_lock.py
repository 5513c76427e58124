"""One process at a time for the folder of a client's state."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedsplit.errors import InputError

ENDING = 5.0
"""Seconds in which another process that uses the folder may end."""


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock the folder for this process; wait for a process that is about to end."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        until = time.monotonic() + ENDING
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise InputError(
                        f"{folder}: is used by another command of fedsplit: wait for it or stop "
                        "it, or choose another folder"
                    ) from None
                time.sleep(0.1)
        yield
