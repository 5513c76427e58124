"""The tables of options in the documentation: ``python -m fedsplit.commands.docs docs/fit.md``."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import get_args

from fedsplit import files
from fedsplit.commands.options import PrivacyOptions, Resilience, on_command_line, spelled
from fedsplit.regression.fields import Group
from fedsplit.regression.options import FitOptions

MARKER = "<!-- between these two lines: written by make docs from the fields of FitOptions -->"


def updated(page: str) -> str:
    """The text of a page with new tables, one per group of options, between its two markers."""
    before, _, after = page.split(MARKER)
    lines = []
    documented = (*fields(FitOptions), *fields(PrivacyOptions), *fields(Resilience))
    for group in get_args(Group):
        members = [each for each in documented if each.metadata["option"].group == group]
        if not members:
            continue
        lines += [f"### {group.capitalize()}", ""]
        lines += ["| Python | command line | default | |", "| --- | --- | --- | --- |"]
        for field in members:
            about = field.metadata["option"]
            name = typed = default = ""
            if field in fields(FitOptions):
                name = f"`{field.name}`"
            if on_command_line(field):
                typed = f"`{' '.join(filter(None, (spelled(field), about.metavar)))}`"
            if isinstance(field.default, str | int | float):
                default = f"`{field.default}`"
            cells = [cell.replace("|", "\\|") for cell in (name, typed, default, about.text)]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    tables = "\n".join(lines)
    return f"{before}{MARKER}\n\n{tables}\n{MARKER}{after}"


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        files.write(path, updated(path.read_text(encoding="utf-8")))
