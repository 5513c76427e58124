"""Tables in TOML that people write: their keys as a record, and values as text."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from datetime import date
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from fedsplit.errors import InputError, listed, nearest

T = TypeVar("T", bound=msgspec.Struct)


def converted(found: Mapping[str, Any], kind: type[T], where: str) -> T:
    """Return the keys of a table as a record of some type."""
    known = [each.name for each in msgspec.structs.fields(kind)]
    for name in found:
        if name not in known:
            raise InputError(f"{where}: there is no key {name!r}: {nearest(name, known, 99)}")
    try:
        return msgspec.convert(dict(found), kind)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$.")
        what = what.replace("Invalid RFC3339 encoded date", "must be a date, as 2030-12-31")
        key = path.rstrip("`")
        if "enum value" in what:
            what = f"{what.split()[-1]} is none of {listed(get_args(get_type_hints(kind)[key]))}"
        raise InputError(
            f"{where}: {f'{key}: ' if key else ''}{what[:1].lower()}{what[1:]}"
        ) from None


def given_value(text: str) -> Any:
    """Return the value in the text of an option: as TOML has it, or else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def key_in_toml(key: str) -> str:
    """Return a key as TOML has it, quoted where it has to be."""
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else in_toml(key)


def in_toml(value: Any) -> str:
    """Return a value as TOML has it in one line."""
    if isinstance(value, Mapping):
        pairs = [f"{key_in_toml(key)} = {in_toml(each)}" for key, each in value.items()]
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(in_toml, value))}]"
    if isinstance(value, date):
        return value.isoformat()
    return json.dumps(value, ensure_ascii=False)  # of text, numbers and truth it is the same
