"""Several methods on one problem."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

import fedsplit as fs
from fedsplit import ensembles, plots
from fedsplit.arrays import Array, length
from fedsplit.checks import one_of
from fedsplit.methods import default_method, parse
from fedsplit.methods.method import Method
from fedsplit.paper.runs import rounds_to, run_to_gap
from fedsplit.regression.engines import ENGINES

Ending: TypeAlias = Literal["reached", "floor", "falling", "diverged"]
"""How a run ended: at the last target, at a floor above it, on its way there, or nowhere."""

TARGETS = (1e-3, 1e-6, 1e-9)
"""Gaps F(x) - F* to which the rounds are counted; a run ends at the last."""

CONDITIONED: dict[str, Callable[..., ensembles.Ensemble]] = {
    "spiked": ensembles.spiked,
    "shared": partial(ensembles.log_uniform, shared=True),
    "rotated": partial(ensembles.log_uniform, shared=False),
}
"""The ensembles that have a condition number."""

ENSEMBLES: dict[str, Callable[..., ensembles.Ensemble]] = {
    "isotropic": ensembles.isotropic,
    **CONDITIONED,
    "scaled": ensembles.badly_scaled,
    "logistic": ensembles.logistic,
    "sorted": ensembles.label_sorted,
}
"""Kinds of random problems, by their names on the command line."""


DEFAULT_METHODS = (
    "fedgd",
    "fedgd:local_steps=10",
    "fedgd:local_steps=100",
    "fedprox",
    "lbfgs",
    "fedsplit",
    "fedsplit:steps=5",
    "quasi-newton",
)
"""What is compared unless methods are named, beside "information" where Hessians are affordable."""


@dataclass(frozen=True)
class ComparedRun:
    """One method's run."""

    label: str  # the method's
    step: float | Array
    gaps: Array  # (T + 1,): F(x) - F* at the start and after each round
    floats_up: int  # sent by all clients
    floats_down: int
    outcome: Ending

    def rounds_to(self, gap: float) -> int | None:
        """Return the first round after which the gap was at most this, None if there was none."""
        rounds = rounds_to(self.gaps, gap)
        return None if math.isnan(rounds) else int(rounds)


def check_choice(engine: str, target: Path | None) -> None:
    """Raise InputError for an unknown engine, or a figure that could not be written."""
    one_of("engine", engine, ENGINES)
    if target is not None:
        plots.check_target(target)


def generate(
    ensemble: str,
    m: int,
    d: int,
    n: int,
    kappa: float,
    seed: int,
    device: str | None = None,
    dtype: str = "float64",
) -> fs.Problem:
    """Return a problem of m clients with n observations each of d coordinates.

    ``ensemble`` is a key of ``ENSEMBLES``, and ``kappa`` the condition number, if it has one.
    """
    one_of("ensemble", ensemble, ENSEMBLES)
    draw = partial(ENSEMBLES[ensemble], m, d, n, seed=seed)
    if device is not None:
        if ensemble in CONDITIONED:
            drawn = [name for name in ENSEMBLES if name not in CONDITIONED]
            raise fs.InputError(
                f"ensemble {ensemble!r} is not drawn on a device: use one of {', '.join(drawn)}"
            )
        draw = partial(draw, device=device, dtype=dtype)
    if ensemble in CONDITIONED:
        return draw(kappa=kappa)
    if ensemble in ("logistic", "sorted"):
        # x_0 ~ N(0, I/d) makes the margins of logistic regression of order 1.
        draw = partial(draw, scale=1 / d)
    if ensemble == "sorted":
        # Without a ridge a client with one class has no minimiser.
        return draw().with_ridge(1.0)
    return draw()


def methods_of(names: Sequence[str]) -> list[tuple[str, Method[Any]]]:
    """The methods of these names, as ``compare`` takes them; the usual ones if there is none."""
    return [(name, parse(name)) for name in names or DEFAULT_METHODS]


def with_information(
    methods: Sequence[tuple[str, Method[Any]]], problem: fs.Problem
) -> list[tuple[str, Method[Any]]]:
    """The methods, and the one with Hessians where it would be chosen for the problem.

    It would refuse many columns, and take long with fewer.
    """
    default, _ = default_method(problem.clients.pooled())
    chosen = isinstance(default, fs.FedSplitInformation)
    return [*methods, ("information", default)] if chosen else list(methods)


def clients_on(
    engine: str, problem: fs.Problem, workers: int | None, address: str | None
) -> AbstractContextManager[fs.Clients]:
    """The clients of a problem on an engine."""
    return ENGINES[engine].of_problem(problem, workers, address)


def draw(runs: Sequence[ComparedRun], title: str, target: Path) -> None:
    """Write a figure of all gaps."""
    # with these settings a method has a style of its own in the paper's figures
    styled = {
        "fedgd": "fedgd-e1",
        "fedgd:local_steps=10": "fedgd-e10",
        "fedgd:local_steps=100": "fedgd-e100",
        "fedsplit:steps=5": "fedsplit-steps5",
    }
    tables = {
        styled.get(run.label, run.label): {"round": np.arange(len(run.gaps)), "gap": run.gaps}
        for run in runs
    }
    plots.save(plots.curves(tables, list(tables), title), target)


def compare(
    problem: fs.Problem,
    methods: Sequence[tuple[str, Method[Any]]],
    rounds: int,
    progress: Callable[[str, int, float], None] = lambda label, done, gap: None,
    clients: fs.Clients | None = None,
) -> list[ComparedRun]:
    """Run methods, with their labels, until the last target, for at most so many rounds each.

    ``progress`` is called with a label, the rounds done and the gap. The clients are the problem's
    own, or these, in other processes: they must send their costs after each round.
    """
    best = problem.objective(problem.solution())
    compared = []
    for label, method in methods:
        watch = partial(progress, label)
        asked = clients or problem.clients
        result = run_to_gap(asked, method, best, TARGETS[-1], watch, rounds=rounds)
        trace = result.trace
        gaps = trace.objective - best
        up, down = int(trace.floats_up.sum()), int(trace.floats_down.sum())
        compared.append(ComparedRun(label, result.step, gaps, up, down, _ending(result, gaps)))
    return compared


def _ending(result: fs.Result, gaps: Array) -> Ending:
    if result.stopped_by == "diverged":
        return "diverged"
    if gaps[-1] <= TARGETS[-1]:
        return "reached"
    # At a floor, the last quarter changed the gap by less than a hundredth and z stands still.
    before = gaps[-1 - max(2, len(gaps) // 4)]
    size = max(1.0, length(result.x))
    still = result.trace.rows[-1].residual <= 1e-4 * size
    if still and abs(before - gaps[-1]) <= 0.01 * abs(gaps[-1]):
        return "floor"
    return "falling"
