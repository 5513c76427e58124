"""An append-only file of records, each of which is there as a whole or not at all.

A record on disk is a head of ``HEAD`` bytes and its content. The head is ``MARK``, the length of
the content in eight bytes, the SHA-256 of the content, and the CRC-32 of all these. The content is
an encoded ``RecordedQuestion``. Integers are little-endian. Why this is not SQLite:
docs/decisions.md.
"""

from __future__ import annotations

import hashlib
import os
import warnings
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fedsplit.channels import codec
from fedsplit.channels.channel import Outcome
from fedsplit.errors import InputError, NotWritten

MARK = b"fsr1"

HEAD = 48
"""Size of a record's head in bytes."""


class RecordedReply(NamedTuple):
    """One cohort's reply.

    Attributes
    ----------
    cohort : int
    outcome : str
    answer : bytes
        Encoded; empty without an answer.
    text : str
    seconds : float
    """

    cohort: int
    outcome: Outcome
    answer: bytes
    text: str
    seconds: float


class RecordedQuestion(NamedTuple):
    """One question to some cohorts, and their replies.

    Attributes
    ----------
    digest : str
        Identifies the question.
    time : float
        When the last reply was in, on the clock of the run.
    replies : sequence of RecordedReply
    """

    digest: str
    time: float
    replies: Sequence[RecordedReply]


class Records:
    """A file of records, locked against other processes while it is open.

    Parameters
    ----------
    path : Path
        Created if needed, for its owner alone.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("a+b")
        # Byte offsets at which records end; the first record begins at 0.
        self._ends = [0]
        self._unwritten: list[list[bytes]] = []
        path.chmod(0o600)
        try:
            import fcntl  # which Windows has none of

            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            why = "this system has no locks of files: use it in one process at a time"
            warnings.warn(f"{path}: {why}", stacklevel=2)
        except BlockingIOError:
            self._file.close()
            raise InputError(
                f"{path}: another process is running from this checkpoint: wait for it, or stop it"
            ) from None

    def __len__(self) -> int:
        return len(self._ends) - 1

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return self._file.closed

    def clear(self) -> None:
        """Delete what is in the file."""
        self._file.truncate(0)

    def load(self) -> None:
        """Find the records in the file; an incomplete last one is cut off.

        A last record in which a cohort did not answer is cut off too: it may be what stopped the
        run, so it is asked again. Any other damage raises ``InputError``.
        """
        size = self._file.seek(0, os.SEEK_END)
        while (end := self._next_end(size)) is not None:
            self._ends.append(end)
        if len(self):
            last = self.read(len(self) - 1)
            if any(reply.outcome != "answer" for reply in last.replies):
                self._ends.pop()
        self._file.truncate(self._ends[-1])

    def _next_end(self, size: int) -> int | None:
        """Return where the next record ends; None if there is none, or a crash cut it off."""
        begin = self._ends[-1]
        head = self._bytes(begin, HEAD)
        if len(head) < HEAD:
            return None
        end = begin + HEAD + int.from_bytes(head[4:12], "little")
        # The CRC distinguishes a damaged length from one that points beyond a file cut short.
        known = head[:4] == MARK and zlib.crc32(head[:-4]) == int.from_bytes(head[-4:], "little")
        if known and end <= size:
            content = self._bytes(begin + HEAD, end - begin - HEAD)
            if hashlib.sha256(content).digest() == head[12:-4]:
                return end
        if known and end >= size:
            return None
        raise InputError(
            f"{self.path}: record {len(self) + 1} is damaged: start again in another folder"
        )

    def read(self, number: int) -> RecordedQuestion:
        """Return a record, counted from 0."""
        begin = self._ends[number] + HEAD
        content = self._bytes(begin, self._ends[number + 1] - begin)
        record: RecordedQuestion = codec.decode(RecordedQuestion, content)
        return record

    def _bytes(self, begin: int, size: int) -> bytes:
        self._file.seek(begin)
        return self._file.read(size)

    def append(self, record: RecordedQuestion, every: int) -> None:
        """Add a record; once ``every`` records wait to be written, write them."""
        content = codec.encoded_parts(record)
        digest = hashlib.sha256()
        for part in content:
            digest.update(part)
        length = sum(len(part) for part in content)
        head = MARK + length.to_bytes(8, "little") + digest.digest()
        self._unwritten.append([head, zlib.crc32(head).to_bytes(4, "little"), *content])
        self._ends.append(self._ends[-1] + HEAD + length)
        if len(self._unwritten) >= every:
            self.flush()

    def drop(self) -> None:
        """Delete the last record."""
        self._ends.pop()
        if self._unwritten:
            self._unwritten.pop()
        else:
            self._file.truncate(self._ends[-1])

    def flush(self) -> None:
        """Write the records that wait, and wait until they are on disk."""
        waiting = self._unwritten
        self._unwritten = []
        if not waiting:
            return
        try:
            for record in waiting:
                self._file.writelines(record)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise NotWritten(
                f"{self.path}: cannot be written ({error.strerror}): make room, then resume"
            ) from None

    def close(self) -> None:
        """Write the records that wait, and release the file."""
        try:
            self.flush()
        finally:
            with suppress(OSError):  # bytes that could not be written, as ``flush`` has said
                self._file.close()
