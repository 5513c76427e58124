"""Why a client cannot reach its server."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from fedsplit.errors import InputError


def address(server: str) -> tuple[str, int]:
    """Return the host and the port of HOST:PORT."""
    with suppress(ValueError):  # a port that is none
        parts = urlsplit(f"//{server}")
        plain = parts.netloc == server and "@" not in server
        if parts.hostname and parts.port and plain:
            return parts.hostname, parts.port
    raise InputError(f"server {server!r}: give HOST:PORT, such as fit.example.org:8443")


def tls(ca: Path | None) -> ssl.SSLContext:
    """Return a context for servers whose certificate this CA signed; None for the system's CAs."""
    try:
        return ssl.create_default_context(cafile=ca)
    except ssl.SSLError:
        raise InputError(f"{ca}: is not a certificate") from None
    except OSError as error:
        raise InputError(f"{ca}: cannot be read ({error.strerror})") from None


def probe(host: str, port: int, context: ssl.SSLContext | None) -> str:
    """Return why a request failed; ``InputError`` if trying again would not help."""
    try:
        with socket.create_connection((host, port), timeout=5) as plain:
            if context is None:
                _check_no_tls(f"{host}:{port}", plain)
            else:
                _check_tls(f"{host}:{port}", plain, context, host)
    except OSError as error:
        return error.strerror or "no answer"
    return "the connection broke"


def _check_no_tls(server: str, plain: socket.socket) -> None:
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # nothing is sent over this connection
    anyone.check_hostname = False
    anyone.verify_mode = ssl.CERT_NONE
    with suppress(OSError), anyone.wrap_socket(plain):
        raise InputError(f"{server}: uses TLS: give --ca and --key instead of --insecure")


def _check_tls(server: str, plain: socket.socket, context: ssl.SSLContext, host: str) -> None:
    try:
        context.wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        raise InputError(
            f"{server}: its certificate is not accepted ({error.verify_message}): "
            "check --ca and --server"
        ) from None
    except ssl.SSLEOFError:
        pass
    except ssl.SSLError:
        raise InputError(
            f"{server}: does not use TLS: check --server, or test on one machine with --insecure"
        ) from None
