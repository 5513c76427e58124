"""What a client has refused because of its data, until its owner has reviewed it.

That something was refused tells the server something about the data, whatever the words: a server
that may ask again and again learns a value by bisection. So refusals are counted.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from fedsplit import files

REFUSED = (
    "refused by its owner's rules; the owner can see why. Models of one project should share "
    "--columns, see docs/guards.md"
)
"""All that a server is told of a refusal that depends on the data."""

FIELDS = ("time", "question", "why")

HALTED = "suspended until its owner reviews earlier refusals"


class Refusals:
    """The refusals that the owner of a client has not reviewed yet.

    Parameters
    ----------
    folder : Path
        Of the client's state; the refusals are in a file there, so that they outlive the process.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "refusals.jsonl"
        # Those that a full disk has kept out of the file: they count as well.
        self._unwritten: list[dict[str, str]] = []

    def add(self, question: str, why: str, digest: str = "") -> None:
        """Count a refusal before the server hears of it.

        Parameters
        ----------
        question : str
            The name of what was asked.
        why : str
            The rule, the column, the counts: for the owner alone.
        digest : str
            Of the question and the rows: the same one again tells nothing new, and is not counted.

        Raises
        ------
        OSError
            If it cannot be written. It is counted in memory nevertheless.
        """
        if digest and any(each.get("digest") == digest for each in self.found()):
            return
        entry = {"time": _now(), "question": question, "why": why, "digest": digest}
        self._unwritten.append(entry)
        self._write()

    def found(self) -> list[dict[str, str]]:
        """Each one with its ``time``, ``question`` and ``why``, in their order."""
        lines = [_read(line) for line in self._lines()]
        return [each for each in lines if "cleared" not in each] + self._unwritten

    @property
    def cleared(self) -> str:
        """When the owner last cleared them; empty if never."""
        times = [each["cleared"] for each in map(_read, self._lines()) if "cleared" in each]
        return times[-1] if times else ""

    def clear(self) -> None:
        """Forget them, as the owner has reviewed them: the client answers again."""
        with files.as_owner_of(self.path.parent):
            files.write_private(self.path, json.dumps({"cleared": _now()}) + "\n")

    def _lines(self) -> list[str]:
        if not self.path.exists():
            return []
        return self.path.read_text(encoding="utf-8", errors="replace").splitlines()

    def _write(self) -> None:
        """Append what is not in the file yet, durably."""
        while self._unwritten:
            files.append_line(self.path, json.dumps(self._unwritten[0]))
            del self._unwritten[0]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _read(line: str) -> dict[str, str]:
    """A line of the file; one that is damaged counts too."""
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if isinstance(found, dict) and (
        "cleared" in found or {"time", "question", "why"} <= set(found)
    ):
        return {name: str(value) for name, value in found.items()}
    return dict.fromkeys(FIELDS, "") | {"why": line}
