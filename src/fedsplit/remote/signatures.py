"""Signatures of a coordinator, by a key that the authority of the federation vouches for."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import ObjectIdentifier

from fedsplit.errors import InputError

DOCUMENT_SIGNING = ObjectIdentifier("1.3.6.1.5.5.7.3.36")
"""The purpose of a coordinator's certificate (RFC 9336): with it alone, no TLS accepts it."""

PURPOSE = b"fedsplit study\n"
"""Precedes what is signed, so that a signature of anything else is not one of a study."""


class Signature(NamedTuple):
    """A signature, and the certificate (PEM) of the key that made it; both empty if there is none.

    Attributes
    ----------
    value : str
        In hexadecimal digits.
    certificate : str
    """

    value: str = ""
    certificate: str = ""


def fingerprint(public: bytes) -> str:
    """The SHA-256 of a public key (PEM), in hexadecimal digits.

    It is that of the DER form of SubjectPublicKeyInfo, as in
    ``openssl pkey -pubin -outform DER | sha256sum``.
    """
    return _fingerprint(forms.load_pem_public_key(public))


def _fingerprint(key: object) -> str:
    der = key.public_bytes(  # type: ignore[attr-defined]  # of any kind of public key
        forms.Encoding.DER, forms.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(der).hexdigest()


class Signer:
    """The coordinator's key and certificate, of a folder that ``fedsplit keys`` made."""

    def __init__(self, folder: Path) -> None:
        paths = folder / "coordinator.key", folder / "coordinator.crt"
        for path in paths:
            if not path.is_file():
                raise InputError(
                    f"{path} is missing: it signs what clients are asked to approve; make keys "
                    "with this version of fedsplit keys"
                )
        key = forms.load_pem_private_key(paths[0].read_bytes(), None)
        if not isinstance(key, ed25519.Ed25519PrivateKey):
            raise InputError(f"{paths[0]}: is not an Ed25519 key; make keys with fedsplit keys")
        self._key = key
        self._certificate = paths[1].read_text(encoding="ascii")

    @property
    def fingerprint(self) -> str:
        """Of the public key."""
        return _fingerprint(self._key.public_key())

    def sign(self, content: bytes) -> Signature:
        """Sign a study."""
        return Signature(self._key.sign(PURPOSE + content).hex(), self._certificate)


def check_signature(content: bytes, signature: Signature, coordinator: str, ca: bytes) -> None:
    """Raise InputError unless a coordinator of this federation signed a study.

    Parameters
    ----------
    content : bytes
        What was signed.
    signature : Signature
    coordinator : str
        The fingerprint of the key that must have signed it.
    ca : bytes
        The certificate (PEM) of the federation's authority.
    """
    if not signature.value:
        raise InputError("the study is not signed")
    try:
        certificate = x509.load_pem_x509_certificate(signature.certificate.encode())
        authority = x509.load_pem_x509_certificate(ca)
        value = bytes.fromhex(signature.value)
    except ValueError:
        raise InputError("the signature of the study cannot be read") from None
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        raise InputError(
            "the study is signed by a coordinator that another authority vouches for"
        ) from None
    _check_purpose(certificate)
    key = certificate.public_key()
    if _fingerprint(key) != coordinator:
        raise InputError("the study names another coordinator than the one who signed it")
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise InputError("the coordinator's key is not an Ed25519 key")
    try:
        key.verify(value, PURPOSE + content)
    except InvalidSignature:
        raise InputError("the signature does not belong to the study") from None


def _check_purpose(certificate: x509.Certificate) -> None:
    """Raise InputError unless a certificate is a coordinator's, and valid now."""
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (x509.ExtensionNotFound, ValueError):
        usage = x509.ExtendedKeyUsage([x509.ObjectIdentifier("0.0")])
    if list(usage) != [DOCUMENT_SIGNING]:
        raise InputError("the study is signed by a key that is not the coordinator's")
    now = datetime.now(UTC)
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        raise InputError(
            f"the coordinator's certificate is valid from {certificate.not_valid_before_utc:%F} to "
            f"{certificate.not_valid_after_utc:%F}, not now: the coordinator has to renew it"
        )
