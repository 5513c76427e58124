"""The options of ``fedsplit server`` that are about its clients' connections."""

# No `from __future__ import annotations` here: Typer needs the types of the fields.

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedsplit.checks import number
from fedsplit.commands.options import NO_TLS
from fedsplit.errors import InputError
from fedsplit.regression.fields import option

if TYPE_CHECKING:
    from fedsplit.remote.https.server import HttpsServer
    from fedsplit.remote.signatures import Signer

PORTS = range(1, 65536)


def port(name: str, value: int | None) -> None:
    """Raise InputError unless a value is the number of a port, or None."""
    if value is not None and value not in PORTS:
        raise InputError(f"--{name} must be a port, from 1 to {PORTS[-1]}, not {value}")


@dataclass(frozen=True, kw_only=True)
class CoordinatorKeys:
    """The keys of a coordinator."""

    keys: Path | None = option(
        None,
        "Folder made by fedsplit keys: the certificate, and the clients that may join.",
        "network",
        metavar="DIR",
    )
    insecure: bool = option(False, NO_TLS, "network")

    def __post_init__(self) -> None:
        if self.insecure and self.keys is not None:
            raise InputError("--insecure uses no keys: leave out --keys, or --insecure")
        if not self.insecure and self.keys is None:
            raise InputError(
                "give the folder made by fedsplit keys with --keys, or --insecure for a test on "
                "one machine"
            )
        if self.keys is not None and not (self.keys / "ca.crt").exists():
            raise InputError(
                f"--keys {self.keys}: there are no keys of a federation; make them with "
                f"fedsplit keys {self.keys} --clients NAME,... --host HOST"
            )

    def signer(self) -> "Signer | None":
        """The coordinator's key, which is checked; None without keys."""
        from fedsplit.remote.signatures import Signer  # takes a while to import

        if self.keys is None:
            return None
        return Signer(self.keys)


@dataclass(frozen=True, kw_only=True)
class ServerNetwork(CoordinatorKeys):
    """Where a server listens, and with which keys."""

    host: str = option(
        "",
        "Address to listen on; by default all, or 127.0.0.1 with --insecure.",
        "network",
        metavar="HOST",
    )
    port: int = option(8000, "Port to listen on.", "network", metavar="N")
    wait: float = option(
        3600.0,
        "How long to wait for the clients before the first round.",
        "network",
        metavar="SECONDS",
    )
    metrics: int | None = option(
        None,
        "Port of 127.0.0.1 for /health and /metrics; off by default.",
        "network",
        metavar="PORT",
    )

    def __post_init__(self) -> None:
        number("wait", self.wait)
        port("port", self.port)
        port("metrics", self.metrics)
        super().__post_init__()

    def server(self) -> "HttpsServer":
        """A server that is not open yet; its keys are checked."""
        from fedsplit.remote.https.logs import quieten
        from fedsplit.remote.https.server import HttpsServer  # takes a while to import

        quieten()
        anywhere = "0.0.0.0"
        if self.insecure:
            anywhere = "127.0.0.1"
        return HttpsServer(self.host or anywhere, self.port, self.keys, metrics=self.metrics)
