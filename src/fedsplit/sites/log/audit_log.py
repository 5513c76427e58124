"""A client's log: every question and answer whole, each line with the hash of the one before."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NamedTuple

from fedsplit import files
from fedsplit.errors import InputError

LOG_FILE_BYTES = 2**26
"""Of one file; a longer log is continued in another one."""

BEGINNINGS = (b'{"number": ', b'{"time": ')
"""Of the lines of a log, and of one of a version whose lines were not chained."""

BEGINNING = "0" * 64
"""What stands for the hash of the line before the first one."""


class Head(NamedTuple):
    """The last line of a log: its number, from 1, and its hash."""

    number: int
    hash: str


class NotLogged(Exception):
    """A line could not be written, so that nothing may be sent."""


class AuditLog:
    """A log that is appended to, one line of JSON at a time, each on disk before it returns.

    Once the file is ``largest`` bytes long it gets the number of its last line in its name, and
    the log goes on in a new file, with the same chain of hashes.

    Parameters
    ----------
    path : Path
        Of the file that is appended to.
    largest : int
        Bytes of one file.
    """

    def __init__(self, path: Path, largest: int = LOG_FILE_BYTES) -> None:
        self.path = path
        self._largest = largest
        self.head = Head(0, BEGINNING)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Two processes that append would break the chain.
        weakref.finalize(self, os.close, _locked(path))
        _put_aside_older_log(path)
        _cut_partial_line(path)
        for file in reversed(log_files(path)):
            line = _last_line(file)
            if line:
                self.head = Head(_number(line, file), digest(line))
                break

    def append(self, entry: Mapping[str, Any]) -> Head:
        """Add a line, and return it as the head of the log.

        Raises
        ------
        NotLogged
            If it cannot be written, for example because the disk is full.
        """
        head = self.head
        complete = {"number": head.number + 1, "previous": head.hash, **entry}
        line = json.dumps(complete, ensure_ascii=False, allow_nan=False)
        try:
            self._rotate()
            files.append_line(self.path, line)
        except OSError as error:
            raise NotLogged(f"{self.path}: cannot be written ({error.strerror})") from None
        self.head = Head(head.number + 1, digest(line.encode()))
        return self.head

    def _rotate(self) -> None:
        if self.path.exists() and self.path.stat().st_size >= self._largest:
            self.path.rename(_rotated(self.path, self.head.number))


def digest(line: bytes) -> str:
    """The SHA-256 of a line, without its line break, in hexadecimal digits."""
    return hashlib.sha256(line).hexdigest()


def log_files(path: Path) -> list[Path]:
    """The files of a log, the oldest first."""
    pattern = re.compile(rf"{re.escape(path.stem)}-(\d+){re.escape(path.suffix)}")
    found = [each for each in path.parent.glob("*") if pattern.fullmatch(each.name)]
    found.sort(key=lambda each: int(pattern.fullmatch(each.name)[1]))  # type: ignore[index]  # it matched
    if path.exists():
        found.append(path)
    return found


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """The entries of a log in order, with their hashes under ``hash``.

    Raises
    ------
    InputError
        At the first line that is damaged, or does not follow from the one before.
    """
    number = 0
    expected = BEGINNING
    last = log_files(path)[-1:]
    for file, at, raw in _raw_lines(path):
        where = f"{file}, line {at}"
        if not raw.endswith(b"\n"):
            if [file] != last:
                raise InputError(f"{where}: it was cut off")
            return  # it is being written, or a crash cut it off: its answer never left
        line = raw.rstrip(b"\n")
        entry = _entry(line, where)
        if number == 0 and entry["number"] > 1:  # earlier files were taken away
            expected = entry["previous"]
            number = entry["number"] - 1
        if entry["number"] != number + 1:
            raise InputError(f"{where}: it has the number {entry['number']}, after {number}")
        if entry["previous"] != expected:
            raise InputError(
                f"{where}: it does not follow from the line before it: one of the two was changed"
            )
        number = entry["number"]
        expected = digest(line)
        yield entry | {"hash": expected}


def _raw_lines(path: Path) -> Iterator[tuple[Path, int, bytes]]:
    """The lines of all files of a log, with the file and the number of the line in it.

    All files are opened first, so that a client may go on with its log meanwhile.
    """
    with ExitStack() as stack:
        opened: dict[Path, IO[bytes]] = {}
        while list(opened) != log_files(path):
            stack.close()
            opened = {file: stack.enter_context(file.open("rb")) for file in log_files(path)}
        for file, content in opened.items():
            for at, raw in enumerate(content, start=1):
                yield file, at, raw


def _entry(line: bytes, where: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
        if isinstance(entry["number"], int) and isinstance(entry["previous"], str):
            return dict(entry)
    except (ValueError, TypeError, KeyError):
        pass
    raise InputError(f"{where}: is not a line of this log")


def _locked(path: Path) -> int:
    """A lock on a log for this process, until the descriptor is closed."""
    descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        os.close(descriptor)
        raise InputError(
            f"{path}: another client writes to it: give each client a --log of its own"
        ) from None
    return descriptor


def _rotated(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}-{number:09}{path.suffix}")


def _number(line: bytes, file: Path) -> int:
    return int(_entry(line, f"{file}, last line")["number"])


def _last_line(path: Path) -> bytes:
    """The last line of a file without its line break; empty if there is none."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        size = 2**16
        while True:
            begin = max(0, end - size)
            file.seek(begin)
            lines = file.read(end - begin).rstrip(b"\n").split(b"\n")
            if len(lines) > 1 or begin == 0:
                return lines[-1]
            size *= 4


def _put_aside_older_log(path: Path) -> None:
    """Rename a log of a version whose lines were not chained; refuse any other file."""
    if not path.exists() or not path.stat().st_size:
        return
    with path.open("rb") as file:
        first = file.readline()
    if first.startswith(BEGINNINGS[0]):
        return
    if not first.startswith(BEGINNINGS[1]):
        raise InputError(f"{path}: is not a log of a client: choose another file for --log")
    aside = path.with_name(f"{path.stem}.unchained{path.suffix}")
    if aside.exists():
        raise InputError(f"{path}: is a log of an older version, and so is {aside}: move one away")
    path.rename(aside)


def _cut_partial_line(path: Path) -> None:
    """Cut off a line that a crash left incomplete: its answer was never sent."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        if end == 0:
            return
        file.seek(end - 1)
        if file.read(1) == b"\n":
            return
        last = _last_line(path)
        file.truncate(end - len(last))
