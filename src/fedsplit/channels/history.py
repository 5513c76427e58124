"""What happened so far in a run: incidents, removals, and the lines of clients' logs."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedsplit.clients.oracle import Incident
from fedsplit.loop.trace import Row


@dataclass
class History:
    """What happened so far in a run, whoever takes part in it now.

    Attributes
    ----------
    incidents : list of Incident
        In order.
    removed : dict of str
        The clients that were given up, each with the reason.
    asked : int
        How many questions were asked.
    absent_since : dict of float
        By cohort, since when it has not answered.
    exchanges : list of Row
        What was asked beside the rounds, and what travelled with their questions. A question that
        has to be repeated counts once.
    logs : dict of str
        By client, the number and the hash of the last line of its log that is known here.
    """

    incidents: list[Incident] = field(default_factory=list)
    removed: dict[str, str] = field(default_factory=dict)
    asked: int = 0
    absent_since: dict[int, float] = field(default_factory=dict)
    exchanges: list[Row] = field(default_factory=list)
    logs: dict[str, str] = field(default_factory=dict)

    def note_log(self, client: str, log: str) -> None:
        """Note the last line of a client's log, which can only grow."""
        number = _line_number(log)
        if number is None:
            return
        before = _line_number(self.logs.get(client, "")) or 0
        if number <= before:
            what = f"its log was cut short: line {number} came after line {before}"
            self.incidents.append(Incident(self.asked, client, what))
        self.logs[client] = log


def _line_number(log: str) -> int | None:
    number, _, head = log.partition(":")
    if number.isdecimal() and len(number) < 16 and len(head) == 64:
        return int(number)
    return None
