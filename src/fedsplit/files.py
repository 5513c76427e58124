"""Writing files atomically: a file or folder has its name only once it is complete."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from fedsplit.errors import InputError


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
    """Write a file that only its owner may read, durable before it has its name.

    The temporary file is always a new one, so that no link can lead the write elsewhere.
    """
    partial = path.with_name(partial_name(path.name))
    data = content.encode("utf-8") if isinstance(content, str) else content
    partial.unlink(missing_ok=True)
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_together(folder: Path, contents: dict[str, bytes | str]) -> None:
    """Write several files of a folder; none has its name before all of them are complete.

    They are renamed in the order given. Where the process is killed between two of those renames,
    the rest is still there, whole, under the names of ``partial_name``.

    Parameters
    ----------
    folder : Path
    contents : dict
        The content of each file, by its name.
    """
    partials = {name: folder / partial_name(name) for name in contents}
    try:
        for name, content in contents.items():
            data = content.encode("utf-8") if isinstance(content, str) else content
            with partials[name].open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
    except BaseException:
        for partial in partials.values():
            partial.unlink(missing_ok=True)
        raise
    for name, partial in partials.items():
        partial.replace(folder / name)


def partial_name(name: str) -> str:
    """The name of a file that is not complete, or not yet in its place."""
    return f".{name}.partial"


def write_folder(path: Path, contents: dict[str, str]) -> None:
    """Write a folder of text files, in place of an older one.

    Parameters
    ----------
    path : Path
    contents : dict of str to str
        The text of each file, by its name.
    """
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
