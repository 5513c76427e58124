"""Sites as workers on Ray: parts of one organisation, each in a process of its own.

Ray pickles what opens a site, within the organisation that runs the cluster. Messages are the same
signed bytes as between organisations.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Self

from fedsplit.channels.channel import Request
from fedsplit.channels.ray.cluster import connect
from fedsplit.channels.ray.workers import RayChannel
from fedsplit.clients.question import Question
from fedsplit.errors import InputError
from fedsplit.federation.site.site import Site
from fedsplit.federation.transport import Arrivals


@dataclass(frozen=True)
class _SiteMessage(Question):
    content: bytes

    answer_type = bytes


class _SiteCohort:
    def __init__(self, name: str, opened: Callable[[], Site]) -> None:
        self.names = [name]
        self._site = opened()

    def answer(self, request: Request) -> bytes:
        assert isinstance(request.question, _SiteMessage)
        return self._site.reply(request.question.content)


class RayTransport:
    """Asks one worker per site, all at once.

    A worker that dies is started again, and gets the message again: the site replies with what it
    has recorded.

    Parameters
    ----------
    sites : mapping of str to callable
        What opens each site, such as ``partial(fs.Site.open, "north", "disclosed.db")``, in the
        process of its worker.
    address : str, optional
        Of a running cluster; None starts Ray on this machine.
    memory : int, optional
        The most bytes that a worker may use beyond what its process has at the start (Linux).
    """

    waits = True

    def __init__(
        self,
        sites: Mapping[str, Callable[[], Site]],
        *,
        address: str | None = None,
        memory: int | None = None,
    ) -> None:
        connect(address)
        self._names = list(sites)
        cohorts = [partial(_SiteCohort, *each) for each in sites.items()]
        self._channel = RayChannel(cohorts, [[name] for name in sites], memory)
        everybody = dict.fromkeys(range(len(sites)), Request(_SiteMessage(b"")))
        # seconds in which all workers have to be there
        for reply in self._channel.ask(everybody, timeout=300.0).values():
            if reply.outcome != "answer":
                self.close()
                raise InputError(f"a site on Ray cannot be opened: {reply.text}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def exchange(self, messages: Mapping[str, bytes], seconds: float, largest: int) -> Arrivals:
        deadline = time.monotonic() + seconds
        waiting = {
            at: Request(_SiteMessage(messages[name]))
            for at, name in enumerate(self._names)
            if name in messages
        }
        self._channel.post(waiting)
        while waiting and (left := deadline - time.monotonic()) > 0:
            for at, reply in self._channel.collect(left).items():
                # one that keeps dying does not reply, and of an earlier exchange nothing is read
                asked = waiting.pop(at, None) is not None
                if asked and reply.outcome == "answer" and len(reply.value) <= largest:
                    yield self._names[at], reply.value

    def close(self) -> None:
        """End the workers."""
        self._channel.close()
