"""Writing files atomically: a file or folder has its name only once it is complete."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from fedsplit.errors import InputError


def write(path: Path, content: bytes | str) -> None:
    """Write a file, text as UTF-8, under a temporary name beside its own, then rename it."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        if isinstance(content, str):
            partial.write_text(content, encoding="utf-8")
        else:
            partial.write_bytes(content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_folder(path: Path, contents: dict[str, str]) -> None:
    """Write a folder of text files, in place of an older one.

    Parameters
    ----------
    path : Path
    contents : dict of str to str
        The text of each file, by its name.
    """
    partial = path.with_name(f".{path.name}.partial")
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
