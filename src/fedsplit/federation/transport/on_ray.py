"""Sites as workers on Ray: parts of one organisation, each in a process of its own.

Ray pickles what opens a site, within the organisation that runs the cluster. Messages are the same
signed bytes as between organisations.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Self

from fedsplit.channels.ray.cluster import RayError, connect, ray
from fedsplit.channels.ray.workers import RESTARTS, limit_memory
from fedsplit.errors import InputError
from fedsplit.federation.site.site import Site
from fedsplit.federation.transport import Arrivals
from fedsplit.texts import one_line
from fedsplit.threads import one_blas_thread


class _Worker:
    def __init__(self, opened: Callable[[], Site], memory: int | None) -> None:
        one_blas_thread().__enter__()  # for as long as the process lives
        if memory is not None:
            limit_memory(memory)
        self._site = opened()

    def reply(self, message: bytes) -> bytes:
        return self._site.reply(message)


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
        # No core is reserved, so that there can be more workers than cores.
        actor = ray.remote(num_cpus=0, max_restarts=RESTARTS, max_task_retries=RESTARTS)(_Worker)
        self._workers: dict[str, Any] = {
            name: actor.remote(opened, memory) for name, opened in sites.items()
        }
        try:
            # seconds in which all workers have to be there
            ray.get([each.reply.remote(b"") for each in self._workers.values()], timeout=300.0)
        except RayError as error:
            self.close()
            what = one_line(str(getattr(error, "cause", None) or error), 300)
            raise InputError(f"a site on Ray cannot be opened: {what}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def exchange(self, messages: Mapping[str, bytes], seconds: float, largest: int) -> Arrivals:
        deadline = time.monotonic() + seconds
        waiting = {
            self._workers[name].reply.remote(message): name
            for name, message in messages.items()
            if name in self._workers
        }
        try:
            while waiting and (left := deadline - time.monotonic()) > 0:
                ready, _ = ray.wait(list(waiting), timeout=left)
                for reference in ready:
                    name = waiting.pop(reference)
                    with suppress(RayError):  # a worker that keeps dying does not reply
                        reply = ray.get(reference)
                        if len(reply) <= largest:
                            yield name, reply
        finally:
            for reference in waiting:
                with suppress(RayError, ValueError, TypeError):
                    ray.cancel(reference)

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers.values():
            with suppress(RayError, ValueError):
                ray.kill(worker)
        self._workers = {}
