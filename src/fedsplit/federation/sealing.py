"""Sealed messages: files that people carry can be read by the key that they are for alone."""

from __future__ import annotations

from hashlib import sha512

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedsplit.errors import InputError
from fedsplit.federation.keys import SigningKey, agree, digest, public_bytes, stream

MARK = b"fsbox1"


def seal(recipient: bytes, data: bytes) -> bytes:
    """Return data that only the holder of an Ed25519 key can read."""
    once = X25519PrivateKey.generate()
    public = public_bytes(once)
    secret = agree(once.private_bytes_raw(), _converted(recipient))
    return MARK + public + _cipher(secret, public, recipient).encrypt(bytes(12), data, None)


def unseal(key: SigningKey, data: bytes) -> bytes:
    """Return what was sealed for a key; InputError for anything else."""
    public, content = data[len(MARK) : len(MARK) + 32], data[len(MARK) + 32 :]
    if data[: len(MARK)] != MARK or len(public) < 32:
        raise InputError("is no sealed message of fedsplit")
    own = sha512(key.private_bytes_raw()).digest()[:32]  # as Ed25519 makes its scalar
    try:
        secret = agree(own, public)
        return _cipher(secret, public, public_bytes(key)).decrypt(bytes(12), content, None)
    except (InvalidTag, InputError):
        raise InputError("is sealed for another key, or damaged") from None


def _cipher(secret: bytes, public: bytes, recipient: bytes) -> ChaCha20Poly1305:
    # The key is used once, so that the nonce can be zero.
    return ChaCha20Poly1305(stream(secret, digest(b"seal", public, recipient), 32))


def _converted(public: bytes) -> bytes:
    """The X25519 form of an Ed25519 public key (RFC 7748, section 4.1)."""
    y = int.from_bytes(public, "little") % 2**255
    prime = 2**255 - 19
    if y % prime == 1:
        raise InputError("a public key that cannot be sealed for")
    return ((1 + y) * pow(1 - y, -1, prime) % prime).to_bytes(32, "little")
