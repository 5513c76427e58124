"""How many questions an owner allows: in all, and on one day."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from fedsplit import files
from fedsplit.errors import RequestError


class Budget:
    """Counts questions in files, so that the counts outlive the process.

    Parameters
    ----------
    folder : Path
        Of the client.
    most : int or None
        The most questions in all, until ``reset``.
    daily : int or None
        The most questions on one day (UTC).
    """

    def __init__(self, folder: Path, most: int | None, daily: int | None) -> None:
        self._spent = folder / "rounds"
        self._today = folder / "today"
        self._most = most
        self._daily = daily

    @property
    def left(self) -> int | None:
        """How many more questions are answered now; None without a limit."""
        left = []
        if self._most is not None:
            left.append(self._most - self._count())
        if self._daily is not None:
            left.append(self._daily - self._count_today())
        if not left:
            return None
        return max(0, min(left))

    def spend(self) -> None:
        """Count a question; raises RequestError if none are left."""
        if self._most is not None:
            done = self._count()
            if done >= self._most:
                raise RequestError(
                    f"its owner allows {self._most} questions, and all have been answered"
                )
            files.write(self._spent, str(done + 1))
        if self._daily is not None:
            done = self._count_today()
            if done >= self._daily:
                raise RequestError(f"its owner allows {self._daily} questions a day")
            files.write(self._today, f"{today()} {done + 1}")

    def reset(self) -> None:
        """Allow as many questions as at the beginning; those of the day stay counted."""
        self._spent.unlink(missing_ok=True)

    def _count(self) -> int:
        if not self._spent.exists():
            return 0
        return int(self._spent.read_text(encoding="utf-8"))

    def _count_today(self) -> int:
        if not self._today.exists():
            return 0
        day, count = self._today.read_text(encoding="utf-8").split()
        return int(count) if day == today() else 0


def today() -> str:
    """The day (UTC)."""
    return f"{datetime.now(UTC):%Y-%m-%d}"
