"""The coordinator's signature on a document, such as a study."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedsplit.errors import InputError
from fedsplit.remote.certificates import (
    certificate_pem,
    issued_by,
    may_be_used_for,
    read_certificate,
)
from fedsplit.remote.keys import fingerprint, read_private_key


class Signature(NamedTuple):
    """A signature, and the certificate of the key that made it, in PEM."""

    value: bytes
    certificate: bytes


def sign(folder: Path, content: bytes) -> Signature:
    """Sign with the coordinator's key of a federation's folder."""
    path = folder / "coordinator.key"
    if not path.exists():
        raise InputError(
            f"{path}: is needed to sign: make it with fedsplit keys {folder} --renew coordinator"
        )
    key = read_private_key(path)
    match key:
        case Ed25519PrivateKey():
            certificate = read_certificate(folder / "coordinator.crt")
            return Signature(key.sign(content), certificate_pem(certificate))
    raise InputError(f"{path}: is not an Ed25519 key")


def verify(content: bytes, signature: Signature, authority: Path) -> str:
    """Return the fingerprint of the coordinator who signed; ``InputError`` unless one did.

    Parameters
    ----------
    content : bytes
    signature : Signature
    authority : Path
        The certificate of the federation's authority, which must have issued the coordinator's.
    """
    wrong = InputError("this is not signed by the federation's coordinator")
    try:
        certificate = x509.load_pem_x509_certificate(signature.certificate)
    except ValueError:
        raise wrong from None
    known = issued_by(certificate, read_certificate(authority))
    if not known or not may_be_used_for(certificate, "coordinator"):
        raise wrong
    if datetime.now(UTC) > certificate.not_valid_after_utc:
        raise InputError(
            f"the coordinator's certificate expired on {certificate.not_valid_after_utc:%Y-%m-%d}: "
            "ask the coordinator to renew it (fedsplit keys DIR --renew coordinator)"
        )
    match certificate.public_key():
        case Ed25519PublicKey() as key:
            try:
                key.verify(signature.value, content)
            except InvalidSignature:
                raise wrong from None
            return fingerprint(key)
    raise wrong
