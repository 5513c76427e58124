"""Files on disk: written atomically, so that one has its name only once it is complete."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path
from typing import NamedTuple

from fedsplit.errors import InputError


class Stamp(NamedTuple):
    """What changes whenever a file is written or replaced, even by one with the same times."""

    inode: int
    size: int
    modified: int  # when its content was last changed (ns)
    changed: int  # when its content or its inode was (ns)

    @classmethod
    def of(cls, path: Path) -> Stamp:
        status = path.stat()
        return cls(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def check_unpacked(
    path: Path, packed: int, unpacked: int, most: int = 300, harmless: int = 1 << 25
) -> None:
    """Raise InputError if a file unpacks to what no data of this size would, both in bytes.

    That is ``most`` times its size: tables of text shrink to a tenth, very regular ones to a
    hundredth, and gzip can shrink zeros to a thousandth. Any machine has room for what is
    ``harmless``.
    """
    if unpacked > max(harmless, most * packed):
        raise InputError(
            f"{path}: unpacks to more than {most} times its size, which no table does: unpack it "
            "yourself if it is one"
        )


def check_archive(path: Path) -> None:
    """Raise InputError if a zip archive, as .xlsx and .npz are, would unpack to too much.

    The sizes are those that the archive states, and no more than that is ever unpacked.
    """
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(each.file_size for each in archive.infolist())
        check_unpacked(path, path.stat().st_size, unpacked)


def write(path: Path, content: bytes | str) -> None:
    """Write a file, text as UTF-8, under a temporary name beside its own, then rename it."""
    partial = path.with_name(partial_name(path.name))
    try:
        if isinstance(content, str):
            partial.write_text(content, encoding="utf-8")
        else:
            partial.write_bytes(content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_private(path: Path, content: bytes | str) -> None:
    """Write a file that only its owner may read; it outlives a loss of power after this."""
    write_durably(path, content, 0o600)


def write_durably(path: Path, content: bytes | str, mode: int = 0o666) -> None:
    """Write a file, text as UTF-8, that outlives a loss of power after this.

    The temporary file is always a new one, so that no link can lead the write elsewhere. ``mode``
    says who may read and write it, as far as the user's umask allows.
    """
    partial = path.with_name(partial_name(path.name))
    data = content.encode("utf-8") if isinstance(content, str) else content
    partial.unlink(missing_ok=True)
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync(path.parent)
    except OSError as error:
        error.filename = str(path)  # a full disk names no file, or the temporary one
        raise
    finally:
        partial.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, outlive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def partial_name(name: str) -> str:
    """The name of a file that is not complete, or not yet in its place."""
    return f".{name}.partial"


def write_folder(path: Path, contents: dict[str, str]) -> None:
    """Write a folder of texts, by the names of their files, in place of an older one."""
    partial = path.with_name(partial_name(path.name))
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        for name, text in contents.items():
            (partial / name).write_text(text, encoding="utf-8")
        shutil.rmtree(path, ignore_errors=True)
        partial.replace(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def check_writable(path: Path) -> None:
    """Raise InputError, before any work is done, if the folder cannot be made or written to."""
    existing = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not existing.is_dir():
        raise InputError(f"{existing}: is a file, not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(f"{existing}: cannot be written to, choose another folder")
