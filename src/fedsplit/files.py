"""Files that have their name only when they are whole."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from fedsplit.errors import InputError


def write(path: Path, content: bytes | str) -> None:
    """Write a file beside its place, then move it there."""
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
    """Write a folder of text files beside its place, then move it there, in the place of an older one."""
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
    """Refuse, before any work is done, a folder that cannot be made or written to."""
    existing = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not existing.is_dir():
        raise InputError(f"{existing}: is a file, not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(f"{existing}: cannot be written to, choose another folder")
