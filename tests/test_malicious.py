"""Malicious ends: what holds against a member, a coordinator, or a thief of a backup.

docs/secure.md has the table; each of its rows names the tests.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import fedsplit as fs
from fedsplit.channels.patience import Patience
from fedsplit.errors import InputError, TooFewClients
from fedsplit.federation.coordinator import Interruption, StudyResult
from fedsplit.federation.keys import public_bytes
from fedsplit.federation.masks import read_posts
from fedsplit.federation.messages import (
    Ending,
    Inquiry,
    LogHead,
    Message,
    Proposal,
    Response,
    read_message,
    read_response,
    write_message,
    write_response,
)
from fedsplit.federation.questions import decode_request, encode_request
from fedsplit.federation.site.transcript import agrees
from fedsplit.federation.study import Study
from fedsplit.federation.transport import Arrivals
from fedsplit.federation.transport.direct import DirectTransport
from fedsplit.federation.transport.files import FileTransport, answer_files
from fedsplit.testing import Federation
from tampering import mutated
from test_site_and_coordinator import FORMULA, SECURE, made, study_of

Change = Callable[[Response], Response]

AT_ONCE = Patience(round_timeout=0.05, give_up=1e-9)
"""A run that goes on for no exchange without a site."""


def noon() -> float:
    """The time at all sites, so that two runs have the same entries in their logs."""
    return 1e9


class Watched(DirectTransport):
    """Sites of which one replies something else, and all that was sent.

    Attributes
    ----------
    sent : list of dict
        By exchange, the message to each site.
    """

    def __init__(self, federation: Federation, **changes: Callable[[bytes], bytes]) -> None:
        super().__init__(
            {name: federation.site(name, clock=noon).reply for name in federation.names}
        )
        self.sent: list[dict[str, bytes]] = []
        for name, change in changes.items():
            honest = self._sites[name]
            self._sites[name] = lambda data, h=honest, c=change: c(h(data))  # type: ignore[misc]

    def exchange(self, messages: Mapping[str, bytes], seconds: float, largest: int) -> Arrivals:
        self.sent.append(dict(messages))
        return super().exchange(messages, seconds, largest)


def lying(
    federation: Federation, name: str, since: int, change: Change
) -> Callable[[bytes], bytes]:
    """What a site replies in place of its response, from an exchange on."""
    key = federation.keys[name]

    def reply(data: bytes) -> bytes:
        response = read_response(public_bytes(key), data)
        return data if response.number < since else write_response(key, change(response))

    return reply


def rows_of(federation: Federation, study: Study, name: str) -> list[Any]:
    """What the coordinator has recorded of a site."""
    journal = federation.coordinator(federation.direct()).journal
    return journal.execute(
        "SELECT number, data, trouble FROM responses WHERE study = ? AND site = ? ORDER BY number",
        study.digest,
        name,
    ) + journal.execute(
        "SELECT number, hash FROM heads WHERE study = ? AND site = ? ORDER BY number",
        study.digest,
        name,
    )


LIES: dict[str, Change] = {
    "a refusal that names others": lambda r: replace(
        r, outcome="refused", value=b"", reason="enough\nnorth: left\nsouth: left"
    ),
    "a failure that blames another": lambda r: replace(
        r, outcome="failed", value=b"", reason="client north: refused by its owner"
    ),
    "another's exchange": lambda r: replace(r, number=r.number + 1),
    "a number less": lambda r: replace(r, value=r.value[:-32]),
    "a number more": lambda r: replace(r, value=r.value + bytes(32)),
    "nothing": lambda r: replace(r, value=b""),
    "another transcript": lambda r: replace(r, transcript=bytes(32)),
    "no head": lambda r: replace(r, value=r.value[:-32], head=None),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("liar", ["north", "west"])
@pytest.mark.parametrize("mode", ["open", "secure"])
def test_what_a_member_replies_is_its_own_fault_and_the_others_record_is_what_it_would_be(
    tmp_path: Path, mode: str, liar: str, lie: str
) -> None:
    if mode == "open" and lie in ("another transcript",):
        return  # open answers are no part of one
    honest = made(tmp_path / "honest")
    found = honest.coordinator(Watched(honest)).run(study_of(honest, mode))
    assert isinstance(found, StudyResult)
    federation = made(tmp_path / "lying")
    study = study_of(federation, mode)
    transport = Watched(federation, **{liar: lying(federation, liar, 3, LIES[lie])})
    with pytest.raises((InputError, TooFewClients)) as error:
        federation.coordinator(transport, patience=AT_ONCE).run(study)
    others = [name for name in federation.names if name != liar]
    what = (
        str(error.value)
        .replace("client north: refused by its owner", "")
        .replace("enough north: left south: left", "")
    )
    assert liar in what
    assert not any(name in what for name in others), what
    for name in others:
        expected = rows_of(honest, study, name)
        assert [r for r in rows_of(federation, study, name) if r not in expected] == []
    # the site is mended, and the study has its result
    assert isinstance(federation.coordinator(Watched(federation)).run(study), StudyResult)
    for name in others:
        assert rows_of(federation, study, name) == rows_of(honest, study, name)


@pytest.mark.parametrize("mode", ["open", "secure"])
def test_a_member_whose_log_was_cut_short_or_replaced_is_named(tmp_path: Path, mode: str) -> None:
    for head in (LogHead(1, bytes(32)), None):
        federation = made(tmp_path / f"{head and head.number}")
        study = study_of(federation, mode)
        one = lying(federation, "west", 3, lambda r, head=head: replace(r, head=head))  # type: ignore[misc]
        lines: list[str] = []
        coordinator = federation.coordinator(
            Watched(federation, west=one), patience=AT_ONCE, watch=lines.append
        )
        with suppress(InputError, TooFewClients):
            coordinator.run(study)
        said = [line for line in lines if "its log was cut short or replaced" in line]
        assert said
        assert all(line.startswith("west: ") for line in said)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"value": bytes(32)}, "the key of a partner cannot be used"),
        ({"value": (1).to_bytes(32, "little")}, "the key of a partner cannot be used"),
        ({"value": bytes(range(33))}, "this is not how a site joins a study"),
        ({"transcript": bytes(32)}, "this is not how a site joins a study"),
    ],
)
def test_a_member_that_joins_with_a_key_that_no_other_can_use_is_named(
    tmp_path: Path, change: Any, why: str
) -> None:
    federation = made(tmp_path)
    study = study_of(federation, "secure")
    bad = lying(federation, "south", 0, lambda r: replace(r, **change))
    found = federation.coordinator(Watched(federation, south=bad)).run(study)
    assert isinstance(found, Interruption)
    assert found.missing == {"south": why}


# ---------------------------------------------------------------------- the coordinator


def sent_in(tmp_path: Path, **policy: Any) -> tuple[Federation, Study, list[dict[str, bytes]]]:
    """A secure study with its result, and all messages of it."""
    federation = made(tmp_path, **policy)
    study = study_of(federation, "secure")
    transport = Watched(federation)
    assert isinstance(federation.coordinator(transport).run(study), StudyResult)
    return federation, study, transport.sent


def outcome(federation: Federation, name: str, message: Message | bytes) -> Response:
    """What a site replies to a message of the coordinator."""
    data = message if isinstance(message, bytes) else write_message(federation.key, message)
    return read_response(
        public_bytes(federation.keys[name]), federation.site(name, clock=noon).reply(data)
    )


def test_replayed_messages_get_the_recorded_bytes_and_count_once(tmp_path: Path) -> None:
    federation = made(tmp_path)
    study = study_of(federation, "secure")
    transport = Watched(federation)
    seen: dict[bytes, bytes] = {}
    honest = transport._sites["north"]

    def twice(data: bytes) -> bytes:
        first = honest(data)
        assert honest(data) == first
        if isinstance(read_message(public_bytes(federation.key), data), Inquiry):
            for before, reply in seen.items():
                assert honest(before) == reply
            seen[data] = first
        return first

    transport._sites["north"] = twice
    found = federation.coordinator(transport).run(study)
    assert isinstance(found, StudyResult)
    assert federation.site("north").record.count("answer") == found.questions
    # and none is answered once the study has ended
    assert outcome(federation, "north", next(iter(seen))).outcome == "refused"


def test_an_exchange_cannot_be_asked_out_of_order_or_about_other_contributions(
    tmp_path: Path,
) -> None:
    _, study, sent = sent_in(tmp_path / "whole")
    federation = made(tmp_path / "again")
    for messages in sent[:4]:  # joining, and three questions
        for name, message in messages.items():
            assert outcome(federation, name, message).outcome == "answer"
    key = public_bytes(federation.key)
    following = read_message(key, sent[4]["north"])
    assert isinstance(following, Inquiry)
    last = read_message(key, sent[3]["north"])
    assert isinstance(last, Inquiry)
    posts = following.posts
    other = replace
    stranger = Ed25519PrivateKey.generate()
    own = read_response(bytes.fromhex(study.members["south"]), posts[1])
    wrong: dict[str, Inquiry] = {
        "a later one": other(following, number=following.number + 1),
        "an earlier one, asked otherwise": other(last, question=following.question),
        "a member less": other(following, posts=posts[:2]),
        "a member twice": other(following, posts=(posts[0], posts[1], posts[1])),
        "another order": other(following, posts=(posts[1], posts[0], posts[2])),
        "contributions of before": other(following, posts=last.posts),
        "an invented member's": other(
            following, posts=(posts[0], write_response(stranger, own), posts[2])
        ),
        "none": other(following, posts=()),
    }
    for what, inquiry in wrong.items():
        response = outcome(federation, "north", inquiry)
        assert response.outcome == "refused", what
        assert not response.value
        federation.site("north", clock=noon).resume()
    response = outcome(federation, "north", following)
    assert response.outcome == "answer", response.reason


def test_members_to_whom_other_keys_are_shown_send_noise(tmp_path: Path) -> None:
    federation = made(tmp_path)
    study = study_of(federation, "secure")
    transport = Watched(federation)
    honest = dict(transport._sites)
    joined = {
        name: honest[name](write_message(federation.key, Proposal(study.content)))
        for name in federation.names
    }
    # south has joined with another key than the one that north is shown
    response = read_response(bytes.fromhex(study.members["south"]), joined["south"])
    forged = write_response(federation.keys["south"], replace(response, value=bytes(range(32))))
    shown = {
        **{name: tuple(joined.values()) for name in federation.names},
        "north": (joined["north"], forged, joined["west"]),
    }
    first: dict[str, Response] = {}
    for messages in sent_in(tmp_path / "whole")[2][1:2]:
        for name in federation.names:
            inquiry = read_message(public_bytes(federation.key), messages[name])
            assert isinstance(inquiry, Inquiry)
            own = replace(inquiry, posts=shown[name], head=None)
            first[name] = outcome(federation, name, own)
    assert {each.outcome for each in first.values()} <= {"answer", "failed"}
    # the transcripts differ, so that nobody takes the contributions of both for one exchange
    assert first["north"].transcript != first["west"].transcript


@pytest.mark.parametrize("name", ["that of before", "none", "another"])
def test_a_question_cannot_be_asked_in_the_coordinates_of_another(
    tmp_path: Path, name: str
) -> None:
    # Huber's fit has two: with the deviation of the first residuals, and with that of its own
    federation = made(tmp_path)
    study = federation.regression(FORMULA, family="huber", secure=True, **SECURE)
    transport = Watched(federation)
    honest, names = dict(transport._sites), {"none": "", "another": "0" * 64}

    def renamed(data: bytes, site: str) -> bytes:
        asked = read_message(public_bytes(federation.key), data)
        if isinstance(asked, Inquiry):
            request = decode_request(asked.question)
            if asked.number == 3:
                names["that of before"] = request.key
            if asked.number >= 4:
                question = encode_request(request._replace(key=names[name]))
                data = write_message(federation.key, replace(asked, question=question))
        return honest[site](data)

    for each in federation.names:
        transport._sites[each] = lambda data, site=each: renamed(data, site)  # type: ignore[misc]
    with pytest.raises(InputError, match=r"asks another question here|never sent|do not allow"):
        federation.coordinator(transport, patience=AT_ONCE).run(study)
    assert federation.site("north").record.count("answer") == 3


def test_a_study_with_anything_changed_waits_for_its_owner(tmp_path: Path) -> None:
    federation = made(tmp_path, approve="ask")
    study = study_of(federation, "secure")
    assert isinstance(federation.run(study), Interruption)
    federation.site("north").approve(study.hash)
    invented = public_bytes(Ed25519PrivateKey.generate()).hex()
    changed = [
        replace(study, title="another"),
        replace(study, questions=39),
        replace(study, members={**study.members, "east": invented}, least=0),
        replace(study, members={**study.members, "west": invented}),
    ]
    for each in changed:
        # with partners in its policy a site declines invented ones by itself
        proposed = outcome(federation, "north", Proposal(each.content))
        assert proposed.outcome == ("waiting" if each.members == study.members else "refused")
        inquiry = Inquiry(each.digest, 1, b"")
        assert outcome(federation, "north", inquiry).outcome == "refused"
    assert outcome(federation, "north", Proposal(study.content)).outcome == "answer"


def test_a_backup_that_is_restored_answers_nothing_though_the_coordinator_hides_its_head(
    tmp_path: Path,
) -> None:
    _, _, sent = sent_in(tmp_path / "whole")
    federation = made(tmp_path / "again")
    folder, backup = federation.folder / "north", tmp_path / "backup"
    for messages in sent[:3]:
        for name, message in messages.items():
            assert outcome(federation, name, message).outcome == "answer"
    # both databases: of one alone the other knows that it is older
    backup.mkdir()
    for path in folder.glob("*.db*"):
        shutil.copy(path, backup)
    for name, message in sent[3].items():
        assert outcome(federation, name, message).outcome == "answer"
    for path in folder.glob("*.db*"):
        path.unlink()
    for path in backup.iterdir():
        shutil.copy(path, folder)
    following = read_message(public_bytes(federation.key), sent[4]["north"])
    assert isinstance(following, Inquiry)
    hidden = replace(following, head=None)
    assert outcome(federation, "north", following).outcome == "failed"
    assert outcome(federation, "north", hidden).outcome == "refused"  # it is not the next one
    again = read_message(public_bytes(federation.key), sent[3]["north"])
    assert isinstance(again, Inquiry)
    # the only answer that it can give is the one that it has given, and then it notices
    first = outcome(federation, "north", replace(again, head=None))
    given = read_response(public_bytes(federation.keys["north"]), following.posts[0])
    assert (first.value, first.transcript) == (given.value, given.transcript)
    assert first.head != given.head
    assert outcome(federation, "north", hidden).outcome == "failed"


def test_a_contribution_counts_in_its_own_exchange_alone(tmp_path: Path) -> None:
    federation, study, sent = sent_in(tmp_path)
    following = read_message(public_bytes(federation.key), sent[4]["north"])
    assert isinstance(following, Inquiry)
    own = read_response(public_bytes(federation.keys["north"]), following.posts[0])
    read_posts(study, 3, own.transcript, following.posts)
    for change in (
        {"transcript": bytes(32)},
        {"outcome": "refused"},
        {"number": 2},
        {"study": bytes(32)},
    ):
        other: Any = change
        post = write_response(federation.keys["north"], replace(own, **other))
        with pytest.raises(InputError, match="the contribution of north belongs to another"):
            read_posts(study, 3, own.transcript, (post, *following.posts[1:]))


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        ({"questions": 3}, "the study has had its 3 questions"),
        ({"until": "2001-09-09"}, "the study ended on 2001-09-09"),
    ],
)
def test_no_more_questions_and_days_than_were_approved_are_answered(
    tmp_path: Path, terms: Any, why: str
) -> None:
    whole = made(tmp_path / "whole")
    transport = Watched(whole)
    whole.coordinator(transport).run(study_of(whole, "open"))
    federation = made(tmp_path / "again")
    study = study_of(federation, "open", **terms)
    assert outcome(federation, "north", Proposal(study.content)).outcome == "answer"
    asked = [read_message(public_bytes(whole.key), each["north"]) for each in transport.sent[1:5]]
    now = noon()
    for number, each in enumerate(asked, start=1):
        assert isinstance(each, Inquiry)
        if number == 4:
            now += 86400
        site = federation.site("north", clock=lambda now=now: now)
        message = write_message(federation.key, replace(each, study=study.digest, head=None))
        response = read_response(public_bytes(federation.keys["north"]), site.reply(message))
        assert (response.outcome, response.reason) == (
            ("answer", "") if number < 4 else ("refused", why)
        )


def test_a_study_that_names_another_coordinator_is_refused(tmp_path: Path) -> None:
    federation = made(tmp_path)
    stranger = public_bytes(Ed25519PrivateKey.generate()).hex()
    study = replace(study_of(federation, "secure"), coordinator=stranger)
    found = outcome(federation, "north", Proposal(study.content))
    assert (found.outcome, found.reason.partition(": ")[2]) == (
        "refused",
        "the study names another coordinator",
    )


def test_nothing_of_a_result_controls_the_terminal_of_an_owner(tmp_path: Path) -> None:
    federation, _, _ = sent_in(tmp_path)
    lines: list[str] = []
    third = study_of(federation, "secure", title="a third")
    site = federation.site("north", watch=lines.append)
    site.reply(write_message(federation.key, Proposal(third.content)))
    result = "done\x1b[2J\rx\n12:00:00 it waits for your decision: sh" + "y" * 10**6
    site.reply(write_message(federation.key, Ending(third.digest, result)))
    assert "done\ufffd[2J\ufffdx" in lines[-1]
    assert len(lines[-1]) < 110_000
    assert all(line.startswith("  | ") for line in lines[-1].split("\n")[1:])
    assert "\x1b" not in "".join(entry.detail for entry, _ in site.log())


# ---------------------------------------------------------------------- any bytes


@pytest.mark.parametrize("seed", range(6))
def test_no_change_of_a_message_gets_another_answer_than_the_message(
    tmp_path: Path, seed: int
) -> None:
    _, _, sent = sent_in(tmp_path / "whole")
    federation = made(tmp_path / "again", refusals_before_halt=10**6)
    rng = random.Random(seed)
    for messages in sent[:5]:
        name = rng.choice(federation.names)
        site = federation.site(name, clock=noon)
        before = site.record.head()
        for _ in range(15):
            response = read_response(
                public_bytes(federation.keys[name]), site.reply(mutated(messages[name], rng))
            )
            assert response.outcome == "failed"
            assert "\n" not in response.reason
        assert site.record.head() == before  # nobody's bytes leave no trace
        signed = read_message(public_bytes(federation.key), messages[name])
        if isinstance(signed, Inquiry) and messages is sent[4]:
            for _ in range(30):
                changed = replace(signed, question=mutated(signed.question, rng))
                if changed.question == signed.question:
                    continue
                found = outcome(federation, name, changed)
                if found.outcome == "answer":  # the last digits of a point were changed
                    same = [decode_request(e.question)._replace(key="") for e in (signed, changed)]
                    assert agrees(*same)
                    return
                assert found.outcome in ("refused", "failed")
        for each, message in messages.items():
            assert outcome(federation, each, message).outcome == "answer"


@pytest.mark.parametrize("seed", range(4))
def test_a_file_with_anything_wrong_in_it_is_one_line_and_changes_nothing(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    federation = made(tmp_path)
    study = study_of(federation, "secure")
    post = federation.folder / "post"

    def ask() -> Any:
        transport = FileTransport(post, federation.key, federation.members)
        return federation.coordinator(transport).run(study)

    for _ in range(3):
        assert isinstance(ask(), Interruption)
        for name in federation.names:
            for question in (post / name).glob("*.question"):
                whole = question.read_bytes()
                if question.with_suffix(".answer").exists():
                    continue
                for _ in range(8):
                    question.write_bytes(bad := mutated(whole, rng))
                    if bad == whole:
                        continue
                    with pytest.raises(InputError) as error:
                        answer_files(federation.site(name), federation.keys[name], post / name)
                    assert str(question) in str(error.value)
                    assert "\n" not in str(error.value)
                question.write_bytes(whole)
            answer_files(federation.site(name), federation.keys[name], post / name)
        for answer in sorted(post.rglob("*.answer"))[-2:]:
            whole = answer.read_bytes()
            answer.write_bytes(mutated(whole, rng))
            if answer.read_bytes() != whole and answer.stat().st_mtime:
                said = []
                try:
                    ask()
                except InputError as wrong:
                    said.append(str(wrong))
                assert all(str(answer) in each and "\n" not in each for each in said)
            answer.write_bytes(whole)
    found = federation.by_files(study)
    assert isinstance(found, StudyResult)


def test_a_file_that_is_no_question_keeps_nobody_from_answering_the_others(tmp_path: Path) -> None:
    federation = made(tmp_path, message=2**20)
    study = study_of(federation, "secure")
    post = federation.folder / "post"
    transport = FileTransport(post, federation.key, federation.members)
    federation.coordinator(transport).run(study)
    (post / "north" / "000.question").write_bytes(b"of somebody else")
    with (post / "north" / "001.question").open("wb") as file:
        file.truncate(2**40)  # nobody reads a terabyte
    with pytest.raises(InputError, match=r"000\.question: is no sealed message"):
        answer_files(federation.site("north"), federation.keys["north"], post / "north")
    (post / "north" / "000.question").unlink()
    with pytest.raises(InputError, match=r"001\.question: is larger than any question"):
        answer_files(federation.site("north"), federation.keys["north"], post / "north")
    [answer] = (post / "north").glob("*.answer")
    with answer.open("r+b") as file:
        file.truncate(2**40)
    with pytest.raises(InputError, match="is larger than any answer to this question"):
        federation.coordinator(transport).run(study)


@pytest.mark.parametrize("other", [5.0, -np.inf, np.nan])
@pytest.mark.parametrize("own", [np.inf, np.nan, 0.0, 1.0])
def test_a_number_that_is_infinite_or_none_agrees_with_itself_alone(
    own: float, other: float
) -> None:
    assert agrees(own, own)
    assert agrees(np.array([own, 2.0]), np.array([own, 2.0 + 1e-12]))
    if own == own or other == other:
        assert not agrees(own, other)
        assert not agrees(np.array([own, 2.0]), np.array([other, 2.0]))
        assert not agrees(np.array([own, 2.0]), np.array([own, other]))


def test_what_a_member_adds_to_a_sum_ends_the_study_in_one_line(tmp_path: Path) -> None:
    for number in (1, 3, 5, 7):
        for first in (True, False):  # of the numbers, which counts those that do not fit
            federation = made(tmp_path / f"{number}{first}")

            def noise(r: Response, number: int = number, first: bool = first) -> Response:
                beginning = b"" if first else r.value[:32]
                random_ = random.Random(number).randbytes(len(r.value) - len(beginning))
                return replace(r, value=beginning + random_) if r.number == number else r

            transport = Watched(federation, west=lying(federation, "west", 1, noise))
            study, line = study_of(federation, "secure"), ""
            try:
                federation.coordinator(transport, patience=AT_ONCE).run(study)
            except (InputError, TooFewClients, fs.Diverged, fs.NoMinimiser) as error:
                line = str(error)
            assert "\n" not in line
            assert not any(f"{name}:" in line for name in ("north", "south"))
            if first:
                assert "these are no sums: a client has added something else" in line


def test_every_test_that_the_table_of_threats_names_is_there() -> None:
    here = Path(__file__).parent
    table = (here.parent / "docs" / "secure.md").read_text(encoding="utf-8")
    tests = "".join(path.read_text(encoding="utf-8") for path in here.glob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", table):
        assert f"def {name}(" in tests, name
