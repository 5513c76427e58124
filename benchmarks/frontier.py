"""A picture of questions against floats: which methods no other beats in both."""

from __future__ import annotations

import math
from pathlib import Path

Costs = dict[str, dict[str, tuple[float, float]]]
"""Questions and floats, by problem and method."""

SHOWN = ("default", "vectors", "L-BFGS", "CG", "GIANT", "Newton", "Anderson")


def draw(costs: Costs, path: Path, most: int = 6) -> None:
    """Draw a panel per problem, at most so many, spread over the list."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    titles = list(costs)
    step = max(1, math.ceil(len(titles) / most))
    titles = titles[::step][:most]
    rows = math.ceil(len(titles) / 3)
    figure, axes = plt.subplots(rows, 3, figsize=(12, 3.6 * rows), squeeze=False)
    for axis in axes.flat[len(titles) :]:
        axis.set_visible(False)
    for axis, title in zip(axes.flat, titles, strict=False):
        points = {
            name: (floats, questions)
            for name, (questions, floats) in costs[title].items()
            if name in SHOWN and math.isfinite(questions)
        }
        best = sorted(
            point
            for point in points.values()
            if not any(other[0] <= point[0] and other[1] < point[1] for other in points.values())
        )
        axis.step(*zip(*best, strict=True), where="post", color="0.8", zorder=1)
        for i, (name, (floats, questions)) in enumerate(sorted(points.items())):
            color = {"default": "C3", "vectors": "C1"}.get(name, "C0")
            axis.scatter(floats, questions, color=color, zorder=2)
            beside = (3, 5 if i % 2 else -12)  # above and below by turns
            axis.annotate(
                name, (floats, questions), xytext=beside, textcoords="offset points", fontsize=8
            )
        axis.set(xscale="log", yscale="log", title=title, xlabel="floats", ylabel="questions")
        axis.set_ylim(1, 1000)
        least = math.floor(math.log10(best[0][0]))
        axis.set_xlim(10.0**least, 10.0 ** (least + 2))
        axis.title.set_fontsize(9)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
