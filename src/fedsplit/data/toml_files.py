"""TOML files that users write: lists of clients, models and studies."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from fedsplit.data.files.opening import check_file
from fedsplit.data.tables import fail

PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
DEEP_KEY = re.compile(rf"(?<![\w-]){PART}(?:[ \t]*\.[ \t]*{PART}){{16,}}")
"""A key that tomllib would take minutes and gigabytes for, if it has thousands of parts."""


def is_toml(path: Path) -> bool:
    """Return whether a file is TOML, by its name."""
    return path.suffix.lower() == ".toml"


def read_toml(path: Path) -> dict[str, Any]:
    """Return what a file holds; InputError if it is not TOML, or of no sensible size."""
    where = str(path)
    check_file(where, path)
    try:
        # room for 400 characters for each of 10 000 clients: Python takes a second for each MB
        if path.stat().st_size > (1 << 22):
            fail(where, "is larger than 4 MB, which no list of clients or model is")
        text = path.read_text(encoding="utf-8")
        if DEEP_KEY.search(text):
            fail(where, "has a key of more than sixteen parts: two or three are enough")
        return tomllib.loads(text)
    except OSError as error:
        fail(where, error.strerror or error)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        fail(where, f"is not TOML: {error}")
