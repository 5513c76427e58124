"""What the owner of a client should see while it runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Literal, NamedTuple


class Event(NamedTuple):
    """Something that just happened.

    Attributes
    ----------
    kind : {"study", "answer", "refusal", "end", "data", "trouble"}
        A study was proposed or decided about; an answer or a refusal was sent; a study has ended;
        the file has changed; nothing can be answered.
    text : str
        What: the state of the study, what was sent, why it was refused, the result.
    study : str
        The hash of the study that it belongs to, if there is one.
    asked, most : int
        How many different questions of the study were asked, and how many there may be.
    left : int or None
        How many more questions the owner allows.
    limit : str
        The option or rule that says so.
    """

    kind: Literal["study", "answer", "refusal", "end", "data", "trouble"]
    text: str
    study: str = ""
    asked: int = 0
    most: int = 0
    left: int | None = None
    limit: str = ""


def ignore(event: Event) -> None:
    """Watch nothing."""


def harmless(watch: Callable[[Event], object]) -> Callable[[Event], None]:
    """The same, but no exception leaves it: a closed terminal must not change what is answered."""

    def shown(event: Event) -> None:
        with suppress(Exception):
            watch(event)

    return shown
