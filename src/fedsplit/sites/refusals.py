"""What a client has refused because of its data, until its owner has looked.

That something was refused tells the server something about the data, whatever the words: a server
that may ask again and again learns a value by bisection. So refusals are counted.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

REFUSED = "refused by its rules; its owner can see why"
"""All that a server is told of a refusal that depends on the data."""

HALTED = "it answers nothing until its owner has looked at what it refused"


class Refusals:
    """The refusals that the owner of a client has not looked at yet.

    Parameters
    ----------
    folder : Path
        Of the client's state; the refusals are in a file there, so that they outlive the process.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "refusals.jsonl"

    def add(self, question: str, why: str) -> None:
        """Take note of a refusal before the server hears of it.

        Parameters
        ----------
        question : str
            The name of what was asked.
        why : str
            The rule, the column, the counts: for the owner alone.
        """
        time = datetime.now(UTC).isoformat(timespec="seconds")
        line = json.dumps({"time": time, "question": question, "why": why})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def found(self) -> list[dict[str, str]]:
        """Each one with its ``time``, ``question`` and ``why``, in their order."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return [_read(line) for line in lines]

    def clear(self) -> None:
        """The owner has looked: the client answers again."""
        self.path.unlink(missing_ok=True)


def _read(line: str) -> dict[str, str]:
    """A line of the file; one that was cut short counts too."""
    try:
        return dict(json.loads(line))
    except ValueError:
        return {"time": "", "question": "", "why": line}
