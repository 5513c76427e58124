"""Private and public keys: Ed25519, and ECDSA on the curve P-256."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TypeAlias

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedsplit.errors import InputError

PrivateKey: TypeAlias = EllipticCurvePrivateKey | Ed25519PrivateKey
PublicKey: TypeAlias = EllipticCurvePublicKey | Ed25519PublicKey

SAFE_NAME = re.compile(r"\w[\w.-]{0,63}")

PEM_BLOCK = re.compile(rb"-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----", re.DOTALL)

KINDS = "an Ed25519 or ECDSA P-256 key"


def check_name(name: str) -> None:
    """Raise InputError unless a client's name is safe as the name of a file."""
    if not SAFE_NAME.fullmatch(name) or name.endswith("."):
        raise InputError(
            f"client {name!r}: use letters, digits, '.', '-' and '_', at most 64, "
            "a letter or digit first"
        )


def new_key() -> EllipticCurvePrivateKey:
    """Generate a key for TLS."""
    return generate_private_key(SECP256R1())


def read_private_key(path: Path) -> PrivateKey:
    """Read a private key, in PEM or OpenSSH's format."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    load = forms.load_pem_private_key
    if b"OPENSSH" in content[:64]:
        load = forms.load_ssh_private_key
    try:
        key = load(content, None)
    except TypeError:
        raise InputError(f"{path}: has a password, give a key without one") from None
    except (ValueError, UnsupportedAlgorithm):
        raise InputError(f"{path}: is not a private key; make keys with fedsplit keys") from None
    match key:
        case Ed25519PrivateKey() | EllipticCurvePrivateKey(curve=SECP256R1()):
            return key
    raise InputError(f"{path}: is not {KINDS}; make keys with fedsplit keys")


def write_private_key(path: Path, key: PrivateKey) -> None:
    """Write a new private key, which only its owner can read."""
    write_new(path, private_pem(key), secret=True)


def private_pem(key: PrivateKey) -> bytes:
    """A private key in PEM, without a password."""
    return key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())


def read_public_keys(path: Path) -> list[PublicKey]:
    """Read a file of public keys: OpenSSH's, one per line, or blocks of PEM."""
    content = path.read_bytes()
    blocks = PEM_BLOCK.findall(content)
    load = forms.load_pem_public_key
    if not blocks:
        lines = (line.strip() for line in content.splitlines())
        blocks = [line for line in lines if line and not line.startswith(b"#")]
        load = forms.load_ssh_public_key
    wrong = InputError(f"{path}: is not a public key; make keys with fedsplit keys")
    if not blocks:
        raise wrong
    try:
        return [check_public_key(load(block), path) for block in blocks]
    except (ValueError, UnsupportedAlgorithm) as error:
        raise error if isinstance(error, InputError) else wrong from None


def check_public_key(key: object, where: object) -> PublicKey:
    """Return the key, if it is of a kind that is used here; ``where`` is for the error."""
    match key:
        case Ed25519PublicKey() | EllipticCurvePublicKey(curve=SECP256R1()):
            return key
    raise InputError(f"{where}: is not {KINDS}; make keys with fedsplit keys")


def public_line(key: PublicKey) -> bytes:
    """A public key in OpenSSH's format."""
    return key.public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH)


def fingerprint(key: PublicKey) -> str:
    """The SHA-256 of a public key in hexadecimal digits.

    It is that of the DER form of SubjectPublicKeyInfo, as in
    ``openssl pkey -in NAME.key -pubout -outform DER | sha256sum``.
    """
    der = key.public_bytes(forms.Encoding.DER, forms.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def sign(key: PrivateKey, content: bytes) -> bytes:
    """The signature of a client's key."""
    match key:
        case Ed25519PrivateKey():
            return key.sign(content)
    return key.sign(content, ECDSA(hashes.SHA256()))


def is_signature(key: PublicKey, signature: bytes, content: bytes) -> bool:
    """Whether a client's key has signed this content."""
    try:
        match key:
            case Ed25519PublicKey():
                key.verify(signature, content)
            case _:
                key.verify(signature, content, ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def read_public_line(line: str, where: object) -> PublicKey:
    """A public key in OpenSSH's format; ``where`` is for the error."""
    try:
        return check_public_key(forms.load_ssh_public_key(line.encode("ascii")), where)
    except (ValueError, UnsupportedAlgorithm) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{where}: its public key cannot be read") from None


def write_new(path: Path, content: bytes, secret: bool = False) -> None:
    """Write a new file; a secret one is readable by its owner alone from its creation on."""
    mode = 0o600 if secret else 0o644
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise InputError(f"{path}: exists already, choose another folder") from None
    with os.fdopen(file, "wb") as opened:
        opened.write(content)
