"""Computing the paper's experiments."""

from __future__ import annotations

import hashlib
import inspect
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import replace
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any, TypeAlias

from fedsplit import files
from fedsplit.checks import one_of
from fedsplit.paper.experiment import Experiment, Measurements, load
from fedsplit.paper.experiments import EXPERIMENTS, is_open, named, open_questions
from fedsplit.paper.report import write_report
from fedsplit.threads import WORKERS
from fedsplit.version import __version__

Progress: TypeAlias = Callable[[str, float, float], None]
"""Called as ``progress(figure, share, gap)``: how much of the figure is done, and F(x) - F*."""


def select(names: Sequence[str]) -> list[Experiment]:
    """Return the experiments of these names, the paper's if there is no name.

    The name ``open`` stands for those about what the paper leaves open.
    """
    known = dict(EXPERIMENTS)
    if any(is_open(name) for name in names):
        known |= open_questions()
    for name in names:
        one_of("figure", name, (*known, "open"))
    chosen = set(names) if names else set(EXPERIMENTS)
    return [
        each
        for name, each in known.items()
        if name in chosen or ("open" in chosen and is_open(name))
    ]


def reproduce(
    experiments: Sequence[Experiment],
    out: Path,
    command: str,
    force: bool = False,
    progress: Progress = lambda name, share, gap: None,
) -> dict[str, float]:
    """Compute experiments, then write the report, with the command that asks for it, to ``out``.

    What has been computed already, from the same settings by the same version, is used again
    unless ``force``. Each experiment is saved as soon as it is complete, so that an interrupted run
    can go on. Returns the seconds that each experiment took, of those computed now.
    """
    files.check_writable(out)
    (out / "data").mkdir(parents=True, exist_ok=True)
    missing = []
    for experiment in experiments:
        saved = load(out / "data" / experiment.name)
        if force or saved is None or saved.key != key_of(experiment):
            missing.append(experiment)
        else:
            progress(experiment.name, 1.0, 0.0)
    seconds = {}
    for experiment, measured in _compute(missing, progress):
        replace(measured, key=key_of(experiment)).save(out / "data" / experiment.name)
        seconds[experiment.name] = measured.seconds
    write_report(out, command)
    return seconds


def key_of(experiment: Experiment) -> str:
    """Return a hash of all that saved measurements must have been computed from to be used."""
    settings = json.dumps([dict(experiment.settings), __version__], sort_keys=True)
    # The source of the figure stands in for everything that its numbers depend on.
    source = Path(inspect.getfile(experiment.compute)).read_bytes()
    return hashlib.sha256(settings.encode() + source).hexdigest()[:16]


def _compute(
    experiments: Sequence[Experiment], progress: Progress
) -> Iterator[tuple[Experiment, Measurements]]:
    """Yield each experiment when it is complete; several are computed in parallel processes."""
    if len(experiments) <= 1:
        for experiment in experiments:
            yield experiment, _run(experiment.name, experiment.settings, progress)
        return
    # A forked child could inherit locks that BLAS's threads hold.
    context = multiprocessing.get_context("spawn")
    reports: SimpleQueue[tuple[str, float, float]] = context.SimpleQueue()
    longest_first = sorted(experiments, key=lambda experiment: -experiment.cost)
    with ProcessPoolExecutor(WORKERS, context, _connect, (reports,)) as pool:
        waiting = {
            pool.submit(_run_in_worker, each.name, each.settings): each for each in longest_first
        }
        try:
            while waiting:
                done, _ = wait(waiting, 0.1, FIRST_COMPLETED)
                while not reports.empty():
                    progress(*reports.get())
                for future in done:
                    yield waiting.pop(future), future.result()
        except BaseException:
            # Ctrl-C must not wait for experiments that take minutes.
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _run(name: str, settings: Mapping[str, Any], progress: Progress) -> Measurements:
    """Compute one experiment, given by name for the sake of processes with a table of their own."""
    began = time.perf_counter()
    reported = 0.0

    def watch(share: float, gap: float) -> None:
        nonlocal reported
        now = time.perf_counter()
        if now - reported > 0.1:
            reported = now
            progress(name, share, gap)

    measured = named(name).compute(settings, watch)
    progress(name, 1.0, 0.0)
    return replace(measured, seconds=time.perf_counter() - began)


_reports: list[SimpleQueue[tuple[str, float, float]]] = []
"""In a worker process, the queue of its progress: a queue can be inherited but not sent."""


def _connect(reports: SimpleQueue[tuple[str, float, float]]) -> None:
    _reports.append(reports)


def _run_in_worker(name: str, settings: Mapping[str, Any]) -> Measurements:
    return _run(name, settings, lambda *report: _reports[0].put(report))
