"""The tables of options in the documentation: ``python -m fedsplit.commands.docs docs/fit.md``."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import get_args

from fedsplit.commands.options import CORE, spelled
from fedsplit.regression.fields import Group, Option, described, options_of, record_in
from fedsplit.regression.options import FitOptions


def updated(page: str) -> str:
    """The text of a page with new tables, one per group of options, between its two markers."""
    marker = "<!-- between these two lines: written by make docs from the fields of FitOptions -->"
    before, _, after = page.split(marker)
    lines = []
    for group in get_args(Group):
        members = [each for each in options_of(FitOptions).values() if each.group == group]
        if members:
            lines += [f"### {group.capitalize()}", ""]
            lines += ["| Python | command line | default | |", "| --- | --- | --- | --- |"]
            lines += [_row(*cells) for each in members for cells in _cells(each)]
            lines.append("")
    tables = "\n".join(lines)
    return f"{before}{marker}\n\n{tables}\n{marker}{after}"


def _cells(option: Option) -> list[tuple[str, str, object, str]]:
    """Name, form on the command line, default and text of an option, and of those within it."""
    typed = ""
    if option.name in CORE:
        typed = f"{spelled(option)} {option.metavar}".strip()
    elif option.type is bool or option.metavar:
        typed = f"--set {option.name}={option.metavar or 'true|false'}"
    cells = [(option.name, typed, option.default, option.text)]
    record = record_in(option.type)
    if record is not None:
        for each in fields(record):
            name = f"{option.name}.{each.name}"
            text = described(record)[each.name].text
            cells.append((name, f"--set {name}=…", each.default, text))
    return cells


def _row(name: str, typed: str, default: object, text: str) -> str:
    shown = f"`{default}`" if isinstance(default, str | int | float) else ""
    cells = (f"`{name}`", f"`{typed}`" if typed else "", shown, text)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        page = path.read_text(encoding="utf-8")
        path.write_text(updated(page), encoding="utf-8")
