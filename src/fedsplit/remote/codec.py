"""Plain values as bytes and back: questions and answers between organisations, and checkpoints. Never pickle.

A message is ``fsp1``, the length of a JSON header in four bytes, the header, and the bytes of its arrays in their
order, each filled up to a multiple of eight; all little-endian. In the header lists, tuples and sets are lists, and an
object has one key: ``{"array": ["float64", 2, 3]}``, ``{"mapping": [[key, value], ...]}``, ``{"record": [class,
mapping of its fields]}``, or ``{"float": "7ff0000000000000"}`` where it is not finite. The reader says what it expects:
the name of a class in the bytes only chooses among the classes that are expected.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from reprlib import repr as short
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from fedsplit.errors import InputError
from fedsplit.prox import SOLVERS
from fedsplit.prox.solver import ProxSolver

MAGIC = b"fsp1"

LIMIT = 2**30
"""The most bytes of a message, where the reader does not say."""

HEADER = 2**24
"""The most bytes of a header: as Python's values it can take sixty times as much memory."""

DTYPES = {"float64": np.dtype("<f8"), "int64": np.dtype("<i8"), "bool": np.dtype("?")}
SURROGATE = re.compile("[\ud800-\udfff]")


def encode(value: object) -> bytes:
    """A value as bytes, so that equal values of equal types, and what is decoded from them, have equal hashes.

    None, bool, int of 64 bits, float, str, list, tuple, set, frozenset, mappings with keys of str, int, float or bool,
    arrays of float64, int64 or bool, numpy's scalars, dataclasses and NamedTuples; another type is a ``TypeError``.
    Every bit of a float is kept, and the order of a mapping: in another order it is other bytes.
    """
    arrays: list[bytes] = []
    header = _dumped(_plain(value, arrays)).encode()
    header += b" " * (-len(header) % 8)
    if len(header) > HEADER:
        raise InputError(
            f"a message holds at most {HEADER} bytes beside its arrays, not {len(header)}"
        )
    return b"".join([MAGIC, len(header).to_bytes(4, "little"), header, *arrays])


def decode(kind: Any, data: bytes, limit: int = LIMIT) -> Any:
    """The value in ``data``, which must be of this kind: an ``InputError`` says where it is not, and what was expected.

    ``kind`` is made of int, float, bool, str, None, Literal, unions, list and Sequence (both give a list), tuple, set,
    frozenset, dict and Mapping (both give a dict), NDArray, dataclasses and NamedTuples; another is a ``TypeError``.
    Of a union the first member that fits is taken. Where a float is expected an int may come, and stays an int.
    Arrays are read-only views of ``data``, aligned and in C order.
    """
    if len(data) > limit:
        raise InputError(f"message: expected at most {limit} bytes, found {len(data)}")
    end = 8 + int.from_bytes(data[4:8], "little")
    if data[:4] != MAGIC or end % 8 or end > min(8 + HEADER, len(data)):
        raise InputError(
            f"message: expected {MAGIC.decode()} and a header, found something else, or a part"
        )
    objects = _Objects(data, end)
    try:
        value = json.loads(
            data[8:end].decode(), object_pairs_hook=objects, parse_int=_whole, parse_constant=_whole
        )
        if objects.end != len(data):
            raise InputError(f"message: expected {objects.end} bytes, found {len(data)}")
        return _read(kind, value, "message")
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"message: expected a header of JSON ({error})") from None
    except RecursionError:
        raise InputError("message: expected less nesting") from None


def _dumped(plain: Any) -> str:
    return json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain(value: Any, arrays: list[bytes]) -> Any:
    """The value as JSON can hold it; the bytes of its arrays are added to ``arrays``."""
    kind: Any = type(value)
    if kind is int and not -(2**63) <= value < 2**63:
        raise InputError("a whole number of more than 64 bits cannot be sent")
    if kind is str and SURROGATE.search(value):
        raise InputError(f"text that is not Unicode cannot be sent: {short(value)}")
    if kind in (NoneType, bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}
    if kind in (list, tuple):
        return [_plain(each, arrays) for each in value]
    if kind is np.ndarray and value.dtype.name in DTYPES:
        content = value.astype(DTYPES[value.dtype.name], copy=False).tobytes()
        arrays.append(content + bytes(-len(content) % 8))
        return {"array": [value.dtype.name, *value.shape]}
    if _is_record(kind):
        return {
            "record": [
                kind.__name__,
                _plain({name: getattr(value, name) for name in _fields(kind)}, arrays),
            ]
        }
    if isinstance(value, Mapping) and all(
        isinstance(key, str | int | float | np.generic) for key in value
    ):
        return {
            "mapping": [[_plain(key, arrays), _plain(each, arrays)] for key, each in value.items()]
        }
    if isinstance(value, np.generic) and type(value.item()) in (bool, int, float, str):
        return _plain(value.item(), arrays)
    if kind in (set, frozenset):
        unordered: list[bytes] = []
        members = sorted((_plain(each, unordered) for each in value), key=_dumped)
        if not unordered:
            return members
    raise TypeError(f"a value of type {kind.__qualname__} cannot be sent")


def _whole(text: str) -> int:
    """A whole number in a header; a longer one is refused, and so are the NaN and Infinity of Python's JSON."""
    if len(text) > 20 or not text.lstrip("-").isdecimal() or not -(2**63) <= int(text) < 2**63:
        raise InputError(f"message: expected whole numbers of 64 bits, found {text[:24]}")
    return int(text)


class _Items(list[list[Any]]):
    """The pairs of a mapping in a header."""

    def __repr__(self) -> str:
        return "a mapping"


@dataclass(frozen=True)
class _Record:
    """A dataclass or NamedTuple in a header: the name of its class, and its fields."""

    name: str
    items: _Items

    def __repr__(self) -> str:
        return f"a record {short(self.name)}"


class _Objects:
    """JSON's objects as what they stand for; arrays, in their order, are views of ``data`` up to ``end``."""

    def __init__(self, data: bytes, end: int) -> None:
        self.data, self.end = data, end

    def __call__(self, pairs: list[tuple[str, Any]]) -> Any:
        match pairs:
            case [("float", str(digits))] if re.fullmatch("[0-9a-f]{16}", digits):
                return struct.unpack(">d", bytes.fromhex(digits))[0]
            case [("array", [str(name), *shape])] if name in DTYPES and all(
                type(n) is int and n >= 0 for n in shape
            ):
                return self._array(DTYPES[name], shape)
            case [("mapping", [*items])] if all(
                type(item) is list and len(item) == 2 for item in items
            ):
                return _Items(items)
            case [("record", [str(name), _Items() as items])] if all(
                type(key) is str for key, _ in items
            ):
                return _Record(name, items)
        raise InputError(
            f"message: expected an array, mapping, record or float, found {_shown(pairs)}"
        )

    def _array(self, dtype: np.dtype[Any], shape: list[int]) -> np.ndarray[Any, Any]:
        with suppress(
            TypeError, ValueError
        ):  # of bytes that are too few, and of shapes that no array has
            array: np.ndarray[Any, Any] = np.ndarray(shape, dtype, self.data, self.end)
            last = self.end + array.nbytes
            filled = last + -last % 8
            boolean = dtype != np.bool_ or array.view(np.uint8).max(initial=0) <= 1
            if self.data[last:filled] == bytes(filled - last) and boolean:
                self.end = filled
                return array
        raise InputError(
            f"message: expected {dtype.name} of shape {short(shape)} at byte {self.end}, found other bytes"
        )


def _fits(kind: Any, value: Any) -> bool:
    """Whether the value of a header is of this kind, as far as that is seen without its parts."""
    origin, args = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(each, value) for each in args)
    if origin is Literal:
        return any(type(each) is type(value) and each == value for each in args)
    if origin in (bool, int, None, NoneType):
        return type(value) is (origin or NoneType)
    if origin is float:
        return type(value) in (float, int)
    if origin is str:
        return type(value) is str and not SURROGATE.search(value)
    if origin in (list, Sequence, tuple, set, frozenset) and args:
        return type(value) is list
    if origin in (dict, Mapping) and args:
        return type(value) is _Items
    if origin is np.ndarray and args:
        return type(value) is np.ndarray and value.dtype.name == _dtype(kind)
    if _is_record(kind):
        return type(value) is _Record and value.name == kind.__name__
    raise TypeError(f"nothing can be read as {kind}")


def _read(kind: Any, value: Any, place: str) -> Any:
    """The value of a header as one of this kind; ``place`` is for errors."""
    if kind is ProxSolver:
        kind = Union[tuple(SOLVERS.values())]  # noqa: UP007  # made from a table
    if not _fits(kind, value):
        raise InputError(f"{place}: expected {_named(kind)}, found {_shown(value)}")
    origin, args = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        *others, last = (each for each in args if _fits(each, value))
        for each in others:
            with suppress(InputError):
                return _read(each, value, place)
        return _read(last, value, place)
    if type(value) is _Record:
        return _made(kind, value.items, kind.__name__ if place == "message" else place)
    if type(value) is _Items:
        found: Any = {
            _read(args[0], key, f"{place}, a key"): _read(args[1], each, f"{place}[{_shown(key)}]")
            for key, each in value
        }
    elif type(value) is list:
        kinds = args if origin is tuple and args[1:] != (...,) else args[:1] * len(value)
        if len(kinds) != len(value):
            raise InputError(f"{place}: expected {len(kinds)} values, found {len(value)}")
        members = [
            _read(*each, f"{place}[{i}]") for i, each in enumerate(zip(kinds, value, strict=True))
        ]
        found = members if origin is Sequence else origin(members)
    else:
        return value
    if len(found) != len(value):
        raise InputError(
            f"{place}: expected no {'key' if type(value) is _Items else 'member'} twice"
        )
    return found


def _made(kind: Any, items: _Items, place: str) -> Any:
    """A record of this class from the fields that are given."""
    known, given = _fields(kind), dict(items)
    for name in given:
        if name not in known:
            raise InputError(f"{place}: expected no field {short(name)}")
    for name, (_, required) in known.items():
        if required and name not in given:
            raise InputError(f"{place}: expected a field {name}")
    if len(given) != len(items):
        raise InputError(f"{place}: expected no field twice")
    parts = {name: _read(known[name][0], value, f"{place}.{name}") for name, value in given.items()}
    try:
        return kind(**parts)
    except (ValueError, ArithmeticError) as error:
        raise InputError(f"{place}: {str(error)[:300]}") from None


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and (
        is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )


@cache
def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """What is expected in every field of a record, and whether it must be there."""
    hints = get_type_hints(kind)
    if not is_dataclass(kind):
        return {name: (hints[name], name not in kind._field_defaults) for name in kind._fields}
    return {
        each.name: (hints[each.name], each.default is MISSING and each.default_factory is MISSING)
        for each in fields(kind)
        if each.init
    }


def _dtype(kind: Any) -> str:
    """The name of the dtype of an NDArray."""
    scalar = get_args(get_args(kind)[1])[0]
    for name, dtype in DTYPES.items():
        if issubclass(dtype.type, get_origin(scalar) or scalar):
            return name
    raise TypeError(f"nothing can be read as {kind}")


def _named(kind: Any) -> str:
    """A kind, for a message."""
    origin, args = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType, Literal):
        return " or ".join(repr(each) if origin is Literal else _named(each) for each in args)
    if origin is np.ndarray:
        return f"array of {_dtype(kind)}"
    return "None" if origin in (None, NoneType) else str(origin.__name__)


def _shown(value: Any) -> str:
    """A value of a header, for a message."""
    return f"array of {value.dtype.name}" if type(value) is np.ndarray else short(value)[:80]
