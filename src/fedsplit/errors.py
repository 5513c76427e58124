"""Exceptions that say what went wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Any


class InputError(ValueError):
    """The input cannot be used; the message says which part, where, and what to do."""


class RequestError(InputError):
    """A request that a client cannot or will not answer, whatever its data are."""


class NotAuthorised(InputError):
    """The coordinator has not authorised this client yet, or no longer: later it may have."""


class StateError(InputError):
    """A file of a client's own state cannot be used; the message names it and says what to do.

    It is for the client's owner, and has nothing to do with what was asked or with the rows.
    """


class NotWritten(InputError):
    """A record could not be written; those before it are kept, and the run can be resumed."""


class RowError(InputError):
    """A row of a client's data cannot be used.

    Attributes
    ----------
    public : str
        The message without the row's values, for those who may not see the data.
    """

    def __init__(self, message: str, public: str) -> None:
        super().__init__(message)
        self.public = public


class NoMinimiser(ValueError):
    """The pooled problem has no minimiser.

    Attributes
    ----------
    direction : (d,) array or None
        Along which F falls for ever, if it is known.
    result : Result or None
        Everything computed before that was seen.
    """

    def __init__(self, message: str, direction: Any = None, result: Any = None) -> None:
        super().__init__(message)
        self.direction = direction
        self.result = result


class NotConverged(UserWarning):
    """A run ended before its tolerance was reached: what it returns is no minimiser, perhaps."""


class ShortClip(UserWarning):
    """Rows of a fit with noise can be longer than its clip, which biases the coefficients."""


class TooFewClients(RuntimeError):
    """Too many clients are absent to continue; the message says which ones, and what to do."""


def listed(items: Iterable[object], most: int = 6) -> str:
    """The first ``most`` items, separated by commas, and how many more there are."""
    texts = [str(item) for item in items]
    some = ", ".join(texts[:most])
    if len(texts) > most:
        some += f" and {len(texts) - most} more"
    return some


def shown(value: object) -> str:
    """A value as a message shows it: on one line, and no more of it than that has room for."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:79]}…"


def nearest(name: object, known: Collection[str], most: int = 6) -> str:
    """The end of a message about an unknown name: the one that was meant, or all that there are."""
    close = get_close_matches(str(name)[:80], known, n=1)
    return f"did you mean {close[0]}?" if close else f"there are {listed(known, most)}"
