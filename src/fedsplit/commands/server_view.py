"""What ``fedsplit server`` shows while it runs: a table that is redrawn on a terminal, or lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedsplit.commands.terminal import live
from fedsplit.texts import printable

if TYPE_CHECKING:
    from fedsplit.regression.server.federation import Progress
    from fedsplit.remote.https.server import Presence

REDRAWS_PER_SECOND = 2.0
"""How often the table is drawn."""

SHOWN_SILENCE_SECONDS = 5.0
"""Seconds of work on one question after which a client's time is shown."""


class ServerView:
    """Shows who is there, who has approved, and how far the run is.

    Parameters
    ----------
    clients : callable
        Gives what the connected clients do, by name.
    """

    def __init__(self, clients: Callable[[], Mapping[str, Presence]]) -> None:
        self.draws = live()
        self._clients = clients
        self._expected: list[str] = []
        self._phase = "waiting for clients"
        self._decisions: dict[str, str] = {}
        self._progress: Progress | None = None
        self._shown: object = None
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self.draws:
            self._live = Live(
                get_renderable=self.table,
                console=Console(stderr=True),
                refresh_per_second=REDRAWS_PER_SECOND,
                transient=True,
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Take the table away, so that what is printed next stays on the screen."""
        if self._live is not None:
            self._live.stop()

    def gathered(self, there: Sequence[str], wanted: int, missing: Sequence[str]) -> None:
        """Show who is connected and who is not."""
        self._expected = [*there, *missing]
        self._phase = f"waiting for clients, {len(there)} of {wanted}"
        text = f"clients {len(there)} of {wanted}: {', '.join(there) or 'nobody yet'}"
        if len(there) > wanted:
            members = ", ".join(there[:wanted])
            text = f"{len(there)} clients connected, {wanted} wanted: the study is with {members}"
        if missing:
            text += f"; missing: {', '.join(missing)}"
        if text != self._shown and not self.draws:
            typer.echo(printable(text), err=True)
        self._shown = text

    def decided(self, decisions: Mapping[str, str]) -> None:
        """Show who has approved."""
        self._decisions = dict(decisions)
        approved = sum(state == "approved" for state in decisions.values())
        self._phase = f"waiting for approval, {approved} of {len(self._expected)}"

    def fits(self, names: Sequence[str]) -> None:
        """Show that the questions begin."""
        self._expected = list(names)
        self._phase = "agreeing on columns and categories"

    def progress(self, now: Progress) -> None:
        """Show a round."""
        self._progress = now
        self._phase = f"round {now.round}"

    def table(self) -> Group:
        """What is drawn: a line per client, and how far the run is."""
        here = self._clients()
        rows = Table(box=None, pad_edge=False, header_style="bold")
        for head in ("client", "connection", "study"):
            rows.add_column(head)
        for name in dict.fromkeys([*self._expected, *here]):
            decision = self._decisions.get(name, "")
            rows.add_row(printable(name), _state(here.get(name)), printable(decision))
        return Group(rows, Text(self._how_far()))

    def _how_far(self) -> str:
        now = self._progress
        if now is None:
            return self._phase
        gap = "not known"
        if now.gap >= 0:
            gap = f"{'at most' if now.proved else 'about'} {now.gap:.1e}"
        return f"{self._phase}, gap {gap}, {now.answered} of {now.clients} answered"


def _state(presence: Presence | None) -> str:
    """What a client does, in a word or two."""
    if presence is None:
        return "away"
    if not presence.answering:
        return "connected"
    if presence.silent < SHOWN_SILENCE_SECONDS:
        return "answering"
    return f"answering, silent for {presence.silent:.0f} s"
