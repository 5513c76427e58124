"""A site's own key for a study, and the keys of its partners, once they have come."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from fedsplit import files
from fedsplit.errors import InputError, RequestError
from fedsplit.sites.secure.encoding import with_digest, without_digest
from fedsplit.sites.secure.ledger import LOST
from fedsplit.sites.secure.protocol import KeyLetter


class StudyKeys(NamedTuple):
    """The keys of a study.

    Attributes
    ----------
    secret : str
        The site's X25519 private key for the study, in hexadecimal digits.
    letter : KeyLetter
        The one with its public key.
    letters : tuple of KeyLetter
        Those of all sites, verified and in the order of their names; empty until they have come.
    """

    secret: str
    letter: KeyLetter
    letters: tuple[KeyLetter, ...] = ()

    def keep(self, path: Path) -> None:
        """Write them, for the owner alone."""
        files.write_private(path, with_digest(msgspec.json.encode(self)))


def read_keys(path: Path) -> StudyKeys:
    """The keys in a file; raises RequestError if they are lost, or cannot be read."""
    try:
        return msgspec.json.decode(without_digest(path.read_bytes()), type=StudyKeys)
    except (FileNotFoundError, InputError, msgspec.DecodeError):
        raise RequestError(LOST) from None
