"""What sites tell of their keys and ledgers: plain values, read without cryptography."""

from __future__ import annotations

from typing import NamedTuple


class KeyLetter(NamedTuple):
    """The public key with which a site agrees on masks in one study.

    Attributes
    ----------
    name : str
        Of the site.
    key : str
        Its X25519 public key for this study, in hexadecimal digits.
    removal : bool
        Whether the owner of the site allows that the study goes on without it.
    signer : str
        The long-term public key of the site, in OpenSSH's format.
    signature : str
        Of all that and the hash of the study, in hexadecimal digits.
    """

    name: str
    key: str
    removal: bool
    signer: str
    signature: str


class Standing(NamedTuple):
    """How far a site is in a study with secure sums.

    Attributes
    ----------
    number : int
        Of the last exchange that it answered; 0 before the first.
    members : tuple of str
        The sites that still take part.
    """

    number: int
    members: tuple[str, ...]
