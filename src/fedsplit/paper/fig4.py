"""Figure 4: how the number of rounds depends on the condition number (§4.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

import fedsplit as fs
from fedsplit import ensembles, plots, theory
from fedsplit.arrays import Array
from fedsplit.methods.method import Method
from fedsplit.paper import runs
from fedsplit.paper.experiment import Claim, Experiment, Measurements, Watch, claims_of
from fedsplit.paper.runs import SolvedProblem, portion

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPERS = ("fedgd-e1", "fedsplit-exact")
"""The two methods of the paper's figure."""

OURS = "fedsplit-e10-broadcast"

DEFAULTS: Mapping[str, Method[Any]] = {
    "quasi-newton": fs.QuasiNewton(),
    "information": fs.FedSplitInformation(),
}
"""What ``solve`` chooses from, with nothing to tune."""

BASELINES: Mapping[str, Method[Any]] = {
    "newton": fs.Newton(),
    "cg": fs.CG(),
    "lbfgs": fs.LBFGS(),
}
"""What anybody would try first: they too have nothing to tune."""


def methods_at(kappa: float) -> dict[str, Method[Any]]:
    """Return the methods at their steps for ℓ* = 1 and L* = κ."""
    s = theory.fedsplit_step(1.0, kappa)
    return {
        "fedgd-e1": fs.FedGD(theory.fedgd_step(1.0, kappa)),
        "fedsplit-exact": fs.FedSplit(s),
        OURS: fs.FedSplit(s, fs.GradientProx(10)),
    }


def instances(
    settings: Mapping[str, Any], watch: Watch
) -> Iterator[tuple[float, int, SolvedProblem, Watch]]:
    """Draw the spiked ensemble for every condition number and seed, each with its own progress."""
    parts = [(kappa, seed) for kappa in settings["kappas"] for seed in settings["seeds"]]
    sizes = {key: settings[key] for key in ("m", "d", "n", "noise")}
    # Where FedGD runs to a gap, its rounds, about 3.4 κ, are most of the work.
    work = sum(100 + kappa for kappa, _ in parts)
    done = 0.0
    for kappa, seed in parts:
        share = (100 + kappa) / work
        solved = SolvedProblem(ensembles.spiked(**sizes, kappa=kappa, seed=seed))
        yield kappa, seed, solved, portion(watch, done, share)
        done += share


def compute_a(settings: Mapping[str, Any], watch: Watch) -> Measurements:
    """Measure the gaps of all methods at three condition numbers, one column per seed."""
    T = settings["rounds"]
    tables: dict[str, dict[str, Array]] = {}
    facts: dict[str, list[float]] = {"pooled_kappa": [], "client_kappa": [], "contraction": []}
    for kappa, seed, solved, part in instances(settings, watch):
        for name, curve in solved.curves(methods_at(kappa), T, part).items():
            table = tables.setdefault(f"{name}-kappa{kappa:g}", {"round": curve["round"]})
            table[f"gap_seed{seed}"] = curve["gap"]
        spectrum = np.linalg.eigvalsh(solved.clients.pooled_information(solved.x))
        ell, L = solved.constants()
        facts["pooled_kappa"].append(float(spectrum[-1] / spectrum[0]))
        facts["client_kappa"].append(L / ell)
        facts["contraction"].append(solved.contraction(theory.fedsplit_step(1.0, kappa), T))
    return Measurements(settings, tables, facts)


def compute_b(settings: Mapping[str, Any], watch: Watch) -> Measurements:
    """Count the rounds to a gap of ε, beside the theory's, for all condition numbers and seeds."""
    eps = settings["eps"]
    rows = []
    for kappa, seed, solved, part in instances(settings, watch):
        # F(x) - F* ≤ ½ΣL_j‖x - x*‖², so that the gap is at most ε within this distance
        near = float(np.sqrt(2 * eps / (settings["m"] * kappa)))
        away = solved.distance(theory.fedsplit_step(1.0, kappa))
        bounds = {
            "fedgd-e1-bound": theory.fedgd_rounds(near, kappa, float(np.linalg.norm(solved.x))),
            "fedsplit-exact-bound": theory.theorem1_rounds(near, kappa, away, settings["m"]),
        }
        # no method is slower than FedGD, and none needs 1000 rounds where FedGD needs fewer
        budget = max(1000, bounds["fedgd-e1-bound"])
        methods = methods_at(kappa)
        tried = {**methods, **DEFAULTS, **BASELINES}
        tables = solved.curves(tried, budget, portion(part, 0.0, 0.9), eps)
        counts = {name: runs.rounds_to(table["gap"], eps) for name, table in tables.items()}
        finer = {"fedsplit-1e-6": methods["fedsplit-exact"]}
        tables = solved.curves(finer, budget, portion(part, 0.9, 0.1), eps**2)
        counts |= {name: runs.rounds_to(table["gap"], eps**2) for name, table in tables.items()}
        rows.append({"kappa": kappa, "seed": seed, **counts, **bounds})
    table = {name: np.array([row[name] for row in rows], dtype=np.float64) for name in rows[0]}
    return Measurements(settings, {"rounds": table}, {})


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
    others = slopes | {name: slope(measured, name) for name in (OURS, *DEFAULTS, *BASELINES)}
    return {
        "fig4b": plots.conditioning(table, slopes, title),
        "fig4b-ours": plots.conditioning(table, others, f"{title}, with other methods", BASELINES),
    }


def claims_a(measured: Measurements) -> list[Claim]:
    """Check each sentence about panel (a)."""
    sentences = {
        "geometric": "both converge geometrically: R² of lines through log gap, FedGD then "
        "FedSplit, κ = 1e2, 1e3, 1e4",
        "rates-decay": "the rates decay as κ grows: factor of the gap per round, FedGD then "
        "FedSplit, κ = 1e2, 1e3, 1e4",
        "fedgd-degrades-more": "FedGD degrades more than FedSplit: how many times slower each is "
        "at κ = 1e4 than at 1e2",
        "contraction": "Theorem 1: ‖z - z*‖ falls by the factor ρ per round, exactly so here: "
        "largest measured factor at κ = 1e2, 1e3, 1e4",
        "condition-number": "the spiked objective has condition number κ as the paper defines it, "
        "on the product space: largest relative error",
    }
    kappas = measured.settings["kappas"]
    seeds = measured.settings["seeds"]
    rates: dict[str, list[float]] = {name: [] for name in PAPERS}
    quality = []
    for name in PAPERS:
        for kappa in kappas:
            table = measured.tables[f"{name}-kappa{kappa:g}"]
            gaps = np.median([table[f"gap_seed{seed}"] for seed in seeds], axis=0)
            rate, R2 = runs.linear_fit(gaps, 1e-9)
            rates[name].append(rate)
            quality.append(R2)
    lost = [(1 - rates[name][0]) / (1 - rates[name][-1]) for name in PAPERS]
    decay = all(sorted(rates[name]) == rates[name] for name in PAPERS)
    # One row per condition number, one column per seed.
    by_kappa = (len(kappas), len(seeds))
    contraction = np.reshape(measured.facts["contraction"], by_kappa).max(axis=1).tolist()
    rhos = [theory.contraction(kappa) for kappa in kappas]
    error = float(
        np.max(np.abs(measured.facts["client_kappa"] / np.repeat(kappas, len(seeds)) - 1))
    )
    pooled = np.median(np.reshape(measured.facts["pooled_kappa"], by_kappa), axis=1)
    findings = {
        "geometric": ("geometric", quality, min(quality) > 0.95),
        "rates-decay": ("growing towards 1", [*rates["fedgd-e1"], *rates["fedsplit-exact"]], decay),
        "fedgd-degrades-more": ("FedGD more", lost, lost[0] > 2 * lost[1]),
        "contraction": (
            rhos,
            contraction,
            bool(np.allclose(contraction, rhos, rtol=1e-9, atol=0.0)),
        ),
        "condition-number": (
            0.0,
            error,
            error <= 1e-6,
            "the pooled Hessian is better conditioned: its κ is about "
            + ", ".join(f"{kappa:.0f}" for kappa in pooled),
        ),
    }
    return claims_of("fig4a", sentences, findings)


def claims_b(measured: Measurements) -> list[Claim]:
    """Check each sentence about panel (b)."""
    sentences = {
        "fedsplit-rounds": "FedSplit needs roughly 400 rounds at κ = 1e4 (medians for κ = 10^0, "
        "10^0.5, …, 10^4)",
        "fedgd-rounds": "FedGD needs on the order of 34000 rounds at κ = 1e4 (medians for κ = "
        "10^0, 10^0.5, …, 10^4)",
        "slopes": "T grows like κ for FedGD and like √κ for FedSplit: slopes of log T against log "
        "κ, κ ≥ 10",
        "sublinear": "FedGD's dependence on κ is about linear, FedSplit's sublinear: slope of "
        "FedGD over that of FedSplit",
        "bounds": "T is at most O(κ log 1/ε) for FedGD and O(√κ log 1/ε) for FedSplit, with the "
        "theory's constants: largest T over its bound, of both",
        "log-eps": "T of FedSplit grows like log(1/ε): rounds to 1e-6 over rounds to 1e-3 at κ = "
        "1e4",
        "fewer": "FedSplit needs fewer rounds than FedGD at κ = 1e4: how many times fewer",
        "defaults": "what solve chooses from, with nothing to tune: rounds of QuasiNewton and of "
        "FedSplitInformation at κ = 1 and 1e4",
        "newton": "with Hessians on least squares FedSplitInformation is Newton's method: how much "
        "their rounds differ at most",
    }
    table = measured.tables["rounds"]
    gd, split = (medians(measured, name) for name in PAPERS)
    slopes = [slope(measured, name) for name in PAPERS]
    growth = medians(measured, "fedsplit-1e-6")[-1] / split[-1]
    shares = [float(np.max(table[name] / table[f"{name}-bound"])) for name in PAPERS]
    ends = [medians(measured, name)[i] for name in DEFAULTS for i in (0, -1)]
    as_theory = abs(slopes[0] - 1) <= 0.1 and abs(slopes[1] - 0.5) <= 0.1
    flat = all(slope(measured, name) < 0.2 for name in DEFAULTS)
    apart = float(np.max(np.abs(table["information"] - table["newton"])))
    findings = {
        "fedsplit-rounds": (400, split, abs(split[-1] / 400 - 1) <= 0.1),
        "fedgd-rounds": (34000, gd, abs(gd[-1] / 34000 - 1) <= 0.1),
        "slopes": ([1.0, 0.5], slopes, as_theory),
        "sublinear": (2.0, slopes[0] / slopes[1], slopes[0] / slopes[1] > 1.5),
        "bounds": ("at most 1", shares, max(shares) <= 1.0),
        "log-eps": ("below 2", growth, 1.0 < growth < 2.0),
        "fewer": (85.0, gd[-1] / split[-1], gd[-1] / split[-1] > 50),
        "defaults": ("nearly the same", ends, flat),
        "newton": (0.0, apart, apart == 0.0),
    }
    return claims_of("fig4b", sentences, findings)


SIZES = {"m": 10, "d": 100, "n": 400, "noise": 1.0, "seeds": [0, 1, 2, 3, 4]}

FIG4A = Experiment(
    "fig4a",
    "Convergence at three condition numbers",
    "The paper gives no step for FedGD: 2/(ℓ* + L*), with ℓ* = 1 and L* = κ. FedSplit has Theorem "
    "1's s = 1/√κ. Five seeds; a curve is the median, the band ranges from the smallest to the "
    "largest. The gap is that of the sum F. Every run starts at x = 0.",
    {**SIZES, "kappas": [1e2, 1e3, 1e4], "rounds": 600},
    compute_a,
    draw_a,
    claims_a,
    cost=10,
)
FIG4B = replace(
    FIG4A,
    name="fig4b",
    title="Rounds against the condition number",
    settings={**SIZES, "kappas": [float(10 ** (k / 2)) for k in range(9)], "eps": 1e-3},
    compute=compute_b,
    draw=draw_b,
    claims=claims_b,
    cost=65,
)
