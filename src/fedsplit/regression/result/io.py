"""Models as files: ``model.json``, which people, other programs and ``load`` read. Never pickle."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd

from fedsplit import files
from fedsplit.errors import InputError
from fedsplit.regression.result.fitted import FittedModel
from fedsplit.regression.result.model import Model
from fedsplit.regression.result.noisy import NoisyModel

FORMAT = 3
"""Raised when a file of an older version can no longer be read."""

RECORD, PAGE, TRACE = "model.json", "report.html", "trace.csv"

PARTS = ("plan", "settings", "estimates", "fit", "run", "noise")
"""The fields of a model that are saved; the others are a way to its clients."""


def check_folder(folder: Path) -> None:
    """Raise InputError if writing a model here would replace a file that fedsplit did not write."""
    files.check_writable(folder)
    # by which every file of a model is known
    marks = {
        RECORD: b'sha256": ',
        PAGE: b"Fitted by fedsplit ",
        TRACE: b"round,objective,residual,",
    }
    for name, mark in marks.items():
        path = folder / name
        if path.exists() and not (path.is_file() and mark in path.read_bytes()):
            raise InputError(
                f"{path}: was not written by fedsplit, and is left alone: choose another folder"
            )


def save(model: FittedModel, folder: Path) -> None:
    """Write ``model.json``: what ``to_dict`` says, all parts of the model, and a digest of both."""
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    parts = {name: plain(getattr(model, name)) for name in PARTS if hasattr(model, name)}
    record = {"format": FORMAT, **model.to_dict()}
    digest = _digest({**record, **parts})
    shown = json.dumps({"sha256": digest, **record}, indent=2, allow_nan=False, ensure_ascii=False)
    # the parts have long arrays, which are to be one line
    lines = [f',\n  "{name}": {json.dumps(part, allow_nan=False)}' for name, part in parts.items()]
    files.write_durably(folder / RECORD, f"{shown[:-2]}{''.join(lines)}\n}}\n")


def load(path: str | Path) -> Model:
    """A model that ``Model.save`` wrote. Nothing in the file is executed."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"a saved model is named by its folder, not by {type(path).__name__}")
    folder = Path(path)
    where, again = folder / RECORD, "fit the model again"
    try:
        record = json.loads(where.read_text(encoding="utf-8"))
        found, digest = record["format"], record.pop("sha256", None)
        if found == FORMAT and digest == _digest(record):
            kind: Any = NoisyModel if "noise" in record else Model
            hints = _hints(kind)
            names = [name for name in PARTS if name in record]
            model: Model = kind(**{name: value_of(hints[name], record[name]) for name in names})
            return model
    except FileNotFoundError:
        raise InputError(f"{folder}: there is no {RECORD}: is it a saved model?") from None
    except OSError as error:
        reason = (error.strerror or "no reason is known").lower()
        raise InputError(f"{where}: cannot be read: {reason}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # of nested JSON
        raise InputError(f"{where}: is no saved model, or was damaged: {again}") from None
    if found != FORMAT:
        raise InputError(
            f"{where}: saved in format {found}, this version reads format {FORMAT}: {again}"
        )
    raise InputError(f"{where}: was damaged, or changed after it was saved: {again}")


def plain(value: Any) -> Any:
    """A value as JSON can hold it, of which ``value_of`` makes the value again, to the bit.

    Records are objects of their fields. Tables are objects of their columns, the index first. A
    number that is not finite is an object with its name under ``float``.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, pd.DataFrame):
        return plain(value.reset_index().to_dict("list"))
    kind: Any = type(value)
    if _is_record(kind):
        return {name: plain(getattr(value, name)) for name in _hints(kind)}
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value]


def value_of(kind: Any, found: Any) -> Any:
    """The value of a type that ``plain`` made ``found`` of."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return None if found is None else value_of(args[0], found)
    if isinstance(found, dict) and found.keys() == {"float"}:
        return float(found["float"])
    if origin is np.ndarray:
        return np.array(value_of(list, found), dtype=np.float64)
    if kind is pd.DataFrame:
        frame = pd.DataFrame({name: value_of(list, column) for name, column in found.items()})
        return frame.set_index(frame.columns[0])
    if _is_record(kind):
        return kind(**{name: value_of(hint, found[name]) for name, hint in _hints(kind).items()})
    if isinstance(found, dict):
        return {key: value_of(args[1], each) for key, each in found.items()}
    if not isinstance(found, list):
        return found
    # the parts of a tuple are alike, or numbers, which need no type
    values = [value_of(args[0] if args else list, each) for each in found]
    return tuple(values) if origin is tuple else values


def _is_record(kind: Any) -> bool:
    """Whether a type is a dataclass or a NamedTuple."""
    return is_dataclass(kind) or hasattr(kind, "_fields")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """The types of the fields of a record."""
    hints = get_type_hints(kind)
    names = (
        [each.name for each in fields(kind) if each.init] if is_dataclass(kind) else kind._fields
    )
    return {name: hints[name] for name in names}


def _digest(record: Mapping[str, Any]) -> str:
    """Of the values, however they are laid out."""
    text = json.dumps(record, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def write_trace(model: FittedModel, path: Path) -> None:
    """Write all exchanges as CSV, with a column for the seconds of each client.

    A line has the number of the round, which is 0 before the first and the last one after it.
    """
    rows = pd.DataFrame(model.trace.rows).drop(columns="latency")
    numbers = np.arange(1, len(rows) + 1) - model.run.first_round
    rows.index = pd.Index(np.clip(numbers, 0, model.run.rounds), name="round")
    for name, seconds in model.trace.latency.items():
        rows[f"seconds of {name}"] = seconds
    files.write(path, rows.to_csv())
