"""Plain values as bytes and back: messages between organisations, and checkpoints. Never pickle.

A message is ``fsp2``, the length of its header in four bytes, the header, and the raw contents of
its arrays and byte strings in order, all little-endian; the header and each of these are
zero-padded to a multiple of eight bytes, so that arrays can be used where they lie. The header is
MessagePack. Lists, tuples and sets are arrays there, mappings are maps, a dataclass or NamedTuple
is a map of all its fields with the name of its class under ``class``, and a NumPy array or a byte
string is an extension whose code is one of ``DTYPES`` and whose data are the lengths of the axes,
eight bytes each.

The reader states the type it expects, and msgspec reads nothing else. A class name in a message
only selects among the classes of that type; it never leads to an import. A value has one encoding,
so that a signature, a digest and a log of it speak of the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from reprlib import repr as short
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from msgspec.msgpack import Ext

from fedsplit.errors import InputError
from fedsplit.local import SOLVERS
from fedsplit.local.solver import ProxSolver
from fedsplit.statistic import STATISTICS, Statistic

MAGIC = b"fsp2"

LARGEST_HEADER = 2**24
"""Maximum size of a header in bytes: as Python objects it can take sixty times as much memory."""

TAG = "class"
"""Key of the class name of a record; as a keyword of Python it is never the name of a field."""

BYTES = 4
DTYPES = {1: np.dtype("<f8"), 2: np.dtype("<i8"), 3: np.dtype("?"), BYTES: np.dtype("u1")}
"""Array types by the code of their MessagePack extension; the last is that of byte strings."""

INTEGER = Annotated[int, msgspec.Meta(le=2**63 - 1)]  # MessagePack has unsigned ones too
SCALARS: Mapping[Any, Any] = {
    None: None,
    NoneType: None,
    bool: bool,
    str: str,
    int: INTEGER,
    float: float | INTEGER,  # msgspec would turn an int into a float, which has another digest
}
"""Scalar types, and what msgspec reads for them."""


def encode(value: object) -> bytes:
    """Encode a value so that equal values of equal types give equal bytes, and so equal digests.

    Supported are None, bool, int (64 bits, signed), float (every bit is kept), str, list, tuple,
    set, frozenset, mappings with keys of str, int, float or bool (their order is kept), bytes,
    arrays of float64, int64 or bool, NumPy scalars, dataclasses and NamedTuples. Any other type
    raises ``TypeError``: it is a mistake in the program, not in its input.
    """
    return b"".join(encoded_parts(value))


def encoded_parts(value: object) -> list[Any]:
    """The encoding of a value in parts; arrays and byte strings are not copied."""
    arrays: list[Any] = []
    try:
        header = msgspec.msgpack.encode(_plain(value, arrays))
    except UnicodeEncodeError as error:
        raise InputError(f"invalid Unicode cannot be sent: {short(error.object)}") from None
    if len(header) > LARGEST_HEADER:
        raise InputError(
            f"a message holds at most {LARGEST_HEADER} bytes beside its arrays, got {len(header)}"
        )
    length = len(header).to_bytes(4, "little")
    return [MAGIC, length, header, bytes(-len(header) % 8), *arrays]


def decode(kind: Any, data: bytes) -> Any:
    """Decode a message that must hold a value of the given type.

    How many bytes are read at all is decided by the transport, which knows what is expected.

    Parameters
    ----------
    kind : type
        Composed of int, float, bool, str, bytes, None, Literal, unions, list and Sequence (both
        give a list), tuple, set, frozenset, dict and Mapping (both give a dict), NDArray,
        dataclasses, NamedTuples, ``ProxSolver`` and ``Statistic``. Any other type raises
        ``TypeError``, as does a union of two collections, or of a mapping and a record. Where a
        float is expected an int is accepted, and stays one.
    data : bytes
        The message, from any source: whatever is not a message of this type raises ``InputError``.

    Returns
    -------
    Any
        The value. Its arrays are aligned, C-contiguous, read-only views of ``data``.
    """
    end = 8 + int.from_bytes(data[4:8], "little")
    body = end + -end % 8
    known = data[:4] == MAGIC and end <= 8 + LARGEST_HEADER and body <= len(data)
    if not known or any(data[end:body]):
        raise InputError(
            f"message: expected {MAGIC.decode()} and a header, got something else, a part, or a "
            "message of another version of fedsplit"
        )
    decoder = _decoder(kind, len(STATISTICS))
    try:
        header = decoder.decode(data[8:end])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what, _, path = str(error).removeprefix("MessagePack ").partition(" - at `$")
        what = repr(what[:1].lower() + what[1:120])[1:-1]  # it may name a field of any characters
        raise InputError(f"message{path.rstrip('`')}: {what}") from None
    except RecursionError:
        raise InputError("message: expected less nesting") from None
    # msgspec keeps the last of several values of one key, and reads numbers of any length
    if msgspec.msgpack.encode(header) != data[8:end]:
        raise InputError("message: expected each key once, in order, and the shortest numbers")
    reader = _Reader(data, body)
    value = reader.read(kind, header, "message")
    if reader.end != len(data):
        raise InputError(f"message: expected {reader.end} bytes, got {len(data)}")
    return value


def _plain(value: Any, arrays: list[Any]) -> Any:
    """Return the value as MessagePack holds it, and append the contents of its arrays."""
    kind: Any = type(value)
    if kind in (NoneType, bool, float, str):
        return value
    if kind is int:
        if not -(2**63) <= value < 2**63:
            raise InputError("an integer of more than 64 bits cannot be sent")
        return value
    if kind in (list, tuple):
        return [_plain(each, arrays) for each in value]
    if kind is bytes:
        arrays += [value, bytes(-len(value) % 8)]
        return Ext(BYTES, len(value).to_bytes(8, "little"))
    if kind is np.ndarray:
        for code, dtype in DTYPES.items():
            if value.dtype.name == dtype.name and code != BYTES:
                content = np.asarray(value, dtype, order="C")
                arrays += [content.data, bytes(-content.nbytes % 8)]
                return Ext(code, np.array(value.shape, "<i8").tobytes())
    if _is_record(kind):
        parts = {name: _plain(getattr(value, name), arrays) for name in _fields(kind)}
        return {TAG: kind.__name__, **parts}
    if isinstance(value, Mapping):
        keys = [_plain(key, arrays) for key in value]
        if all(type(key) in (bool, int, float, str) for key in keys):
            return dict(zip(keys, [_plain(each, arrays) for each in value.values()], strict=True))
    if kind in (set, frozenset):
        unordered: list[Any] = []
        members = [_plain(each, unordered) for each in value]
        if not unordered:  # arrays would have to be sorted with their members
            return sorted(members, key=msgspec.msgpack.encode)
    if isinstance(value, np.generic) and type(value.item()) in (bool, int, float, str):
        return _plain(value.item(), arrays)
    raise TypeError(f"a value of type {kind.__qualname__} cannot be sent")


class _Reader:
    """Makes values of what msgspec has read; the arrays so far end at byte ``end`` of ``data``."""

    def __init__(self, data: bytes, end: int) -> None:
        self.data = data
        self.end = end

    def read(self, kind: Any, found: Any, place: str) -> Any:
        """Return the value of this type that ``found`` stands for; ``place`` is for errors."""
        if isinstance(found, msgspec.Struct):
            return self._record(found, place)
        if type(found) is Ext:
            return self._array(kind, found, place)
        if type(found) not in (list, tuple, dict):
            return found
        [member] = [each for each in _members(kind) if get_origin(_schema(each)) is type(found)]
        kinds = get_args(member)
        if type(found) is dict:
            return {
                key: self.read(kinds[1], each, f"{place}[{short(key)}]")
                for key, each in found.items()
            }
        if type(found) is list:
            kinds = kinds[:1] * len(found)
        parts = [
            self.read(each, part, f"{place}[{i}]")
            for i, (each, part) in enumerate(zip(kinds, found, strict=True))
        ]
        if get_origin(member) is Sequence:
            return parts
        collection = get_origin(member)(parts)
        if len(collection) < len(parts):
            raise InputError(f"{place}: expected no member twice")
        return collection

    def _record(self, found: Any, place: str) -> Any:
        parts = {
            name: self.read(hint, getattr(found, name), f"{place}.{name}")
            for name, hint in _fields(found.__kind__).items()
        }
        try:
            return found.__kind__(**parts)
        except (ValueError, ArithmeticError) as error:
            raise InputError(f"{place}: {' '.join(str(error).split())[:300]}") from None

    def _array(self, kind: Any, found: Ext, place: str) -> np.ndarray[Any, Any] | bytes:
        codes = [code for each in _members(kind) if (code := _code(each))]
        if found.code not in codes:
            names = [DTYPES[code].name for code in codes]
            got = f"extension {found.code}"
            if found.code in DTYPES:
                got = DTYPES[found.code].name
            raise InputError(f"{place}: expected array of {' or '.join(names)}, got {got}")
        dtype = DTYPES[found.code]
        lengths = bytes(found.data)
        shape = np.frombuffer(lengths[: len(lengths) // 8 * 8], "<i8").tolist()
        # NumPy would take a single -1 for as many entries as there are bytes.
        whole = len(lengths) % 8 == 0 and min(shape, default=0) >= 0
        whole &= found.code != BYTES or len(shape) == 1
        with suppress(TypeError, ValueError):  # too few bytes, or too many or too long axes
            array: np.ndarray[Any, Any] = np.ndarray(shape, dtype, self.data, self.end)
            last = self.end + array.nbytes
            padding = bytes(-last % 8)
            # NumPy would compute with a bool that is neither 0 nor 1.
            boolean = dtype != np.bool_ or array.view(np.uint8).max(initial=0) <= 1
            if whole and boolean and self.data[last : last + len(padding)] == padding:
                self.end = last + len(padding)
                return array.tobytes() if found.code == BYTES else array
        raise InputError(
            f"{place}: expected {dtype.name} of shape {short(shape)} at byte {self.end}, "
            "got other bytes"
        )


@cache
def _decoder(kind: Any, known: int) -> msgspec.msgpack.Decoder[Any]:
    """The decoder of a type; with more statistics (``known`` is their number) it is another one."""
    _schema.cache_clear()
    _members.cache_clear()
    return msgspec.msgpack.Decoder(_schema(kind))


@cache
def _schema(kind: Any) -> Any:
    """Return the type that msgspec reads for a type: records are Structs, arrays extensions."""
    origin = get_origin(kind)
    args = get_args(kind)
    members = _members(kind)
    if kind in SCALARS:
        return SCALARS[kind]
    if origin is Literal:
        return kind
    if len(members) > 1:
        return Union[tuple(_schema(each) for each in members)]  # noqa: UP007  # made at run time
    if origin is tuple and args[1:] != (...,):
        return GenericAlias(tuple, tuple(_schema(each) for each in args))
    if origin in (list, Sequence, tuple, set, frozenset):
        return GenericAlias(list, _schema(args[0]))
    if origin in (dict, Mapping):
        return GenericAlias(dict, (_schema(args[0]), _schema(args[1])))
    if _code(kind):
        return Ext
    if not _is_record(kind):
        raise TypeError(f"nothing can be read as {kind}")
    return msgspec.defstruct(
        kind.__name__,
        [(name, _schema(hint)) for name, hint in _fields(kind).items()],
        tag_field=TAG,
        tag=kind.__name__,
        forbid_unknown_fields=True,
        kw_only=True,
        namespace={"__kind__": kind},
    )


@cache
def _members(kind: Any) -> list[Any]:
    """Return the alternatives of a union, or the type itself."""
    if kind is ProxSolver:
        return list(SOLVERS.values())
    if kind is Statistic:
        return list(STATISTICS.values())
    if get_origin(kind) in (Union, UnionType):
        return [member for each in get_args(kind) for member in _members(each)]
    return [kind]


def _code(kind: Any) -> int:
    """Return the extension code of an NDArray or of bytes, or 0."""
    if kind is bytes:
        return BYTES
    if get_origin(kind) is np.ndarray:
        scalar = get_args(get_args(kind)[1])[0]
        for code, dtype in DTYPES.items():
            if issubclass(dtype.type, get_origin(scalar) or scalar):
                return code
    return 0


def _is_record(kind: Any) -> bool:
    return is_dataclass(kind) or hasattr(kind, "_field_defaults")


@cache
def _fields(kind: Any) -> dict[str, Any]:
    """Return the type of each field of a record."""
    hints = get_type_hints(kind)
    if is_dataclass(kind):
        return {each.name: hints[each.name] for each in fields(kind) if each.init}
    return {name: hints[name] for name in kind._fields}
