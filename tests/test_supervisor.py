"""A child process that is restarted when it dies, and does not outlive its parent."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from federation import until
from fedsplit.commands.supervisor import BAD_INPUT, NOT_AUTHORISED

SUPERVISOR = """
import sys
from fedsplit.commands.supervisor import supervise
sys.exit(supervise(sys.argv[1:], b"first", b"again", lambda text: print(text, flush=True)))
"""


@contextmanager
def started(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, text=True, **options) as child:
        try:
            yield child
        finally:
            child.kill()


CHILD = """
import os, sys, time
from fedsplit.commands.supervisor import lifeline
line, stop = lifeline()
print(line.decode().strip(), os.getpid(), flush=True)
{}
"""


def supervised(body: str) -> list[str]:
    return [sys.executable, "-c", SUPERVISOR, sys.executable, "-c", CHILD.format(body)]


def alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0]
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "body"),
    [
        (signal.SIGTERM, 143, "stop.wait()"),
        (signal.SIGINT, 130, "stop.wait()"),
        (signal.SIGTERM, 143, "time.sleep(600)"),
        (signal.SIGKILL, -9, "stop.wait()"),
        (signal.SIGKILL, -9, "time.sleep(600)"),
    ],
)
def test_a_process_does_not_outlive_its_supervisor(number: int, status: int, body: str) -> None:
    with started(supervised(body), stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        word, pid = child.stdout.readline().split()
        assert word == "first"
        assert alive(int(pid))
        child.send_signal(number)
        assert child.wait(20) == status
        until(lambda: not alive(int(pid)), 20)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "why"),
    [(70, "status 70"), (-signal.SIGSEGV, "signal 11"), (-signal.SIGTERM, "status 0")],
)
def test_a_process_that_ends_is_started_again_and_one_with_bad_input_is_not(
    status: int, why: str
) -> None:
    body = f"sys.exit({status})" if status >= 0 else f"os.kill(os.getpid(), {-status})"
    body = "if line == b'again\\n': sys.exit(2)\n" + body + "\nstop.wait(); sys.exit(0)"
    done = subprocess.run(supervised(body), capture_output=True, text=True, timeout=60)
    first, told, again = done.stdout.splitlines()
    assert (first.split()[0], again.split()[0], done.returncode) == ("first", "again", 2)
    assert told == f"its process ended ({why}), starting it again in 0.5 s"
    assert done.stderr == ""


def test_the_documented_unit_comes_back_unless_stopped_or_after_bad_input() -> None:
    unit = Path(__file__).parents[1] / "examples/deploy/fedsplit-client.service"
    lines = dict(
        line.split("=", 1)
        for line in unit.read_text(encoding="utf-8").splitlines()
        if line.startswith(("Restart", "StartLimit", "Success"))
    )
    assert lines["Restart"] == "on-failure"
    assert lines["SuccessExitStatus"] == "143"  # of systemctl stop
    assert lines["RestartPreventExitStatus"].split() == [str(BAD_INPUT)]  # not NOT_AUTHORISED
    assert BAD_INPUT != NOT_AUTHORISED
    assert lines["StartLimitIntervalSec"] == "0"


def test_what_the_image_is_built_from_is_listed_and_nothing_else() -> None:
    root = Path(__file__).parents[1]
    lines = (root / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if not line.startswith("#")]
    assert rules[0] == "*"
    kept = {line[1:] for line in rules if line.startswith("!")}
    assert kept == {"LICENSE", "README.md", "pyproject.toml", "src"}
