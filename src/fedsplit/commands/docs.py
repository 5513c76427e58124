"""The tables of options in the documentation: ``python -m fedsplit.commands.docs docs/fit.md``."""

from __future__ import annotations

import sys
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, get_args

from fedsplit import files
from fedsplit.commands.options import Resilience, on_command_line, spelled
from fedsplit.regression.options import FitOptions, Group

BEGIN = "<!-- written by make docs from the fields of FitOptions -->"
END = "<!-- end of what make docs writes -->"


def updated(page: str) -> str:
    """The text of a page with new tables between ``BEGIN`` and ``END``."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{option_tables()}\n{END}{after}"


def option_tables() -> str:
    """A table of options for every group, in Markdown."""
    lines = []
    for group in get_args(Group):
        lines += [
            f"### {group.capitalize()}",
            "",
            "| Python | command line | default | |",
            "| --- | --- | --- | --- |",
        ]
        for record in (FitOptions, Resilience):
            for field in fields(record):
                if field.metadata["option"].group == group:
                    lines.append(_row(field, in_python=record is FitOptions))
        lines.append("")
    return "\n".join(lines)


def _row(field: Field[Any], in_python: bool) -> str:
    about = field.metadata["option"]
    name = typed = default = ""
    if in_python:
        name = f"`{field.name}`"
    if on_command_line(field):
        typed = f"`{' '.join(filter(None, (spelled(field), about.metavar)))}`"
    if isinstance(field.default, str | int | float):
        default = f"`{field.default}`"
    cells = [cell.replace("|", "\\|") for cell in (name, typed, default, about.text)]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Write the tables into the pages that are named on the command line."""
    for path in map(Path, sys.argv[1:]):
        files.write(path, updated(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
