"""Figure 1: FedProx, and FedGD with more than one local step, stop at wrong points (§2.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from fedsplit import ensembles, plots, theory
from fedsplit.losses.least_squares import LeastSquares
from fedsplit.methods.fedgd import FedGD
from fedsplit.methods.fedprox import FedProx
from fedsplit.methods.fedsplit import FedSplit
from fedsplit.paper.record import Claim, Experiment, Record, Watch
from fedsplit.paper.runs import Bench, floor, sizes
from fedsplit.problem import Problem
from fedsplit.prox.gradient import GradientProx

SETTINGS = {"m": 25, "d": 100, "n": 500, "noise": 0.25, "seed": 0, "rounds": 100}
WRONG = ("fedgd-e10", "fedgd-e100", "fedprox")


def compute(settings: Mapping[str, Any], watch: Watch) -> Record:
    """Run FedGD with e = 1, 2, 10, 100, FedProx, and FedSplit with as many local gradient steps."""
    ensemble = ensembles.isotropic(**sizes(settings), noise=settings["noise"])
    T = settings["rounds"]
    bench = Bench(
        Problem(LeastSquares(), ensemble.clients),
        watch,
        work=T * (1 + 2 + 10 + 100 + 1 + 11 + 101 + 1),
    )
    ell, L = bench.constants()
    s, s_split = 1 / L, theory.fedsplit_step(ell, L)
    tables = {f"fedgd-e{e}": bench.curve(FedGD(s, e), T, cost=e) for e in (1, 2, 10, 100)}
    tables["fedprox"] = bench.curve(FedProx(s), T)
    tables["fedsplit-exact"] = bench.curve(FedSplit.plain(s_split), T)
    for e in (10, 100):
        tables[f"fedsplit-e{e}-broadcast"] = bench.curve(
            FedSplit.plain(s_split, GradientProx(e)), T, cost=e + 1
        )
    points = {f"fedgd-e{e}": theory.fedgd_fixed_point(bench.clients, s, e) for e in (2, 10, 100)}
    points["fedprox"] = theory.fedprox_fixed_point(bench.clients, s)
    closed = {name: bench.gap_at(x) for name, x in points.items()}
    return Record(
        settings,
        tables,
        {"s": s, "s_fedsplit": s_split, "ell": ell, "L": L, "closed_form_gaps": closed},
    )


def draw(record: Record) -> Mapping[str, Figure]:
    """The paper's figure, and FedSplit with the same local work beside the floors."""
    return {
        "fig1": plots.curves(
            record.tables, ["fedgd-e1", *WRONG], "Figure 1: least squares, isotropic"
        ),
        "fig1-ours": plots.curves(
            record.tables,
            [
                "fedgd-e10",
                "fedgd-e100",
                "fedsplit-e10-broadcast",
                "fedsplit-e100-broadcast",
                "fedsplit-exact",
            ],
            "Figure 1, ours: the same local steps, without a floor",
        ),
    }


def claims(record: Record) -> list[Claim]:
    """What §2.3 and the caption of Figure 1 say."""
    closed: Mapping[str, float] = record.facts["closed_form_gaps"]
    floors = [floor(record.gap(name)) for name in WRONG]
    ratios = [floor(record.gap(name)) / closed[name] for name in WRONG]
    one, two = floor(record.gap("fedgd-e1")), floor(record.gap("fedgd-e2"))
    return [
        Claim(
            "fig1-e1-converges",
            "FedGD with e = 1 converges to the optimum",
            "no floor",
            one,
            abs(one) < 1e-8,
        ),
        Claim(
            "fig1-floors",
            "FedGD with e = 10 and e = 100, and FedProx, stop at an error floor",
            "floors",
            floors,
            min(floors) > 1e-3,
        ),
        Claim(
            "fig1-floors-closed-form",
            "these floors are the gaps at the closed-form fixed points (§2.1, §2.2): ratio of the two",
            [1.0, 1.0, 1.0],
            ratios,
            all(abs(ratio - 1) <= 0.01 for ratio in ratios),
        ),
        Claim(
            "fig1-as-soon-as",
            "FedGD does not converge to the optimum as soon as e > 1: its floor at e = 2",
            "a floor",
            two,
            two > 1e-3 and abs(two / closed["fedgd-e2"] - 1) <= 0.01,
        ),
        Claim(
            "fig1-full-rank",
            "the designs A_j have full rank: smallest eigenvalue of any A_jᵀA_j",
            "> 0",
            float(record.facts["ell"]),
            record.facts["ell"] > 0,
        ),
    ]


FIG1 = Experiment(
    "fig1",
    "FedProx and multi-step FedGD stop at wrong points",
    "The paper gives no step: s = 1/L* for FedGD and FedProx, and Theorem 1's for FedSplit. Every run starts at x = 0.",
    SETTINGS,
    compute,
    draw,
    claims,
    cost=5,
)
