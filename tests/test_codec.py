"""Values as bytes and back, to the bit; and bytes from anywhere, which are a value of the expected kind or refused."""

import json
import struct
import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import date
from typing import Any, Literal, NamedTuple, Optional

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedsplit.arrays import Array, Mask
from fedsplit.clients.questions import Answer, ProofScalars
from fedsplit.data.categories import Level
from fedsplit.errors import InputError
from fedsplit.methods.fedsplit import FedSplitState
from fedsplit.prox.exact import ExactProx
from fedsplit.prox.gradient import GradientProx
from fedsplit.prox.inexact_newton import NewtonProx
from fedsplit.regression.client.dataset import ColumnRequest, Description, Plan
from fedsplit.regression.client.design import Calibration, Moments, Scaling
from fedsplit.remote.codec import HEADER, decode, encode

Solver = NewtonProx | ExactProx | GradientProx
Nested = Mapping[
    Level,
    Sequence[tuple[int, float | None] | Array | Mapping[str, Solver]] | Literal["none", 3] | None,
]


class Tree(NamedTuple):
    children: "Sequence[Tree]"


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
levels = words | st.booleans() | wholes | numbers
masks = st.lists(st.booleans(), max_size=9).map(lambda values: np.array(values, dtype=bool))


def lists(each: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(each, max_size=3)


def mappings(
    keys: st.SearchStrategy[Any], values: st.SearchStrategy[Any]
) -> st.SearchStrategy[dict[Any, Any]]:
    return st.dictionaries(keys, values, max_size=3)


steps = (
    st.none()
    | st.sampled_from(["paper", "backtracking"])
    | st.floats(1e-9, 1e9)
    | st.integers(1, 9)
)
starts = st.sampled_from(["broadcast", "iterate", "argument"])
solvers = (
    st.builds(NewtonProx, st.floats(1e-9, 1e9))
    | st.just(ExactProx())
    | st.builds(GradientProx, st.integers(1, 99), starts, steps)
)
KINDS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (
        ColumnRequest,
        st.builds(
            ColumnRequest,
            lists(words).map(tuple),
            st.frozensets(words),
            st.frozensets(words),
            st.booleans(),
        ),
    ),
    (
        Description,
        st.builds(
            Description,
            mappings(words, words),
            wholes,
            wholes,
            mappings(words, wholes),
            mappings(words, mappings(levels, wholes)),
            mappings(words, st.tuples(wholes, numbers)),
            lists(words),
        ),
    ),
    (
        Plan,
        st.builds(
            Plan,
            words,
            words,
            mappings(words, lists(levels)),
            lists(levels) | st.just(()),
            mappings(words, numbers | wholes),
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
        ),
    ),
    (Scaling, st.builds(Scaling, arrays(), arrays(), numbers)),
    (Calibration, st.builds(Calibration, arrays(), arrays(), arrays())),
    (
        Answer,
        st.builds(Answer, st.dictionaries(st.text(), arrays()), masks, arrays(), arrays()),
    ),
    (ProofScalars, st.builds(ProofScalars, *[arrays(2)] * 8)),
    (FedSplitState, st.builds(FedSplitState, arrays(), arrays(), numbers | arrays(), st.none())),
    (Solver, solvers),
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
    with pytest.raises(InputError, match="message: expected no key twice"):
        decode(dict[Level, None], written({"mapping": [[1, None], [True, None]]}))


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
        b"bytes",
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
        encode("x" * HEADER)


@pytest.mark.parametrize(
    "kind", [Any, object, list, dict, tuple, np.ndarray, NDArray[np.float32], NDArray[Any], bytes]
)
def test_a_reader_has_to_say_what_it_expects(kind: Any) -> None:
    with pytest.raises(TypeError, match="nothing can be read as"):
        decode(list[kind], encode([np.zeros(1)]))


def written(header: Any, content: bytes = b"") -> bytes:
    """A message with this header, which ``encode`` may never write."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    text += b" " * (-len(text) % 8)
    return b"fsp1" + struct.pack("<I", len(text)) + text + content


def record(name: str, /, **given: Any) -> dict[str, Any]:
    return {"record": [name, {"mapping": [[key, value] for key, value in given.items()]}]}


nothing: Any = None
WRONG: list[tuple[Any, Any, str]] = [
    (int, True, "message: expected int, found True"),
    (bool, 1, "message: expected bool, found 1"),
    (float, False, "message: expected float, found False"),
    (int, 1.0, "message: expected int, found 1.0"),
    (str, None, "message: expected str, found None"),
    (None, 0, "message: expected None, found 0"),
    (int | None, "1", "message: expected int or None, found '1'"),
    (Literal["a", 1], True, "message: expected 'a' or 1, found True"),
    (list[int], [1, "x" * 10**6], "message[1]: expected int, found 'xxx"),
    (list[int], [[["x" * 100] * 9] * 9], "message[0]: expected int, found [['xxx"),
    (list[int], {1: 2}, "message: expected list, found a mapping"),
    (Mapping[str, int], [["a", 1]], "message: expected Mapping, found [['a', 1]]"),
    (Mapping[str, int], {1: 1}, "message, a key: expected str, found 1"),
    (tuple[int, str], (1,), "message: expected 2 values, found 1"),
    (tuple[int, ...], (1, 2, None), "message[2]: expected int, found None"),
    (frozenset[int], [1, 1], "message: expected no member twice"),
    (Array, np.zeros(2, int), "message: expected array of float64, found array of int64"),
    (Array, [1.0], "message: expected array of float64, found [1.0]"),
    (NDArray[np.int64], np.zeros(2), "message: expected array of int64, found array of float64"),
    (Mask, np.zeros(2), "message: expected array of bool, found array of float64"),
    (
        float | Array | None,
        np.array([True]),
        "message: expected float or array of float64 or None, found array of bool",
    ),
    (
        Plan,
        Plan("y ~ x", "f", {"ward": ["a", nothing]}),
        "Plan.levels['ward'][1]: expected str or bool or int or float, found None",
    ),
    (Plan, Plan("y ~ x", nothing, {}), "Plan.family: expected str, found None"),
    (
        Scaling,
        Scaling(np.zeros(1), np.zeros(1, bool), 1.0),
        "Scaling.scale: expected array of float64, found array of bool",
    ),
    (
        list[Scaling],
        [Scaling(np.zeros(1), np.zeros(1), nothing)],
        "message[0].unit: expected float, found None",
    ),
    (
        Scaling,
        ColumnRequest((), frozenset(), frozenset(), True),
        "message: expected Scaling, found a record 'ColumnRequest'",
    ),
    (
        Solver,
        Tree([]),
        "message: expected NewtonProx or ExactProx or GradientProx, found a record 'Tree'",
    ),
]


@pytest.mark.parametrize(("kind", "value", "why"), WRONG, ids=[why for *_, why in WRONG])
def test_what_is_not_expected_is_refused_with_its_place(kind: Any, value: Any, why: str) -> None:
    with pytest.raises(InputError) as caught:
        decode(kind, encode(value))
    assert str(caught.value).startswith(why)
    assert len(str(caught.value)) < 200


newton = record("NewtonProx", ratio=-1.0)
FORGED: list[tuple[Any, bytes, str]] = [
    (int, b"", "expected fsp1"),
    (int, b"fsp1", "expected fsp1"),
    (int, b"fsp2" + encode(1)[4:], "expected fsp1"),
    (int, b"fsp1" + struct.pack("<I", 2**32 - 8) + b"1       ", "expected fsp1"),
    (int, b"fsp1" + struct.pack("<I", 7) + b"1      ", "expected fsp1"),
    (int, b"fsp1" + struct.pack("<I", 8) + b"\xff       ", "header of JSON ('utf-8'"),
    (int, written("1" + " " * HEADER), "expected fsp1"),
    (int, written("1") + bytes(8), "expected 16 bytes, found 24"),
    (int, written("[1"), "header of JSON (Expecting"),
    (int, written(""), "header of JSON (Expecting"),
    (float, written("NaN"), "whole numbers of 64 bits, found NaN"),
    (float, written("-Infinity"), "whole numbers of 64 bits, found -Infinity"),
    (int, written(str(2**63)), "whole numbers of 64 bits, found 9223372036854775808"),
    (int, written("9" * 10**6), "whole numbers of 64 bits, found 999999999999999999999999"),
    (float, written({"float": "nan"}), "found [('float', 'nan')]"),
    (float, written({"float": "7ff 8000 0000 000"}), "found [('float'"),
    (str, written('"\\ud800"'), "message: expected str, found '\\ud800'"),
    (list[int], written("[" * 10**5), "expected less nesting"),
    (
        Tree,
        written('{"record":["Tree",{"mapping":[["children",[' * 220 + "]]]}]}" * 220),
        "expected less nesting",
    ),
    (dict[str, int], written({}), "expected an array, mapping, record or float, found []"),
    (dict[str, int], written({"a": 1}), "found [('a', 1)]"),
    (
        dict[str, int],
        written('{"mapping":[],"mapping":[]}'),
        "found [('mapping', []), ('mapping', [])]",
    ),
    (dict[str, int], written({"mapping": [["a", 1, 2]]}), "found [('mapping'"),
    (dict[str, int], written({"mapping": [["a", 1], ["a", 2]]}), "expected no key twice"),
    (
        dict[str, int],
        written({"mapping": [[["a"], 1]]}),
        "message, a key: expected str, found ['a']",
    ),
    (Array, written({"array": ["object", 1]}, bytes(8)), "found [('array', ['object', 1])]"),
    (Array, written({"array": ["float32", 2]}, bytes(8)), "found [('array', ['float32', 2])]"),
    (
        Array,
        written({"array": ["float64", 2]}, bytes(8)),
        "expected float64 of shape [2] at byte 40",
    ),
    (Array, written({"array": ["float64", -1]}, bytes(8)), "found [('array', ['float64', -1])]"),
    (
        Array,
        written({"array": ["float64", -1, -1]}, bytes(8)),
        "found [('array', ['float64', -1, -1])]",
    ),
    (
        Array,
        written({"array": ["float64", 2**60]}, bytes(8)),
        "expected float64 of shape [1152921504606846976]",
    ),
    (
        Array,
        written({"array": ["float64", 0, 2**62]}),
        "expected float64 of shape [0, 4611686018427387904]",
    ),
    (
        Array,
        written({"array": ["float64", *[1] * 10**5]}, bytes(8)),
        "expected float64 of shape [1, 1, 1, 1, 1, 1, ...]",
    ),
    (Array, written({"array": ["float64", True]}, bytes(8)), "found [('array'"),
    (Array, written({"array": ["float64", 1]}, bytes(16)), "expected 48 bytes, found 56"),
    (
        Mask,
        written({"array": ["bool", 1]}, b"\2" + bytes(7)),
        "expected bool of shape [1] at byte 32, found other bytes",
    ),
    (Mask, written({"array": ["bool", 1]}, b"\1" + bytes(6) + b"\1"), "expected bool of shape [1]"),
    (Mask, written({"array": ["bool", 1]}, b"\1"), "expected bool of shape [1]"),
    (Solver, written(record("NewtonProx", radius=1.0)), "NewtonProx: expected no field 'radius'"),
    (
        Solver,
        written(record("NewtonProx", ratio="1")),
        "NewtonProx.ratio: expected float, found '1'",
    ),
    (
        Solver,
        written(newton),
        "NewtonProx: NewtonProx: ratio must be a finite number above 0, not -1.0",
    ),
    (
        list[Solver],
        written([newton]),
        "message[0]: NewtonProx: ratio must be a finite number above 0, not -1.0",
    ),
    (Solver, written({"record": ["ExactProx", []]}), "found [('record', ['ExactProx', []])]"),
    (
        Solver,
        written(record("GradientProx", start="here")),
        "GradientProx.start: expected 'broadcast' or 'iterate' or",
    ),
    (
        Solver,
        written(record("CvxpyProx")),
        "expected NewtonProx or ExactProx or GradientProx, found a record 'CvxpyProx'",
    ),
    (Scaling, written(record("Scaling", unit=1.0)), "Scaling: expected a field centre"),
    (
        Made,
        written({"record": ["Made", {"mapping": [["given", 1], ["given", 2]]}]}),
        "Made: expected no field twice",
    ),
    (Made, written(record("Made", given=1, derived=2)), "Made: expected no field 'derived'"),
    (
        Made,
        written({"record": ["Made", {"mapping": [[["given"], 1]]}]}),
        "found [('record', ['Made', a mapping])]",
    ),
    (Named, written(record("Named", name="a b" * 10**6)), "Named: 'a ba ba b"),
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


def test_fields_with_a_default_may_be_missing() -> None:
    given = record("Plan", formula="y ~ x", family="logistic", levels={"mapping": []})
    assert decode(Plan, written(given)) == Plan("y ~ x", "logistic", {})
    assert decode(Solver, written(record("GradientProx"))) == GradientProx()
    assert decode(Made, written(record("Made", given=1))) == Made(1)


def test_a_longer_message_than_the_reader_takes_is_refused() -> None:
    data = encode(np.zeros(100))
    assert decode(Array, data, len(data)).shape == (100,)
    with pytest.raises(
        InputError, match=f"expected at most {len(data) - 1} bytes, found {len(data)}"
    ):
        decode(Array, data, len(data) - 1)


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
        Description,
        Description(
            {"a": "text"}, 9, 8, {"a": 1}, {"a": {"x": 4, 1: 2, 0.5: 2}}, {"b": (3, np.inf)}, ["é"]
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
