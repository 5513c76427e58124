"""Studies by every transport, in one go or broken off after every exchange."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from fedsplit.federation import authority
from fedsplit.federation.coordinator import StudyResult
from fedsplit.federation.messages import Ending, read_message
from fedsplit.federation.site.site import Site
from fedsplit.federation.study import Study
from fedsplit.federation.transport import Arrivals, Transport
from fedsplit.federation.transport.files import FileTransport, answer_files
from fedsplit.federation.transport.https.coordinator import HttpsTransport
from fedsplit.federation.transport.https.site import serve
from fedsplit.federation.transport.https.wire import ConnectionLimits
from fedsplit.federation.transport.on_ray import RayTransport
from fedsplit.testing import Federation

CARRIERS = ("direct", "files", "https", "ray")

HOST = "127.0.0.1"
PROMPT = ConnectionLimits(first_pause=0.02, longest_pause=0.1)


class Ends(Exception):
    """The coordinator was stopped."""


class Once:
    """A transport that carries so many exchanges, and then ends its coordinator.

    Parameters
    ----------
    transport : Transport
    left : int
    """

    def __init__(self, transport: Transport, left: int) -> None:
        self.waits = transport.waits
        self._transport = transport
        self._left = left

    def exchange(self, messages: Mapping[str, bytes], seconds: float, largest: int) -> Arrivals:
        if not self._left:
            raise Ends
        self._left -= 1
        return self._transport.exchange(messages, seconds, largest)


class Nobody:
    """No site is there; questions are not even asked."""

    waits = True

    def __init__(self, federation: Federation) -> None:
        self._coordinator = bytes.fromhex(federation.policy(federation.names[0]).coordinator)

    def exchange(self, messages: Mapping[str, bytes], seconds: float, largest: int) -> Arrivals:
        for each in messages.values():
            assert isinstance(read_message(self._coordinator, each), Ending)
        return iter(())


def carried(federation: Federation, study: Study, how: str, **chosen: Any) -> StudyResult:
    """The result of a study by a transport."""
    with opened(federation, study, how) as transport:
        while True:
            found = federation.coordinator(transport, wait=60.0).run(study, **chosen)
            if isinstance(found, StudyResult):
                return found
            assert answered_by_files(federation), found


def broken_off(federation: Federation, study: Study, how: str) -> StudyResult:
    """The same by coordinators that end after each exchange, and sites that end as well.

    Workers on Ray, which take long to start, live on.
    """
    with ExitStack() as stack:
        lasting = stack.enter_context(opened(federation, study, how)) if how == "ray" else None
        return _broken_off(federation, study, how, lasting)


def _broken_off(
    federation: Federation, study: Study, how: str, lasting: Transport | None
) -> StudyResult:
    for _ in range(200):
        with (
            opened(federation, study, how) if lasting is None else nullcontext(lasting) as transport
        ):
            try:
                found = federation.coordinator(Once(transport, 1), wait=60.0).run(study)
            except Ends:
                continue
            if isinstance(found, StudyResult):
                return found
            assert answered_by_files(federation), found
    raise AssertionError("no end")


def replayed(federation: Federation, study: Study) -> StudyResult:
    """The result from what is recorded: nobody is asked."""
    found = federation.coordinator(Nobody(federation)).run(study)
    assert isinstance(found, StudyResult)
    return found


@contextmanager
def opened(federation: Federation, study: Study, how: str) -> Iterator[Transport]:
    """A transport, with sites at its other end."""
    match how:
        case "direct":
            yield federation.direct()
        case "files":
            yield FileTransport(federation.folder / "post", federation.key, federation.members)
        case "ray":
            with RayTransport({n: on_ray(federation, n) for n in federation.names}) as workers:
                yield workers
        case _:
            with _by_https(federation) as transport:
                yield transport


def on_ray(federation: Federation, name: str) -> Callable[[], Site]:
    """What opens a site in a worker, which knows the analyses of the tests too."""
    paths = list(sys.path)

    def opened_there() -> Site:
        import sys

        sys.path[:] = paths
        import analyses

        vars(analyses)["context"] = analyses.entered()  # for as long as the process lives
        vars(analyses)["context"].__enter__()
        return federation.site(name)

    return opened_there


def answered_by_files(federation: Federation) -> bool:
    """Have the sites answer the files that are there; whether there was one."""
    written = [
        answer_files(federation.site(name), federation.keys[name], _post(federation, name))
        for name in federation.names
    ]
    return any(written)


def _post(federation: Federation, name: str) -> Path:
    return federation.folder / "post" / name


def keys_for_https(federation: Federation) -> Path:
    """A folder with the keys and certificates of all."""
    home = federation.folder / "tls"
    folders = {name: home / name for name in federation.names}
    if not home.exists():
        authority.create(home / "hub", [HOST], 2)
        for name, folder in folders.items():
            pem = authority.sign(home / "hub", name, authority.request(folder, name), 2)
            authority.accept(folder, pem)
    return home


@contextmanager
def _by_https(federation: Federation) -> Iterator[HttpsTransport]:
    """HTTPS with certificates; every site has a thread."""
    home = keys_for_https(federation)
    folders = {name: home / name for name in federation.names}
    with ExitStack() as stack:
        transport = stack.enter_context(HttpsTransport(home / "hub", HOST, 0))
        stop = threading.Event()
        threads = [
            threading.Thread(
                target=serve,
                args=(federation.site(name).reply, folder, f"https://{HOST}:{transport.port}"),
                kwargs={"stop": stop, "limits": PROMPT},
            )
            for name, folder in folders.items()
        ]
        for each in threads:
            each.start()
        try:
            yield transport
        finally:
            stop.set()
            for each in threads:
                each.join(60)
