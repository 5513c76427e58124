"""The tables of options in the documentation: ``python -m fedsplit.commands.docs docs/fit.md``."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, get_args

from fedsplit.commands.options import CORE, spelled
from fedsplit.regression.fields import Group, record_in
from fedsplit.regression.options import FitOptions

MARKER = "<!-- between these two lines: written by make docs from the fields of FitOptions -->"


def updated(page: str) -> str:
    """The text of a page with new tables, one per group of options, between its two markers."""
    before, _, after = page.split(MARKER)
    lines = []
    for group in get_args(Group):
        members = [each for each in fields(FitOptions) if each.metadata["option"].group == group]
        if members:
            lines += [f"### {group.capitalize()}", ""]
            lines += ["| Python | command line | default | |", "| --- | --- | --- | --- |"]
            lines += [_row(*cells) for each in members for cells in _cells(each)]
            lines.append("")
    tables = "\n".join(lines)
    return f"{before}{MARKER}\n\n{tables}\n{MARKER}{after}"


def _cells(field: Field[Any]) -> list[tuple[str, str, object, str]]:
    """Name, form on the command line, default and text of an option, and of those within it."""
    about = field.metadata["option"]
    typed = ""
    if field.name in CORE:
        typed = f"{spelled(field)} {about.metavar or ''}".strip()
    elif field.type is bool or about.metavar:
        typed = f"--set {field.name}={about.metavar or 'true|false'}"
    cells = [(field.name, typed, field.default, about.text)]
    record = record_in(field.type)
    if record is not None:
        texts = _described(record)
        for each in fields(record):
            name = f"{field.name}.{each.name}"
            cells.append((name, f"--set {name}=…", each.default, texts[each.name]))
    return cells


def _row(name: str, typed: str, default: object, text: str) -> str:
    shown = f"`{default}`" if isinstance(default, str | int | float) else ""
    cells = (f"`{name}`", f"`{typed}`" if typed else "", shown, text)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _described(record: Any) -> dict[str, str]:
    """What the docstring of a record says about each of its parameters."""
    parameters = re.compile(r"^(\w[\w, ]*) : .*\n((?:    .*\n?)+)", re.M)
    return {
        name: " ".join(text.split())
        for names, text in parameters.findall(inspect.getdoc(record) or "")
        for name in names.split(", ")
    }


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        page = path.read_text(encoding="utf-8")
        path.write_text(updated(page), encoding="utf-8")
