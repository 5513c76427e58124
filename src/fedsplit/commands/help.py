"""The help texts of commands: an example first, options in groups, at most 80 columns wide."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from fedsplit.errors import nearest

# Newer versions of Typer bring their own copy of click, older ones use the package: this is the
# usage error of either.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

EXAMPLE = "Example: "
"""How the paragraph of a docstring begins that help texts begin with."""


class Helpful:
    """A command whose help text is made here.

    Click breaks lines at hyphens, which are in numbers such as 1e-09 too, and Typer groups options
    only in boxes, which leave too little room at 80 columns.
    """

    help: str | None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line; an error names the help of this command."""
        try:
            found: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]  # Click's
        except UsageError as error:
            if error.ctx is None:  # type: ignore[attr-defined]  # Click's
                error.ctx = ctx  # type: ignore[attr-defined]
            raise
        return found

    def get_help(self, ctx: Any) -> str:
        """The whole text."""
        usage = f"Usage: {ctx.command_path} {' '.join(self.collect_usage_pieces(ctx))}"  # type: ignore[attr-defined]  # Click's
        paragraphs = re.split(r"\n\n+", (self.help or "").strip())
        parts = [shown(each) for each in paragraphs if each.startswith(EXAMPLE)]
        parts += [usage, *(filled(each) for each in paragraphs if not each.startswith(EXAMPLE))]
        if isinstance(self, Group):
            parts.append(section("Commands", self.short_texts(ctx)))
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):  # type: ignore[attr-defined]  # Click's
            record = param.get_help_record(ctx)
            if record is not None and param.param_type_name != "argument":
                heading = getattr(param, "rich_help_panel", None) or "Options"
                sections.setdefault(heading, []).append(record)
        # Typer escapes the bracket of "[default: ...]" for Rich, which prints nothing here.
        parts += [
            section(heading, [(name, text.replace("\\[", "[")) for name, text in sections[heading]])
            for heading in sorted(sections, key=("Run", "Options").__contains__)
        ]
        return "\n\n".join(parts)

    def get_short_help_str(self, limit: int = 45) -> str:
        """The first paragraph, which is one sentence, whole."""
        return " ".join((self.help or "").split("\n\n")[0].split())


class Command(Helpful, TyperCommand):
    """A command of ``fedsplit``, or of a noun such as ``fedsplit study``."""


class Group(Helpful, TyperGroup):
    """A noun with commands; without one it shows them."""

    def short_texts(self, ctx: Any) -> list[tuple[str, str]]:
        """The names of the commands, each with a sentence."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        return [(name, each.get_short_help_str()) for name, each in commands if each is not None]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            typer.echo(self.get_help(ctx))
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            ctx.fail(f"there is no command {args[0]!r}: {nearest(args[0], known, 20)}")
        return super().resolve_command(ctx, args)


def application(**details: Any) -> typer.Typer:
    """A command, or with ``cls=Group`` a noun with several, for a module to add to."""
    return typer.Typer(add_completion=False, rich_markup_mode=None, **details)


def width() -> int:
    """The width of texts: at most 80 columns, with a margin."""
    return max(40, min(80, shutil.get_terminal_size().columns) - 2)


def shown(paragraph: str) -> str:
    """Examples, one command a line, or more lines that a shell takes for one."""
    lines: list[str] = []
    for line in paragraph.removeprefix(EXAMPLE).splitlines():
        if lines and not line.strip().startswith("fedsplit "):
            lines[-1] += " \\"
            line = f"    {line.strip()}"
        lines.append(f"  {line.strip() if line[0] != ' ' else line}")
    return "\n".join(["Example:", *lines])


def filled(text: str, indent: int = 0) -> str:
    """A paragraph in lines that break between words only."""
    lines = textwrap.wrap(
        " ".join(text.split()),
        width() - indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return f"\n{' ' * indent}".join(lines)


def section(heading: str, rows: Sequence[tuple[str, str]]) -> str:
    """A heading, and below it names with their texts in two columns."""
    column = min(24, max(len(name) for name, _ in rows)) + 4

    def entries() -> Iterable[str]:
        for name, text in rows:
            line = f"  {name}"
            line += f"\n{' ' * column}" if len(line) > column - 2 else " " * (column - len(line))
            yield line + filled(text, column)

    return "\n".join([f"{heading}:", *entries()])
