"""Records as bytes: one encoding each, and nothing else is read."""

from __future__ import annotations

import hashlib
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsplit.errors import InputError
from fedsplit.federation.encoding import Unreadable, decode, digest, encode


class Visit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record as those of messages are."""

    site: str
    number: int
    mean: float = 0.0
    parts: dict[str, bytes] = {}


VISITS = st.builds(
    Visit,
    site=st.text(),
    number=st.integers(-(2**63), 2**64 - 1),
    mean=st.floats(),
    parts=st.dictionaries(st.text(), st.binary()),
)


@given(VISITS)
def test_a_record_comes_back_to_the_bit(visit: Visit) -> None:
    again = decode(Visit, encode(visit))
    assert struct.pack("<d", again.mean) == struct.pack("<d", visit.mean)
    assert (again.site, again.number, again.parts) == (visit.site, visit.number, visit.parts)
    assert encode(again) == encode(visit)


@given(st.dictionaries(st.text(), st.binary(), min_size=2))
def test_the_order_in_which_a_mapping_was_made_is_not_in_its_encoding(
    parts: dict[str, bytes],
) -> None:
    backwards = dict(reversed(parts.items()))
    assert encode(Visit("a", 1, parts=parts)) == encode(Visit("a", 1, parts=backwards))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "truncated"),
        (msgspec.msgpack.encode({"site": "a"}), "missing required field"),
        (msgspec.msgpack.encode({"site": "a", "number": 1.5, "mean": 0.0, "parts": {}}), "int"),
        (
            msgspec.msgpack.encode(
                {"site": "a", "number": 1, "mean": 0.0, "parts": {}, "\x1b[3\n": 1}
            ),
            r"unknown field `\\x1b\[3\\n`",
        ),
        (msgspec.msgpack.encode({"number": 1, "site": "a", "mean": 0.0, "parts": {}}), "canonical"),
        (msgspec.msgpack.encode({"site": "a", "number": 1, "mean": 0, "parts": {}}), "canonical"),
        (msgspec.msgpack.encode({"site": "a", "number": 1}), "canonical"),
        (encode(Visit("a", 1)) + b"\xc0", "trailing"),
        (encode(Visit("a", 1)).replace(b"\x01", b"\xcd\x00\x01"), "canonical"),
        (b"\x91" * 10**5, "Visit"),
        (b"\x84\xa4site\xa1\xff", "Visit"),
    ],
)
def test_anything_but_the_one_encoding_is_refused_in_one_line(content: bytes, why: str) -> None:
    with pytest.raises(Unreadable, match=why) as refused:
        decode(Visit, content)
    assert isinstance(refused.value, InputError)
    assert str(refused.value).isprintable()


@given(VISITS, st.data())
def test_no_byte_can_be_changed_without_changing_the_record(
    visit: Visit, data: st.DataObject
) -> None:
    content = bytearray(encode(visit))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    try:
        other = decode(Visit, bytes(content))
    except Unreadable:
        return
    assert encode(other) == bytes(content) != encode(visit)


def test_a_digest_is_of_the_parts_with_their_lengths() -> None:
    framed = struct.pack("<Q", 2) + b"ab" + struct.pack("<Q", 0)
    assert digest(b"ab", b"") == hashlib.sha256(framed).digest()
    assert len({digest(b"ab"), digest(b"a", b"b"), digest(b"", b"ab"), digest(b"ab", b"")}) == 4
