"""What can go wrong, as exceptions that say what, where and what to do."""

from __future__ import annotations

from collections.abc import Iterable


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


def listed(items: Iterable[object], most: int = 6) -> str:
    """The first few of them, for a message."""
    texts = [str(item) for item in items]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")
