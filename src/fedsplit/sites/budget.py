"""How many questions an owner allows: in all, and on one day."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from fedsplit import files
from fedsplit.errors import RequestError, StateError


class DayCount:
    """Counts something on each day (UTC), in a file.

    A clock that is set back does not begin another day: the latest day ever seen goes on.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def number(self) -> int:
        """How many were counted today."""
        return self._read()[1]

    def add(self) -> None:
        """Count one more."""
        day, number = self._read()
        files.write_private(self._path, f"{day} {number + 1}")

    def check_clock(self) -> None:
        """Raise StateError for a day that is still to come, by the clock of this machine."""
        day, _ = self._read()
        if date.fromisoformat(day) - date.fromisoformat(today()) > timedelta(days=1):
            raise StateError(
                f"{self._path}: counts the questions of {day}, which is still to come, and allows "
                "no more until then: check the clock, and delete the file to count from 0 again"
            )

    def _read(self) -> tuple[str, int]:
        now = today()
        text = _content(self._path)
        if not text:
            return now, 0
        try:
            day, number = text.split()
            day = str(date.fromisoformat(day))
            count = int(number)
        except ValueError:
            raise _damaged(self._path) from None
        if day < now:
            return now, 0
        return day, count


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
        self._today = DayCount(folder / "today")
        self._most = most
        self._daily = daily

    @property
    def left(self) -> int | None:
        """How many more questions are answered now; None without a limit."""
        return min(self._left().values(), default=None)

    @property
    def limit(self) -> str:
        """The option or rule that allows the fewest more questions; empty without a limit."""
        left = self._left()
        return min(left, key=left.__getitem__, default="")

    def _left(self) -> dict[str, int]:
        left = {}
        if self._most is not None:
            left["--max-rounds"] = max(0, self._most - self._count())
        if self._daily is not None:
            left["questions_per_day"] = max(0, self._daily - self._today.number)
        return left

    def spend(self) -> None:
        """Count a question; raises RequestError if none are left."""
        left = self._left()
        if left.get("--max-rounds") == 0:
            raise RequestError(
                f"its owner allows {self._most} questions, and all have been answered"
            )
        if left.get("questions_per_day") == 0:
            self._today.check_clock()
            raise RequestError(f"its owner allows {self._daily} questions a day")
        if self._most is not None:
            files.write_private(self._spent, str(self._count() + 1))
        if self._daily is not None:
            self._today.add()

    def reset(self) -> None:
        """Allow as many questions as at the beginning; those of the day stay counted."""
        self._spent.unlink(missing_ok=True)

    def _count(self) -> int:
        text = _content(self._spent)
        if not text:
            return 0
        if not text.isdecimal():
            raise _damaged(self._spent)
        return int(text)


def _content(path: Path) -> str:
    """The text of a file; empty if there is none."""
    if not path.exists():
        return ""
    text = path.read_text(encoding="utf-8", errors="replace")
    if not text:
        raise _damaged(path)
    return text


def _damaged(path: Path) -> StateError:
    return StateError(
        f"{path}: this count cannot be read, so that nothing is answered: delete the "
        "file to count from 0 again"
    )


def today() -> str:
    """The day (UTC)."""
    return f"{datetime.now(UTC):%Y-%m-%d}"
