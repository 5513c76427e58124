"""What the owner of a client sees while it runs: lines, and one that is redrawn on a terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import typer

from fedsplit.commands.approving import open_question
from fedsplit.commands.terminal import live
from fedsplit.sites.studies.hashes import short
from fedsplit.texts import one_line, printable

if TYPE_CHECKING:
    from fedsplit.sites.events import Event

FEW = 20
"""So many questions left are worth a warning."""

RESULT_LINES = 200
"""Of a result, which comes from the server: it must not look like a line of this program."""

REMEDIES = {
    "--max-rounds": "to allow more, stop this command and start it again (--max-rounds)",
    "questions_per_day": "the count begins again at midnight UTC (questions_per_day)",
    "": "",
}
"""What an owner can do who wants to allow more, by the limit."""


class View:
    """Prints what happens at a client.

    Parameters
    ----------
    folder : str
        Of the client, for commands that are suggested.
    prompted : bool
        Whether the owner is asked about studies at this terminal.
    command : str
        The name of the command that prints it.
    redraws : bool
        Whether answers are shown in one line that is redrawn, where there is a terminal.
    """

    def __init__(
        self, folder: str, prompted: bool, command: str = "client", redraws: bool = True
    ) -> None:
        self._prefix = f"fedsplit {command}:"
        self._folder = folder
        self._prompted = prompted
        self._redraws = redraws and live()
        # Whether the last line of the terminal is one to be redrawn.
        self._drawn = False
        self._warned = False

    def line(self, text: str) -> None:
        """Print a line that stays."""
        self._print(f"{self._prefix} {one_line(text)}")

    def _print(self, text: str) -> None:
        """Print lines; a question that waits for an answer is repeated below them."""
        self._clear()
        question = self._question()
        if question:
            text = f"\n{text}"
        typer.echo(text, err=True)
        if question:
            typer.echo(question, err=True, nl=False)

    def _question(self) -> str:
        if not self._prompted:
            return ""
        return open_question(Path(self._folder))

    def __call__(self, event: Event) -> None:
        """Show an event."""
        match event.kind:
            case "study":
                self._study(event)
            case "answer":
                self._answer(event)
            case "refusal":
                self.line(f"refused {event.text}")
            case "end":
                self._end(event)
            case _:
                self.line(event.text)

    def _study(self, event: Event) -> None:
        name = short(event.study[:16])
        if event.text != "pending":
            self.line(f"study {name} … is {event.text}")
        elif not self._prompted:
            self.line(
                f"study {name} … is pending: fedsplit approve --folder {self._folder} shows it"
            )

    def _answer(self, event: Event) -> None:
        parts = [f"sent {event.text}"]
        if event.study:
            parts.insert(0, f"study {short(event.study[:16])} …")
            parts.append(f"{event.asked:,} of at most {event.most:,} different questions")
        if event.left is not None:
            parts.append(f"{event.left:,} left ({event.limit})")
        text = f"{self._prefix} {printable('; '.join(parts))}"
        if not self._redraws:
            typer.echo(text, err=True)
        elif not self._question():
            width = get_terminal_size().columns - 1  # a line that wraps could not be redrawn
            sys.stderr.write(f"\r\x1b[K{text[:width]}")
            sys.stderr.flush()
            self._drawn = True
        if event.left is not None and event.left <= FEW and not self._warned:
            self._warned = True
            self.line(f"only {event.left:,} more questions are answered: {REMEDIES[event.limit]}")

    def _end(self, event: Event) -> None:
        name = short(event.study[:16])
        if not event.text:
            self.line(
                f"study {name} … was stopped before it had a result; the coordinator knows why"
            )
            return
        lines = event.text.splitlines()
        shown = [f"  | {printable(line)}" for line in lines[:RESULT_LINES]]
        if len(lines) > RESULT_LINES:
            shown.append(f"  | … and {len(lines) - RESULT_LINES:,} more lines")
        self.line(f"study {name} … has ended, with this result of the coordinator:")
        self._print("\n".join(shown))

    def _clear(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            self._drawn = False
