"""Sites in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fedsplit.federation.transport import Arrivals


class DirectTransport:
    """Calls sites one after the other.

    Parameters
    ----------
    sites : mapping of str to callable
        What replies to a message, by the name of the site: ``Site.reply``.
    """

    waits = True

    def __init__(self, sites: Mapping[str, Callable[[bytes], bytes]]) -> None:
        self._sites = dict(sites)

    def exchange(self, messages: Mapping[str, bytes], seconds: float, largest: int) -> Arrivals:
        for name, message in messages.items():
            # A site that is not here does not reply.
            if name in self._sites and len(reply := self._sites[name](message)) <= largest:
                yield name, reply
