"""What can go wrong, as exceptions that say what, where and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedsplit.trace import Result


class InputError(ValueError):
    """The input cannot be used; the message says which part, where, and what to do."""


class RowError(InputError):
    """A row cannot be used; ``public`` is the message without its value, for those who may not see rows."""

    def __init__(self, message: str, public: str) -> None:
        super().__init__(message)
        self.public = public


class NoMinimiser(ValueError):
    """The pooled problem has no minimiser that a direct method can find."""


class TooFewClients(RuntimeError):
    """So many clients are absent that the run cannot go on; the message says who, and what to do."""


class Diverged(ArithmeticError):
    """The iterates grew without bound or stopped being numbers.

    Attributes
    ----------
    round : int
        The round in which it was noticed.
    cause : str
        The likely cause, with what to do about it.
    result : Result
        Everything computed before that round.
    """

    def __init__(self, what: str, cause: str, result: Result) -> None:
        self.what = what
        self.round = result.rounds + 1
        self.cause = cause
        self.result = result
        super().__init__(f"{what} in round {self.round}; likely cause: {cause}")

    def __reduce__(self) -> tuple[type[Diverged], tuple[str, str, Result]]:
        return Diverged, (self.what, self.cause, self.result)


def listed(items: Iterable[object], most: int = 6) -> str:
    """The first few of them, for a message."""
    texts = [str(item) for item in items]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")
