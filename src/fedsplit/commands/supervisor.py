"""Run a child process: restart it when it dies, stop it with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from fedsplit.commands.interrupts import Terminated, raise_on_sigterm

BAD_INPUT = 2
"""Exit status of a child that a restart would not help."""

NOT_AUTHORISED = 75
"""Exit status of a client that the coordinator has to authorise first (EX_TEMPFAIL of sysexits.h):
a service manager may start it again after a while."""

INTERRUPTED = 130
"""Exit status after Ctrl-C."""

FIRST_PAUSE = 0.5
"""Seconds before a restart; every further restart doubles them."""

LONGEST_PAUSE = 30.0
"""The most seconds before a restart."""

HEALTHY = 60.0
"""A child that has run for this many seconds has the first pause again when it dies."""

GRACE = 5.0
"""Seconds that a child has to end when it is asked to."""


def supervise(
    command: Sequence[str], first: bytes, again: bytes, report: Callable[[str], object]
) -> int:
    """Run a command until a restart would not help it, or this process is asked to end.

    Parameters
    ----------
    command : sequence of str
        The child. It has to call ``lifeline``, and to end when that says so.
    first, again : bytes
        The line that the child reads from its standard input: at its first start, and after a
        restart.
    report : callable
        Called with a text before every restart.

    Returns
    -------
    int
        The exit status for this process.
    """
    raise_on_sigterm()
    line = first
    pause = FIRST_PAUSE
    try:
        while True:
            began = time.monotonic()
            status = _run(command, line)
            if status in (BAD_INPUT, NOT_AUTHORISED):
                return status
            if time.monotonic() - began > HEALTHY:
                pause = FIRST_PAUSE
            cause = f"signal {-status}" if status < 0 else f"status {status}"
            report(f"its process ended ({cause}), starting it again in {pause:g} s")
            time.sleep(pause)
            line = again
            pause = min(2 * pause, LONGEST_PAUSE)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Terminated:
        return 143


def _run(command: Sequence[str], line: bytes) -> int:
    """Run a child to its end, and end it where this process has to end first."""
    # The child imports what this process would, whatever the current folder is by then.
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        process_group=0,  # so that Ctrl-C reaches this process alone
    ) as child:
        try:
            assert child.stdin is not None
            with suppress(BrokenPipeError):
                child.stdin.write(line + b"\n")
                child.stdin.flush()
            return child.wait()
        finally:
            if child.poll() is None:
                # This process is ending: another signal must not keep it from ending the child.
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, signal.SIG_IGN)
                child.terminate()
                try:
                    child.wait(GRACE)
                except subprocess.TimeoutExpired:
                    child.kill()


def lifeline() -> tuple[bytes, threading.Event]:
    """In the child: the line of its parent, and an event that is set when it has to end.

    The parent holds the other end of the child's standard input, which therefore closes when the
    parent ends in any way at all. A child that does not end by itself then is ended.
    """
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    line = b""
    while not line.endswith(b"\n") and (read := os.read(0, 2**16)):
        line += read

    def watch() -> None:
        while os.read(0, 1):
            pass
        stop.set()
        time.sleep(GRACE)
        os._exit(1)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
    return line, stop
