"""How many questions an owner allows: in all, and on one day."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from fedsplit import files
from fedsplit.errors import RequestError, StateError


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
            files.write_private(self._spent, str(done + 1))
        if self._daily is not None:
            done = self._count_today()
            if done >= self._daily:
                raise RequestError(f"its owner allows {self._daily} questions a day")
            files.write_private(self._today, f"{self._day()} {done + 1}")

    def reset(self) -> None:
        """Allow as many questions as at the beginning; those of the day stay counted."""
        self._spent.unlink(missing_ok=True)

    def _count(self) -> int:
        [count] = _read(self._spent, ["0"])
        return _number(self._spent, count)

    def _count_today(self) -> int:
        day, count = _read(self._today, ["", "0"])
        if day < today():
            return 0
        return _number(self._today, count)

    def _day(self) -> str:
        """Today, or the latest day that there were questions on: a clock may be set back."""
        return max(today(), _read(self._today, ["", "0"])[0])


def _read(path: Path, absent: list[str]) -> list[str]:
    """The words of a file, as many as there are in ``absent``, which is for none."""
    if not path.exists():
        return absent
    words = path.read_text(encoding="utf-8", errors="replace").split()
    if len(words) != len(absent):
        raise _damaged(path)
    return words


def _number(path: Path, text: str) -> int:
    if not text.isdecimal():
        raise _damaged(path)
    return int(text)


def _damaged(path: Path) -> StateError:
    return StateError(
        f"{path}: this count of questions cannot be read, so that nothing is answered: delete the "
        "file to count from 0 again"
    )


def today() -> str:
    """The day (UTC)."""
    return f"{datetime.now(UTC):%Y-%m-%d}"
