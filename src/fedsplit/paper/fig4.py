"""Figure 4: how rounds depend on the condition number (§4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fedsplit import ensembles, plots, theory
from fedsplit.arrays import Array
from fedsplit.losses.least_squares import LeastSquares
from fedsplit.methods.fedgd import FedGD
from fedsplit.methods.fedsplit import FedSplit
from fedsplit.methods.method import Method
from fedsplit.paper.record import Claim, Experiment, Record, Table, Watch
from fedsplit.paper.runs import Bench, linear_fit, rounds_to
from fedsplit.problem import Problem
from fedsplit.prox.gradient import GradientProx

SIZES = {"m": 10, "d": 100, "n": 400, "noise": 1.0}
SETTINGS_A = SIZES | {"seeds": [0, 1, 2, 3, 4], "kappas": [1e2, 1e3, 1e4], "rounds": 600}
SETTINGS_B = SIZES | {
    "seeds": [0, 1, 2, 3, 4],
    "kappas": [float(10 ** (k / 2)) for k in range(9)],
    "eps": 1e-3,
}
METHODS = ("fedgd-e1", "fedsplit-exact")
OURS = "fedsplit-e10-broadcast"


def methods(kappa: float) -> dict[str, Method[Any]]:
    """The paper's two at their steps for ℓ* = 1 and L* = κ, and FedSplit with ten gradient steps a round."""
    s = theory.fedsplit_step(1.0, kappa)
    return {
        "fedgd-e1": FedGD(theory.fedgd_step(1.0, kappa)),
        "fedsplit-exact": FedSplit.plain(s),
        OURS: FedSplit.plain(s, GradientProx(10)),
    }


def problem(settings: Mapping[str, Any], kappa: float, seed: int) -> Problem:
    """One instance of the spiked ensemble."""
    size = {key: settings[key] for key in SIZES}
    return Problem(LeastSquares(), ensembles.spiked(**size, kappa=kappa, seed=seed).clients)


def compute_a(settings: Mapping[str, Any], watch: Watch) -> Record:
    """Gaps of all methods at three condition numbers over all seeds: one column a seed."""
    parts = [(kappa, seed) for kappa in settings["kappas"] for seed in settings["seeds"]]
    T = settings["rounds"]
    tables: dict[str, dict[str, Array]] = {}
    facts: dict[str, list[float]] = {"pooled_kappa": [], "client_kappa": [], "contraction": []}
    for i, (kappa, seed) in enumerate(parts):
        bench = Bench(
            problem(settings, kappa, seed),
            _part(watch, i / len(parts), (i + 1) / len(parts)),
            work=3 * T,
        )
        for name, method in methods(kappa).items():
            table = tables.setdefault(
                f"{name}-kappa{kappa:g}", {"round": np.arange(T + 1, dtype=np.float64)}
            )
            table[f"gap_seed{seed}"] = bench.curve(method, T)["gap"]
        spectrum = np.linalg.eigvalsh(bench.clients.pooled_information(bench.x))
        ell, L = bench.constants()
        facts["pooled_kappa"].append(float(spectrum[-1] / spectrum[0]))
        facts["client_kappa"].append(L / ell)
        facts["contraction"].append(bench.contraction(theory.fedsplit_step(1.0, kappa), T))
    return Record(settings, tables, facts)


def compute_b(settings: Mapping[str, Any], watch: Watch) -> Record:
    """Rounds to a gap of ε for all methods, condition numbers and seeds."""
    parts = [(kappa, seed) for kappa in settings["kappas"] for seed in settings["seeds"]]
    cost = np.array(
        [100 + 3.6 * kappa for kappa, _ in parts]
    )  # FedGD's rounds, about, dominate the work
    before = np.concatenate([[0.0], np.cumsum(cost)]) / cost.sum()
    eps = settings["eps"]
    rows: dict[str, list[float]] = {
        "kappa": [],
        "seed": [],
        **{name: [] for name in (*METHODS, OURS)},
        "fedsplit-1e-6": [],
    }
    for i, (kappa, seed) in enumerate(parts):
        bench = Bench(
            problem(settings, kappa, seed),
            _part(watch, before[i], before[i + 1]),
            work=cost[i],
        )
        rows["kappa"].append(kappa)
        rows["seed"].append(float(seed))
        for name, method in methods(kappa).items():
            rows[name].append(rounds_to(bench.curve(method, 100_000, until=eps)["gap"], eps))
        finer = bench.curve(methods(kappa)["fedsplit-exact"], 100_000, until=eps**2)
        rows["fedsplit-1e-6"].append(rounds_to(finer["gap"], eps**2))
    return Record(
        settings, {"rounds": {name: np.array(column) for name, column in rows.items()}}, {}
    )


def _part(watch: Watch, start: float, end: float) -> Watch:
    """Progress of one part of an experiment, as progress of the whole."""
    return lambda share, gap: watch(start + (end - start) * share, gap)


def medians(record: Record, name: str) -> list[float]:
    """Median rounds over the seeds, one a condition number."""
    table: Table = record.tables["rounds"]
    return [
        float(np.median(table[name][table["kappa"] == kappa]))
        for kappa in record.settings["kappas"]
    ]


def slope(record: Record, name: str) -> float:
    """The slope of log T against log κ from κ = 10 on."""
    kappas = np.array(record.settings["kappas"])
    rounds = np.array(medians(record, name))
    shown = kappas >= 9.99
    return float(np.polyfit(np.log(kappas[shown]), np.log(rounds[shown]), 1)[0])


def draw_a(record: Record) -> Mapping[str, Figure]:
    """Gaps at three condition numbers, medians and spread over the seeds."""
    title = "Figure 4a: gap at κ = 100, 1000, 10000"
    kappas = record.settings["kappas"]
    return {
        "fig4a": plots.spread(record.tables, METHODS, kappas, title),
        "fig4a-ours": plots.spread(
            record.tables, (OURS, "fedsplit-exact"), kappas, f"{title}; ten gradient steps a round"
        ),
    }


def draw_b(record: Record) -> Mapping[str, Figure]:
    """Rounds against κ, medians and spread over the seeds, with the fitted slopes."""
    slopes = {name: slope(record, name) for name in (*METHODS, OURS)}
    title = "Figure 4b: rounds to a gap of 1e-3"
    table = record.tables["rounds"]
    return {
        "fig4b": plots.conditioning(table, {name: slopes[name] for name in METHODS}, title),
        "fig4b-ours": plots.conditioning(table, slopes, f"{title}; ten gradient steps a round"),
    }


def claims_a(record: Record) -> list[Claim]:
    """What §4.3 and the caption of Figure 4 say of panel (a)."""
    kappas, seeds = record.settings["kappas"], record.settings["seeds"]

    def fit(name: str, kappa: float) -> tuple[float, float]:
        table = record.tables[f"{name}-kappa{kappa:g}"]
        gaps = np.median([table[f"gap_seed{seed}"] for seed in seeds], axis=0)
        return linear_fit(gaps, 1e-9)

    rates = {name: [fit(name, kappa)[0] for kappa in kappas] for name in METHODS}
    quality = [fit(name, kappa)[1] for name in METHODS for kappa in kappas]
    contraction = [
        float(part.max()) for part in np.split(np.array(record.facts["contraction"]), len(kappas))
    ]
    lost = {name: (1 - rates[name][0]) / (1 - rates[name][-1]) for name in METHODS}
    return [
        Claim(
            "fig4a-geometric",
            "both converge geometrically: R² of lines through log gap, FedGD then FedSplit, κ = 1e2, 1e3, 1e4",
            "geometric",
            quality,
            min(quality) > 0.95,
        ),
        Claim(
            "fig4a-rates-decay",
            "the rates decay as κ grows: factor of the gap a round, FedGD then FedSplit, κ = 1e2, 1e3, 1e4",
            "growing towards 1",
            [*rates["fedgd-e1"], *rates["fedsplit-exact"]],
            all(sorted(rates[name]) == rates[name] for name in METHODS),
        ),
        Claim(
            "fig4a-fedgd-degrades-more",
            "FedGD degrades more than FedSplit: how many times slower each is at κ = 1e4 than at 1e2",
            "FedGD more",
            [lost["fedgd-e1"], lost["fedsplit-exact"]],
            lost["fedgd-e1"] > 2 * lost["fedsplit-exact"],
        ),
        Claim(
            "fig4a-contraction",
            "Theorem 1: ‖z - z*‖ falls by ρ each round, here exactly: largest measured factor at κ = 1e2, 1e3, 1e4",
            [theory.contraction(kappa) for kappa in kappas],
            contraction,
            bool(
                np.allclose(contraction, [theory.contraction(kappa) for kappa in kappas], rtol=1e-9)
            ),
        ),
        Claim(
            "fig4a-condition-number",
            "the spiked objective has condition number κ as the paper defines it, on the product space: error",
            0.0,
            float(
                np.max(
                    np.abs(
                        np.array(record.facts["client_kappa"]) / np.repeat(kappas, len(seeds)) - 1
                    )
                )
            ),
            bool(
                np.allclose(record.facts["client_kappa"], np.repeat(kappas, len(seeds)), rtol=1e-6)
            ),
            "the pooled Hessian is better conditioned: its κ is about "
            + ", ".join(
                f"{np.median(part):.0f}"
                for part in np.split(np.array(record.facts["pooled_kappa"]), len(kappas))
            ),
        ),
    ]


def claims_b(record: Record) -> list[Claim]:
    """What §4.3 and the caption of Figure 4 say of panel (b)."""
    gd, split, finer = (medians(record, name) for name in (*METHODS, "fedsplit-1e-6"))
    slopes = [slope(record, name) for name in METHODS]
    growth = finer[-1] / split[-1]
    return [
        Claim(
            "fig4b-fedsplit-rounds",
            "FedSplit needs roughly 400 rounds at κ = 1e4 (medians for κ = 10^0, 10^0.5, …, 10^4)",
            400,
            split,
            abs(split[-1] / 400 - 1) <= 0.1,
        ),
        Claim(
            "fig4b-fedgd-rounds",
            "FedGD needs on the order of 34000 rounds at κ = 1e4 (medians for κ = 10^0, 10^0.5, …, 10^4)",
            34000,
            gd,
            abs(gd[-1] / 34000 - 1) <= 0.1,
        ),
        Claim(
            "fig4b-slopes",
            "T grows like κ for FedGD and like √κ for FedSplit: slopes of log T against log κ, κ ≥ 10",
            [1.0, 0.5],
            slopes,
            abs(slopes[0] - 1) <= 0.1 and abs(slopes[1] - 0.5) <= 0.1,
        ),
        Claim(
            "fig4b-sublinear",
            "FedGD's dependence on κ is about linear, FedSplit's sublinear: slope of FedGD over that of FedSplit",
            2.0,
            slopes[0] / slopes[1],
            slopes[0] / slopes[1] > 1.5,
        ),
        Claim(
            "fig4b-log-eps",
            "T of FedSplit grows like log(1/ε): rounds to 1e-6 over rounds to 1e-3 at κ = 1e4",
            "below 2",
            growth,
            1.0 < growth < 2.0,
        ),
        Claim(
            "fig4b-fewer",
            "FedSplit needs fewer rounds than FedGD at κ = 1e4: how many times fewer",
            85.0,
            gd[-1] / split[-1],
            gd[-1] / split[-1] > 50,
        ),
    ]


CHOICES = (
    "The paper gives no step for FedGD: 2/(ℓ* + L*), with ℓ* = 1 and L* = κ. FedSplit has Theorem 1's s = 1/√κ. Five "
    "seeds; a curve is the median, the band the smallest and largest. The gap is that of the sum F. Every run starts "
    "at x = 0."
)
FIG4A = Experiment(
    "fig4a",
    "Convergence at three condition numbers",
    CHOICES,
    SETTINGS_A,
    compute_a,
    draw_a,
    claims_a,
    cost=10,
)
FIG4B = Experiment(
    "fig4b",
    "Rounds against the condition number",
    CHOICES,
    SETTINGS_B,
    compute_b,
    draw_b,
    claims_b,
    cost=65,
)
