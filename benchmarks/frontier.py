"""A picture of questions against floats: which methods no other beats in both."""

from __future__ import annotations

import math
from pathlib import Path

Costs = dict[str, dict[str, tuple[float, float]]]
"""Questions and floats, by problem and method."""

MARKERS = {
    "default": ("C3", "*"),
    "quasi-Newton": ("C1", "o"),
    "L-BFGS": ("C0", "s"),
    "CG": ("C2", "^"),
    "GIANT": ("C4", "v"),
    "Newton": ("C5", "D"),
}
"""Colour and marker of the methods that are shown."""


def draw(costs: Costs, path: Path, most: int = 6) -> None:
    """Draw a panel per problem, at most so many, spread over the list."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    titles = list(costs)
    step = max(1, math.ceil(len(titles) / most))
    titles = titles[::step][:most]
    rows = math.ceil(len(titles) / 3)
    figure, axes = plt.subplots(
        rows, 3, figsize=(12, 3.6 * rows), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(titles) :]:
        axis.set_visible(False)
    labels = {}
    for axis, title in zip(axes.flat, titles, strict=False):
        points = {
            name: (floats, questions)
            for name, (questions, floats) in costs[title].items()
            if name in MARKERS and math.isfinite(questions)
        }
        best = sorted(
            point
            for point in points.values()
            if not any(other[0] <= point[0] and other[1] < point[1] for other in points.values())
        )
        axis.step(*zip(*best, strict=True), where="post", color="0.8", zorder=1)
        for name, (sent, asked) in points.items():
            colour, marker = MARKERS[name]
            labels[name] = axis.scatter(
                sent, asked, s=60, color=colour, marker=marker, zorder=2 + (name == "default")
            )
        axis.set(xscale="log", yscale="log", title=title, xlabel="floats", ylabel="questions")
        axis.set_ylim(1, 1000)
        floats = [point[0] for point in points.values()]
        ends = (math.floor(math.log10(min(floats))), math.ceil(math.log10(max(floats))))
        axis.set_xlim(10.0 ** ends[0], 10.0 ** ends[1])
        axis.xaxis.set_minor_formatter("")  # within one power of ten labels would overlap
        axis.title.set_fontsize(9)
    figure.legend(labels.values(), labels, loc="outside lower center", ncols=len(labels))
    figure.savefig(path, dpi=110)
