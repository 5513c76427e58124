"""Masks, keys and the ledger of secure sums: what cancels, what looks random, what is refused."""

from __future__ import annotations

import hashlib
import hmac
import math
import struct
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from fedsplit import fixed_point
from fedsplit.errors import InputError, RequestError
from fedsplit.fixed_point import Limbs
from fedsplit.remote.keys import PrivateKey, fingerprint, new_key
from fedsplit.sites.secure.ledger import Fresh, Record
from fedsplit.sites.secure.participation import SecureStudy
from fedsplit.sites.secure.protocol import KeyLetter
from fedsplit.sites.secure.study_keys import read_keys

STUDY = "5" * 64
QUESTION = "a" * 64
NAMES = ("a", "b", "c", "d")


class Sites:
    """Sites of one study, each with a folder and a long-term key of its own."""

    def __init__(self, folder: Path, removal: tuple[str, ...] = (), keys: str = "ed25519") -> None:
        make: Callable[[], PrivateKey] = new_key
        if keys == "ed25519":
            make = Ed25519PrivateKey.generate
        self.folder = folder
        self.keys = {name: make() for name in NAMES}
        self.members = {name: fingerprint(key.public_key()) for name, key in self.keys.items()}
        self.removal = removal
        for name in NAMES:
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.letters = {name: self.letter(name) for name in NAMES}

    def site(self, name: str) -> SecureStudy:
        """A site as a process that was just started has it."""
        return SecureStudy(self.folder / name, STUDY, self.members, name)

    def letter(self, name: str) -> KeyLetter:
        return self.site(name).letter(self.keys[name], name in self.removal)

    def meet(self) -> Sites:
        for name in NAMES:
            self.site(name).meet(list(self.letters.values()))
        return self

    def send(
        self,
        name: str,
        values: list[float],
        number: int = 1,
        members: tuple[str, ...] = NAMES,
        question: str = QUESTION,
    ) -> Limbs:
        fresh = Fresh(fixed_point.encode(values))
        return self.site(name).answer(number, members, question, lambda record: fresh)


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    return Sites(tmp_path).meet()


def test_the_sum_of_masked_answers_is_the_exact_sum(sites: Sites) -> None:
    rng = np.random.default_rng(0)
    answers = {name: (rng.standard_normal(50) * 10.0 ** rng.integers(-9, 9, 50)) for name in NAMES}
    masked = [sites.send(name, answers[name].tolist()) for name in NAMES]
    found = fixed_point.integers(fixed_point.total(masked, 50))
    columns = zip(*answers.values(), strict=True)
    # each answer is rounded to the unit, and nothing else is
    assert found == [sum(round(Fraction(value) * 2**128) for value in each) for each in columns]


@pytest.mark.parametrize("kind", ["ed25519", "p256"])
def test_keys_of_both_kinds_sign_letters(tmp_path: Path, kind: str) -> None:
    sites = Sites(tmp_path, keys=kind).meet()
    total = fixed_point.total([sites.send(name, [1.5]) for name in NAMES], 1)
    assert fixed_point.decode(total).tolist() == [6.0]


def test_masks_are_derived_as_documented(sites: Sites) -> None:
    """By other code: the mask of c, which subtracts what it shares with a and b, and adds d's."""

    def framed(*texts: str) -> bytes:
        sizes = [struct.pack("<Q", len(text)) + text.encode() for text in texts]
        return struct.pack("<Q", len(texts)) + b"".join(sizes)

    own = read_keys(sites.folder / "c" / "keys").secret
    mask = 0
    for partner in "abd":
        letter = X25519PublicKey.from_public_bytes(bytes.fromhex(sites.letters[partner].key))
        shared = X25519PrivateKey.from_private_bytes(bytes.fromhex(own)).exchange(letter)
        members = hashlib.sha256(framed(*NAMES)).hexdigest()
        info = framed("fedsplit mask", STUDY, "1", QUESTION, members)
        info += framed(*sorted((partner, "c")))
        extracted = hmac.digest(bytes(32), shared, "sha256")
        key = hmac.digest(extracted, info + b"\x01", "sha256")
        stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(32))
        mask += int.from_bytes(stream, "little") * (1 if partner > "c" else -1)
    [sent] = fixed_point.integers(sites.send("c", [0.0]))
    assert (sent - mask) % 2**256 == 0


def test_sites_that_are_told_different_things_give_no_sum(tmp_path: Path) -> None:
    sites = Sites(tmp_path, removal=("d",)).meet()
    told: dict[str, dict[str, Any]] = {
        "members": {"members": ("a", "b", "c")},
        "question": {"question": "b" * 64},
        "number": {"number": 9},
    }
    for number, (what, other) in enumerate(told.items(), 1):
        for those in ({"c"}, {"a", "c"}):
            again = Sites(tmp_path / f"{what} {len(those)}", removal=("d",)).meet()
            masked = [
                again.send(name, [1.0], **{"number": number, **(other if name in those else {})})
                for name in NAMES
            ]
            assert abs(fixed_point.decode(fixed_point.total(masked, 1))[0]) > 1e9
    masked = [sites.send(name, [1.0]) for name in NAMES]
    assert fixed_point.decode(fixed_point.total(masked, 1)).tolist() == [4.0]


def bits(masked: Limbs) -> np.ndarray:
    return np.unpackbits(np.frombuffer(fixed_point.to_bytes(masked), dtype=np.uint8))


def test_what_one_site_sends_looks_random_whatever_it_answers(sites: Sites) -> None:
    # 2,000 zeros: all that can be seen is the mask
    sent = bits(sites.send("b", [0.0] * 2000))
    n = len(sent)
    # of ones, of runs, of equal neighbours at several distances, and of bytes: five deviations
    assert abs(sent.sum() - n / 2) < 5 * math.sqrt(n) / 2
    for distance in (1, 2, 8, 64, 256):
        agree = (sent[distance:] == sent[:-distance]).sum()
        assert abs(agree - (n - distance) / 2) < 5 * math.sqrt(n) / 2
    counts = np.bincount(np.packbits(sent), minlength=256)
    expected = n / 8 / 256
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    assert abs(chi2 - 255) < 5 * math.sqrt(2 * 255)


def test_with_other_keys_and_the_same_data_everything_that_is_sent_changes(tmp_path: Path) -> None:
    values = np.random.default_rng(1).standard_normal(500).tolist()
    first, second = (Sites(tmp_path / each).meet().send("a", values) for each in ("1", "2"))
    differ = (bits(first) != bits(second)).mean()
    assert abs(differ - 0.5) < 5 * 0.5 / math.sqrt(500 * 256)
    assert not (first == second).any()


@pytest.mark.parametrize(
    "change", [{"number": 2}, {"question": "b" * 64}, {"members": ("a", "b", "c")}]
)
def test_each_exchange_question_and_set_has_a_mask_of_its_own(
    tmp_path: Path, change: dict[str, object]
) -> None:
    sites = Sites(tmp_path, removal=("d",)).meet()
    other = Sites(tmp_path / "again", removal=("d",))
    # the same keys in another folder, whose ledger has nothing in it yet
    for name in NAMES:
        for file in ("keys", "ledger"):
            (other.folder / name / file).write_bytes((tmp_path / name / file).read_bytes())
    other.keys, other.members = sites.keys, sites.members
    values = [1.0] * 200
    differ = bits(sites.send("a", values)) != bits(other.send("a", values, **change))  # type: ignore[arg-type]
    assert abs(differ.mean() - 0.5) < 5 * 0.5 / math.sqrt(len(differ))


def test_a_server_that_asks_twice_gets_the_same_bytes_whatever_the_data_are(sites: Sites) -> None:
    first = sites.send("a", [1.0, 2.0])
    assert (sites.send("a", [7.0, 2.0]) == first).all()


@pytest.mark.parametrize(
    ("number", "question"),
    [(3, "b" * 64), (2, QUESTION), (1, QUESTION), (0, QUESTION), (-1, QUESTION)],
)
def test_another_question_in_the_same_exchange_and_earlier_ones_are_refused(
    sites: Sites, number: int, question: str
) -> None:
    for earlier in (1, 2, 3):
        sites.send("a", [1.0], earlier)
    with pytest.raises(RequestError, match="was answered before"):
        sites.send("a", [1.0], number, question=question)


def test_a_site_that_answered_is_not_left_out_without_its_consent(sites: Sites) -> None:
    for name in NAMES:
        sites.send(name, [1.0])
    rest = ("a", "b", "c")
    with pytest.raises(RequestError, match="was answered before"):
        sites.send("a", [1.0], 1, rest)
    with pytest.raises(RequestError, match="without d, whose owner has not allowed that"):
        sites.send("a", [1.0], 2, rest)


def test_with_its_consent_a_sum_goes_on_without_a_site_and_it_stays_out(tmp_path: Path) -> None:
    sites = Sites(tmp_path, removal=("d", "a")).meet()
    for name in ("a", "b", "c"):
        sites.send(name, [1.0])
    rest = ("a", "b", "c")
    masked = [sites.send(name, [2.0], 2, rest) for name in rest]
    assert fixed_point.decode(fixed_point.total(masked, 1)).tolist() == [6.0]
    with pytest.raises(RequestError, match="no longer"):
        sites.send("a", [1.0], 3, NAMES)
    with pytest.raises(RequestError, match="fewer than 3"):
        sites.send("b", [1.0], 3, ("b", "c"))


@pytest.mark.parametrize(
    ("members", "what"),
    [
        (("a", "b", "c", "e"), "not, or no longer"),
        (("b", "c", "d"), "without this client"),
        (("a", "a", "b", "c", "d"), "twice"),
        (("b", "a", "c", "d"), "order"),
        (("a", "b"), "fewer than 3"),
    ],
)
def test_a_set_that_is_not_the_studys_is_refused(
    sites: Sites, members: tuple[str, ...], what: str
) -> None:
    with pytest.raises(RequestError, match=what):
        sites.send("a", [1.0], members=members)


def test_keys_that_are_swapped_are_refused(tmp_path: Path) -> None:
    sites, forged = Sites(tmp_path), Sites(tmp_path / "forged")
    letters = sites.letters
    own = letters["b"]
    for instead, what in (
        (forged.letters["b"], "signed by another key"),
        (own._replace(key=forged.letters["b"].key), "does not belong"),
        (own._replace(removal=True), "does not belong"),
        (letters["c"]._replace(name="b"), "signed by another key"),
        (own._replace(key="00"), "cannot be read"),
        (own._replace(signer="ssh-ed25519 ?"), "cannot be read"),
        (own._replace(signature="?"), "cannot be read"),
        (own._replace(name="e"), "came, the study is of"),
    ):
        with pytest.raises(RequestError, match=what):
            sites.site("a").meet(list({**letters, "b": instead}.values()))


def test_a_letter_of_another_study_is_refused(tmp_path: Path) -> None:
    sites = Sites(tmp_path)
    other = SecureStudy(tmp_path / "elsewhere", "6" * 64, sites.members, "b")
    (tmp_path / "elsewhere").mkdir()
    replayed = other.letter(sites.keys["b"], False)
    with pytest.raises(RequestError, match="or to this study"):
        sites.site("a").meet(list({**sites.letters, "b": replayed}.values()))


def test_once_the_keys_have_come_no_others_are_taken(sites: Sites, tmp_path: Path) -> None:
    # b has lost everything, and made another key: it signs that itself
    for file in ("keys", "ledger"):
        (tmp_path / "b" / file).unlink()
    again = {**sites.letters, "b": sites.letter("b")}
    with pytest.raises(RequestError, match="others than those that came first"):
        sites.site("a").meet(list(again.values()))


def test_a_site_whose_ledger_is_lost_or_damaged_takes_no_further_part(
    sites: Sites, tmp_path: Path
) -> None:
    sites.send("a", [1.0])
    path = tmp_path / "a" / "ledger"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(RequestError, match="is lost"):
        sites.send("a", [1.0])
    path.unlink()
    with pytest.raises(RequestError, match="is lost"):
        sites.send("a", [1.0])
    sites.send("b", [1.0])
    (tmp_path / "b" / "keys").unlink()
    with pytest.raises(RequestError, match="is lost"):
        sites.letter("b")


def test_a_site_that_was_stopped_before_it_had_its_keys_makes_them(tmp_path: Path) -> None:
    sites = Sites(tmp_path)
    (tmp_path / "b" / "keys").unlink()  # which is written after the ledger
    sites.letters["b"] = sites.letter("b")
    sites.meet()
    assert len(sites.send("b", [1.0]))


@pytest.mark.parametrize("file", ["ledger", "keys"])
def test_every_bit_of_its_files_is_checked(sites: Sites, tmp_path: Path, file: str) -> None:
    sites.send("a", [1.0])
    path = tmp_path / "a" / file
    content = path.read_bytes()
    for at in range(0, len(content), 7):
        path.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        with pytest.raises(RequestError, match="is lost"):
            sites.send("a", [1.0], 2)
    path.write_bytes(content)
    sites.send("a", [1.0], 2)


def test_a_ledger_that_was_rolled_back_reuses_no_mask_for_another_question(
    sites: Sites, tmp_path: Path
) -> None:
    path = tmp_path / "a" / "ledger"
    before = path.read_bytes()
    first = sites.send("a", [1.0] * 100)
    path.write_bytes(before)
    second = sites.send("a", [1.0] * 100, question="b" * 64)
    assert not (first == second).any()


def test_nothing_is_sent_that_is_not_on_disk(sites: Sites, tmp_path: Path) -> None:
    (tmp_path / "a" / ".ledger.partial").mkdir()
    with pytest.raises(OSError, match=r"\.ledger\.partial"):
        sites.send("a", [1.0])


def test_before_the_keys_have_come_nothing_is_answered(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="have not come"):
        Sites(tmp_path).send("a", [1.0])


def test_an_error_on_the_way_to_an_answer_leaves_the_exchange_open(sites: Sites) -> None:
    def fails(record: Record) -> Fresh:
        raise InputError("refused")

    with pytest.raises(InputError, match="refused"):
        sites.site("a").answer(1, NAMES, QUESTION, fails)
    sites.send("a", [1.0])
