"""Keys: Ed25519 signs what a site or the coordinator states, X25519 agrees on masks."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Literal, TypeAlias

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedsplit.errors import InputError

Purpose: TypeAlias = Literal["message", "response"]
SigningKey: TypeAlias = Ed25519PrivateKey


class NotAuthentic(InputError):
    """A message whose signature is not that of the expected key."""


def digest(*parts: bytes) -> bytes:
    """Return the SHA-256 of several byte strings, each preceded by its length.

    No two different sequences of parts are read as the same bytes.
    """
    state = sha256()
    for part in parts:
        state.update(len(part).to_bytes(8, "little") + part)
    return state.digest()


def public_bytes(key: Ed25519PrivateKey | X25519PrivateKey) -> bytes:
    """Return the 32 bytes of the public half of a key."""
    return key.public_key().public_bytes_raw()


def sign(key: SigningKey, purpose: Purpose, body: bytes) -> bytes:
    """Return a statement with a signature of 64 bytes before it.

    The purpose is signed too: a signature on a reply can never pass for one on a study.
    """
    # A digest of both with their lengths: no purpose and body can be read as another pair.
    return key.sign(digest(purpose.encode(), body)) + body


def verify(public: bytes, purpose: Purpose, data: bytes) -> bytes:
    """Return the statement that was signed, or raise ``NotAuthentic``."""
    signature, body = data[:64], data[64:]
    try:
        key = Ed25519PublicKey.from_public_bytes(public)
        key.verify(signature, digest(purpose.encode(), body))
    except (InvalidSignature, ValueError):
        raise NotAuthentic(f"this {purpose} is not signed by the expected key") from None
    return body


def agree(own: bytes, partner: bytes) -> bytes:
    """Return the secret that only the holders of two X25519 keys can compute."""
    try:
        private = X25519PrivateKey.from_private_bytes(own)
        return private.exchange(X25519PublicKey.from_public_bytes(partner))
    except ValueError:  # a point of small order: everybody would know the secret
        raise NotAuthentic("the key of a partner cannot be used") from None


def reader(secret: bytes, about: bytes) -> Callable[[int], bytes]:
    """Return what gives pseudorandom bytes; every secret and every ``about`` give others."""
    key = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=about).derive(secret)
    # No derived key is used twice, so that the nonce, which holds the block counter, can be zero.
    encryptor = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return lambda size: encryptor.update(bytes(size))


def stream(secret: bytes, about: bytes, size: int) -> bytes:
    """Return ``size`` pseudorandom bytes."""
    return reader(secret, about)(size)


def in_groups(key: bytes) -> str:
    """Return a public key, or a hash, in hexadecimal digits as people compare them by telephone."""
    return key.hex(" ", 2)
