"""Sealed contents of files: only the holder of a private key can read them.

X25519 with a fresh key per file, HKDF with SHA-256, and ChaCha20-Poly1305: what TLS does on a
connection. Files pass through mail servers and shared folders, so that a signature is not enough.
"""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedsplit import files
from fedsplit.errors import InputError
from fedsplit.sites.secure.encoding import unambiguous

PURPOSE = "fedsplit sealed file"

KEY_BYTES = 32
NONCE = bytes(12)
"""Zero, since no key is used twice."""


class Box:
    """A private key, for what is sealed to its public key.

    Parameters
    ----------
    path : Path
        Where it is kept; a new one is made unless it is there.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            files.write_private(path, X25519PrivateKey.generate().private_bytes_raw())
        try:
            self._key = X25519PrivateKey.from_private_bytes(path.read_bytes())
        except ValueError:
            raise InputError(f"{path}: is damaged: restore it from a copy") from None

    @property
    def public(self) -> str:
        """The public key, in hexadecimal digits."""
        return self._key.public_key().public_bytes_raw().hex()

    def open(self, sealed: bytes, about: bytes) -> bytes:
        """What was sealed to this key; ``about`` must be the same as then."""
        try:
            sender = X25519PublicKey.from_public_bytes(sealed[:KEY_BYTES])
            secret = self._key.exchange(sender)
            key = _key(secret, sealed[:KEY_BYTES].hex(), self.public)
            return ChaCha20Poly1305(key).decrypt(NONCE, sealed[KEY_BYTES:], about)
        except (ValueError, InvalidTag):
            raise InputError("it is sealed to another key, or was changed") from None


def seal(content: bytes, public: str, about: bytes) -> bytes:
    """Seal something to a public key.

    Parameters
    ----------
    content : bytes
    public : str
        The key, in hexadecimal digits.
    about : bytes
        What the content belongs to; it is authenticated with it.
    """
    own = X25519PrivateKey.generate()
    sender = own.public_key().public_bytes_raw()
    try:
        secret = own.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(public)))
    except ValueError:
        raise InputError("its key cannot be used") from None
    key = _key(secret, sender.hex(), public)
    return sender + ChaCha20Poly1305(key).encrypt(NONCE, content, about)


def _key(secret: bytes, sender: str, receiver: str) -> bytes:
    about = unambiguous(PURPOSE, sender, receiver)
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=about).derive(secret)
