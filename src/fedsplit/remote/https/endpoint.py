"""How a client reaches its server, checked before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedsplit.errors import InputError
from fedsplit.remote.https.addresses import address, proxy_of
from fedsplit.remote.https.tls import ClientTls

if TYPE_CHECKING:
    from yarl import URL


@dataclass(frozen=True)
class Endpoint:
    """A server's address, and what a client shows it.

    Parameters
    ----------
    server : str
        HOST:PORT.
    key : Path, optional
        The client's private key; None for a server without keys.
    ca : Path, optional
        The certificate of the CA that issued the server's; needed with a key.
    certificate : Path, optional
        The certificate of the key; by default it is beside the key.
    proxy : str, optional
        The URL of an HTTP proxy; by default that of the environment.
    insecure : bool
        Do not use TLS.
    name : str
        The client's name, for a server without keys.

    Raises
    ------
    InputError
        If these do not fit together.
    """

    server: str
    key: Path | None = None
    ca: Path | None = None
    certificate: Path | None = None
    proxy: str | None = None
    insecure: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        address(self.server)
        if self.insecure:
            options = ("key", "ca", "certificate", "proxy")
            given = [f"--{each}" for each in options if getattr(self, each) is not None]
            if given:
                raise InputError(
                    f"--insecure uses neither TLS nor a proxy: leave out {', '.join(given)}, or "
                    "--insecure"
                )
            return
        if self.key is None or self.ca is None:
            raise InputError(
                "give both --key and --ca, or --insecure for a test on one machine: the "
                "coordinator provides ca.crt, and the key is made with fedsplit keys"
            )
        for option, path in (("--key", self.key), ("--ca", self.ca)):
            if not path.is_file():
                raise InputError(f"{option} {path}: there is no such file")
        _ = self.through

    @property
    def through(self) -> URL | None:
        """The proxy, if there is one."""
        if self.insecure:
            return None
        return proxy_of(self.server, self.proxy)

    def tls(self) -> ClientTls | None:
        """The TLS of the client; None where it is not used.

        Raises
        ------
        NotAuthorised
            If the client has no valid certificate, which the coordinator has to issue.
        InputError
            If a file is damaged, or does not belong to the others.
        """
        if self.key is None or self.ca is None:
            return None
        return ClientTls(self.key, self.ca, self.certificate)
