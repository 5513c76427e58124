"""Signatures of a coordinator, whose certificate the federation's CA has issued."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ed25519

from fedsplit.errors import InputError
from fedsplit.remote.certificates import (
    USES,
    certificate_pem,
    check_certificate,
    expiry_warning,
)
from fedsplit.remote.keys import fingerprint, read_private_key
from fedsplit.remote.messages import Signature

STUDY = "study"
QUESTION = "question"
"""What a coordinator signs."""


class Signer:
    """The coordinator's key and certificate, of a folder that ``fedsplit keys`` made.

    Parameters
    ----------
    folder : Path

    Attributes
    ----------
    folder : Path
    warning : str
        About a certificate that expires soon; mostly empty.

    Raises
    ------
    InputError
        Unless clients would accept its signatures now.
    """

    def __init__(self, folder: Path) -> None:
        renewal = f"make a new one with fedsplit keys {folder} --renew coordinator"
        secret, path = folder / "coordinator.key", folder / "coordinator.crt"
        for each in (secret, path):
            if not each.is_file():
                raise InputError(f"{each}: is missing; it signs studies: {renewal}")
        key = read_private_key(secret)
        if not isinstance(key, ed25519.Ed25519PrivateKey):
            raise InputError(f"{secret}: is not an Ed25519 key; delete it, and {renewal}")
        certificate = check_certificate(path, key, "coordinator", folder / "ca.crt", renewal)
        self.folder = folder
        self.warning = expiry_warning(path, certificate, renewal)
        self._key = key
        self._certificate = certificate_pem(certificate).decode("ascii")

    @property
    def fingerprint(self) -> str:
        """Of the public key."""
        return fingerprint(self._key.public_key())

    def sign(self, content: bytes, what: str = STUDY) -> Signature:
        """Sign a study, or a question of one."""
        return Signature(self._key.sign(_marked(what, content)).hex(), self._certificate)


def check_signature(
    content: bytes, signature: Signature, coordinator: str, ca: bytes, what: str = STUDY
) -> None:
    """Raise InputError unless a coordinator of this federation signed a study, or a question.

    Parameters
    ----------
    content : bytes
        What was signed.
    signature : Signature
    coordinator : str
        The fingerprint of the key that must have signed it.
    ca : bytes
        The certificate (PEM) of the federation's authority.
    what : str
        ``STUDY`` or ``QUESTION``.
    """
    if not signature.value:
        raise InputError(f"the {what} is not signed")
    try:
        authority = x509.load_pem_x509_certificate(ca)
    except ValueError:
        raise InputError("--ca: is not the certificate of the federation's CA, ca.crt") from None
    try:
        certificate = x509.load_pem_x509_certificate(signature.certificate.encode())
        value = bytes.fromhex(signature.value)
    except ValueError:
        raise InputError(f"the signature of the {what} cannot be read") from None
    if certificate_pem(certificate) != signature.certificate.encode():
        raise InputError(f"the certificate of the {what} is not in its usual form")
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        raise InputError(
            f"the {what} is signed by a coordinator whose certificate was issued by another CA"
        ) from None
    _check_purpose(certificate, what)
    key = certificate.public_key()
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise InputError("the coordinator's key is not an Ed25519 key")
    if fingerprint(key) != coordinator:
        raise InputError(f"the study names another coordinator than the one who signed the {what}")
    try:
        key.verify(value, _marked(what, content))
    except InvalidSignature:
        raise InputError(f"the signature does not belong to the {what}") from None


def _marked(what: str, content: bytes) -> bytes:
    """What is signed, so that a signature of anything else is not one of this."""
    return f"fedsplit {what}\n".encode() + content


def _check_purpose(certificate: x509.Certificate, what: str) -> None:
    """Raise InputError unless a certificate is a coordinator's, and valid now."""
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (x509.ExtensionNotFound, ValueError):
        usage = x509.ExtendedKeyUsage([x509.ObjectIdentifier("0.0")])
    if list(usage) != [USES["coordinator"]]:
        raise InputError(f"the {what} is signed by a key that is not the coordinator's")
    now = datetime.now(UTC)
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        raise InputError(
            f"the coordinator's certificate is valid from {certificate.not_valid_before_utc:%F} to "
            f"{certificate.not_valid_after_utc:%F}, not now: the coordinator has to renew it"
        )
