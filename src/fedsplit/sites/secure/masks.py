"""Pairwise masks: what one site adds to its answer another one subtracts.

For every exchange and every pair of sites a key is derived from what only these two know, and is
expanded to as many integers as the answer has. The sum over all sites has no masks left.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedsplit import fixed_point
from fedsplit.errors import RequestError
from fedsplit.fixed_point import Limbs
from fedsplit.sites.secure.encoding import unambiguous

PURPOSE = "fedsplit mask"
DIGITS = "fedsplit last digits"

LARGEST = 2**28
"""The most numbers of an answer; the stream of a key is far longer."""


class Exchange(NamedTuple):
    """One exchange of a study: everything that a mask depends on beside the keys.

    Attributes
    ----------
    study : str
        The hash of the study.
    number : int
        Of the exchange.
    question : str
        The SHA-256 of what was asked, in hexadecimal digits.
    members : tuple of str
        The sites whose answers are added.
    """

    study: str
    number: int
    question: str
    members: tuple[str, ...]

    @property
    def digest(self) -> str:
        """The SHA-256 of all of it."""
        texts = (self.study, str(self.number), self.question, set_digest(self.members))
        return hashlib.sha256(unambiguous(*texts)).hexdigest()


def set_digest(members: Sequence[str]) -> str:
    """The SHA-256 of a set of sites, whatever their order."""
    return hashlib.sha256(unambiguous(*sorted(members))).hexdigest()


def mask(
    exchange: Exchange,
    name: str,
    own: str,
    partners: Mapping[str, str],
    n: int,
) -> Limbs:
    """What a site adds to its answer of n numbers, (n, 4).

    Parameters
    ----------
    exchange : Exchange
    name : str
        Of the site.
    own : str
        Its X25519 private key, in hexadecimal digits.
    partners : mapping of str to str
        The public keys of the other sites.
    n : int
    """
    if not 0 <= n <= LARGEST:
        raise RequestError(f"an answer of {n} numbers cannot be masked")
    added: list[Limbs] = []
    subtracted: list[Limbs] = []
    members = set_digest(exchange.members)
    about = unambiguous(PURPOSE, exchange.study, str(exchange.number), exchange.question, members)
    for partner in sorted(set(exchange.members) - {name}):
        first, second = sorted((name, partner))
        info = about + unambiguous(first, second)
        stream = _stream(_shared(own, partners[partner]), info, n)
        if name == first:
            added.append(stream)
        else:
            subtracted.append(stream)
    return fixed_point.subtract(fixed_point.total(added, n), fixed_point.total(subtracted, n))


@lru_cache(maxsize=1024)
def _shared(own: str, partner: str) -> bytes:
    """What only two sites know."""
    secret = X25519PrivateKey.from_private_bytes(bytes.fromhex(own))
    try:
        return secret.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(partner)))
    except ValueError:  # a point of small order: everybody would know it
        raise RequestError("the key of a partner cannot be used") from None


def own_stream(own: str, study: str, question: str, numbers: Limbs) -> Callable[[int], bytes]:
    """Random bytes that only one site knows, for the last digits of its numbers.

    They depend on all that they are used for, so that the same answer to the same question has the
    same digits, and no other answer has.

    Parameters
    ----------
    own : str
        The site's X25519 private key for the study, in hexadecimal digits.
    study, question : str
        The hash of the study, and that of what was asked.
    numbers : (n, 4) array
        As they are.
    """
    content = hashlib.sha256(fixed_point.to_bytes(numbers)).hexdigest()
    info = unambiguous(DIGITS, study, question, content)
    encryptor = _encryptor(bytes.fromhex(own), info)
    return lambda size: encryptor.update(bytes(size))


def _stream(secret: bytes, info: bytes, n: int) -> Limbs:
    """n integers modulo 2^256 that only two sites know; each ``info`` gives others."""
    encryptor = _encryptor(secret, info)
    return fixed_point.from_bytes(encryptor.update(bytes(8 * fixed_point.LIMBS * n)))


def _encryptor(secret: bytes, info: bytes) -> CipherContext:
    """What expands a key that is derived from a secret; each ``info`` gives another."""
    key = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(secret)
    # The nonce is zero, since no key is used twice. Its first half is the counter of blocks.
    return Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
