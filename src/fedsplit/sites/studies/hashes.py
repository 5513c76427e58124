"""The hash of a study as people read and write it."""

from __future__ import annotations

import re

from fedsplit.errors import InputError

SHORTEST_HASH = 16
"""The fewest hexadecimal digits by which a study is known: fewer could be made to agree."""


def short(text: str) -> str:
    """A hash in groups of four digits, as people compare it."""
    return " ".join(text[at : at + 4] for at in range(0, len(text), 4))


def read_hash(text: str) -> str:
    """The beginning of a hash as people write it, with or without spaces."""
    plain = _digits(text)
    if not SHORTEST_HASH <= len(plain) <= 64:
        raise InputError(
            f"{text!r} is not the hash of a study: give at least {SHORTEST_HASH} of its "
            "hexadecimal digits"
        )
    return plain


def read_whole_hash(text: str) -> str:
    """A hash as people write it, all of its digits."""
    plain = _digits(text)
    if len(plain) != 64:
        raise InputError(
            f"--approve takes ask, always, or the 64 hexadecimal digits of a study's hash, not "
            f"{text!r}"
        )
    return plain


def _digits(text: str) -> str:
    """The digits of a hash without what separates them; empty if it has anything else."""
    plain = re.sub(r"[\s:-]", "", text).lower()
    if not re.fullmatch("[0-9a-f]+", plain):
        return ""
    return plain
