"""What the owner of a client sees while it runs: lines, and one that is redrawn on a terminal."""

from __future__ import annotations

import sys
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import typer

from fedsplit.commands.terminal import live
from fedsplit.sites.studies.hashes import short
from fedsplit.texts import one_line, printable

if TYPE_CHECKING:
    from fedsplit.sites.events import Event

FEW = 20
"""So many questions left are worth a warning."""

PREFIX = "fedsplit client:"


class View:
    """Prints what happens at a client.

    Parameters
    ----------
    folder : str
        Of the client, for commands that are suggested.
    prompted : bool
        Whether the owner is asked about studies at this terminal.
    """

    def __init__(self, folder: str, prompted: bool) -> None:
        self._folder = folder
        self._prompted = prompted
        self._redraws = live()
        # Whether the last line of the terminal is one to be redrawn.
        self._drawn = False
        self._warned = False

    def line(self, text: str) -> None:
        """Print a line that stays."""
        self._clear()
        typer.echo(f"{PREFIX} {one_line(text)}", err=True)

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
                f"study {name} … waits for you: fedsplit approve --folder {self._folder} shows it"
            )

    def _answer(self, event: Event) -> None:
        parts = [f"sent {event.text}"]
        if event.study:
            parts.insert(0, f"study {short(event.study[:16])} …")
            parts.append(f"question {event.asked:,} of at most {event.most:,}")
        if event.left is not None:
            parts.append(f"{event.left:,} left")
        text = f"{PREFIX} {printable('; '.join(parts))}"
        if self._redraws:
            width = get_terminal_size().columns - 1  # a line that wraps could not be redrawn
            sys.stderr.write(f"\r\x1b[K{text[:width]}")
            sys.stderr.flush()
            self._drawn = True
        else:
            typer.echo(text, err=True)
        if event.left is not None and event.left <= FEW and not self._warned:
            self._warned = True
            self.line(
                f"only {event.left:,} more questions are answered (--max-rounds): to allow more, "
                "stop this command and start it again"
            )

    def _end(self, event: Event) -> None:
        self.line(f"study {short(event.study[:16])} … has ended, with this result")
        typer.echo(f"\n{printable(event.text)}\n", err=True)

    def _clear(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            self._drawn = False
