"""Asynchronous runs on Ray beside synchronous ones, with a worker that sleeps: ``make bench-open``.

Every client is a worker of its own, and sleeps for a while before each answer, the first one for
longer than the others. All runs end with a proof of the same gap. Takes a few minutes, most of
them asleep. Prints Markdown.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fedsplit as fs
from fedsplit import ensembles
from fedsplit.channels.channel import Request
from fedsplit.channels.clients import RemoteClients
from fedsplit.channels.cohort import Fingerprint, ProblemCohort
from fedsplit.channels.members import Members
from fedsplit.channels.ray.cluster import connect
from fedsplit.channels.ray.workers import RayChannel
from fedsplit.methods.method import Method
from measuring import head, row
from open.relaxed import RelaxedFedSplit

CLIENTS = 4
TOL = 1e-6
OTHERS = 0.01
"""Seconds for which the other clients sleep before each answer."""

RUNS: dict[str, tuple[Method[Any], bool]] = {
    "plain FedSplit": (fs.FedSplit(), False),
    "default": (fs.FedSplitInformation(), False),
    "default, asynchronous": (fs.FedSplitInformation(), True),
    "FedSplit relaxed by 0.5, asynchronous": (RelaxedFedSplit(relaxation=0.5), True),
    "DAve-PG, asynchronous": (fs.DAvePG(), True),
}
"""The rows of a table; the first is what the others are compared with."""


class SleepyCohort(ProblemCohort):
    """A client of a problem that sleeps before each answer."""

    def __init__(self, problem: fs.Problem, j: int, pause: float) -> None:
        super().__init__([str(j)], problem.part(range(j, j + 1)).among)
        self._pause = pause

    def answer(self, request: Request) -> Any:
        time.sleep(self._pause)
        return super().answer(request)


@contextmanager
def sleepy(problem: fs.Problem, slow: float) -> Iterator[RemoteClients]:
    """Yield the clients on Ray; the first one sleeps for ``slow`` seconds."""
    connect(None)
    cohorts = [SleepyCohort(problem, j, slow if j == 0 else OTHERS) for j in range(problem.m)]
    channel = RayChannel(cohorts, [list(each.names) for each in cohorts])
    try:
        members = Members(channel, fs.Patience())
        prepared = dict.fromkeys(members.cohorts, Fingerprint())
        keys = dict.fromkeys(members.cohorts, "")
        clients = RemoteClients(members, problem.d, dict(prepared), keys)
        clients.hessians = True
        clients.prepare()
        yield clients
    finally:
        channel.close()


def table(name: str, problem: fs.Problem, slow: float, most: int) -> None:
    """Print the time and the answers of every run on one problem."""
    print(f"\n{name}: {problem.m} clients on Ray, d = {problem.d}. The first sleeps {slow:g} s")
    print(f"before each answer, the others {OTHERS:g} s. Runs end with a proved gap of {TOL:g}.")
    head("run", "seconds", "ratio", "answers of the slow client", "answers of all", "proved")
    best = problem.objective(problem.solution())
    first = 0.0
    with sleepy(problem, slow) as clients:
        for label, (method, asynchronous) in RUNS.items():
            began = time.perf_counter()
            result = fs.solve(clients, method, rounds=most, tol=TOL, asynchronous=asynchronous)
            taken = time.perf_counter() - began
            first = first or taken
            trace = result.trace
            own = sum("0" in (each.latency or {}) for each in trace.rows)
            if result.converged:
                assert problem.objective(result.x) - best <= TOL * result.certificate.scale
            cells = [f"{taken:.1f}", f"{taken / first:.2f}", str(own), str(trace.answered.sum())]
            row(label, *cells, str(result.converged))


def main() -> None:
    """Print a table for each problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slow", type=float, default=0.5, help="seconds of the slow client")
    parser.add_argument("--rounds", type=int, default=1000, help="budget of answers per client")
    options = parser.parse_args()
    spiked = ensembles.spiked(CLIENTS, 10, 60, 30.0).rows
    logistic = ensembles.logistic(CLIENTS, 10, 60, 1.0).rows
    problems = {
        "least squares, κ = 30": fs.Problem(fs.LeastSquares(), spiked),
        "logistic regression": fs.Problem(fs.Logistic(), logistic, ridge=float(CLIENTS)),
    }
    for name, problem in problems.items():
        table(name, problem, options.slow, options.rounds)


if __name__ == "__main__":
    main()
