"""A run that is killed again and again: each child process is killed, and the next one resumes.

``python tests/killing.py solve|fit FOLDER EVERY KILLS`` prints as JSON how many children were
killed, the most answers that one of them lost, how many had something to lose, and whether the last
one ended with the bits of an undisturbed run.
"""

import hashlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

import fedsplit as fs
from faulty import FaultyChannel, channel_of, channel_to, faulty, fit
from fedsplit.arrays import Array
from fedsplit.channels.channel import Reply, Request
from fedsplit.channels.log import HEAD
from hospitals import people
from problems import problem

Run = Callable[[Path | None, fs.Checkpoint | None], Array]

HANDSHAKE = {"survey", "design_moments", "sums", "fingerprint"}

PAUSE = 0.001
"""Seconds that an answer takes."""


class Logged:
    """A slow channel that writes a byte to a file for every answer after the handshake."""

    free = False
    recorded = True

    def __init__(self, channel: FaultyChannel, log: Path | None) -> None:
        self._channel, self.names = channel, channel.names
        self._log = None if log is None else os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def ask(self, requests: Mapping[int, Request], timeout: float) -> dict[int, Reply]:
        replies = self._channel.ask(requests, timeout)
        if self._log is not None:
            time.sleep(PAUSE)
            first = next(iter(requests.values()))
            # what prepares clients is asked again after a resumption, to compare their data
            if first.question.name() not in HANDSHAKE and first.preparation is None:
                os.write(self._log, b".")
        return replies

    def now(self) -> float:
        return self._channel.now()

    def wait(self, seconds: float) -> None:
        self._channel.wait(seconds)


P, FRAMES = problem("logistic", [30, 25, 40], 4, ridge=1.0), people()


def solve_run(log: Path | None, checkpoint: fs.Checkpoint | None) -> Array:
    clients = faulty(P)
    clients.members.channel = Logged(channel_of(P), log)
    kept = [] if checkpoint is None else [checkpoint]
    result = fs.solve(clients, fs.FedSplit(0.01), rounds=400, tol=0, callbacks=kept)
    return np.concatenate([result.x, result.state.inner.z.ravel(), result.trace.residual])


def fit_run(log: Path | None, checkpoint: fs.Checkpoint | None) -> Array:
    channel, formula = Logged(channel_to(FRAMES), log), "visits ~ age + I(age**2) + hours + ward"
    model = fit(
        channel,
        formula,
        checkpoint=checkpoint,
        family="poisson",
        method="gd",
        ridge=0.1,
        rounds=300,
    )
    return np.concatenate(
        [
            model.params,
            model.estimates.errors,
            model.run.of_rounds.residual,
            [model.deviance],
        ]
    )


RUNS: dict[str, Run] = {"solve": solve_run, "fit": fit_run}


def whole_records(path: Path, handshake: int) -> int:
    """How many records after the handshake are whole; every one but the last must be."""
    content = path.read_bytes() if path.exists() else b""
    at = found = 0
    while at + HEAD <= len(content):
        length = int.from_bytes(content[at + 4 : at + 12], "little")
        payload = content[at + HEAD : at + HEAD + length]
        if len(payload) < length:
            break
        assert hashlib.sha256(payload).digest() == content[at + 12 : at + 44]
        at, found = at + HEAD + length, found + 1
    return max(0, found - handshake)


def child(run: Run, folder: Path, every: int, log: Path, out: Path) -> int:
    """Start a process that begins or goes on with the run."""
    if pid := os.fork():
        return pid
    status = 1
    try:
        resume = (folder / "checkpoint.json").exists()
        np.save(out, run(log, fs.Checkpoint(folder, every=every, resume=resume)))
        status = 0
    finally:
        os._exit(status)


def main(name: str, folder: Path, every: int, kills: int) -> dict[str, object]:
    run, log, out = RUNS[name], folder / "log", folder / "end.npy"
    kept, answers = folder / "kept", folder / "kept" / "answers"
    handshake = {"solve": 1, "fit": 3}[name]
    undisturbed, rng = run(None, None), random.Random(every)
    log.touch()
    lost, at_work, killed = [], 0, 0
    while killed < kills:
        before, begun = whole_records(answers, handshake), log.stat().st_size
        pid = child(run, kept, every, log, out)
        wanted = begun + rng.choice([0, 1, 1, 2, 2, 3])  # 0: perhaps before it has found its place
        while log.stat().st_size < wanted:
            time.sleep(0.0001)
        time.sleep(rng.uniform(0.0, 3 * PAUSE))
        os.kill(pid, signal.SIGKILL)
        if os.waitpid(pid, 0)[1] != signal.SIGKILL:
            raise SystemExit(f"after {killed} kills a run ended by itself, or could not go on")
        killed += 1
        lost.append(before + log.stat().st_size - begun - whole_records(answers, handshake))
        at_work += log.stat().st_size > begun
    ended = os.waitpid(child(run, kept, every, log, out), 0)[1] == 0
    same = ended and np.load(out).tobytes() == undisturbed.tobytes()
    return {"kills": killed, "most lost": max(lost), "at work": at_work, "same bits": bool(same)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))))  # noqa: T201
