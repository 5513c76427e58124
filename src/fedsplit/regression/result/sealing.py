"""The two files of a saved model, each of which names the other by a digest of its content."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedsplit import files
from fedsplit.arrays import Array
from fedsplit.errors import InputError

RECORD = "model.json"
ARRAYS = "model.npz"
PAGE = "report.html"
TRACE = "trace.csv"

MARKS = {
    RECORD: b'"arrays_sha256": ',
    ARRAYS: b"record_sha256.npy",
    PAGE: b"Fitted by fedsplit ",
    TRACE: b"round,objective,residual,",
}
"""What the content of every file of a model has, by which it is known."""

ARRAYS_DIGEST = "arrays_sha256"
"""The key of the record that holds the digest of the file with the arrays."""

RECORD_DIGEST = "record_sha256"
"""The array that holds the digest of the record."""


def check_folder(folder: Path) -> None:
    """Raise InputError if writing a model here would replace a file that fedsplit did not write."""
    files.check_writable(folder)
    for name, mark in MARKS.items():
        path = folder / name
        if path.exists() and not (path.is_file() and mark in path.read_bytes()):
            raise InputError(
                f"{path}: was not written by fedsplit, and is left alone: choose another folder"
            )


def write(folder: Path, record: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write both files, or neither.

    Parameters
    ----------
    folder : Path
    record : mapping
        What JSON can hold.
    arrays : mapping
        Arrays by name.
    """
    packed = io.BytesIO()
    sealed = {name: np.array(value) for name, value in arrays.items()}
    sealed[RECORD_DIGEST] = np.array(_digest_of_record(json.loads(_text(record))))
    np.savez(packed, **sealed)  # type: ignore[arg-type]  # arrays by name, as the function takes them
    content = packed.getvalue()
    text = _text({**record, ARRAYS_DIGEST: hashlib.sha256(content).hexdigest()})
    files.write_together(folder, {ARRAYS: content, RECORD: text + "\n"})


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """The record and the arrays; nothing in the files is executed.

    Raises
    ------
    InputError
        If a file is missing or damaged, or if the two are not of one model.
    """
    try:
        files.check_archive(folder / ARRAYS)
        content = (folder / ARRAYS).read_bytes()
        record = _record(folder / RECORD)
        with np.load(io.BytesIO(content), allow_pickle=False) as packed:
            arrays = {name: packed[name] for name in packed.files}
        digest = str(arrays.pop(RECORD_DIGEST, None))
        staged = folder / files.partial_name(RECORD)
        if not _match(record, digest, content) and staged.exists():
            # the process that saved the model was killed between the renames of the two files
            record = _record(staged)
    except FileNotFoundError as error:
        missing = Path(str(error.filename)).name
        raise InputError(f"{folder}: there is no {missing}: is it a saved model?") from None
    except InputError:
        raise
    except (
        OSError,
        ValueError,
        TypeError,
        MemoryError,
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        RuntimeError,  # of nested JSON, and of compression or encryption that zipfile does not know
    ) as error:
        raise InputError(
            f"{folder}: not a saved model, or a damaged one ({str(error)[:80]})"
        ) from None
    if not _match(record, digest, content):
        raise InputError(
            f"{folder}: {RECORD} and {ARRAYS} are not of one model, or one of them was changed: "
            "save the model again"
        )
    del record[ARRAYS_DIGEST]
    return record, arrays


def _match(record: dict[str, Any], digest: str, content: bytes) -> bool:
    """Whether each file has the digest of the other."""
    named = record.get(ARRAYS_DIGEST)
    return named == hashlib.sha256(content).hexdigest() and digest == _digest_of_record(record)


def _record(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    record = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(record, dict):
        raise ValueError(f"{path.name} holds no object")
    return record


def _digest_of_record(record: Mapping[str, Any]) -> str:
    """Of the values, however they are laid out, but for the digest of the arrays."""
    values = {name: value for name, value in record.items() if name != ARRAYS_DIGEST}
    text = json.dumps(values, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _text(record: Mapping[str, Any]) -> str:
    return json.dumps(record, indent=2, allow_nan=False, ensure_ascii=False)
