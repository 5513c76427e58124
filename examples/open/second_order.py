"""Second-order proxes with drawn Hessians: subsampled Newton and a Newton sketch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

import fedsplit as fs
from fedsplit.paper import Claim, Experiment, Measurements, Watch
from open import work
from open.subsampled_newton import SubsampledNewtonProx

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = (50, 100, 200, 400)

SOLVERS: Mapping[str, fs.local.ProxSolver] = {
    "gradient-e3": fs.GradientProx(3),
    "gradient-e10": fs.GradientProx(10),
    "exact": fs.ExactProx(),
    **{f"rows-{n}": SubsampledNewtonProx(rows=n) for n in ROWS},
    **{f"sketch-{n}": SubsampledNewtonProx(rows=n, sketch="count") for n in ROWS},
    "rows-200-twice": SubsampledNewtonProx(2, 200),
}
"""Local solvers by the names of their curves."""


def compute(settings: Mapping[str, Any], watch: Watch) -> Measurements:
    """Run every solver on both problems."""
    return work.compare(SOLVERS, dict.fromkeys(SOLVERS, settings["rounds"]), settings, watch)


def draw(measured: Measurements) -> Mapping[str, Figure]:
    """Draw gap against passes and rounds for both problems."""
    gradient = ("gradient-e3", "gradient-e10")
    drawn = ("rows-50", "rows-200", "rows-200-twice", "sketch-50", "sketch-200")
    return work.draw(measured, "open-second-order", "Second-order proxes", (*gradient, *drawn))


def claims(measured: Measurements) -> list[Claim]:
    """Check what drawn Hessians gain."""
    passes = {name: work.passes(measured, name) for name in SOLVERS}
    ten = passes["gradient-e10"]
    drawn = [passes["rows-200"], passes["sketch-200"]]
    by_rows = [passes[f"rows-{n}"] for n in ROWS]
    last = [float(measured.gap(f"logistic-rows-{n}")[-1]) for n in ROWS]
    return [
        Claim(
            "open-second-order-passes",
            "subsampled Newton and the Newton sketch with 200 rows reach 1e-6 on Figure 3's "
            "problem in fewer passes over the data than ten gradient steps per prox: passes",
            f"< {ten:.0f}",
            drawn,
            max(drawn) < ten,
            f"three gradient steps take {passes['gradient-e3']:.0f} passes",
        ),
        Claim(
            "open-second-order-rows",
            "more rows in the Hessian mean fewer passes: those with 50, 100, 200 and 400 rows",
            "falling",
            by_rows,
            bool(np.all(np.diff(by_rows) <= 0)),
        ),
        Claim(
            "open-second-order-no-floor",
            "with however few rows there is no error floor: final gaps with 50 to 400 rows",
            "0",
            last,
            max(last) <= 1e-9,
        ),
        work.bound_claim(measured, "open-second-order", list(SOLVERS)),
    ]


OPEN_SECOND_ORDER = Experiment(
    "open-second-order",
    "Second-order proxes with drawn Hessians",
    "As in open-stochastic-prox. One Newton step per prox, unless it says twice, with the gradient "
    "of all rows. A Hessian of some rows counts as their share of a pass, a sketch as one pass; "
    "values in line searches and the solution of linear systems are not counted.",
    {
        "logistic": [10, 100, 1000],
        "spiked": [10, 100, 400],
        "kappa": 10.0,
        "seed": 0,
        "rounds": 120,
    },
    compute,
    draw,
    claims,
    cost=30,
)
