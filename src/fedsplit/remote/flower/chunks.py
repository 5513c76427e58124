"""A message as Flower carries it: bytes in records of limited size."""

from __future__ import annotations

from flwr.app import ConfigRecord, RecordDict

from fedsplit.errors import InputError

PART = 8 * 2**20
"""The most bytes in one record; longer messages are split."""

NONCE = 16
"""Size in bytes of the random number that a reply must repeat."""


def pack(message: bytes, nonce: bytes) -> RecordDict:
    """Split a message into as many records as it needs."""
    starts = range(0, max(1, len(message)), PART)
    return RecordDict(
        {
            str(at): ConfigRecord(
                {"nonce": nonce, "part": at, "bytes": message[start : start + PART]}
            )
            for at, start in enumerate(starts)
        }
    )


def unpack(records: RecordDict) -> tuple[bytes, bytes]:
    """Return a message and its nonce; ``InputError`` unless ``pack`` made the records."""
    foreign = InputError("this is not a message of fedsplit")
    parts = []
    nonces = set()
    for at in range(len(records)):
        record = records.get(str(at))
        if not isinstance(record, ConfigRecord) or record.get("part") != at:
            raise foreign
        nonce = record.get("nonce")
        content = record.get("bytes")
        if not isinstance(nonce, bytes) or not isinstance(content, bytes):
            raise foreign
        nonces.add(nonce)
        parts.append(content)
    if len(nonces) != 1:
        raise foreign
    if len(parts) == 1:  # without a copy
        return parts[0], nonces.pop()
    return b"".join(parts), nonces.pop()
