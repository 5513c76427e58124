"""Figure 1: FedProx, and FedGD with more than one local step, stop at wrong points (§2.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedsplit import ensembles, plots, theory
from fedsplit.local.gradient import GradientProx
from fedsplit.losses.least_squares import LeastSquares
from fedsplit.methods.fedgd import FedGD
from fedsplit.methods.fedprox import FedProx
from fedsplit.methods.fedsplit import FedSplit
from fedsplit.paper.curves import floor
from fedsplit.paper.experiment import Claim, Experiment, Watch
from fedsplit.paper.measurements import Measurements
from fedsplit.paper.runs import SolvedProblem, meter
from fedsplit.problem import Problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BIASED = ("fedgd-e10", "fedgd-e100", "fedprox")
"""The methods whose fixed points are not the minimiser."""


def compute(settings: Mapping[str, Any], watch: Watch) -> Measurements:
    """Run FedGD with e = 1, 2, 10, 100, FedProx, and FedSplit with as many local steps."""
    ensemble = ensembles.isotropic(
        settings["m"], settings["d"], settings["n"], settings["noise"], settings["seed"]
    )
    T = settings["rounds"]
    work = T * (1 + 2 + 10 + 100 + 1 + 11 + 101 + 1)  # gradients, a round of exact prox being one
    solved = SolvedProblem(Problem(LeastSquares(), ensemble.clients), meter(watch, work))
    ell, L = solved.constants()
    s = 1 / L
    s_split = theory.fedsplit_step(ell, L)
    tables = {f"fedgd-e{e}": solved.curve(FedGD(s, e), T, cost=e) for e in (1, 2, 10, 100)}
    tables["fedprox"] = solved.curve(FedProx(s), T)
    tables["fedsplit-exact"] = solved.curve(FedSplitVectors(s_split), T)
    for e in (10, 100):
        method = FedSplitVectors(s_split, GradientProx(e))
        tables[f"fedsplit-e{e}-broadcast"] = solved.curve(method, T, cost=e + 1)
    closed = {"fedprox": solved.gap(theory.fedprox_fixed_point(solved.clients, s))}
    for e in (2, 10, 100):
        closed[f"fedgd-e{e}"] = solved.gap(theory.fedgd_fixed_point(solved.clients, s, e))
    facts = {"s": s, "s_fedsplit": s_split, "ell": ell, "L": L, "closed_form_gaps": closed}
    return Measurements(settings, tables, facts)


def draw(measured: Measurements) -> Mapping[str, Figure]:
    """Draw the paper's figure, and FedSplit with the same local work beside the floors."""
    ours = ["fedgd-e10", "fedgd-e100"]
    ours += ["fedsplit-e10-broadcast", "fedsplit-e100-broadcast", "fedsplit-exact"]
    return {
        "fig1": plots.curves(
            measured.tables, ["fedgd-e1", *BIASED], "Figure 1: least squares, isotropic"
        ),
        "fig1-ours": plots.curves(
            measured.tables, ours, "Figure 1, ours: the same local steps, without a floor"
        ),
    }


def claims(measured: Measurements) -> list[Claim]:
    """Check what §2.3 and the caption of Figure 1 say."""
    closed: Mapping[str, float] = measured.facts["closed_form_gaps"]
    floors = [floor(measured.gap(name)) for name in BIASED]
    ratios = [floor(measured.gap(name)) / closed[name] for name in BIASED]
    one = floor(measured.gap("fedgd-e1"))
    two = floor(measured.gap("fedgd-e2"))
    return [
        Claim(
            "fig1-e1-converges",
            "FedGD with e = 1 converges to the optimum: final gap",
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
            "these floors are the gaps at the closed-form fixed points (§2.1, §2.2): ratios",
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
            float(measured.facts["ell"]),
            measured.facts["ell"] > 0,
        ),
    ]


FIG1 = Experiment(
    "fig1",
    "FedProx and multi-step FedGD stop at wrong points",
    "The paper gives no step: s = 1/L* for FedGD and FedProx, Theorem 1's for FedSplit. Every run "
    "starts at x = 0.",
    {"m": 25, "d": 100, "n": 500, "noise": 0.25, "seed": 0, "rounds": 100},
    compute,
    draw,
    claims,
    cost=5,
)
