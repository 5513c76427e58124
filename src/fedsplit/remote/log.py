"""Records in a file that only grows: each is whole, or is not there."""

from __future__ import annotations

import hashlib
import os
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedsplit.errors import InputError
from fedsplit.remote import codec
from fedsplit.remote.channel import Outcome

if sys.platform != "win32":
    import fcntl

MARK, HEAD = b"fsr1", 48
"""How a record begins, and how long its beginning is: the mark, the length in 8 bytes, the SHA-256, a CRC of these."""


class Heard(NamedTuple):
    """One cohort's reply; an answer's bytes, so many of them, stand behind the record."""

    cohort: int
    outcome: Outcome
    size: int
    text: str
    seconds: float


class Record(NamedTuple):
    """One question to all: its digest, when the last reply was in, and the replies."""

    digest: str
    time: float
    heard: Sequence[Heard]


class Records:
    """A file of records: mark, length, checksum, and the record with its answers.

    A last record that is not whole is what a crash leaves behind, and is cut off; any other damage is refused. So is
    a last one in which a cohort did not answer: it may have stopped the run, and is asked again.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._file = path, path.open("a+b", buffering=0)
        self._fresh: list[bytes] = []
        self.places: list[tuple[int, int]] = []
        path.chmod(0o600)
        if sys.platform != "win32":
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._file.close()
                raise InputError(
                    f"{path}: another process is running from this checkpoint: wait for it, or stop it"
                ) from None

    @property
    def closed(self) -> bool:
        return self._file.closed

    @property
    def end(self) -> int:
        """Where the next record begins."""
        return sum(self.places[-1]) if self.places else 0

    def clear(self) -> None:
        """Begin anew."""
        self._file.truncate(0)

    def load(self) -> None:
        """Find the records."""
        size = self._file.seek(0, os.SEEK_END)
        while self.end < size and (length := self._whole(size)) is not None:
            self.places.append((self.end + HEAD, length))
        if self.places and any(each.outcome != "answer" for each in self.read(-1)[0].heard):
            self.places.pop()
        self._file.truncate(self.end)

    def _whole(self, size: int) -> int | None:
        """The length of the next record; None where a crash cut it off."""
        self._file.seek(self.end)
        head = self._read(HEAD)
        if len(head) < HEAD:
            return None
        length, check = int.from_bytes(head[4:12], "little"), int.from_bytes(head[-4:], "little")
        known, last = (
            head[:4] == MARK and zlib.crc32(head[:-4]) == check,
            self.end + HEAD + length >= size,
        )
        if known and self.end + HEAD + length <= size and sha256(self._read(length)) == head[12:-4]:
            return length
        if known and last:
            return None
        raise InputError(
            f"{self.path}: record {len(self.places) + 1} is damaged: start anew in another folder"
        )

    def read(self, number: int) -> tuple[Record, list[bytes]]:
        """A record, and the answers behind it."""
        at, length = self.places[number]
        self._file.seek(at)
        payload = self._read(length)
        end = 8 + int.from_bytes(payload[:8], "little")
        record: Record = codec.decode(Record, payload[8:end])
        blobs = []
        for each in record.heard:
            blobs.append(payload[end : end + each.size])
            end += each.size
        return record, blobs

    def _read(self, size: int) -> bytes:
        """So many bytes, or fewer at the end; the system gives no more than 2 GiB at a time."""
        parts = []
        while size > 0 and (part := self._file.read(size)):
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def append(self, record: Record, blobs: Sequence[bytes], every: int) -> None:
        """Keep a record; write when there are ``every`` of them."""
        meta = codec.encode(record)
        payload = b"".join([len(meta).to_bytes(8, "little"), meta, *blobs])
        head = MARK + len(payload).to_bytes(8, "little") + sha256(payload)
        self._fresh.append(head + zlib.crc32(head).to_bytes(4, "little") + payload)
        self.places.append((self.end + HEAD, len(payload)))
        if len(self._fresh) >= every:
            self.flush()

    def drop(self) -> None:
        """Forget the last record."""
        self.places.pop()
        if self._fresh:
            self._fresh.pop()
        else:
            self._file.truncate(self.end)

    def flush(self) -> None:
        """Write, and wait until it is on the disk."""
        waiting, self._fresh = memoryview(b"".join(self._fresh)), []
        if not waiting:
            return
        try:
            while waiting:
                waiting = waiting[self._file.write(waiting) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be written ({error.strerror}): make room, then resume"
            ) from None

    def close(self) -> None:
        """Write what is left."""
        try:
            self.flush()
        finally:
            self._file.close()


def sha256(data: bytes) -> bytes:
    """The digest of bytes."""
    return hashlib.sha256(data).digest()
