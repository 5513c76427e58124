"""Figures: log optimality gap against rounds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fedsplit.compare import TARGETS, Run
from fedsplit.errors import InputError

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette, which colour-blind readers can tell apart."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
FORMATS = ("png", "svg", "pdf")


def check_target(path: Path) -> None:
    """Refuse a file that a figure could not be written to, before the work is done."""
    if path.suffix.lstrip(".") not in FORMATS:
        raise InputError(f"{path}: a figure is .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{path}: cannot be written")


def gap_figure(runs: Sequence[Run], title: str) -> Figure:
    """Gap against rounds, one curve a method, each with its own colour and marker."""
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    last = max(len(run.gaps) for run in runs) - 1
    spacing = max(1, last // 8)
    for i, run in enumerate(runs):
        colour, rounds = COLOURS[i % len(COLOURS)], np.arange(len(run.gaps))
        shown = run.gaps > 0
        axes.semilogy(
            rounds[shown],
            run.gaps[shown],
            color=colour,
            marker=MARKERS[i % len(MARKERS)],
            markevery=(i * spacing // len(runs), spacing),
            markersize=5,
            linewidth=1.6,
            label=run.label,
        )
    axes.set(xlabel="rounds", ylabel="optimality gap  F(x) - F*", xlim=(0, last))
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_ylim(bottom=TARGETS[-1] / 10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right center", frameon=False)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure; the file has its name only when it is whole, and the same run gives the same bytes."""
    partial = path.with_name(f".{path.name}.partial")
    no_date: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(path.suffix.lstrip("."), {})
    try:
        figure.savefig(partial, dpi=150, metadata=no_date, format=path.suffix.lstrip("."))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
