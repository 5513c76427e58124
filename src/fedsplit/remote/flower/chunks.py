"""A letter as Flower carries it: bytes in records, each with the number that its answer must repeat."""

from __future__ import annotations

from flwr.app import ConfigRecord, RecordDict

from fedsplit.errors import InputError

NAME_HEADER = "fedsplit-name"
"""Of a request: what its client calls itself."""

PART = 8 * 2**20
"""The most bytes in one record; longer letters are divided."""

NONCE = 16
"""The bytes of the number that goes with a letter and must come back with its answer."""


def pack(letter: bytes, nonce: bytes) -> RecordDict:
    """A letter in as many records as it needs."""
    starts = range(0, max(1, len(letter)), PART)
    return RecordDict(
        {
            str(at): ConfigRecord(
                {"nonce": nonce, "part": at, "bytes": letter[start : start + PART]}
            )
            for at, start in enumerate(starts)
        }
    )


def unpack(records: RecordDict) -> tuple[bytes, bytes]:
    """A letter and its number; ``InputError`` where the records are not what ``pack`` makes."""
    parts, nonces = [], set()
    for at in range(len(records)):
        record = records.get(str(at))
        if not isinstance(record, ConfigRecord) or record.get("part") != at:
            raise InputError("this is no letter")
        nonce, content = record.get("nonce"), record.get("bytes")
        if not isinstance(nonce, bytes) or not isinstance(content, bytes):
            raise InputError("this is no letter")
        nonces.add(nonce)
        parts.append(content)
    if len(nonces) != 1:
        raise InputError("this is no letter")
    return parts[0] if len(parts) == 1 else b"".join(parts), nonces.pop()
