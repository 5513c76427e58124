"""What the benchmarks measure and print with."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple


def seconds(work: Callable[[], object]) -> float:
    """Return how long the work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def side_by_side(works: Sequence[Callable[[], object]], repetitions: int) -> list[float]:
    """Return the median time of each piece of work, run in turns after one warm-up each."""
    return [each.elapsed for each in spent_side_by_side(works, repetitions)]


class Spent(NamedTuple):
    """Seconds by the clock on the wall, and of the processor."""

    elapsed: float
    processor: float


def spent_side_by_side(works: Sequence[Callable[[], object]], repetitions: int) -> list[Spent]:
    """Return the medians of both clocks for each piece of work, as `side_by_side`."""
    for work in works:
        work()
    times: list[list[Spent]] = [[] for _ in works]
    for _ in range(repetitions):
        for work, spent in zip(works, times, strict=True):
            began = time.process_time()
            spent.append(Spent(seconds(work), time.process_time() - began))
    return [Spent(*map(statistics.median, zip(*spent, strict=True))) for spent in times]


def resident(name: str) -> int:
    """Return bytes of this process's memory (Linux): ``VmRSS`` now, ``VmHWM`` at its peak.

    Not getrusage, which would count the peak of the parent, handed on by exec.
    """
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])


def row(*cells: str) -> None:
    """Print a row of a table in Markdown."""
    print("| " + " | ".join(cells) + " |", flush=True)


def head(*cells: str) -> None:
    """Print the head of a table in Markdown."""
    print()
    row(*cells)
    row(*["---"] * len(cells))
