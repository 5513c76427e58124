"""Records as bytes and back: a record has one encoding, and the reader states what it accepts.

Records are msgspec Structs, whose type the reader names, so that nothing in a message chooses a
class. Their encoding is MessagePack. As a record has one encoding, a signature, a digest and a log
of it speak of the same bytes.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any, TypeVar

import msgspec

from fedsplit.errors import InputError

Record = TypeVar("Record")

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder: Any = cache(msgspec.msgpack.Decoder)


class Unreadable(InputError):
    """Bytes that are not the canonical encoding of what is expected."""


def encode(record: object) -> bytes:
    """Encode a record; equal ones have equal bytes, and so equal digests."""
    return _encoder.encode(record)


def decode(kind: type[Record], data: bytes) -> Record:
    """Decode a record of a type from bytes of any source; anything else is ``Unreadable``.

    How many bytes are read at all is decided by the transport, which knows what is expected.
    """
    name = getattr(kind, "__name__", "message")  # a union of records has none
    try:
        record: Record = _decoder(kind).decode(data)
        canonical = encode(record) == data
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        what = ascii(str(error)[:200])[1:-1]  # it may name a field of any characters
        raise Unreadable(f"not a {name}: {what}") from None
    # msgspec accepts repeated keys, unsorted maps and long forms of short numbers.
    if not canonical:
        raise Unreadable(f"not a {name} in canonical form")
    return record


def digest(*parts: bytes) -> bytes:
    """Return the SHA-256 of several byte strings, each preceded by its length.

    No two different sequences of parts are read as the same bytes.
    """
    state = hashlib.sha256()
    for part in parts:
        state.update(len(part).to_bytes(8, "little") + part)
    return state.digest()
