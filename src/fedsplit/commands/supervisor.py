"""A process that is started again when it dies, and does not outlive who started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

BAD_INPUT = 2
"""The exit status after which a process is not started again."""

FIRST_PAUSE, LONGEST_PAUSE, WELL = 0.5, 30.0, 60.0
"""Seconds before a new start, doubled from one to the next up to the longest; a process that lives so long is well."""

FAREWELL = 5.0
"""Seconds that a process has to end when it is asked to."""


class _Signal(Exception):
    """Somebody wants this process to end."""


def supervise(
    command: Sequence[str], first: bytes, again: bytes, tell: Callable[[str], object]
) -> int:
    """Run a command for ever, or until its input is bad or this process is told to end; the exit status.

    The command reads a line from its standard input, ``first`` when it starts and ``again`` when it is started anew,
    and has to end when that input does: see ``lifeline``. ``tell`` hears of every new start.
    """
    pause = FIRST_PAUSE
    with _signals():
        try:
            while True:
                began = time.monotonic()
                status = _run(command, first)
                if status == BAD_INPUT:
                    return status
                pause = FIRST_PAUSE if time.monotonic() - began > WELL else pause
                why = f"signal {-status}" if status < 0 else f"status {status}"
                tell(f"its process ended ({why}), starting it again in {pause:g} s")
                time.sleep(pause)
                first, pause = again, min(2 * pause, LONGEST_PAUSE)
        except _Signal as ended:
            return 128 + int(ended.args[0])


def _run(command: Sequence[str], line: bytes) -> int:
    """Run a process to its end; it is ended with this one."""
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        process_group=0,  # Ctrl-C is for this process
    ) as process:
        try:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.write(line + b"\n")
                process.stdin.flush()
            return process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(FAREWELL)
                except subprocess.TimeoutExpired:
                    process.kill()


@contextmanager
def _signals() -> Iterator[None]:
    """Raise ``_Signal`` at the first request to end; what follows while it is obeyed is not heard."""
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        if len(heard) == 1:
            raise _Signal(number)

    before = {number: signal.signal(number, hear) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def lifeline() -> tuple[bytes, threading.Event]:
    """In the process that is run: the line that it is told, and an event that is set when it has to end.

    Where the supervisor is gone and the process does not end by itself, it is ended.
    """
    line, stop = b"", threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    while not line.endswith(b"\n") and (read := os.read(0, 2**16)):
        line += read

    def watch() -> None:
        while os.read(0, 1):
            pass
        stop.set()
        time.sleep(FAREWELL)
        os._exit(1)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
    return line, stop
