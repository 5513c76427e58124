"""Draw how far averaging methods land from the pooled fit of the RAND data.

``python examples/bias.py picture.png``
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import statsmodels.formula.api as smf
from matplotlib.figure import Figure
from statsmodels.genmod.families import Binomial

import fedsplit as fs
from fedsplit import plots

TERMS = (
    "logc + idp + lpi + fmde + linc + lfam + xage + female + child + black + educdec "
    "+ physlm + disea + C(health)"
)
DATA = Path(__file__).parent / "randhie"


def pooled() -> pd.Series:
    """The coefficients of statsmodels on all rows together."""
    rows = pd.concat([pd.read_csv(file) for file in sorted(DATA.glob("*.csv"))])
    rows = rows.dropna().assign(visited=lambda table: (table["mdvis"] > 0).astype(float))
    return smf.glm(f"visited ~ {TERMS}", rows, family=Binomial()).fit(tol=1e-14).params


def draw(target: Path) -> None:
    """Draw one row per coefficient: where each method stops, in robust standard errors."""
    plots.check_target(target)
    model = fs.fit(DATA, f"{{mdvis > 0}} ~ {TERMS}", family="logistic")
    # in one order: pandas would sort the names of two that differ
    reference, errors = pooled()[model.params.index], model.robust_bse
    first = {name: model.bias_of(name) for name in ("fedgd", "fedprox")}
    smaller = {name: model.bias_of(name, step=each.step / 10) for name, each in first.items()}
    looks = {
        "fedgd": ("FedGD, 10 local steps", plots.ORANGE, "D"),
        "fedprox": ("FedProx", plots.PINK, "s"),
    }
    figure = Figure(figsize=(7.2, 4.8), layout="constrained")
    axes = figure.subplots()
    rows = range(len(reference))
    for name, (label, colour, marker) in looks.items():
        for bias, face in ((first[name], colour), (smaller[name], "white")):
            axes.scatter(
                (bias.params - reference) / errors,
                rows,
                facecolor=face,
                edgecolor=colour,
                marker=marker,
                s=26,
                label=f"{label}, step {bias.step:.2g}",
                zorder=2,
            )
    away = (model.params - reference) / errors
    proved = f"fs.fit, proved within {model.certificate.standard_errors:.0e}"
    axes.scatter(away, rows, color=plots.BLUE, marker="|", s=90, label=proved, zorder=3)
    axes.set_yticks(rows, model.estimates.names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("distance from the pooled coefficient, in robust standard errors")
    axes.set_title(
        "Any visit to a doctor in a year, six sites: where each method stops",
        loc="left",
        fontsize=10,
    )
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    plots.save(figure, target)
    sys.stdout.write(
        f"fedsplit: at most {away.abs().max():.0e} robust standard errors from statsmodels\n"
    )
    for bias in (*first.values(), *smaller.values()):
        worst = ((bias.params - reference) / errors).abs()
        sys.stdout.write(
            f"{bias.method}, step={bias.step:.2g}: up to {worst.max():.2g} robust standard errors "
            f"({worst.idxmax()})\n"
        )


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
