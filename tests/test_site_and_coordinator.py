"""Studies between organisations: a coordinator, sites, and what is recorded at both ends."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import fedsplit as fs
from fedsplit.channels.patience import Patience
from fedsplit.errors import InputError, StateError, TooFewClients
from fedsplit.federation.coordinator import Interruption, StudyResult
from fedsplit.federation.database import Database
from fedsplit.federation.messages import Response, read_response, write_response
from fedsplit.federation.regression import ANALYSES
from fedsplit.federation.site.policy import policy_of
from fedsplit.federation.study import Study, read_study
from fedsplit.federation.transport import Unreachable
from fedsplit.federation.transport.direct import DirectTransport
from fedsplit.testing import Federation

FORMULA = "visits ~ age + smoker + C(region)"
TYPES = {"visits": "number", "age": "number", "smoker": "number", "region": "text"}
SECURE: dict[str, Any] = {"types": TYPES, "levels": {"region": ["east", "north", "west"]}}


def hospital(seed: int, n: int = 80) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.normal(50, 12, n).round(1)
    smoker = rng.integers(0, 2, n)
    region = rng.choice(["east", "north", "west"], n)
    mean = np.exp(0.2 + 0.015 * age + 0.3 * smoker - 0.2 * (region == "west"))
    return pd.DataFrame(
        {"visits": rng.poisson(mean), "age": age, "smoker": smoker, "region": region}
    )


BRIEF = Patience(round_timeout=0.05, give_up=0.05)

TABLES = {name: hospital(seed) for seed, name in enumerate(("north", "south", "west"))}


def made(folder: Path, **policy: Any) -> Federation:
    return Federation(folder, TABLES, secure_sums_only=False, seed=1, **policy)


def study_of(federation: Federation, mode: str, **terms: Any) -> Study:
    if mode == "open":
        return federation.regression(FORMULA, family="poisson", secure=False, **terms)
    if mode == "secure":
        return federation.regression(FORMULA, family="poisson", secure=True, **SECURE, **terms)
    privacy = fs.Privacy(epsilon=1.0, delta=1e-5, clip=3.0, rounds=3)
    return federation.regression(
        "smoker ~ age + C(region)",
        family="logistic",
        secure=False,
        types={name: kind for name, kind in TYPES.items() if name != "visits"},
        levels={**SECURE["levels"], "smoker": ["0", "1"]},
        dp=privacy,
        **terms,
    )


def result_of(federation: Federation, study: Study, **chosen: Any) -> Any:
    found = federation.run(study, **chosen)
    assert isinstance(found, StudyResult), found
    return found.result


@pytest.fixture(scope="module")
def pooled() -> Any:
    return fs.fit(dict(TABLES), FORMULA, family="poisson")


@pytest.mark.parametrize("mode", ["open", "secure"])
@pytest.mark.parametrize("carried", ["direct", "files"])
def test_a_study_has_the_pooled_table(tmp_path: Path, pooled: Any, mode: str, carried: str) -> None:
    federation = made(tmp_path)
    study = study_of(federation, mode)
    run = federation.run if carried == "direct" else federation.by_files
    found = run(study)
    assert isinstance(found, StudyResult)
    assert list(found.result.params.index) == list(pooled.params.index)
    assert np.abs((found.result.params - pooled.params) / pooled.bse).max() < 1e-9
    assert np.allclose(found.result.bse, pooled.bse, rtol=1e-7)


@pytest.mark.parametrize("mode", ["open", "secure"])
def test_a_study_has_the_same_bits_by_files_and_resumed_after_every_exchange(
    tmp_path: Path, mode: str
) -> None:
    bits = []
    for carried in ("direct", "files", "resumed"):
        federation = made(tmp_path / carried)
        study = study_of(federation, mode)
        if carried == "resumed":
            found = resumed(federation, study)
        else:
            run = federation.run if carried == "direct" else federation.by_files
            found = run(study)
        assert isinstance(found, StudyResult)
        bits.append(found.result.params.to_numpy().tobytes())
    assert bits[0] == bits[1] == bits[2]


def resumed(federation: Federation, study: Study) -> Any:
    """Run a study by coordinators and sites that end after each exchange."""

    class Ends(Exception):
        pass

    class Once(DirectTransport):
        left = 2  # the one that is open and its successor

        def exchange(self, messages: Mapping[str, bytes], seconds: float, largest: int) -> Any:
            self.left -= 1
            if not self.left:
                list(super().exchange(messages, seconds, largest))  # replies that nobody records
                raise Ends
            return super().exchange(messages, seconds, largest)

    for _ in range(60):
        transport = Once({name: federation.site(name).reply for name in federation.names})
        try:
            return federation.coordinator(transport).run(study)
        except Ends:
            continue
    raise AssertionError("no end")


def test_every_site_counts_each_question_once(tmp_path: Path) -> None:
    federation = made(tmp_path)
    study = study_of(federation, "secure")
    found = resumed(federation, study)
    for name in federation.names:
        assert federation.site(name).record.count("answer") == found.questions


# ---------------------------------------------------------------------- faults


class Stopped(BaseException):
    """The process is killed."""


@contextmanager
def stopping(
    monkeypatch: pytest.MonkeyPatch, folder: Path, at: int, how: str
) -> Iterator[list[int]]:
    """Fail at one of the statements that change the databases of a folder."""
    count = [0]
    execute = Database.execute

    def failing(self: Database, statement: str, *values: Any) -> Any:
        if not self.path.is_relative_to(folder) or statement.startswith(("SELECT", "PRAGMA")):
            return execute(self, statement, *values)
        count[0] += 1
        if count[0] != at:
            return execute(self, statement, *values)
        if how == "full":
            raise StateError(f"{self.path}: cannot be used (database or disk is full)")
        if how == "after":
            execute(self, statement, *values)
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(Database, "execute", failing)
        yield count


Mode = Literal["open", "secure", "noise", "files"]


def run_of(federation: Federation, mode: Mode) -> Any:
    """The result of a study, or None if it is not complete."""
    study = study_of(federation, "secure" if mode == "files" else mode)
    return federation.by_files(study) if mode == "files" else federation.run_once(study)


def bits_of(found: StudyResult, mode: Mode) -> bytes:
    """What has to be the same in every run: noise that was not sent is drawn anew."""
    if mode == "noise":
        return b""
    bits: bytes = found.result.params.to_numpy().tobytes()
    return bits


def reference(
    tmp_path: Path, mode: Mode, who: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[StudyResult, int]:
    """An undisturbed run, and the statements that change the databases of a folder."""
    federation = made(tmp_path / "undisturbed")
    with stopping(monkeypatch, federation.folder / who, -1, "") as count:
        found = run_of(federation, mode)
    assert isinstance(found, StudyResult)
    return found, count[0]


@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("who", ["north", "coordinator"])
@pytest.mark.parametrize("how", ["before", "after", "full"])
@pytest.mark.parametrize("tried", ["some", pytest.param("all", marks=pytest.mark.slow)])
def test_a_process_that_stops_at_any_write_leaves_a_study_with_the_same_bits_that_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, who: str, how: str, tried: str
) -> None:
    undisturbed, writes = reference(tmp_path, mode, who, monkeypatch)
    step = {"some": writes // 7 + 1, "all": 1}[tried]
    for at in range(1 + len(how) + len(mode), writes + 1, step):
        federation = made(tmp_path / f"{how}{at}")
        with stopping(monkeypatch, federation.folder / who, at, how):
            try:
                found = run_of(federation, mode)
            except (Stopped, InputError):  # the latter is a line for whoever started it
                found = None
        if not isinstance(found, StudyResult):
            found = run_of(federation, mode)
        assert isinstance(found, StudyResult), (at, found)
        assert bits_of(found, mode) == bits_of(undisturbed, mode), at
        for name in federation.names:
            site = federation.site(name)
            assert site.record.count("answer") == undisturbed.questions, at
            assert site.record.first_wrong_entry() == 0
            if mode == "noise":
                assert site.spent() == (1.0, 1e-5)
        shutil.rmtree(federation.folder)


def test_a_database_that_was_restored_from_a_backup_answers_nothing(tmp_path: Path) -> None:
    federation = made(tmp_path)
    result_of(federation, study_of(federation, "open"))
    site = federation.folder / "north"
    backup = tmp_path / "backup.db"
    with sqlite3.connect(site / "site.db") as source, sqlite3.connect(backup) as target:
        source.backup(target)
    result_of(federation, study_of(federation, "open", title="another one"))
    for each in site.glob("site.db*"):
        each.unlink()
    shutil.copy(backup, site / "site.db")
    (site / "site.db").chmod(0o600)
    lines: list[str] = []
    transport = federation.direct(watch=lines.append)
    study = study_of(federation, "open", title="a third one")
    found = federation.coordinator(transport).run(study)
    assert isinstance(found, Interruption)
    assert list(found.missing) == ["north"]  # which has not even joined
    assert any("restored from a backup" in line for line in lines)


# ---------------------------------------------------------------------- malicious ends


def test_a_site_that_answers_an_absurd_number_is_named(tmp_path: Path) -> None:
    federation = made(tmp_path)
    study = study_of(federation, "open")
    transport = federation.direct()
    reply = transport._sites["west"]

    def absurd(message: bytes) -> bytes:
        response = read_response(bytes.fromhex(federation.members["west"]), reply(message))
        value = response.value
        if response.number > 1:  # the last number of the moments
            value = value[:-8] + np.array([1e200]).tobytes()
        changed = Response(
            response.study,
            response.number,
            response.outcome,
            value,
            head=response.head,
            transcript=response.transcript,
        )
        return write_response(federation.keys["west"], changed)

    transport._sites["west"] = absurd
    patience = Patience(round_timeout=0.05, give_up=0.05)
    coordinator = federation.coordinator(transport, patience=patience)
    with pytest.raises(TooFewClients, match=r"west \(an answer with a number of 1e\+200"):
        coordinator.run(study)
    # the site is mended, and the run goes on
    found = federation.run(study)
    assert isinstance(found, StudyResult)


@settings(
    max_examples=8,
    phases=(Phase.explicit, Phase.generate),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    outcome=st.sampled_from(["answer", "waiting", "refused", "failed"]),
    reason=st.text(max_size=200)
    | st.sampled_from(["enough\nnorth: left\nsouth: left", "north 9:ab"]),
    value=st.binary(max_size=64),
    raw=st.none() | st.binary(max_size=200),
    number=st.integers(0, 5),
)
@example(outcome="refused", reason="gone\nnorth: left", value=b"", raw=None, number=2)
@example(outcome="failed", reason="client north: it died", value=b"", raw=None, number=1)
def test_whatever_a_site_replies_nothing_recorded_about_others_changes(
    tmp_path_factory: pytest.TempPathFactory,
    outcome: Any,
    reason: str,
    value: bytes,
    raw: bytes | None,
    number: int,
) -> None:
    federation = made(tmp_path_factory.mktemp("federation"), least_sites=1)
    study = study_of(federation, "open", least=2)
    transport = federation.direct()
    honest = transport._sites["west"]

    def lying(message: bytes) -> bytes:
        response = read_response(bytes.fromhex(federation.members["west"]), honest(message))
        if response.number <= number:
            return write_response(federation.keys["west"], response)
        if raw is not None:
            return raw
        return write_response(
            federation.keys["west"],
            Response(study.digest, response.number, outcome, value, reason=reason),
        )

    transport._sites["west"] = lying
    patience = Patience(round_timeout=0.01, give_up=0.01)
    coordinator = federation.coordinator(transport, patience=patience)
    found = coordinator.run(study)
    assert isinstance(found, StudyResult)
    model = found.result
    assert set(model.run.removed) <= {"west"}
    assert {each.client for each in model.run.incidents} <= {"west"}
    for name in ("north", "south"):
        head = federation.site(name).record.head()
        answered = [each for each in federation.site(name).record.log() if each.event == "answer"]
        assert found.heads[name].number == answered[-1].number
        assert head.number >= found.heads[name].number
        last = found.heads[name]
        assert model.run.logs[name] == f"{last.number}:{last.hash.hex()}"


def test_in_a_secure_study_the_coordinator_cannot_choose_a_question(tmp_path: Path) -> None:
    from fedsplit.federation.messages import Inquiry, read_message, write_message
    from fedsplit.federation.questions import decode_request, encode_request

    federation = made(tmp_path)
    study = study_of(federation, "secure")
    coordinator_key = bytes.fromhex(study.coordinator)
    for change in ("point", "question", "skip"):
        transport = federation.direct()
        honest = dict(transport._sites)

        def chosen(message: bytes, name: str, change: str = change, honest: Any = honest) -> bytes:
            asked = read_message(coordinator_key, message)
            if isinstance(asked, Inquiry) and asked.number == 4:
                request = decode_request(asked.question)
                if change == "point":
                    question: Any = request.question
                    x = question.x
                    moved = x + 1e-8 * np.max(np.abs(x)) * (np.arange(len(x)) == 0)
                    request = request._replace(question=replace(question, x=moved))
                number = asked.number + (change == "skip")
                if change == "question":
                    request = request._replace(m=2)
                question = encode_request(request)
                asked = Inquiry(asked.study, number, question, asked.posts, asked.head)
                message = write_message(federation.key, asked)
            reply: bytes = honest[name](message)
            return reply

        for name in federation.names:
            transport._sites[name] = lambda message, name=name: chosen(message, name)  # type: ignore[misc]
        with pytest.raises((InputError, TooFewClients), match=r"another|next one|sums are"):
            federation.coordinator(transport, patience=BRIEF).run(study)


# ---------------------------------------------------------------------- owners


def test_a_study_waits_for_its_owners_and_can_be_declined(tmp_path: Path) -> None:
    federation = made(tmp_path, approve="ask")
    study = study_of(federation, "secure")
    found = federation.run(study)
    assert isinstance(found, Interruption)
    assert set(found.missing) == set(federation.names)
    # who asks nobody reads in the journal what was heard last
    looked = federation.coordinator(Unreachable()).run(study)
    assert isinstance(looked, Interruption)
    assert set(looked.missing.values()) == {"waits for its owner's decision"}
    for name in ("north", "south"):
        federation.site(name).approve(study.hash[:10])
    found = federation.run(study)
    assert isinstance(found, Interruption)
    assert set(found.missing) == {"west"}
    federation.site("west").decline(study.hash)
    with pytest.raises(TooFewClients, match="west does not take part"):
        federation.run(study)
    looked = federation.coordinator(Unreachable()).run(study)
    assert isinstance(looked, Interruption)
    assert "declined" in looked.missing["west"]
    federation.site("west").approve(study.hash)
    assert isinstance(federation.run(study), StudyResult)
    with pytest.raises(InputError, match="nobody chooses"):
        federation.run(study, method="fedsplit")


def test_the_coordinator_says_once_whose_decision_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = made(tmp_path, approve="ask")
    study = study_of(federation, "secure")
    said: list[str] = []
    pauses = []

    def decide(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            for name in federation.names:
                federation.site(name).approve(study.hash)

    coordinator = federation.coordinator(federation.direct(), wait=60.0, watch=said.append)
    with monkeypatch.context() as patch:
        patch.setattr("fedsplit.federation.coordinator.time.sleep", decide)
        found = coordinator.run(study)
    assert len(pauses) == 3
    assert isinstance(found, StudyResult)
    for name in federation.names:
        assert said.count(f"{name}: waits for its owner's decision") == 1
        assert said.count(f"{name} has joined") == 1


def test_a_site_is_strict_without_a_word_about_it(tmp_path: Path) -> None:
    federation = Federation(tmp_path, TABLES)
    study = study_of(federation, "open")
    with pytest.raises(TooFewClients, match="secure_sums_only"):
        federation.run(study)


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"least_row": 3}, "there is no key 'least_row': did you mean least_rows"),
        ({"least_rows": "three"}, "least_rows: expected `int`, got `str`"),
        ({"approve": "never"}, "approve: 'never' is none of ask, always"),
        ({"coordinator": "12"}, "the key of coordinator must be 64"),
        ({"families": ["poison"]}, "families: poison is none of"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_one_line(keys: dict[str, object], what: str) -> None:
    own = {"name": "north", "data": "rows.csv", "coordinator": "a" * 64}
    with pytest.raises(InputError, match=r"site\.toml: ") as error:
        policy_of({**own, **keys}, "site.toml")
    assert what in str(error.value)
    assert "\n" not in str(error.value)


def test_a_study_has_one_form_and_no_other_is_read(tmp_path: Path) -> None:
    study = study_of(made(tmp_path), "secure")
    assert read_study(study.content, ANALYSES) == study
    for content in (
        study.content + b" ",
        study.content.replace(b'"secure":true', b'"secure":false,"x":1'),
        study.content.replace(b"regression", b"expression"),
        study.content.replace(b"poisson", b"poison"),
        b"[]",
        b"\xff",
    ):
        with pytest.raises(InputError):
            read_study(content, ANALYSES)


def test_one_file_in_two_folders_has_one_ledger(tmp_path: Path) -> None:
    federation = made(tmp_path)
    result_of(federation, study_of(federation, "open"))
    name = federation.site("north").studies()[0].copy
    known = federation.site("north").disclosed.copy(name)
    assert known is not None
    before = len(federation.site("north").disclosed.ledger(known))
    assert before > 3
    # another federation, whose site serves a file with the same rows and one more
    more = pd.concat([TABLES["north"], hospital(9, 5)], ignore_index=True)
    other = Federation(
        tmp_path / "other",
        {**TABLES, "north": more},
        secure_sums_only=False,
        disclosed=tmp_path / "north" / "disclosed.db",
    )
    result_of(other, study_of(other, "open"))
    site = other.site("north")
    copy = site.disclosed.copy(site.studies()[0].copy)
    assert copy is not None
    assert copy.family == known.family
    assert set(known.ids) < set(copy.ids)
    assert len(site.disclosed.ledger(copy)) > before
