"""The report on saved experiments: figures, claims.json and one page."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fedsplit import files, html, plots
from fedsplit.errors import InputError
from fedsplit.paper.experiment import Claim, Experiment, Measurements, load
from fedsplit.paper.experiments import EXPERIMENTS, is_open, named, open_questions


class Section(NamedTuple):
    """One experiment on the page; its figures are SVG, by the names of their files."""

    experiment: Experiment
    measured: Measurements
    figures: Mapping[str, bytes]
    claims: Sequence[Claim]


def write_report(out: Path, command: str = "") -> list[str]:
    """Draw the figures of every saved experiment and check its claims, without computing.

    Figures, claims.json and index.html are written to ``out``, a folder that ``reproduce`` wrote.
    The page shows the command that made the data, by default that of the last run. Returns the
    names of the experiments found.
    """
    known = list(EXPERIMENTS)
    if any(is_open(folder.name) for folder in (out / "data").glob("*")):
        known += open_questions()
    saved = {name: load(out / "data" / name) for name in known}
    found = {name: measured for name, measured in saved.items() if measured is not None}
    if not found:
        raise InputError(
            f"{out}: has no saved experiment; make some with: fedsplit reproduce --out {out}"
        )
    files.check_writable(out)
    sections = [_section(named(name), measured, out) for name, measured in found.items()]
    claims = [claim for section in sections for claim in section.claims]
    # Comparisons of arrays give numpy's booleans, which json does not know.
    entries = [
        claim._asdict() | {"holds": bool(claim.holds), "measured": _in_json(claim.measured)}
        for claim in claims
    ]
    files.write(out / "claims.json", json.dumps(entries, indent=2, ensure_ascii=False) + "\n")
    made_by = out / "data" / "command.txt"
    if command:
        files.write(made_by, command)
    elif made_by.exists():
        command = made_by.read_text(encoding="utf-8")
    page = html.render(
        "reproduction.html",
        sections=sections,
        command=command,
        held=sum(claim.holds for claim in claims),
        total=len(claims),
        seconds=sum(section.measured.seconds for section in sections),
        versions=html.versions("fedsplit", "numpy", "scipy", "matplotlib"),
    )
    files.write(out / "index.html", page)
    return list(found)


def _in_json(measured: float | list[float]) -> object:
    """Return numbers for JSON: None where there is none, such as of a run that never arrives."""
    if isinstance(measured, list):
        return [_in_json(each) for each in measured]
    return measured if math.isfinite(measured) else None


def _section(experiment: Experiment, measured: Measurements, out: Path) -> Section:
    """Draw one experiment's figures into the folder and check its claims."""
    try:
        figures = experiment.draw(measured)
        claims = experiment.claims(measured)
    except KeyError:
        folder = out / "data" / experiment.name
        raise InputError(
            f"{folder}: made by another version; run fedsplit reproduce --out {out} again"
        ) from None
    rendered = {name: plots.render(figure, "svg") for name, figure in figures.items()}
    for name, figure in figures.items():
        plots.save(figure, out / f"{name}.png")
        files.write(out / f"{name}.svg", rendered[name])
    return Section(experiment, measured, rendered, claims)
