"""Figure 4: how the number of rounds depends on the condition number (§4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsplit import ensembles, plots, theory
from fedsplit.arrays import Array
from fedsplit.local.gradient import GradientProx
from fedsplit.losses.least_squares import LeastSquares
from fedsplit.methods.fedgd import FedGD
from fedsplit.methods.fedsplit import FedSplit
from fedsplit.methods.information import FedSplitInformation
from fedsplit.methods.method import Method
from fedsplit.paper.curves import linear_fit, rounds_to
from fedsplit.paper.experiment import Claim, Experiment, Watch
from fedsplit.paper.measurements import Measurements
from fedsplit.paper.runs import SolvedProblem, meter
from fedsplit.problem import Problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPERS = ("fedgd-e1", "fedsplit-exact")
"""The two methods of the paper's figure."""

OURS = "fedsplit-e10-broadcast"

DEFAULTS: Mapping[str, Method[Any]] = {
    "fedsplit-default": FedSplitVectors(),
    "information": FedSplitInformation(),
}
"""What ``solve`` chooses from, with nothing to tune."""


def methods_at(kappa: float) -> dict[str, Method[Any]]:
    """Return the methods at their steps for ℓ* = 1 and L* = κ."""
    s = theory.fedsplit_step(1.0, kappa)
    return {
        "fedgd-e1": FedGD(theory.fedgd_step(1.0, kappa)),
        "fedsplit-exact": FedSplit(s),
        OURS: FedSplit(s, GradientProx(10)),
    }


def spiked(settings: Mapping[str, Any], kappa: float, seed: int) -> Problem:
    """Return an instance of the spiked ensemble."""
    sizes = (settings["m"], settings["d"], settings["n"])
    ensemble = ensembles.spiked(*sizes, kappa, settings["noise"], seed)
    return Problem(LeastSquares(), ensemble.clients)


def compute_a(settings: Mapping[str, Any], watch: Watch) -> Measurements:
    """Measure the gaps of all methods at three condition numbers, one column per seed."""
    T = settings["rounds"]
    parts = [(kappa, seed) for kappa in settings["kappas"] for seed in settings["seeds"]]
    advance = meter(watch, 3 * T * len(parts))
    tables: dict[str, dict[str, Array]] = {}
    facts: dict[str, list[float]] = {"pooled_kappa": [], "client_kappa": [], "contraction": []}
    for kappa, seed in parts:
        solved = SolvedProblem(spiked(settings, kappa, seed), advance)
        for name, method in methods_at(kappa).items():
            rounds = np.arange(T + 1, dtype=np.float64)
            table = tables.setdefault(f"{name}-kappa{kappa:g}", {"round": rounds})
            table[f"gap_seed{seed}"] = solved.curve(method, T)["gap"]
        spectrum = np.linalg.eigvalsh(solved.clients.pooled_information(solved.x))
        ell, L = solved.constants()
        facts["pooled_kappa"].append(float(spectrum[-1] / spectrum[0]))
        facts["client_kappa"].append(L / ell)
        facts["contraction"].append(solved.contraction(theory.fedsplit_step(1.0, kappa), T))
    return Measurements(settings, tables, facts)


def compute_b(settings: Mapping[str, Any], watch: Watch) -> Measurements:
    """Count the rounds to a gap of ε for all methods, condition numbers and seeds."""
    eps = settings["eps"]
    parts = [(kappa, seed) for kappa in settings["kappas"] for seed in settings["seeds"]]
    # FedGD's rounds, about 3.4 κ, are most of the work.
    advance = meter(watch, sum(100 + 3.6 * kappa for kappa, _ in parts))
    columns = ("kappa", "seed", *PAPERS, OURS, "fedsplit-1e-6", *DEFAULTS)
    table: dict[str, list[float]] = {name: [] for name in columns}
    for kappa, seed in parts:
        solved = SolvedProblem(spiked(settings, kappa, seed), advance)
        methods = methods_at(kappa)
        runs = {name: (method, eps) for name, method in methods.items()}
        runs["fedsplit-1e-6"] = (methods["fedsplit-exact"], eps**2)
        runs |= {name: (method, eps) for name, method in DEFAULTS.items()}
        table["kappa"].append(kappa)
        table["seed"].append(float(seed))
        for name, (method, gap) in runs.items():
            curve = solved.curve(method, 100_000, until=gap)
            table[name].append(rounds_to(curve["gap"], gap))
    arrays = {name: np.array(values) for name, values in table.items()}
    return Measurements(settings, {"rounds": arrays}, {})


def medians(measured: Measurements, name: str) -> list[float]:
    """Return the median over the seeds of a method's rounds, one for each condition number."""
    table = measured.tables["rounds"]
    kappas = measured.settings["kappas"]
    return [float(np.median(table[name][table["kappa"] == kappa])) for kappa in kappas]


def slope(measured: Measurements, name: str) -> float:
    """Return the slope of log T against log κ from κ = 10 on."""
    kappas = np.array(measured.settings["kappas"])
    rounds = np.array(medians(measured, name))
    shown = kappas >= 9.99  # 10 itself, which is computed as 10^(2/2)
    return float(np.polyfit(np.log(kappas[shown]), np.log(rounds[shown]), 1)[0])


def draw_a(measured: Measurements) -> Mapping[str, Figure]:
    """Draw the gaps at three condition numbers, medians and spread over the seeds."""
    title = "Figure 4a: gap at κ = 100, 1000, 10000"
    kappas = measured.settings["kappas"]
    ours = f"{title}; ten gradient steps per round"
    return {
        "fig4a": plots.spread(measured.tables, PAPERS, kappas, title),
        "fig4a-ours": plots.spread(measured.tables, (OURS, "fedsplit-exact"), kappas, ours),
    }


def draw_b(measured: Measurements) -> Mapping[str, Figure]:
    """Draw rounds against κ, medians and spread over the seeds, with the fitted slopes."""
    title = "Figure 4b: rounds to a gap of 1e-3"
    table = measured.tables["rounds"]
    slopes = {name: slope(measured, name) for name in PAPERS}
    ours = slopes | {name: slope(measured, name) for name in (OURS, *DEFAULTS)}
    return {
        "fig4b": plots.conditioning(table, slopes, title),
        "fig4b-ours": plots.conditioning(table, ours, f"{title}, with our methods"),
    }


def claims_a(measured: Measurements) -> list[Claim]:
    """Check what §4.3 and the caption of Figure 4 say of panel (a)."""
    kappas = measured.settings["kappas"]
    seeds = measured.settings["seeds"]
    rates: dict[str, list[float]] = {name: [] for name in PAPERS}
    quality = []
    for name in PAPERS:
        for kappa in kappas:
            table = measured.tables[f"{name}-kappa{kappa:g}"]
            gaps = np.median([table[f"gap_seed{seed}"] for seed in seeds], axis=0)
            rate, R2 = linear_fit(gaps, 1e-9)
            rates[name].append(rate)
            quality.append(R2)
    lost = [(1 - rates[name][0]) / (1 - rates[name][-1]) for name in PAPERS]
    # One row per condition number, one column per seed.
    by_kappa = (len(kappas), len(seeds))
    contraction = np.reshape(measured.facts["contraction"], by_kappa).max(axis=1).tolist()
    rhos = [theory.contraction(kappa) for kappa in kappas]
    targets = np.repeat(kappas, len(seeds))
    condition = np.array(measured.facts["client_kappa"])
    pooled = np.median(np.reshape(measured.facts["pooled_kappa"], by_kappa), axis=1)
    return [
        Claim(
            "fig4a-geometric",
            "both converge geometrically: R² of lines through log gap, FedGD then FedSplit, "
            "κ = 1e2, 1e3, 1e4",
            "geometric",
            quality,
            min(quality) > 0.95,
        ),
        Claim(
            "fig4a-rates-decay",
            "the rates decay as κ grows: factor of the gap per round, FedGD then FedSplit, "
            "κ = 1e2, 1e3, 1e4",
            "growing towards 1",
            [*rates["fedgd-e1"], *rates["fedsplit-exact"]],
            all(sorted(rates[name]) == rates[name] for name in PAPERS),
        ),
        Claim(
            "fig4a-fedgd-degrades-more",
            "FedGD degrades more than FedSplit: how many times slower each is at κ = 1e4 than at "
            "1e2",
            "FedGD more",
            lost,
            lost[0] > 2 * lost[1],
        ),
        Claim(
            "fig4a-contraction",
            "Theorem 1: ‖z - z*‖ falls by the factor ρ per round, exactly so here: largest "
            "measured factor at κ = 1e2, 1e3, 1e4",
            rhos,
            contraction,
            bool(np.allclose(contraction, rhos, rtol=1e-9)),
        ),
        Claim(
            "fig4a-condition-number",
            "the spiked objective has condition number κ as the paper defines it, on the product "
            "space: largest relative error",
            0.0,
            float(np.max(np.abs(condition / targets - 1))),
            bool(np.allclose(condition, targets, rtol=1e-6)),
            "the pooled Hessian is better conditioned: its κ is about "
            + ", ".join(f"{kappa:.0f}" for kappa in pooled),
        ),
    ]


def claims_b(measured: Measurements) -> list[Claim]:
    """Check what §4.3 and the caption of Figure 4 say of panel (b)."""
    gd = medians(measured, "fedgd-e1")
    split = medians(measured, "fedsplit-exact")
    finer = medians(measured, "fedsplit-1e-6")
    slopes = [slope(measured, name) for name in PAPERS]
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
            "FedGD needs on the order of 34000 rounds at κ = 1e4 (medians for κ = 10^0, 10^0.5, …, "
            "10^4)",
            34000,
            gd,
            abs(gd[-1] / 34000 - 1) <= 0.1,
        ),
        Claim(
            "fig4b-slopes",
            "T grows like κ for FedGD and like √κ for FedSplit: slopes of log T against log κ, "
            "κ ≥ 10",
            [1.0, 0.5],
            slopes,
            abs(slopes[0] - 1) <= 0.1 and abs(slopes[1] - 0.5) <= 0.1,
        ),
        Claim(
            "fig4b-sublinear",
            "FedGD's dependence on κ is about linear, FedSplit's sublinear: slope of FedGD over "
            "that of FedSplit",
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
        Claim(
            "fig4b-defaults",
            "ours with nothing to tune: rounds of FedSplit and of FedSplit with information at "
            "κ = 1 and 1e4",
            "nearly the same",
            [
                rounds
                for name in DEFAULTS
                for rounds in (medians(measured, name)[i] for i in (0, -1))
            ],
            all(slope(measured, name) < 0.2 for name in DEFAULTS),
        ),
    ]


FIG4A = Experiment(
    "fig4a",
    "Convergence at three condition numbers",
    "The paper gives no step for FedGD: 2/(ℓ* + L*), with ℓ* = 1 and L* = κ. FedSplit has Theorem "
    "1's s = 1/√κ. Five seeds; a curve is the median, the band ranges from the smallest to the "
    "largest. The gap is that of the sum F. Every run starts at x = 0.",
    {
        "m": 10,
        "d": 100,
        "n": 400,
        "noise": 1.0,
        "seeds": [0, 1, 2, 3, 4],
        "kappas": [1e2, 1e3, 1e4],
        "rounds": 600,
    },
    compute_a,
    draw_a,
    claims_a,
    cost=10,
)
FIG4B = replace(
    FIG4A,
    name="fig4b",
    title="Rounds against the condition number",
    settings={
        "m": 10,
        "d": 100,
        "n": 400,
        "noise": 1.0,
        "seeds": [0, 1, 2, 3, 4],
        "kappas": [float(10 ** (k / 2)) for k in range(9)],
        "eps": 1e-3,
    },
    compute=compute_b,
    draw=draw_b,
    claims=claims_b,
    cost=65,
)
