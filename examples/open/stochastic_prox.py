"""Stochastic proxes in FedSplit: accuracy against rounds, and against passes over the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

import fedsplit as fs
from fedsplit.paper import Claim, Experiment, Measurements, Watch
from open import work
from open.stochastic import StochasticProx

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GRADIENT_STEPS = (1, 2, 3, 5, 10)
SGD_STEPS = (20, 80, 320)

SOLVERS: Mapping[str, fs.local.ProxSolver] = {
    **{f"gradient-e{e}": fs.GradientProx(e) for e in GRADIENT_STEPS},
    "svrg": StochasticProx(),
    "saga": StochasticProx(estimator="saga"),
    **{f"sgd-{steps}": StochasticProx(steps, estimator="sgd") for steps in SGD_STEPS},
}
"""Local solvers by the names of their curves."""


def compute(settings: Mapping[str, Any], watch: Watch) -> Measurements:
    """Run every solver on both problems; SGD is at its floor soon."""
    rounds = {
        name: settings["sgd_rounds" if name.startswith("sgd") else "rounds"] for name in SOLVERS
    }
    return work.compare(SOLVERS, rounds, settings, watch)


def draw(measured: Measurements) -> Mapping[str, Figure]:
    """Draw gap against passes and rounds for both problems, with the master theorem's bound."""
    curves = ("gradient-e1", "gradient-e3", "gradient-e10", "svrg", "saga", "sgd-20", "sgd-320")
    title = "Stochastic proxes"
    return work.draw(measured, "open-stochastic-prox", title, curves, ("saga", "sgd-320"))


def claims(measured: Measurements) -> list[Claim]:
    """Check what stochastic proxes gain, and where they stop."""
    passes = {name: work.passes(measured, name) for name in SOLVERS}
    best = min(passes[f"gradient-e{e}"] for e in GRADIENT_STEPS)
    reduced = [passes["svrg"], passes["saga"]]
    gaps = [measured.gap(f"logistic-sgd-{steps}") for steps in SGD_STEPS]
    floors = [float(np.median(each[-max(1, len(each) // 5) :])) for each in gaps]
    return [
        Claim(
            "open-stochastic-prox-passes",
            "SVRG and SAGA reach 1e-6 on Figure 3's problem in fewer passes over the data than ten "
            "gradient steps per prox: passes of SVRG and SAGA",
            f"< {passes['gradient-e10']:.0f}",
            reduced,
            max(reduced) < passes["gradient-e10"],
            f"the best number of gradient steps takes {best:.0f} passes",
        ),
        Claim(
            "open-stochastic-prox-sgd-floor",
            "SGD has an error floor, which falls with its number of steps: floors at 20, 80, 320",
            "floors",
            floors,
            floors[0] > floors[1] > floors[2] > 1e-6,
        ),
        work.bound_claim(measured, "open-stochastic-prox", list(SOLVERS)),
    ]


OPEN_STOCHASTIC_PROX = Experiment(
    "open-stochastic-prox",
    "Stochastic proxes: accuracy against passes over the data",
    "FedSplit at Theorem 1's step, on the problems of Figures 3 (x₀ ~ N(0, I/d), ℓ at x*) "
    "and 2b. Every solver starts at the broadcast point. Batches have 32 rows; SVRG and SAGA take "
    "20 steps. A pass is one look at all rows of a client; that of the proof of the prox is "
    "counted, and a minibatch counts as its share.",
    {
        "logistic": [10, 100, 1000],
        "spiked": [10, 100, 400],
        "kappa": 10.0,
        "seed": 0,
        "rounds": 80,
        "sgd_rounds": 30,
    },
    compute,
    draw,
    claims,
    cost=40,
)
