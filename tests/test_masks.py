"""Masks of secure studies, and sealed files: what cancels, and what looks random to others."""

from __future__ import annotations

import hashlib
import hmac
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from fedsplit import fixed_point
from fedsplit.arrays import Array
from fedsplit.errors import InputError, RequestError
from fedsplit.federation import masks
from fedsplit.federation.coordinator import StudyResult
from fedsplit.federation.keys import public_bytes
from fedsplit.federation.messages import JOINING
from fedsplit.federation.sealing import seal, unseal
from fedsplit.fixed_point import Limbs
from test_malicious import Watched
from test_site_and_coordinator import made, study_of

NAMES = ("a", "b", "c", "d")
TRANSCRIPT = hashlib.sha256(b"what was said so far").digest()


class Members:
    """The keys of the members of a study."""

    def __init__(self, seed: int = 0) -> None:
        draw = np.random.default_rng(seed).bytes
        self.secrets = {name: draw(32) for name in NAMES}
        self.keys = {
            name: public_bytes(X25519PrivateKey.from_private_bytes(each))
            for name, each in self.secrets.items()
        }

    def sent(self, name: str, values: Array, transcript: bytes = TRANSCRIPT) -> Limbs:
        """What a member contributes."""
        others = {each: key for each, key in self.keys.items() if each != name}
        hidden = masks.mask(name, self.secrets[name], others, transcript, len(values))
        return fixed_point.add(fixed_point.encode(values), hidden)


def added(contributions: list[Limbs]) -> Limbs:
    return masks.total([fixed_point.to_bytes(each) for each in contributions])


def bits(numbers: Limbs) -> Array:
    return np.unpackbits(np.ascontiguousarray(numbers).view(np.uint8).ravel()).astype(float)


def test_the_sum_of_masked_contributions_is_the_exact_sum() -> None:
    rng = np.random.default_rng(0)
    own = {name: rng.standard_normal(50) * 10.0 ** rng.integers(-9, 9, 50) for name in NAMES}
    found = added([Members().sent(name, own[name]) for name in NAMES])
    whole = [
        sum(round(Fraction(x) * 2**128) for x in each) for each in zip(*own.values(), strict=True)
    ]
    assert [
        int.from_bytes(each.astype("<u8").tobytes(), "little", signed=True) for each in found
    ] == whole


def test_masks_are_derived_as_documented() -> None:
    """By other code: the mask of c, which subtracts what it shares with a and b, and adds d's."""

    def framed(*parts: bytes) -> bytes:
        framed = b"".join(len(each).to_bytes(8, "little") + each for each in parts)
        return hashlib.sha256(framed).digest()

    members = Members()
    expected = 0
    for partner in "abd":
        public = X25519PublicKey.from_public_bytes(members.keys[partner])
        shared = X25519PrivateKey.from_private_bytes(members.secrets["c"]).exchange(public)
        about = framed(b"mask", TRANSCRIPT, *(each.encode() for each in sorted(("c", partner))))
        extracted = hmac.digest(bytes(32), shared, "sha256")
        key = hmac.digest(extracted, about + b"\x01", "sha256")
        stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(32))
        expected += int.from_bytes(stream, "little") * (1 if partner > "c" else -1)
    [sent] = members.sent("c", np.zeros(1))
    assert int.from_bytes(sent.astype("<u8").tobytes(), "little") == expected % 2**256


def test_members_who_heard_different_things_give_no_sum() -> None:
    members, other = Members(), hashlib.sha256(b"something else").digest()
    for those in ("c", "ac", "bcd"):
        found = [
            members.sent(name, np.ones(1), other if name in those else TRANSCRIPT) for name in NAMES
        ]
        assert abs(fixed_point.decode(added(found))[0]) > 1e9
    without_d = [members.sent(name, np.ones(1)) for name in "abc"]
    assert abs(fixed_point.decode(added(without_d))[0]) > 1e9


def test_every_transcript_and_every_key_has_masks_of_its_own() -> None:
    values = np.random.default_rng(1).standard_normal(500)
    first = Members().sent("a", values)
    assert (Members().sent("a", values) == first).all()
    other = hashlib.sha256(b"something else").digest()
    for again in (Members().sent("a", values, other), Members(1).sent("a", values)):
        differ = (bits(first) != bits(again)).mean()
        assert abs(differ - 0.5) < 5 * 0.5 / math.sqrt(500 * 256)
        assert not (first == again).any()


def check_random(sent: Array) -> None:
    """Ones, equal neighbours at several distances, and bytes: within five deviations."""
    n = len(sent)
    assert abs(sent.sum() - n / 2) < 5 * math.sqrt(n) / 2
    for distance in (1, 2, 8, 64, 256):
        agree = np.count_nonzero(sent[distance:] == sent[:-distance])
        assert abs(agree - (n - distance) / 2) < 5 * math.sqrt(n) / 2
    counts = np.bincount(np.packbits(sent.astype(np.uint8)), minlength=256)
    expected = n / 8 / 256
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    assert abs(chi2 - 255) < 5 * math.sqrt(2 * 255)


def test_what_a_member_sends_looks_random_whatever_it_adds() -> None:
    check_random(bits(Members().sent("b", np.zeros(2000))))


def test_what_the_coordinator_sees_of_one_site_looks_random_and_is_in_its_record(
    tmp_path: Path,
) -> None:
    federation = made(tmp_path)
    study = study_of(federation, "secure")
    found = federation.coordinator(Watched(federation)).run(study)
    assert isinstance(found, StudyResult)
    site = federation.site("west")
    state = site.record.study(study.digest)
    assert state is not None
    masked, plain = [], []
    for number in range(JOINING + 1, found.questions + 1):
        sent = site.record.sent(study.digest, number)
        assert sent is not None
        masked.append(fixed_point.from_bytes(sent.value))
        plain.append(site.unmasked(state, sent))
    check_random(bits(np.concatenate(masked)))
    numbers = fixed_point.decode(np.concatenate(plain))
    assert 80.0 in numbers  # its rows
    # the digits of a number that is not whole end with random ones, below those of a float64
    low = np.concatenate(plain)[:, 0]
    broken = (numbers != np.rint(numbers)) & (np.abs(numbers) > 2.0**-10)
    assert np.count_nonzero(broken) > 50
    assert (low[broken] != 0).all()
    assert not low[numbers == 80.0].any()  # counts keep theirs


def test_contributions_of_different_lengths_are_refused() -> None:
    values = [bytes(32), bytes(64), bytes(32)]
    for each in (values, [bytes(31)] * 3):
        with pytest.raises(RequestError, match="have different lengths"):
            masks.total(each)


# ---------------------------------------------------------------------- sealed files


def test_what_is_sealed_can_be_read_by_its_receiver_alone() -> None:
    key, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    text = b"age,ward\n51,north\n" * 20
    sealed = seal(public_bytes(key), text)
    assert unseal(key, sealed) == text
    assert unseal(key, seal(public_bytes(key), b"")) == b""
    assert not any(each in sealed for each in (b"age", b"ward", b"north"))
    assert seal(public_bytes(key), text) != sealed
    with pytest.raises(InputError, match="is sealed for another key, or damaged"):
        unseal(other, sealed)
    for at in range(0, len(sealed), 11):
        changed = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
        with pytest.raises(InputError, match=r"is no sealed|is sealed for another"):
            unseal(key, changed)
    for cut in (b"", sealed[:5], sealed[:38], sealed[:-1], bytes(60)):
        with pytest.raises(InputError, match=r"is no sealed|is sealed for another"):
            unseal(key, cut)


def test_nothing_is_sealed_for_a_key_that_is_none() -> None:
    with pytest.raises(InputError, match="cannot be"):
        seal((1).to_bytes(32, "little"), b"text")
