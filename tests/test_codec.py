"""Values as bytes and back, to the bit; bytes from anywhere are a value of the kind, or refused."""

import struct
import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import date
from typing import Any, Literal, Optional, get_args

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.msgpack import Ext
from numpy.typing import NDArray

from fedsplit.arrays import Array, Mask
from fedsplit.channels.codec import LARGEST_HEADER, decode, encode
from fedsplit.clients.question import Answer, Question
from fedsplit.clients.questions import ProofScalars, Prox
from fedsplit.data.types import ColumnProfile, Share, Type
from fedsplit.errors import InputError
from fedsplit.federation.messages import Ending, Inquiry, LogHead, Message, Response
from fedsplit.federation.questions import ALLOWED
from fedsplit.local.gradient import GradientProx
from fedsplit.local.newton import ExactProx
from fedsplit.local.solver import ProxSolver
from fedsplit.methods.admm import ADMMState
from fedsplit.regression.client.design import Calibration, Moments, Scaling
from fedsplit.regression.client.guards.rules import Finding
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.questions import RowCounts

Level = str | bool | int | float
Solver = ExactProx | GradientProx
Nested = Mapping[
    Level,
    Sequence[tuple[int, float | None] | Array | Mapping[str, Solver]] | Literal["none", 3] | None,
]


@dataclass(frozen=True)
class Made:
    given: int
    also: Optional[frozenset[int]] = None  # noqa: UP045  # as older code writes it
    derived: int = field(init=False, default=7)


@dataclass(frozen=True)
class Named:
    name: str

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"{self.name!r} is no name")


def exact(value: Any) -> Any:
    """What must come back: types, the bits of numbers, and order; a tuple may be a list."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, float):
        return struct.pack("<d", value)
    if is_dataclass(value) or hasattr(value, "_fields"):
        names = [each.name for each in fields(value)] if is_dataclass(value) else value._fields
        return type(value), [exact(getattr(value, name)) for name in names]
    if isinstance(value, Mapping):
        return [(exact(key), exact(each)) for key, each in value.items()]
    if isinstance(value, list | tuple):
        return [exact(each) for each in value]
    return type(value), value


def arrays(size: int = 4) -> st.SearchStrategy[Array]:
    shapes = st.lists(st.integers(0, size), max_size=3)
    return st.builds(
        lambda shape, bits: np.resize(np.array(bits, np.uint64).view(np.float64), shape),
        shapes,
        st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8),
    )


words, numbers, wholes = st.text(max_size=4), st.floats(), st.integers(-(2**63), 2**63 - 1)
types = st.sampled_from(get_args(Type))
shares = st.sampled_from(get_args(Share))
levels = words | st.booleans() | wholes | numbers
masks = st.lists(st.booleans(), max_size=9).map(lambda values: np.array(values, dtype=bool))


def lists(each: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(each, max_size=3)


def mappings(
    keys: st.SearchStrategy[Any], values: st.SearchStrategy[Any]
) -> st.SearchStrategy[dict[Any, Any]]:
    return st.dictionaries(keys, values, max_size=3)


steps = (
    st.sampled_from(["client", "paper", "backtracking"]) | st.floats(1e-9, 1e9) | st.integers(1, 9)
)
starts = st.sampled_from(["broadcast", "iterate", "argument"])
solvers = st.just(ExactProx()) | st.builds(
    GradientProx, st.integers(1, 99), starts, steps, st.none() | st.floats(1e-9, 1e9)
)
exchanges = st.integers(0, 2**53 - 1)
KINDS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (
        Plan,
        st.builds(Plan, words, words, types=mappings(words, types), others=st.lists(words)),
    ),
    (
        dict[str, ColumnProfile | None],
        mappings(words, st.none() | st.builds(ColumnProfile, *[shares] * 5)),
    ),
    (
        RowCounts,
        st.builds(
            RowCounts,
            mappings(words, types),
            wholes,
            wholes,
            mappings(words, wholes),
            mappings(words, mappings(words, wholes)),
            mappings(words, st.booleans()),
            lists(st.builds(Finding, words, words, words, words)),
        ),
    ),
    (
        Plan,
        st.builds(
            Plan,
            words,
            words,
            mappings(words, lists(words)),
            mappings(words, types),
            lists(words) | st.just(()),
            st.none() | words,
            st.none() | words,
            st.none() | words,
        ),
    ),
    (
        Moments,
        st.builds(
            Moments,
            lists(words),
            wholes,
            numbers,
            arrays(),
            arrays(),
            numbers,
            numbers,
            numbers,
            lists(wholes).map(tuple),
            numbers,
            numbers,
            arrays(),
        ),
    ),
    (Scaling, st.builds(Scaling, arrays(), arrays(), numbers)),
    (Calibration, st.builds(Calibration, arrays(), arrays(), arrays())),
    (
        Answer,
        st.builds(
            Answer, st.dictionaries(st.text(), arrays()), masks, arrays(), arrays(), st.none()
        ),
    ),
    (ProofScalars, st.builds(ProofScalars, *[arrays(2)] * 10)),
    (ADMMState, st.builds(ADMMState, arrays(), arrays(), numbers)),
    (Solver, solvers),
    (
        Prox,
        st.builds(
            Prox,
            arrays(),
            numbers,
            st.none() | arrays(),
            solvers,
            st.none() | st.lists(wholes).map(lambda own: np.array(own, dtype=np.int64)),
        ),
    ),
    (
        Nested,
        mappings(
            levels,
            st.lists(
                st.tuples(wholes, st.none() | numbers) | arrays() | mappings(words, solvers),
                max_size=3,
            )
            | st.sampled_from(["none", 3, None]),
        ),
    ),
    (Made, st.builds(Made, wholes, st.none() | st.frozensets(wholes))),
    (list[bytes | None], lists(st.none() | st.binary())),
    (
        Response,
        st.builds(
            Response,
            st.binary(max_size=32),
            exchanges,
            st.sampled_from(["answer", "refused"]),
            st.binary(),
            st.binary(max_size=9),
            words,
            st.none() | st.builds(LogHead, exchanges, st.binary(max_size=32)),
        ),
    ),
    (
        Message,
        st.builds(Inquiry, st.binary(), exchanges, st.binary())
        | st.builds(Ending, st.binary(), words),
    ),
]


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=lambda each: getattr(each, "__name__", ""))
@given(data=st.data())
def test_what_was_sent_comes_back_to_the_bit_and_is_the_same_bytes_again(
    kind: Any, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    value = data.draw(values)
    message = encode(value)
    back = decode(kind, message)
    assert exact(back) == exact(value)
    assert encode(back) == message


@given(st.integers(0, 2**64 - 1))
@example(0x7FF0000000000000)
@example(0xFFF0000000000000)
@example(0x7FF8000000000000)
@example(0xFFF8000000000123)
@example(0x8000000000000000)
@example(0x0000000000000001)
def test_every_bit_of_a_float_is_kept(bits: int) -> None:
    content = struct.pack("<Q", bits)
    (number,) = struct.unpack("<d", content)
    assert struct.pack("<d", decode(float, encode(number))) == content
    assert struct.pack("<d", *decode(Mapping[float, int], encode({number: 1}))) == content
    assert decode(Array, encode(np.frombuffer(content))).tobytes() == content


def test_keys_keep_their_types() -> None:
    keys: list[Any] = [1, True, 1.0, "1", np.int64(1), np.True_, np.float64(1), np.str_("1")]
    messages = [encode({key: None}) for key in keys]
    assert len(set(messages)) == 4
    assert [type(*decode(dict[Level, None], each)) for each in messages] == [
        int,
        bool,
        float,
        str,
    ] * 2
    with pytest.raises(InputError, match="message: expected each key once"):
        decode(dict[Level, None], written(b"\x82\x01\xc0\xc3\xc0"))  # 1 and True


def test_equal_values_are_equal_bytes_and_order_counts_only_where_it_is_kept() -> None:
    members = [f"{i:x}" for i in range(50)]
    assert encode(set(members)) == encode(frozenset(reversed(members)))
    assert encode((1, [2])) == encode([1, (2,)])
    matrix = np.arange(6.0).reshape(2, 3)
    assert encode(matrix) == encode(np.asfortranarray(matrix)) == encode(matrix.astype(">f8"))
    assert encode({"a": 1, "b": 2}) != encode({"b": 2, "a": 1})
    assert encode(1) != encode(1.0) != encode(True)
    assert [decode(float | int, encode(number)) for number in (1, 1.0)] == [1, 1.0]
    assert [type(decode(kind, encode(1))) for kind in (float, float | int)] == [int, int]


@pytest.mark.parametrize(
    ("kind", "array"),
    [
        (Array, np.array(2.5)),
        (Array, np.zeros((0, 500))),
        (Array, np.arange(24.0).reshape(2, 3, 4)[:, ::-2, 1:]),
        (Array, np.arange(6.0).reshape(2, 3).T),
        (Array, np.broadcast_to(1.0, (3, 2))),
        (NDArray[np.float64], np.arange(3, dtype=">f8")),
        (NDArray[np.int64], np.array([-(2**63), 2**63 - 1])),
        (Mask, np.array([[True, False, True]])),
        (Mask, np.array(True)),
    ],
)
def test_any_array_comes_back_as_an_aligned_view_that_cannot_be_written(
    kind: Any, array: Any
) -> None:
    back = decode(kind, encode(array))
    np.testing.assert_array_equal(back, array.astype(array.dtype.newbyteorder("=")), strict=True)
    assert back.flags.aligned
    assert back.flags.c_contiguous
    assert not back.flags.writeable


def test_arrays_of_any_length_leave_the_next_one_aligned() -> None:
    masks = [np.arange(n) % 2 == 0 for n in range(10)]
    floats = [np.arange(n) / 7 for n in range(10)]
    back = decode(list[tuple[Mask, Array]], encode(list(zip(masks, floats, strict=True))))
    for mask, numbers, (one, other) in zip(masks, floats, back, strict=True):
        np.testing.assert_array_equal(one, mask, strict=True)
        np.testing.assert_array_equal(other, numbers, strict=True)
        assert other.flags.aligned


def test_what_is_no_plain_value_is_a_mistake_of_the_program() -> None:
    @dataclass(frozen=True, eq=False)
    class Holder:
        array: Array

    values: list[Any] = [
        np.array([object()]),
        np.array([{}], dtype=object),
        np.zeros(2, np.float32),
        np.zeros(2, np.complex128),
        np.array(["a"]),
        np.zeros(2, [("a", "<f8")]),
        np.ma.masked_array([1.0, 2.0], [True, False]),
        np.datetime64("2020-01-01"),
        np.longdouble(1),
        {("a", 1): 2},
        {None: 1},
        {Holder(np.zeros(1)), Holder(np.ones(1))},
        bytearray(b"bytes"),
        np.zeros(2, np.uint8),
        1j,
        date(2020, 1, 1),
        object(),
        range(3),
        Made,
    ]
    for value in values:
        with pytest.raises(TypeError, match="cannot be sent"):
            encode([value])


def test_what_no_reader_would_take_is_not_sent() -> None:
    for value in (2**63, -(2**63) - 1, 10**5000, "\ud800", {"\udfff": 1}):
        with pytest.raises(InputError, match="cannot be sent"):
            encode({"a": value})
    with pytest.raises(InputError, match="at most 16777216 bytes beside its arrays"):
        encode("x" * LARGEST_HEADER)


@pytest.mark.parametrize(
    "kind", [Any, object, list, dict, tuple, np.ndarray, NDArray[np.float32], NDArray[Any]]
)
def test_a_reader_has_to_say_what_it_expects(kind: Any) -> None:
    with pytest.raises(TypeError, match="nothing can be read as"):
        decode(list[kind], encode([np.zeros(1)]))


def written(header: Any, content: bytes = b"") -> bytes:
    """A message that ``encode`` may never write; its header is a value or MessagePack."""
    packed = header if isinstance(header, bytes) else msgspec.msgpack.encode(header)
    return b"fsp2" + struct.pack("<I", len(packed)) + packed + bytes(-len(packed) % 8) + content


def record(name: str, /, **given: Any) -> dict[str, Any]:
    return {"class": name, **given}


def shaped(code: int, *lengths: int) -> Ext:
    return Ext(code, struct.pack(f"<{len(lengths)}q", *lengths))


nothing: Any = None
WRONG: list[tuple[Any, Any, str]] = [
    (int, True, "message: expected `int`, got `bool`"),
    (bool, 1, "message: expected `bool`, got `int`"),
    (float, False, "message: expected `int | float`, got `bool`"),
    (int, 1.0, "message: expected `int`, got `float`"),
    (str, None, "message: expected `str`, got `None`"),
    (None, 0, "message: expected `null`, got `int`"),
    (int | None, "1", "message: expected `int | null`, got `str`"),
    (Literal["a", 1], True, "message: expected `int | str`, got `bool`"),
    (list[int], [1, "x" * 10**6], "message[1]: expected `int`, got `str`"),
    (list[int], [[["x" * 100] * 9] * 9], "message[0]: expected `int`, got `array`"),
    (list[int], {1: 2}, "message: expected `array`, got `object`"),
    (Mapping[str, int], [["a", 1]], "message: expected `object`, got `array`"),
    (Mapping[str, int], {1: 1}, "message: expected `str`, got `int` - at `key` in `$`"),
    (tuple[int, str], (1,), "message: expected `array` of length 2, got 1"),
    (tuple[int, ...], (1, 2, None), "message[2]: expected `int`, got `None`"),
    (frozenset[int], [1, 1], "message: expected no member twice"),
    (Array, np.zeros(2, int), "message: expected array of float64, got int64"),
    (Array, [1.0], "message: expected `ext`, got `array`"),
    (NDArray[np.int64], np.zeros(2), "message: expected array of int64, got float64"),
    (Mask, np.zeros(2), "message: expected array of bool, got float64"),
    (float | Array | None, np.array([True]), "message: expected array of float64, got bool"),
    (
        Plan,
        Plan("y ~ x", "f", {"ward": ["a", nothing]}),
        "message.levels[...][1]: expected `str`, got `None`",
    ),
    (Plan, Plan("y ~ x", nothing, {}), "message.family: expected `str`, got `None`"),
    (
        Scaling,
        Scaling(np.zeros(1), np.zeros(1, bool), 1.0),
        "message.scale: expected array of float64, got bool",
    ),
    (
        list[Scaling],
        [Scaling(np.zeros(1), np.zeros(1), nothing)],
        "message[0].unit: expected `int | float`, got `None`",
    ),
    (
        Scaling,
        Plan("y ~ x", "gaussian"),
        "message.class: invalid value 'Plan'",
    ),
    (Solver, Named("a"), "message.class: invalid value 'Named'"),
    (ProxSolver, Named("a"), "message.class: invalid value 'Named'"),
]


@pytest.mark.parametrize(("kind", "value", "why"), WRONG, ids=[why for *_, why in WRONG])
def test_what_is_not_expected_is_refused_with_its_place(kind: Any, value: Any, why: str) -> None:
    with pytest.raises(InputError) as caught:
        decode(kind, encode(value))
    assert str(caught.value).startswith(why)
    assert len(str(caught.value)) < 200


plain = record("GradientProx", steps=1, start="iterate", step="client", curvature=None)
made = record("Made", given=1, also=None)
no_steps = plain | {"steps": 0}
FORGED: list[tuple[Any, bytes, str]] = [
    (int, b"", "expected fsp2"),
    (int, b"fsp2", "expected fsp2"),
    (int, b"fsp1" + encode(1)[4:], "expected fsp2 and a header, got something else, a part, or"),
    (int, b"fsp2" + struct.pack("<I", 2**32 - 8) + b"\x01" + bytes(7), "expected fsp2"),
    (int, b"fsp2" + struct.pack("<I", 1) + b"\x01" + bytes(6), "expected fsp2"),
    (int, b"fsp2" + struct.pack("<I", 1) + b"\x01" + bytes(6) + b"\x01", "expected fsp2"),
    (str, written(b"\xa1\xff"), "'utf-8' codec can't decode byte 0xff"),
    (str, written(b"\xa3\xed\xa0\x80"), "'utf-8' codec can't decode byte 0xed"),  # "\ud800"
    (dict[str, int], written(b"\x81\xa1\xff\x01"), "'utf-8' codec can't decode byte 0xff"),
    (str, written("x" * LARGEST_HEADER), "expected fsp2"),
    (int, written(1) + bytes(8), "expected 16 bytes, got 24"),
    (list[int], written(b"\x92\x01"), "message: input data was truncated"),
    (list[int], written(b"\xdd\xff\xff\xff\xff"), "message: input data was truncated"),
    (tuple[int, ...], written(b"\xdd\xff\xff\xff\xff"), "message: input data was truncated"),
    (dict[str, int], written(b"\xdf\xff\xff\xff\xff"), "message: input data was truncated"),
    (str, written(b"\xdb\xff\xff\xff\xff"), "message: input data was truncated"),
    (Array, written(b"\xc9\xff\xff\xff\xff\x01"), "message: input data was truncated"),
    (int, written(b""), "message: input data was truncated"),
    (int, written(b"\xc1"), "message: data is malformed"),
    (int, written(b"\x01\x01"), "message: data is malformed: trailing characters"),
    (float, written(b"\xca\x3f\x80\0\0"), "and the shortest numbers"),  # of 32 bits
    (int, written(b"\xd3" + bytes(7) + b"\1"), "and the shortest numbers"),
    (int, written(2**63), "message: expected `int` <= 9223372036854775807"),
    (float, written(2**64 - 1), "message: expected `int` <= 9223372036854775807"),
    (dict[Level, int], written({2**63: 1}), "message: expected `int` <= 9223372036854775807"),
    (int, written(b"\xc4\x01x"), "message: expected `int`, got `bytes`"),
    (bytes, written(b"\xc4\x01x"), "message: expected `ext`, got `bytes`"),
    (
        bytes,
        written(shaped(4, 1, 8), bytes(8)),
        "message: expected uint8 of shape [1, 8] at byte 32",
    ),
    (bytes, written(shaped(4, 9), bytes(8)), "message: expected uint8 of shape [9] at byte 24"),
    (bytes, written(shaped(4, 1), b"ab" + bytes(6)), "message: expected uint8 of shape [1]"),
    (bytes, written(shaped(3, 1), bytes(8)), "message: expected array of uint8, got bool"),
    (str, written(b"\xd6\xff\0\0\0\1"), "message: expected `str`, got `ext`"),  # a timestamp
    (Array, written(b"\xd6\xff\0\0\0\1"), "expected array of float64, got extension -1"),
    (list[int], written(b"\x91" * 10**5), "message[0]: expected `int`, got `array`"),
    (Solver, written(b"\x82\xa1a" + b"\x91" * 10**5), "message: expected less nesting"),
    (dict[str, int], written(b"\x82\xa1a\x01\xa1a\x02"), "message: expected each key once"),
    (dict[str, int], written({("a",): 1}), "message: expected `str`, got `array` - at `key`"),
    (dict[Level, int], written({None: 1}), "got `None` - at `key`"),
    (Array, written(shaped(0, 1), bytes(8)), "expected array of float64, got extension 0"),
    (float | Array, written(shaped(0, 1), bytes(8)), "expected array of float64, got extension 0"),
    (Array, written(shaped(4, 1), bytes(8)), "expected array of float64, got uint8"),
    (Array, written(shaped(5, 1), bytes(8)), "expected array of float64, got extension 5"),
    (Array, written(shaped(1, 2), bytes(8)), "expected float64 of shape [2] at byte 24"),
    (Array, written(shaped(1, -1), bytes(8)), "expected float64 of shape [-1]"),
    (Array, written(shaped(1, -1, -1), bytes(8)), "expected float64 of shape [-1, -1]"),
    (
        Array,
        written(shaped(1, 2**60), bytes(8)),
        "expected float64 of shape [1152921504606846976]",
    ),
    (
        Array,
        written(shaped(1, 0, 2**62)),
        "expected float64 of shape [0, 4611686018427387904]",
    ),
    (
        Array,
        written(shaped(1, *[1] * 10**5), bytes(8)),
        "expected float64 of shape [1, 1, 1, 1, 1, 1, ...]",
    ),
    (Array, written(Ext(1, bytes(7)), bytes(8)), "message: expected float64 of shape []"),
    (Array, written(Ext(1, bytes(9))), "message: expected float64 of shape [0]"),
    (Array, written(shaped(1, 1), bytes(16)), "expected 32 bytes, got 40"),
    (
        Mask,
        written(shaped(3, 1), b"\2" + bytes(7)),
        "expected bool of shape [1] at byte 24, got other bytes",
    ),
    (Mask, written(shaped(3, 1), b"\1" + bytes(6) + b"\1"), "expected bool of shape [1]"),
    (Mask, written(shaped(3, 1), b"\1"), "expected bool of shape [1]"),
    (
        Solver,
        written(plain | {"radius": 1.0}),
        "message: object contains unknown field `radius`",
    ),
    (
        Solver,
        written(plain | {"curvature": "1"}),
        "message.curvature: expected `int | float | null`, got `str`",
    ),
    (
        Solver,
        written(no_steps),
        "message: GradientProx: steps must be a whole number of at least 1, not 0",
    ),
    (
        list[Solver],
        written([no_steps]),
        "message[0]: GradientProx: steps must be a whole number of at least 1, not 0",
    ),
    (Solver, written(["ExactProx", []]), "message: expected `object`, got `array`"),
    (Solver, written({}), "message: object missing required field `class`"),
    (Solver, written({"class": 1}), "message.class: expected `str`"),
    (
        Solver,
        written(plain | {"start": "here"}),
        "message.start: invalid enum value 'here'",
    ),
    (Solver, written(record("CvxpyProx")), "message.class: invalid value 'CvxpyProx'"),
    (ProxSolver, written(record("CvxpyProx")), "message.class: invalid value 'CvxpyProx'"),
    (ProxSolver, written(record("x" * 10**6)), "message.class: invalid value 'xxx"),
    (
        Scaling,
        written(record("Scaling", unit=1.0)),
        "message: object missing required field `centre`",
    ),
    (
        Made,
        written(b"\x84\xa5class\xa4Made\xa5given\x01\xa4also\xc0\xa5given\x02"),
        "message: expected each key once, in order",
    ),
    (
        Made,
        written({"given": 1, "also": None, "class": "Made"}),
        "message: expected each key once, in order",
    ),
    (
        Made,
        written(made | {"derived": 2}),
        "message: object contains unknown field `derived`",
    ),
    (
        Made,
        written({"class": "Made", "given": 1, "also": None, "\n" * 10**6: 1}),
        "object contains unknown field `\\n",
    ),
    (Made, written({"class": "Made", 1: 1}), "message: expected `str`"),
    (Named, written(record("Named", name="a b" * 10**6)), "message: 'a ba ba b"),
]


@pytest.mark.parametrize(("kind", "data", "why"), FORGED, ids=[why for *_, why in FORGED])
def test_bytes_that_are_no_message_are_refused_in_one_line(
    kind: Any, data: bytes, why: str
) -> None:
    with pytest.raises(InputError) as caught:
        decode(kind, data)
    assert why in str(caught.value)
    assert len(str(caught.value)) < 320
    assert str(caught.value).isprintable()


def test_a_record_has_all_of_its_fields() -> None:
    """Or equal records would have several encodings."""
    with pytest.raises(InputError, match="object missing required field `start`"):
        decode(Solver, written(record("GradientProx", steps=3)))


@pytest.mark.parametrize("question", ALLOWED.values())
def test_every_question_and_its_answer_can_be_read(question: type[Question]) -> None:
    for kind in (question, question.answer_type):
        with pytest.raises(InputError, match="message: expected"):
            decode(kind, encode("hello"))


@pytest.mark.parametrize("kind", [dict[str, int] | Made, list[int] | tuple[str, int]])
def test_a_union_whose_members_look_alike_is_a_mistake_of_the_program(kind: Any) -> None:
    with pytest.raises(TypeError, match="Type unions may not contain"):
        decode(kind, encode(1))


packed = st.recursive(
    levels
    | st.sampled_from([None, "class", "given", "Made", "GradientProx", "steps"])
    | st.binary(max_size=9)
    | st.builds(Ext, st.integers(-1, 4), st.binary(max_size=17)),
    lambda each: lists(each) | mappings(words | wholes | st.just("class"), each),
)


@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS])
@given(header=packed | st.binary(max_size=20), content=st.binary(max_size=3).map(lambda b: b * 8))
def test_any_header_is_refused_in_one_line_or_read_as_a_value_of_the_kind(
    kind: Any, header: Any, content: bytes
) -> None:
    try:
        value = decode(kind, written(header, content))
    except InputError as error:
        assert str(error).isprintable()  # noqa: PT017  # or it is read
    else:
        assert exact(decode(kind, encode(value))) == exact(value)


MESSAGES: list[tuple[Any, Any]] = [
    (
        Answer,
        Answer(
            {"point": np.ones((3, 2)), "error": np.zeros(3)},
            np.array([True, False, True]),
            np.full(3, np.nan),
            np.zeros((3, 3)),
        ),
    ),
    (
        RowCounts,
        RowCounts(
            {"a": "text"},
            9,
            8,
            {"a": 1},
            {"a": {"x": 4, "1": 2}},
            {"a": True},
            [Finding("é", "one", "many", "detail")],
        ),
    ),
    (Solver, GradientProx(3, "iterate", 0.5)),
]


@pytest.mark.parametrize(("kind", "value"), MESSAGES)
def test_a_part_of_a_message_is_refused(kind: Any, value: Any) -> None:
    data = encode(value)
    for end in range(len(data)):
        with pytest.raises(InputError):
            decode(kind, data[:end])


@pytest.mark.parametrize(("kind", "value"), MESSAGES)
def test_a_message_with_other_bytes_is_refused_or_a_value_of_the_same_kind(
    kind: Any, value: Any
) -> None:
    data, rng = encode(value), np.random.default_rng(0)
    changed = [
        (at, byte)
        for at in range(len(data))
        for byte in (0, 34, 48, 57, 91, 123, 255, *rng.integers(0, 256, 2))
    ]
    read = 0
    tracemalloc.start()
    try:
        for at, byte in changed:
            try:
                back = decode(kind, data[:at] + bytes([byte]) + data[at + 1 :])
            except InputError:
                continue
            read += 1
            assert exact(decode(kind, encode(back))) == exact(back)
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()
    assert 0 < read < len(changed)
