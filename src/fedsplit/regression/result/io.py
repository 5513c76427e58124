"""Models as files: ``model.json`` for what people read, ``model.npz`` for arrays. Never pickle."""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedsplit import files
from fedsplit.arrays import Array
from fedsplit.errors import InputError

FORMAT = 1
"""Raised when a file of an older version can no longer be read."""


def save(folder: Path, record: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write both files; each has its name only when it is whole."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError(f"{folder}: is a file, not a folder") from None
    packed = io.BytesIO()
    np.savez(packed, **arrays)  # type: ignore[arg-type]  # arrays by name, as the function takes them
    files.write(folder / "model.npz", packed.getvalue())
    text = json.dumps({"format": FORMAT, **record}, indent=2, allow_nan=False, ensure_ascii=False)
    files.write(folder / "model.json", text + "\n")


def load(folder: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Both parts of a saved model."""
    try:
        record = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        with np.load(folder / "model.npz", allow_pickle=False) as packed:
            arrays = {name: packed[name] for name in packed.files}
    except FileNotFoundError as error:
        raise InputError(
            f"{folder}: there is no {Path(str(error.filename)).name}: is it a saved model?"
        ) from None
    except (
        OSError,
        ValueError,
        TypeError,
        MemoryError,
        zipfile.BadZipFile,
        EOFError,
        RecursionError,
    ) as error:
        raise InputError(
            f"{folder}: this is no saved model, or a damaged one ({str(error)[:80]})"
        ) from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        found = record.get("format") if isinstance(record, dict) else None
        raise InputError(
            f"{folder}: saved in format {found}, this version reads format {FORMAT}: fit the model again"
        )
    return record, arrays


def finite(value: float | None) -> float | None:
    """A number as JSON can hold it."""
    return value if value is not None and math.isfinite(value) else None
