"""A study: what is in it, who approves it, and what a server can ask for beside it."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedsplit as fs
from fedsplit.channels import codec
from fedsplit.channels.channel import Request
from fedsplit.clients.question import Question
from fedsplit.clients.questions import Descend, Gradient
from fedsplit.commands.studies import approvals
from fedsplit.data.pooled.column_statistics import ColumnMoments
from fedsplit.data.tables import Source
from fedsplit.data.types import Type
from fedsplit.errors import InputError, TooFewClients
from fedsplit.regression.client.coding import Coding, Frame
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.regression.client.plan import BasicPlan, DerivedColumn, Plan
from fedsplit.regression.client.questions import Settle
from fedsplit.regression.client.survey import Joint
from fedsplit.regression.options import FitOptions
from fedsplit.remote.issuing import make_keys
from fedsplit.remote.messages import Signature, read_reply, write_request
from fedsplit.remote.signatures import Signer
from fedsplit.sites.log.exchange_log import NOT_LOGGED
from fedsplit.sites.options import SiteOptions
from fedsplit.sites.refusals import REFUSED, Refusals
from fedsplit.sites.service import Site
from fedsplit.sites.studies.local_view import complete_rows
from fedsplit.sites.studies.proposal import Decision, Finish, Propose
from fedsplit.sites.studies.proposing import whole_formula
from fedsplit.sites.studies.store import Studies
from fedsplit.sites.studies.study import Study
from owners import DRAFT, NAMES, Federation, survey, with_tables
from sum_questions import ask_arguments, ask_moments
from test_service import FORMULA, table


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return with_tables(tmp_path)


def refusal(federation: Federation, study: Study, signature: Signature | None = None) -> str:
    if signature is None:
        signature = federation.signer.sign(study.canonical)
    reply = federation.ask(Propose(study.canonical.decode(), signature))
    assert reply.outcome == "refused"
    assert "\n" not in reply.text
    return reply.text


def test_an_approved_study_gives_the_bits_of_one_process(folder: Path) -> None:
    federation = Federation(folder, "always")
    study = federation.study(ridge=0.5)
    assert federation.propose(study).state == "approved"
    federation.approve(study)
    there = federation.fit(study, ridge=0.5)
    here = fs.fit([folder / f"{name}.csv" for name in NAMES], FORMULA, family="poisson", ridge=0.5)
    assert np.array_equal(here.params, there.params)
    assert here.rounds == there.rounds
    assert set(there.run.logs) == set(NAMES)


def test_the_hash_is_that_of_one_canonical_form(folder: Path) -> None:
    study = Federation(folder).study()
    plain = json.dumps(
        json.loads(study.canonical), sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    assert study.canonical == plain.encode()
    assert study.hash == Federation(folder).study().hash
    for other in (
        replace(study, family="gaussian"),
        replace(study, points=1),
        replace(study, members={**study.members, "d": "00"}),
    ):
        assert other.hash != study.hash


def test_before_approval_nothing_about_the_data_leaves(folder: Path) -> None:
    federation = Federation(folder)
    study = federation.study()
    for hash_ in ("", study.hash, "0" * 64, "../a"):
        reply = federation.ask(survey(), hash_)
        assert (reply.outcome, reply.value) == ("refused", None)
        assert "secret" not in reply.text
    assert federation.propose(study) == Decision(study.hash, "pending")
    reply = federation.ask(survey(), study.hash)
    assert "has not approved" in reply.text
    assert "60 of 60 rows" in federation.words(study)  # for the owner alone


def test_a_study_waits_for_its_owner_and_decisions_outlive_the_client(folder: Path) -> None:
    federation = Federation(folder)
    study = federation.study()
    known: list[Mapping[str, Decision]] = []
    waits = iter(NAMES)

    def people() -> None:
        name = next(waits)
        federation.studies(name).decide(study.hash, "approved", "test")
        federation.start()

    federation.proposal(study).wait(NAMES, lambda now, _: known.append(now), people)
    assert [sum(each.state == "approved" for each in now.values()) for now in known] == [0, 1, 2, 3]
    assert federation.fit(study).converged
    assert oct((folder / "kept a" / "studies" / study.hash).stat().st_mode)[-3:] == "700"
    for path in (folder / "kept a" / "studies" / study.hash).iterdir():
        assert oct(path.stat().st_mode & 0o077) == "0o0", path


def test_the_coordinator_reads_why_a_client_has_not_answered(folder: Path) -> None:
    federation = Federation(folder, "always")
    proposal = federation.proposal(federation.study())
    (folder / "kept a" / "unanswered").write_text("?", encoding="utf-8")
    seen: list[str] = []

    def mended() -> None:
        (folder / "kept a" / "unanswered").unlink()

    proposal.wait(NAMES, lambda known, why: seen.append(approvals(known, why, NAMES)), mended)
    assert seen == [
        f"approved by 2 of 3; no answer from a ({NOT_LOGGED})",
        "approved by 3 of 3",
    ]


def test_an_owner_who_declines_ends_the_run_and_may_withdraw_later(folder: Path) -> None:
    federation = Federation(folder, "always")
    study = federation.study()
    federation.approve(study)
    federation.studies("b").decide(study.hash, "declined", "test")
    with pytest.raises(InputError, match="client b: its owner declined the study"):
        federation.fit(study)
    with pytest.raises(TooFewClients, match="client b declined the study"):
        federation.approve(study)


def test_one_study_can_be_approved_by_its_hash(folder: Path) -> None:
    study = Federation(folder).study()
    federation = Federation(folder, f"{study.hash[:4]} {study.hash[4:]}")
    assert federation.propose(study).state == "approved"
    assert federation.propose(federation.study(ridge=1.0)).state == "pending"


@pytest.fixture
def approved(folder: Path) -> tuple[Federation, Study]:
    federation = Federation(folder, "always")
    study = federation.study()
    federation.approve(study)
    return federation, study


NUMBERS: dict[str, Type] = {"y": "number", "x": "number"}

PLAN = Plan(
    FORMULA,
    "poisson",
    {"ward": ["east", "north", "west"]},
    {"y": "number", "x": "number", "ward": "text"},
)


SECRET = DerivedColumn(
    BasicPlan("y ~ secret", "poisson", types={"y": "number", "secret": "number"}), (0.0, 1.0)
)


@pytest.mark.parametrize(
    ("question", "what"),
    [
        (survey(replace(DRAFT, formula="y ~ secret")), "in its formula"),
        (survey(replace(DRAFT, formula="y ~ .")), "in its formula"),
        (survey(replace(DRAFT, family="gaussian")), "in its family"),
        (survey(replace(DRAFT, weights="secret")), "in its weights"),
        (survey(replace(DRAFT, types={"x": "text"})), "in its types"),
        (survey(replace(DRAFT, others=("secret",))), "in its columns"),
        (survey(replace(DRAFT, derived={"p": SECRET})), "in its derived columns"),
        (survey(replace(PLAN, types={**PLAN.types, "secret": "number"})), "in its columns"),
        (ask_moments(Coding(replace(PLAN, formula="y ~ secret"), False, ("a",))), "in its formula"),
        (ask_moments(Coding(replace(PLAN, family="logistic"), False, ("a",))), "in its family"),
        (ask_moments(Coding(replace(PLAN, offset="x"), False, ("a",))), "in its offset"),
        (Descend(np.zeros(4), 0.1, 2), "has no question descend"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_in_the_approved_study_is_refused(
    approved: tuple[Federation, Study], question: Question, what: str
) -> None:
    federation, study = approved
    reply = federation.ask(question, study.hash)
    assert reply.outcome == "refused"
    assert what in reply.text


@pytest.mark.parametrize("categories", [(), ("x",)])
def test_numbers_are_not_told_as_levels_of_a_category(
    approved: tuple[Federation, Study], categories: tuple[str, ...]
) -> None:
    federation, study = approved
    types: dict[str, Type] = {**PLAN.types, "x": "number" if categories else "text"}
    plan = replace(PLAN, types=types, categories=categories)
    reply = federation.ask(survey(plan), study.hash)
    assert "column x is no category here: write C(x)" in reply.text
    plan = replace(PLAN, types=types, levels={**PLAN.levels, "x": ["1.0"]})
    reply = federation.ask(ask_moments(Coding(plan, False, ("a",))), study.hash)
    assert "column x is no category here" in reply.text
    assert federation.fit(study).converged  # what the study says is answered


def test_the_parts_of_a_joint_question_are_admitted_and_counted_one_by_one(folder: Path) -> None:
    federation = Federation(folder, "always")
    study = federation.study("y ~ scale(x)")
    federation.approve(study)
    draft = replace(DRAFT, formula="y ~ scale(x)")
    first, coding = survey(draft), Coding(draft, False, ("a",))
    measure = ask_arguments(coding, {"scale(x)": ColumnMoments()})
    reply = federation.ask(Joint({"columns": first, "states": measure}), study.hash)
    assert reply.outcome == "answer", reply.text
    assert federation.seen[-1].asked == 2
    assert federation.seen[-1].text.startswith("survey and rows_inside and of_argument, ")
    assert federation.ask(first, study.hash).value == reply.value["columns"]
    assert federation.seen[-1].asked == 2  # which was answered before
    strange = ask_arguments(replace(coding, plan=replace(draft, formula="y ~ scale(secret)")), {})
    reply = federation.ask(Joint({"columns": first, "states": strange}), study.hash)
    assert "in its formula" in reply.text
    other = ask_arguments(replace(coding, names=("b",)), {})
    reply = federation.ask(Joint({"columns": first, "states": other}), study.hash)
    assert "it is a, but was asked as b" in reply.text


def test_names_of_other_columns_never_leave(approved: tuple[Federation, Study]) -> None:
    federation, study = approved
    reply = federation.ask(survey(), study.hash)
    assert reply.outcome == "answer", reply.text
    told = reply.value
    assert list(told[0].profiles) == ["y", "x", "ward"]
    assert set(told[0].names) == {"y", "x", "ward"}


def test_what_was_prepared_for_one_study_answers_no_question_of_another(
    approved: tuple[Federation, Study],
) -> None:
    federation, study = approved
    federation.fit(study)
    [frame] = (federation.folder / "kept a" / "prepared").glob("*/*.frame")
    point = Gradient(np.zeros(4))
    assert federation.ask(point, study.hash, frame.stem).outcome == "answer"
    other = federation.study("y ~ x")
    assert federation.propose(other).state == "approved"
    federation.start()
    reply = federation.ask(point, other.hash, frame.stem)
    assert "from the approved study in its formula" in reply.text
    coding, settled = codec.decode(tuple[Coding, Frame], frame.read_bytes())
    reply = federation.ask(Settle(coding, replace(settled, spread=9.0)), study.hash)
    assert "in its deviation of the residuals" in reply.text


def test_a_study_has_only_so_many_questions_and_the_same_one_again_is_none(
    approved: tuple[Federation, Study],
) -> None:
    federation, _ = approved
    study = replace(federation.study(), questions={**federation.study().questions, "gradient": 2})
    federation.approve(study)
    federation.fit(study)
    [frame] = (federation.folder / "kept a" / "prepared").glob("*/*.frame")
    for k in (0, 1, 0, 1):
        reply = federation.ask(Gradient(np.full(4, 0.1 * k)), study.hash, frame.stem)
        assert reply.outcome == "answer"
    federation.start()
    reply = federation.ask(Gradient(np.ones(4)), study.hash, frame.stem)
    assert "has 2 questions gradient, and all of them were asked" in reply.text
    assert federation.ask(Gradient(np.zeros(4)), study.hash, frame.stem).outcome == "answer"


def test_a_study_that_is_forged_or_changed_is_refused_in_one_line(folder: Path) -> None:
    federation = Federation(folder, "always")
    study = federation.study()
    signed = federation.signer.sign(study.canonical)
    make_keys(folder / "theirs", NAMES, ["127.0.0.1"], 2)
    stranger = Signer(folder / "theirs")
    theirs = replace(study, coordinator=stranger.fingerprint)
    removed = replace(study, members={"b": study.members["b"]}, least=1)
    swapped = replace(study, members={**study.members, "a": study.members["b"]})
    assert "is not signed" in refusal(federation, study, Signature())
    assert "does not belong" in refusal(federation, replace(study, points=9), signed)
    assert "another CA" in refusal(federation, theirs, stranger.sign(theirs.canonical))
    assert "names another coordinator" in refusal(
        federation, theirs, federation.signer.sign(theirs.canonical)
    )
    assert "not among the members" in refusal(federation, removed)
    assert "another key of this client" in refusal(federation, swapped)
    assert "protocol 4" in refusal(federation, replace(study, protocol=4))
    assert "secure sums" in refusal(federation, replace(study, secure=True))
    assert "unknown family" in refusal(federation, replace(study, family="cauchy"))
    assert "'.' in it" in refusal(federation, replace(study, formula="y ~ ."))
    fewer = replace(study, columns=dict(list(study.columns.items())[1:]))
    assert "but its model uses" in refusal(federation, fewer)
    assert not federation.studies().hashes()


@pytest.mark.parametrize("text", ["", "[]", "{", "{}", "null", '{"protocol": 5}', "x" * 2**21])
def test_whatever_is_not_a_study_is_refused(folder: Path, text: str) -> None:
    federation = Federation(folder, "always")
    reply = federation.ask(Propose(text, Signature()))
    assert reply.outcome == "refused"
    assert len(reply.text) < 300


@pytest.mark.parametrize(
    "change",
    [
        {"predictor": float("inf")},
        {"predictor": float("nan")},
        {"points": -1},
        {"points": 1.5},
        {"questions": {"gradient": -5}},
        {"questions": {"rows": 1}},
        {"options": {}},
        {"least": 9},
        {"members": []},
        {"formula": 7},
        {"formula": "y ~ \ud800"},
        {"formula": "y ~ (" + " + ".join(f"x{k}" for k in range(40)) + ")^12"},
        {"columns": {"y": "as read"}},
    ],
    ids=lambda change: str(change)[:40],
)
def test_a_signed_study_that_cannot_be_is_refused_and_is_no_refusal_of_data(
    folder: Path, change: dict[str, object]
) -> None:
    federation = Federation(folder, "always", strict=True)
    content = json.loads(federation.study().canonical) | change
    ascii_only = not str(change.get("formula", "")).isascii()
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=ascii_only)
    reply = federation.ask(Propose(text, federation.signer.sign(text.encode())))
    assert reply.outcome == "refused"
    assert "\n" not in reply.text
    assert not federation.sites["a"].refusals.found()
    assert not federation.studies().hashes()


def test_a_study_that_is_not_in_its_canonical_form_is_refused(folder: Path) -> None:
    federation = Federation(folder, "always")
    text = json.dumps(json.loads(federation.study().canonical))
    reply = federation.ask(Propose(text, federation.signer.sign(text.encode())))
    assert "canonical form" in reply.text


def test_a_target_between_organisations_needs_its_columns() -> None:
    options = FitOptions(None, target="y")
    with pytest.raises(InputError, match="name the covariates with --columns"):
        whole_formula(options)
    assert whole_formula(replace(options, columns=["x", "a b"])).text == "y ~ x + `a b`"
    assert whole_formula(FitOptions(None, "y ~ x", columns=["x", "z"])).text == "y ~ x"


def test_the_owner_sees_the_study_what_is_sent_and_the_end(
    approved: tuple[Federation, Study],
) -> None:
    federation, study = approved
    federation.fit(study)
    assert federation.ask(Finish(True, "a table"), study.hash).value is True
    kinds = [event.kind for event in federation.seen]
    assert kinds[0] == "study"
    assert set(kinds) == {"study", "answer", "end"}
    assert federation.seen[-1].text == "a table"
    answers = [event for event in federation.seen if event.kind == "answer"]
    assert answers[0].text.startswith("survey, ")
    assert all(event.study == study.hash for event in answers)


def test_a_study_that_was_approved_without_keys_is_not_answered_with_them(folder: Path) -> None:
    federation = Federation(folder, "always")
    study = replace(federation.study(), coordinator="", members=dict.fromkeys(NAMES, ""))
    unsigned = Site(
        "a", str(folder / "a.csv"), folder=folder / "kept a", options=SiteOptions(approve="always")
    )
    propose = write_request(Request(Propose(study.canonical.decode(), Signature())))
    assert read_reply(unsigned.reply(propose), Decision, 0.0).value.state == "approved"
    reply = federation.ask(survey(), study.hash)
    assert "the study is not signed" in reply.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "\xff",
        '{"verdict": "approved", "by": "\xb9", "time": "2026-11-01T00:00:00Z"}',
        '{"verdict": "yes", "by": "", "time": "2026-11-01T00:00:00Z"}',
        '{"verdict": "approved", "by": "", "time": "2026-11-01"}',
    ],
)
def test_a_damaged_decision_is_none_for_its_study_alone(
    approved: tuple[Federation, Study], text: str
) -> None:
    federation, study = approved
    path = federation.studies().path(study.hash) / "decision.json"
    path.write_bytes(text.encode("latin-1"))
    reply = federation.ask(survey(), study.hash)
    assert "has not approved" in reply.text
    assert str(federation.folder) not in reply.text
    other = federation.study(ridge=1.0)
    assert federation.propose(other).state == "approved"
    assert federation.ask(survey(), other.hash).outcome == "answer"
    # It may have been a no: even --approve always leaves it to a person.
    assert federation.propose(study).state == "pending"
    federation.words(study)
    assert federation.studies().pending() == [study.hash]
    federation.studies().decide(study.hash, "approved", "test")
    assert federation.ask(survey(), study.hash).outcome == "answer"


def test_no_path_of_the_client_leaves_in_an_error(approved: tuple[Federation, Study]) -> None:
    federation, study = approved
    (federation.studies().path(study.hash) / "signature.json").write_text("[", encoding="utf-8")
    federation.start()
    assert federation.ask(survey(), study.hash).text == NOT_LOGGED
    assert "signature.json: cannot be read" in federation.seen[-1].text


def test_names_of_other_columns_do_not_leave_in_an_error(folder: Path) -> None:
    federation = Federation(folder, "always")
    study = federation.study("y ~ x + nowhere")
    federation.approve(study)
    types: dict[str, Type] = dict.fromkeys(["y", "x", "nowhere"], "number")
    questions: list[Question] = [
        survey(Plan("y ~ x + nowhere", "poisson", {}, types)),
        ask_moments(Coding(Plan("y ~ x + nowhere", "poisson", {}, types), False, ("a",))),
    ]
    for question in questions:
        reply = federation.ask(question, study.hash)
        assert reply.text == "client a: there is no column nowhere here"


def test_the_same_question_counts_again_once_the_rows_have_changed(
    approved: tuple[Federation, Study],
) -> None:
    federation, study = approved
    for asked, rows in enumerate((60, 59, 58), start=1):
        frame = table(0).head(rows).assign(secret=1.0)
        frame.to_csv(federation.folder / "a.csv", index=False)
        for _ in range(2):
            assert federation.ask(survey(), study.hash).value[0].counts.rows == rows
            assert federation.seen[-1].asked == asked


def test_an_approval_ends_with_the_result_of_the_study(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = Federation(folder)
    study = federation.study()
    federation.propose(study)
    federation.studies().decide(study.hash, "approved", "test")
    assert federation.ask(Finish(False, ""), study.hash).value is True  # stopped, to be resumed
    assert federation.ask(survey(), study.hash).outcome == "answer"
    assert federation.ask(Finish(True, "a table"), study.hash).value is True
    reply = federation.ask(survey(), study.hash)
    assert "has ended: propose the study again" in reply.text
    assert federation.studies().pending() == []
    assert federation.propose(study).state == "pending"
    federation.studies().decide(study.hash, "approved", "test")
    assert federation.ask(survey(), study.hash).outcome == "answer"
    assert federation.seen[-1].asked == 1  # what was asked before stays counted
    monkeypatch.setattr("fedsplit.sites.studies.store.APPROVED_DAYS", -1)
    assert "has ended" in federation.ask(survey(), study.hash).text
    assert federation.propose(study).state == "pending"


def test_members_of_a_signed_study_have_names_and_keys_of_their_own(folder: Path) -> None:
    federation = Federation(folder, "always", rules=Rules(sites=3))
    study = federation.study()
    own = study.members["a"]
    for ghosts, what in (
        ({"ghost1": "", "ghost2": ""}, "without the fingerprint of a key"),
        ({"ghost1": "x" * 64, "ghost2": "0" * 64}, "without the fingerprint of a key"),
        ({"ghost1": own, "ghost2": own}, "the same key for two"),
        ({"b\u202e\n": study.members["b"], "c": study.members["c"]}, "use letters, digits"),
    ):
        assert what in refusal(federation, replace(study, members={"a": own, **ghosts}))
    assert federation.propose(study).state == "approved"


def test_a_study_has_the_questions_that_its_options_imply_and_no_others(folder: Path) -> None:
    federation = Federation(folder, "always", rules=Rules(matrices=False))
    study = federation.study()
    for more, what in (
        (
            {"modified_score": 1000},
            "1000 questions modified_score, where its options imply at most",
        ),
        ({"descend": 1}, "1 questions descend"),
        ({"gradient": study.questions["gradient"] + 1}, "questions gradient"),
    ):
        changed = replace(study, questions={**study.questions, **more})
        assert what in refusal(federation, changed)
    assert "601 points" in refusal(federation, replace(study, points=601))
    federation.approve(study)
    federation.fit(study)
    last = federation.seen[-1]
    answered = {event.text for event in federation.seen if event.kind == "answer"}
    assert last.asked <= last.most == study.most
    assert len(answered) <= last.asked


def test_what_rules_say_of_a_study_is_said_when_it_is_proposed(folder: Path) -> None:
    federation = Federation(folder, "always", rules=Rules(refuse=True, rows=61))
    study = federation.study()
    decision = federation.propose(study)
    assert (decision.state, decision.reason) == ("declined", REFUSED)
    assert federation.seen[-1].text == "declined (least_rows: 60 rows here, fewer than 61)"
    federation = Federation(folder, "always", rules=Rules(refuse=True, studies=1))
    refused = federation.study("y ~ x + I(x >= 1.9)")
    assert federation.propose(refused).state == "approved"
    draft = replace(DRAFT, formula=refused.formula)
    coding = Coding(replace(PLAN, formula=refused.formula, levels={}, types=NUMBERS), False, ("a",))
    assert federation.ask(ask_moments(coding), refused.hash).text == f"client a: {REFUSED}"
    first = federation.study(ridge=1.0)
    assert federation.propose(first).state == "approved"  # nothing was answered of the other one
    assert federation.ask(survey(), first.hash).outcome == "answer"
    assert "allows 1 study a day" in refusal(federation, federation.study(ridge=2.0))
    assert federation.propose(first).state == "approved"
    assert "allows 1 study a day" in federation.ask(survey(draft), refused.hash).text


def test_pending_studies_are_described_one_after_the_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[int] = []

    def look(source: Source, columns: object) -> tuple[int, int]:
        running.append(sum(thread.name == "words" for thread in threading.enumerate()))
        return complete_rows(source, columns)  # type: ignore[arg-type]  # names

    monkeypatch.setattr("fedsplit.sites.studies.local_view.complete_rows", look)
    federation = Federation(folder, rules=Rules(families=("poisson",)))
    pending = [federation.study(ridge=1.0 + k) for k in range(5)]
    for study in pending:
        federation.propose(study)
        declined = replace(study, family="gaussian")
        assert federation.propose(declined).state == "declined"
    for study in pending:
        federation.words(study)
    assert running == [1] * 5


def test_declined_studies_do_not_fill_the_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsplit.sites.studies.store.MOST_DECLINED", 3)
    federation = Federation(folder, "always", rules=Rules(denied=("x",)))
    for k in range(8):
        assert federation.propose(federation.study(ridge=1.0 + k)).state == "declined"
    assert len(federation.studies().hashes()) <= 5


def test_what_an_owner_declined_is_not_forgotten_when_rules_decline_many_more(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsplit.sites.studies.store.MOST_DECLINED", 3)
    federation = Federation(folder, "always")
    study = federation.study()
    assert federation.propose(study).state == "approved"
    federation.studies().decide(study.hash, "declined", "fedsplit approve --decline")
    federation = Federation(folder, "always", rules=Rules(families=("gaussian",)))
    for k in range(8):
        assert federation.propose(federation.study(ridge=1.0 + k)).state == "declined"
    federation = Federation(folder, "always")
    assert federation.propose(study).state == "declined"


def test_what_was_answered_is_not_forgotten_when_rules_decline_many_more(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsplit.sites.studies.store.MOST_DECLINED", 3)
    federation = Federation(folder, "always", rules=Rules(families=("gaussian",)))
    study = federation.study()
    assert federation.propose(study).state == "declined"
    federation.studies().begin(study.hash, "2026-01-01")  # under the rules of that day
    for k in range(8):
        assert federation.propose(federation.study(ridge=1.0 + k)).state == "declined"
    assert study.hash in federation.studies().hashes()


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone may act for others")
def test_root_decides_and_clears_with_the_rights_of_the_clients_user(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("root's own", encoding="utf-8")
    victim.chmod(0o600)
    for path in (tmp_path, *tmp_path.parents[:3]):  # pytest makes them for its own user
        if path != Path(tempfile.gettempdir()):
            path.chmod(0o755)
    kept = tmp_path / "kept"
    studies = Studies(kept)
    folder = studies.path("0" * 64)
    folder.mkdir(parents=True)
    for link in (folder / ".decision.json.partial", kept / ".refusals.jsonl.partial"):
        link.symlink_to(victim)
    for path in (kept, studies.folder, folder):
        os.chown(path, 12345, 12345)
    studies.decide("0" * 64, "approved", "test")
    Refusals(kept).clear()
    assert victim.read_text(encoding="utf-8") == "root's own"
    assert victim.stat().st_uid == 0
    for path in (folder / "decision.json", kept / "refusals.jsonl"):
        assert path.stat().st_uid == 12345
    assert os.geteuid() == 0


def test_a_site_asks_for_no_more_than_some_pending_studies(folder: Path) -> None:
    federation = Federation(folder)
    for k in range(20):
        assert federation.propose(federation.study(ridge=1.0 + k)).state == "pending"
    assert "20 studies wait" in refusal(federation, federation.study(ridge=99.0))
