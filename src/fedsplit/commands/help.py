"""The help text of a command."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand


class Command(TyperCommand):
    """A command whose options are shown under the headings of their groups.

    Typer groups options only in boxes (``rich_markup_mode``), which leave too little room for the
    text at 80 columns. Arguments are described in the command's docstring, not listed: the current
    releases of Click and Typer together lose the help of an argument.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None or param.param_type_name == "argument":
                continue
            heading = getattr(param, "rich_help_panel", None) or "Options"
            name, text = record
            # Typer escapes the bracket of "[default: ...]" for Rich, which prints nothing here.
            sections.setdefault(heading, []).append((name, text.replace("\\[", "[")))
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def get_short_help_str(self, limit: int = 45) -> str:
        """The first paragraph, which is one sentence, whole: the list of commands wraps it."""
        return " ".join((self.help or "").split("\n\n")[0].split())
