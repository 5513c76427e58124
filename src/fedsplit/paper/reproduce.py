"""Reproduce the paper: compute what is missing, then make figures, claims and one page from the saved records."""

from __future__ import annotations

import hashlib
import inspect
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any, TypeAlias

import fedsplit
from fedsplit import files, plots
from fedsplit.errors import InputError
from fedsplit.paper import page
from fedsplit.paper.experiments import EXPERIMENTS
from fedsplit.paper.record import Experiment, Record, load, save
from fedsplit.threads import WORKERS

Progress: TypeAlias = Callable[[str, float, float], None]
"""Called as progress(figure, share of it done, current gap)."""


def select(names: Sequence[str]) -> list[Experiment]:
    """The experiments of these names, all where there is none."""
    for name in names:
        if name not in EXPERIMENTS:
            raise InputError(f"figure {name!r} is not known: use {', '.join(EXPERIMENTS)}")
    return [experiment for name, experiment in EXPERIMENTS.items() if not names or name in names]


def reproduce(
    experiments: Sequence[Experiment],
    out: Path,
    command: str,
    force: bool = False,
    progress: Progress = lambda name, share, gap: None,
) -> dict[str, float]:
    """Compute the experiments and write figures, claims and page under ``out``.

    A record that is there already, made from the same settings by the same version, is not computed again unless
    forced. Each record is saved as soon as it is complete, so an interrupted run goes on where it stopped. Returns the
    seconds that each computed experiment took.
    """
    files.check_writable(out)
    (out / "data").mkdir(parents=True, exist_ok=True)
    missing = []
    for experiment in experiments:
        saved = load(out / "data" / experiment.name)
        if force or saved is None or saved[1] != key_of(experiment):
            missing.append(experiment)
        else:
            progress(experiment.name, 1.0, 0.0)
    seconds = {}
    for experiment, record in _compute(missing, progress):
        save(record, out / "data" / experiment.name, key_of(experiment))
        seconds[experiment.name] = record.seconds
    write_report(out, command)
    return seconds


def write_report(out: Path, command: str = "") -> list[str]:
    """Draw every saved record's figures, check its claims, and write claims.json and index.html, without computing.

    Returns the names of the experiments found. ``command`` is what made the data; where it is empty, the last one is
    kept.
    """
    found = [
        (experiment, saved[0])
        for name, experiment in EXPERIMENTS.items()
        if (saved := load(out / "data" / name))
    ]
    if not found:
        raise InputError(
            f"{out}: has no saved experiment; make some with: fedsplit reproduce --out {out}"
        )
    files.check_writable(out)
    sections = [_section(experiment, record, out) for experiment, record in found]
    claims = [claim.as_json() for section in sections for claim in section.claims]
    files.write(out / "claims.json", json.dumps(claims, indent=2, ensure_ascii=False) + "\n")
    made_by = out / "data" / "command.txt"
    if command:
        files.write(made_by, command)
    files.write(
        out / "index.html",
        page.page(sections, made_by.read_text(encoding="utf-8") if made_by.exists() else ""),
    )
    return [experiment.name for experiment, _ in found]


def key_of(experiment: Experiment) -> str:
    """What a saved record must have been made from to be used again."""
    settings = json.dumps([dict(experiment.settings), fedsplit.__version__], sort_keys=True)
    source = Path(inspect.getfile(experiment.compute)).read_bytes()
    return hashlib.sha256(settings.encode() + source).hexdigest()[:16]


def _section(experiment: Experiment, record: Record, out: Path) -> page.Section:
    try:
        figures, claims = experiment.draw(record), experiment.claims(record)
    except KeyError:
        folder = out / "data" / experiment.name
        raise InputError(
            f"{folder}: made by another version; run fedsplit reproduce --out {out} again"
        ) from None
    rendered = {name: plots.render(figure, "svg") for name, figure in figures.items()}
    for name, figure in figures.items():
        plots.save(figure, out / f"{name}.png")
        files.write(out / f"{name}.svg", rendered[name])
    return page.Section(experiment, record, rendered, claims)


def _compute(
    experiments: Sequence[Experiment], progress: Progress
) -> Iterator[tuple[Experiment, Record]]:
    """Every experiment's record as it is completed: one in this process, several in a process each, a core each."""
    if len(experiments) <= 1:
        for experiment in experiments:
            yield experiment, _run(experiment.name, experiment.settings, progress)
        return
    context = multiprocessing.get_context("spawn")
    news: SimpleQueue[tuple[str, float, float]] = context.SimpleQueue()
    longest_first = sorted(experiments, key=lambda experiment: -experiment.cost)
    with ProcessPoolExecutor(WORKERS, context, _connect, (news,)) as pool:
        waiting = {
            pool.submit(_run_there, each.name, each.settings): each for each in longest_first
        }
        try:
            while waiting:
                done, _ = wait(waiting, timeout=0.1, return_when=FIRST_COMPLETED)
                while not news.empty():
                    progress(*news.get())
                for future in done:
                    yield waiting.pop(future), future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _run(name: str, settings: Mapping[str, Any], progress: Progress) -> Record:
    began, told = time.perf_counter(), 0.0

    def watch(share: float, gap: float) -> None:
        nonlocal told
        if (now := time.perf_counter()) - told > 0.1:
            told = now
            progress(name, share, gap)

    record = EXPERIMENTS[name].compute(settings, watch)
    progress(name, 1.0, 0.0)
    return Record(record.settings, record.tables, record.facts, time.perf_counter() - began)


_news: list[SimpleQueue[tuple[str, float, float]]] = []
"""In a worker process: where its progress goes."""


def _connect(news: SimpleQueue[tuple[str, float, float]]) -> None:
    _news.append(news)


def _run_there(name: str, settings: Mapping[str, Any]) -> Record:
    return _run(name, settings, lambda *progress: _news[0].put(progress))
