"""Where a server is, and through which proxy it is reached."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from yarl import URL

from fedsplit.errors import InputError


def address(server: str) -> tuple[str, int]:
    """Return the host and the port of HOST:PORT."""
    with suppress(ValueError):  # a port that is none
        parts = urlsplit(f"//{server}")
        plain = parts.netloc == server and "@" not in server
        if parts.hostname and parts.port and plain:
            return parts.hostname, parts.port
    raise InputError(f"server {server!r}: give HOST:PORT, such as fit.example.org:8000")


def proxy_of(server: str, given: str | None) -> URL | None:
    """Return the proxy to use: the one that is given, or the environment's; None for none."""
    host, port = address(server)
    if given is None:
        given = getproxies_environment().get("https")
        if not given or proxy_bypass(f"{host}:{port}"):
            return None
    if "://" not in given:
        given = f"http://{given}"
    with suppress(ValueError):
        url = URL(given)
        if url.scheme == "http" and url.host:
            return url
    raise InputError("proxy: give its address as http://HOST:PORT")
