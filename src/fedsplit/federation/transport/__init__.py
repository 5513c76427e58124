"""What carries messages: bytes to named sites, and bytes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, TypeAlias

Replies: TypeAlias = Iterator[tuple[str, bytes]]
"""Names of sites, each with the reply that came from it."""


class Transport(Protocol):
    """Carries one exchange at a time. It knows sites and bytes, and nothing of studies."""

    def exchange(self, messages: Mapping[str, bytes], seconds: float, largest: int) -> Replies:
        """Send messages to sites, and yield replies as they come, until the time is over.

        It may end before: sites that are not there, and that nobody expects soon, are not waited
        for. A reply of more than ``largest`` bytes cannot be what was asked for, and is not read.

        The name that a reply is yielded with is that of the connection that it came from: it is
        established by the transport, and nothing in the reply can change it.
        """
