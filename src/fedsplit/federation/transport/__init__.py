"""What carries messages: bytes to named sites, and bytes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, TypeAlias

Arrivals: TypeAlias = Iterator[tuple[str, bytes]]
"""Names of sites, each with what came from it."""


class Transport(Protocol):
    """Carries one exchange. It knows sites and bytes, and nothing of studies.

    Attributes
    ----------
    waits : bool
        Whether sites can answer while it waits. By files nobody does: whoever asks looks again
        later.
    """

    waits: bool

    def exchange(self, messages: Mapping[str, bytes], seconds: float, largest: int) -> Arrivals:
        """Send each site its message, and yield replies as they come, until the time is over.

        A reply of more than ``largest`` bytes cannot be what was asked for, and is not read. The
        name that a reply is yielded with is that of the connection that brought it: the transport
        establishes it, and nothing in the reply can change it.
        """
        ...


class Unreachable:
    """No site: what is recorded is all that there is."""

    waits = False

    def exchange(self, messages: Mapping[str, bytes], seconds: float, largest: int) -> Arrivals:
        return iter(())
