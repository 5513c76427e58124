"""TLS 1.3 with certificates of the federation's authority on both sides."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from cryptography import x509

from fedsplit.errors import NotAuthorised
from fedsplit.remote.certificates import (
    certificate_pem,
    check_certificate,
    expiry_warning,
    read_certificate,
)
from fedsplit.remote.keys import PrivateKey, private_pem, read_private_key

RENEWAL = "ask the coordinator for a new one (fedsplit keys DIR --renew NAME)"


def server_context(folder: Path) -> tuple[ssl.SSLContext, str]:
    """Return the context of a server with the keys in a folder, and a warning, mostly empty.

    Only clients that the folder's authority has issued a certificate to get through the handshake.
    """
    path = folder / "server.crt"
    authority = folder / "ca.crt"
    key = read_private_key(folder / "server.key")
    renewal = f"make a new one with fedsplit keys {folder} --renew server"
    certificate = check_certificate(path, key, "server", authority, renewal)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0  # a resumed session would not be checked again
    context.load_verify_locations(authority)
    _load(context, certificate, key)
    return context, expiry_warning(path, certificate, renewal)


class ClientTls:
    """The TLS of a client, whose own certificate is checked before it is used.

    The server would refuse it in the handshake, where no reason can be given.

    Parameters
    ----------
    key : Path
        The client's private key.
    ca : Path
        The certificate of the CA that issued the server's.
    certificate : Path, optional
        By default it is beside the key.

    Attributes
    ----------
    context : SSLContext
    warning : str
        About the certificate; mostly empty.
    """

    def __init__(self, key: Path, ca: Path, certificate: Path | None = None) -> None:
        self._key = key
        self._path = certificate or key.with_suffix(".crt")
        self._ca = ca
        read_certificate(ca)  # whose errors say more than those of the context
        self.context = ssl.create_default_context(cafile=ca)
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
        private = read_private_key(self._key)
        if not self._path.exists():
            raise NotAuthorised(
                f"{self._path}: is missing, the certificate of this client's key: the coordinator "
                f"issues it (fedsplit keys DIR --renew {self._key.stem}, or --sign); name it with "
                "--certificate"
            )
        own = check_certificate(self._path, private, "client", self._ca, RENEWAL)
        _load(self.context, own, private)
        self.warning = expiry_warning(self._path, own, RENEWAL)


def peer_certificate(transport: object) -> x509.Certificate | None:
    """The certificate of who is at the other end of a connection."""
    end = transport.get_extra_info("ssl_object")  # type: ignore[attr-defined]  # of any transport
    if end is None:
        return None
    found = end.getpeercert(binary_form=True)
    if found is None:
        return None
    return x509.load_der_x509_certificate(found)


def _load(context: ssl.SSLContext, certificate: x509.Certificate, key: PrivateKey) -> None:
    """Let a context use a key in any format; Python takes it from a file alone."""
    with tempfile.NamedTemporaryFile() as file:  # readable by its owner alone
        file.write(private_pem(key) + certificate_pem(certificate))
        file.flush()
        context.load_cert_chain(file.name)
