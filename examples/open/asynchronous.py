"""Delays and stragglers: the time that asynchronous runs take, beside synchronous ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

import fedsplit as fs
from fedsplit.paper import Claim, Experiment, Measurements, Watch
from open.figures import bars
from open.relaxed import RelaxedFedSplit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LATENCIES = {
    "constant": fs.Latency("constant"),
    "exponential": fs.Latency("exponential"),
    "pareto": fs.Latency("pareto"),
    "slow": fs.Latency("constant", slow={0: 100.0}),
    "slow-exponential": fs.Latency("exponential", slow={0: 100.0}),
}

DECISIVE = ("slow", "slow-exponential")
"""Where everybody needs an answer of a client that takes 100 times as long."""

SYNCHRONOUS: Mapping[str, fs.Method[Any]] = {
    "plain": fs.FedSplit(),
    "default": fs.FedSplitInformation(),
}
"""What asynchronous runs are compared with: Algorithm 1 at Theorem 1's step, and the default."""

FACTORS = (1.0, 3.0)
"""Steps of DAve-PG, as multiples of its safe one."""

RELAXATIONS = (0.5, 1.0)
"""Relaxations of FedSplit beside ARock's, which is its safe one."""

SHOWN = {
    "information": "asynchronous default",
    "dave-safe": "DAve-PG, safe step",
    "dave-best": "DAve-PG, best step",
    "fedsplit-safe": "relaxed FedSplit, safe step",
    "fedsplit-best": "relaxed FedSplit, best step",
    "plain": "synchronous plain FedSplit",
    "default": "synchronous default",
}
"""The bars of the figure, with their labels."""


def problems(settings: Mapping[str, Any], seed: int) -> dict[str, fs.Problem]:
    """Return the spiked ensemble, and logistic data of Figure 3's kind with a ridge."""
    m = settings["m"]
    d = settings["d"]
    n = settings["n"]
    logistic = fs.ensembles.logistic(m, d, n, 1.0, seed).rows
    return {
        "spiked": fs.ensembles.spiked(m, d, n, settings["kappa"], seed=seed),
        "logistic": fs.Problem(fs.Logistic(), logistic, ridge=float(m)),
    }


def asynchronous_methods(problem: fs.Problem) -> dict[str, fs.Method[Any]]:
    """Return each method by the name of its column."""
    curvature = problem.clients.ask(fs.questions.Curvature()).rows
    s = fs.theory.fedgd_step(float(curvature[:, 0].min()), float(curvature[:, 1].max()))
    return {
        "information": fs.FedSplitInformation(),
        **{f"dave-{factor:g}": fs.DAvePG(factor * s) for factor in FACTORS},
        "fedsplit-safe": RelaxedFedSplit(),
        **{f"fedsplit-{eta:g}": RelaxedFedSplit(relaxation=eta) for eta in RELAXATIONS},
    }


def synchronous_time(latency: fs.Latency, m: int, seed: int, rounds: int) -> float:
    """Return when this number of rounds ends, each with the answer of its slowest client."""
    return sum(max(latency.draw(seed, j, k) for j in range(m)) for k in range(rounds))


def compute(settings: Mapping[str, Any], watch: Watch) -> Measurements:
    """Measure the time to a proved gap, for each problem, distribution, method and seed."""
    columns: dict[str, dict[str, list[float]]] = {}
    seeds = settings["seeds"]
    limits: dict[str, Any] = {"tol": settings["tol"], "rounds": settings["rounds"]}
    done = 0
    for seed in range(seeds):
        for kind, problem in problems(settings, seed).items():
            together = {name: _ended(problem, each, limits) for name, each in SYNCHRONOUS.items()}
            methods = asynchronous_methods(problem)
            for name, latency in LATENCIES.items():
                table = columns.setdefault(f"{kind}-{name}", {})
                delayed = {**limits, "seed": seed, "asynchronous": latency}
                for column, method in methods.items():
                    run = _ended(problem, method, delayed)
                    table.setdefault(column, []).append(_time(run, float(run.trace.clock[-1])))
                for column, run in together.items():
                    time = synchronous_time(latency, problem.m, seed, run.rounds)
                    table.setdefault(column, []).append(_time(run, time))
                done += 1
                watch(done / (seeds * 2 * len(LATENCIES)), float("nan"))
    tables = {
        name: {column: np.array(times) for column, times in table.items()}
        for name, table in columns.items()
    }
    return Measurements(settings, tables, {})


def _ended(problem: fs.Problem, method: fs.Method[Any], settings: Mapping[str, Any]) -> fs.Result:
    try:
        return fs.solve(problem, method, **settings)
    except fs.Diverged as error:
        return error.result


def _time(run: fs.Result, time: float) -> float:
    """Return the time of a run that ended with a proof; otherwise infinity."""
    return time if run.converged else float("inf")


def medians(measured: Measurements) -> dict[str, dict[str, float]]:
    """Return the median time of what is shown, by problem and distribution.

    The best step is the one with the smallest median, in hindsight.
    """
    found = {}
    for name, table in measured.tables.items():
        median = {column: float(np.median(times)) for column, times in table.items()}
        steps = [f"dave-{factor:g}" for factor in FACTORS]
        relaxations = ["fedsplit-safe", *(f"fedsplit-{eta:g}" for eta in RELAXATIONS)]
        median["dave-safe"] = median["dave-1"]
        median["dave-best"] = min(median[each] for each in steps)
        median["fedsplit-best"] = min(median[each] for each in relaxations)
        found[name] = {column: median[column] for column in SHOWN}
    return found


def draw(measured: Measurements) -> Mapping[str, Figure]:
    """Draw the median times for each problem."""
    found = medians(measured)
    drawn = {}
    for kind, title in (("spiked", "least squares"), ("logistic", "logistic regression")):
        heights = {
            label: [found[f"{kind}-{latency}"][name] for latency in LATENCIES]
            for name, label in SHOWN.items()
        }
        title = f"Delays and stragglers, {title}"
        ylabel = "time to a proved gap"
        drawn[f"open-async-{kind}"] = bars(heights, list(LATENCIES), title, ylabel)
    return drawn


def claims(measured: Measurements) -> list[Claim]:
    """Check what not waiting gains, and where it gains nothing."""
    found = medians(measured)
    even = {name: each for name, each in found.items() if not name.endswith(DECISIVE)}
    half = _ratios(even, "information", "plain")
    later = _ratios(found, "information", "default")
    vectors = ("dave-safe", "dave-best", "fedsplit-safe", "fedsplit-best")
    best = [min(each[name] for name in vectors) / each["plain"] for each in found.values()]
    unrelaxed = [float(np.mean(np.isfinite(measured.tables[name]["fedsplit-1"]))) for name in even]
    order = ", ".join(found)
    return [
        Claim(
            "open-async-plain",
            "where no slow client is decisive, the asynchronous default takes at most half the "
            f"time of synchronous plain FedSplit: {', '.join(even)}",
            "≤ 0.5",
            half,
            max(half) <= 0.5,
        ),
        Claim(
            "open-async-default",
            "the asynchronous default is never later than the synchronous one by more than a "
            f"factor of 1.2: {order}",
            "≤ 1.2",
            later,
            max(later) <= 1.2,
        ),
        Claim(
            "open-async-vectors",
            "an asynchronous method that sends vectors alone, at its best step, takes at most half "
            f"the time of synchronous plain FedSplit: {order}",
            "≤ 0.5",
            best,
            max(best) <= 0.5,
            "it gains less than that where delays vary, nothing where they are constant, and it "
            "needs many answers of a slow client",
        ),
        Claim(
            "open-async-unrelaxed",
            "without relaxation FedSplit converges where answers arrive one by one, which no "
            f"theory promises: share of the runs that end with a proof: {', '.join(even)}",
            "1",
            unrelaxed,
            min(unrelaxed) == 1.0,
        ),
    ]


def _ratios(times: Mapping[str, Mapping[str, float]], ours: str, other: str) -> list[float]:
    return [each[ours] / each[other] for each in times.values()]


OPEN_ASYNC = Experiment(
    "open-async",
    "Delays and stragglers",
    "Latencies have the mean 1; pareto has the exponent 1.5; slow: client 0 takes 100 times as "
    "long. Times are medians over the seeds, with the proof, by a simulated clock. The budget is "
    "an average number of answers per client; a run without a proof until then counts as infinite "
    "and has no bar. Safe steps are those of theory; the best one of DAve-PG is 1 or 3 times its "
    "safe step, the best relaxation of FedSplit ARock's, 0.5 or 1, each in hindsight.",
    {"m": 4, "d": 10, "n": 60, "kappa": 10.0, "seeds": 3, "tol": 1e-6, "rounds": 200},
    compute,
    draw,
    claims,
    cost=90,
)
