"""Draw how far averaging methods land from the pooled fit of the RAND data.

``python examples/bias.py picture.png``
"""

from __future__ import annotations

import sys
from pathlib import Path

from matplotlib.figure import Figure

import fedsplit as fs
from fedsplit import plots

FORMULA = (
    "mdvis ~ logc + idp + lpi + fmde + linc + lfam + xage + female + child + black + educdec "
    "+ physlm + disea + C(health)"
)


def draw(target: Path) -> None:
    """Draw one row per coefficient: where each method stops, in standard errors."""
    plots.check_target(target)
    model = fs.fit(Path(__file__).parent / "randhie", FORMULA, family="poisson")
    biases = {
        "FedAvg, 10 local steps": (model.bias_of("fedavg", local_steps=10), plots.ORANGE, "D"),
        "FedAvg, 100 local steps": (model.bias_of("fedavg", local_steps=100), plots.GREY, "P"),
        "FedProx": (model.bias_of("fedprox"), plots.PINK, "X"),
    }
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    axes = figure.subplots()
    rows = range(len(model.estimates.names))
    axes.axvspan(
        -1.96, 1.96, color=plots.SKY, alpha=0.25, lw=0, label="95 % interval of the pooled fit"
    )
    for label, (bias, colour, marker) in biases.items():
        axes.scatter(
            bias.standard_errors, rows, color=colour, marker=marker, s=26, label=label, zorder=2
        )
    axes.scatter(
        [0] * len(rows),
        rows,
        color=plots.BLUE,
        marker="o",
        s=30,
        label="FedSplit (proved)",
        zorder=3,
    )
    axes.set_yticks(rows, model.estimates.names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("distance from the pooled coefficient, in standard errors")
    axes.set_title("Doctor visits, six sites: where each method stops", loc="left", fontsize=10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    plots.save(figure, target)
    sys.stdout.write(
        f"fedsplit: proved within {model.certificate.standard_errors:.0e} standard errors, "
        f"after {model.rounds} rounds\n"
    )
    for bias, _, _ in biases.values():
        sys.stdout.write(f"{bias}\n")


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
