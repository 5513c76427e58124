"""Bytes that stand for one content alone: what is signed, what keys are derived from, and files."""

from __future__ import annotations

import hashlib

from fedsplit.errors import InputError


def unambiguous(*texts: str) -> bytes:
    """The texts in UTF-8, each after its length in eight bytes, and their number before all."""
    parts = [len(texts).to_bytes(8, "little")]
    for text in texts:
        content = text.encode("utf-8")
        parts += [len(content).to_bytes(8, "little"), content]
    return b"".join(parts)


def with_digest(content: bytes) -> bytes:
    """The content of a file after a line with its SHA-256, so that damage to it is noticed."""
    return hashlib.sha256(content).hexdigest().encode("ascii") + b"\n" + content


def without_digest(found: bytes) -> bytes:
    """The content that ``with_digest`` was given; raises InputError if it is another."""
    _, _, content = found.partition(b"\n")
    if with_digest(content) != found:
        raise InputError("a file whose content is not the one that was written")
    return content
