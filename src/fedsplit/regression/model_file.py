"""A TOML file that describes a model: its table ``[model]`` has the options of ``fit`` by name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsplit.data.files.opening import is_toml, read_toml
from fedsplit.errors import InputError, listed, nearest
from fedsplit.regression.fields import record_in, record_of, settable
from fedsplit.regression.options import FitOptions, check_value


def read_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The options of ``fit`` in the table ``[model]`` of a file, each checked by itself.

    Raises
    ------
    InputError
        With the file and the key, for what is no option or cannot be its value. What two options
        contradict each other in, ``fit`` says.
    """
    return model_options(read_toml(Path(path)).get("model"), str(path))


def model_options(table: object, path: str) -> dict[str, Any]:
    """The options of ``fit`` in the table ``[model]`` of the file at a path."""
    if not isinstance(table, dict):
        raise InputError(
            f"{path}: there is no table [model], which has the options of a fit, such as formula"
        )
    known = settable(FitOptions)
    chosen = {}
    for name, value in table.items():
        try:
            if name not in known:
                raise InputError(f"there is no option {name!r}: {nearest(name, known, 99)}")
            record = record_in(known[name].type)
            chosen[name] = value
            if record is not None:
                if not isinstance(value, Mapping):
                    raise InputError(f"{name} must be a table, as in [model.{name}]")
                chosen[name] = record_of(record, name, value)
            check_value(known[name], chosen[name])
        except InputError as error:
            raise InputError(f"{path}: [model] {error}") from None
    return chosen


def with_models(data: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """The clients' data among some files, and the options in the one that describes a model."""
    paths = [item for item in data if is_toml(Path(item)) and _is_model(item)]
    clients = [item for item in data if item not in paths]
    if len(paths) > 1:
        raise InputError(f"{listed(paths)} all describe a model: name one")
    if paths and not clients:
        raise InputError(f"{paths[0]} describes a model: name the files of the clients as well")
    return clients, read_model(paths[0]) if paths else {}


def _is_model(path: str) -> bool:
    tables = read_toml(Path(path)).keys()
    if {"model", "clients"} <= tables:
        raise InputError(f"{path}: has both [model] and [clients]: make two files of them")
    return not tables.isdisjoint({"model", "study"})
