"""TLS 1.3 with certificates of the federation's authority on both sides."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from cryptography import x509

from fedsplit.errors import InputError
from fedsplit.remote.certificates import (
    certificate_pem,
    check_certificate,
    expires_soon,
    read_certificate,
)
from fedsplit.remote.keys import PrivateKey, private_pem, read_private_key

ASK = "ask the coordinator for a new one (fedsplit keys DIR --renew NAME)"


def server_context(folder: Path) -> tuple[ssl.SSLContext, str]:
    """Return the context of a server with the keys in a folder, and a warning, mostly empty.

    Only clients that the folder's authority has issued a certificate to get through the handshake.
    """
    path = folder / "server.crt"
    authority = folder / "ca.crt"
    key = _read_key(folder / "server.key")
    renewal = f"make a new one with fedsplit keys {folder} --renew server"
    certificate = check_certificate(path, key, "server", read_certificate(authority), renewal)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0  # a resumed session would not be checked again
    context.load_verify_locations(authority)
    _load(context, certificate, key)
    return context, _warning(path, certificate, renewal)


class ClientTls:
    """The TLS of a client, whose own certificate is checked before it is used.

    The server would refuse it in the handshake, where no reason can be given.

    Parameters
    ----------
    key : Path
        The client's private key.
    certificate : Path, optional
        By default it is beside the key.
    ca : Path, optional
        The certificate of the authority that issued the server's; None for the system's.

    Attributes
    ----------
    context : SSLContext
    warning : str
        About the certificate; mostly empty.
    """

    def __init__(self, key: Path, certificate: Path | None = None, ca: Path | None = None) -> None:
        self._key = key
        self._path = certificate or key.with_suffix(".crt")
        self._authority = None
        if ca is not None:
            self._authority = read_certificate(ca)
        try:
            self.context = ssl.create_default_context(cafile=ca)
        except ssl.SSLError:
            raise InputError(f"{ca}: is not a certificate") from None
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.warning = ""
        self.refresh()

    def refresh(self) -> None:
        """Read the certificate, for the next handshake: it may have been renewed.

        Raises
        ------
        InputError
            Unless it can be used now.
        """
        private = _read_key(self._key)
        if not self._path.exists():
            raise InputError(
                f"{self._path}: is missing, the certificate of this client's key: the coordinator "
                f"issues it (fedsplit keys DIR --renew {self._key.stem}, or --sign); name it with "
                "--certificate"
            )
        own = check_certificate(self._path, private, "client", self._authority, ASK)
        _load(self.context, own, private)
        self.warning = _warning(self._path, own, ASK)


def peer_key(transport: object) -> x509.Certificate | None:
    """The certificate of who is at the other end of a connection."""
    end = transport.get_extra_info("ssl_object")  # type: ignore[attr-defined]  # of any transport
    if end is None:
        return None
    found = end.getpeercert(binary_form=True)
    if found is None:
        return None
    return x509.load_der_x509_certificate(found)


def _read_key(path: Path) -> PrivateKey:
    try:
        return read_private_key(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _load(context: ssl.SSLContext, certificate: x509.Certificate, key: PrivateKey) -> None:
    """Let a context use a key in any format; Python takes it from a file alone."""
    with tempfile.NamedTemporaryFile() as file:  # readable by its owner alone
        file.write(private_pem(key) + certificate_pem(certificate))
        file.flush()
        context.load_cert_chain(file.name)


def _warning(path: Path, certificate: x509.Certificate, renewal: str) -> str:
    soon = expires_soon(certificate)
    if not soon:
        return ""
    return f"{path} {soon}: {renewal}"
