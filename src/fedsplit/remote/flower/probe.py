"""A server's address, and what keeps a client from reaching it."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from fedsplit.errors import InputError


def address(server: str) -> tuple[str, int]:
    """Host and port."""
    try:
        parts = urlsplit(f"//{server}")
        host, port, whole = parts.hostname, parts.port, parts.netloc == server and "@" not in server
    except ValueError:
        host, port, whole = None, None, False
    if not host or not port or not whole:
        raise InputError(f"server {server!r}: give HOST:PORT, such as fit.example.org:8443")
    return host, port


def tls(ca: Path | None) -> ssl.SSLContext:
    """TLS with servers whose certificate this one has signed, or one that the system trusts."""
    try:
        return ssl.create_default_context(cafile=ca)
    except ssl.SSLError:
        raise InputError(f"{ca}: is no certificate") from None
    except OSError as error:
        raise InputError(f"{ca}: cannot be read ({error.strerror})") from None


def probe(host: str, port: int, context: ssl.SSLContext | None) -> str:
    """Why a request failed, where that may pass; ``InputError`` where it will not."""
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
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    with suppress(OSError), anyone.wrap_socket(plain):
        raise InputError(f"{server}: speaks TLS: give --ca, and --key, in the place of --insecure")


def _check_tls(server: str, plain: socket.socket, context: ssl.SSLContext, host: str) -> None:
    try:
        context.wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        raise InputError(
            f"{server}: its certificate is not accepted ({error.verify_message}): check --ca and --server"
        ) from None
    except ssl.SSLEOFError:
        pass
    except ssl.SSLError:
        raise InputError(
            f"{server}: does not speak TLS: check --server, or test on one machine with --insecure"
        ) from None
