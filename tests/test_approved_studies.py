"""What a site answers of an approved study, and what it says of everything else."""

from __future__ import annotations

import copy
import io
import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedsplit as fs
from asked import AskedSite
from fedsplit.channels.channel import Reply, Request
from fedsplit.clients.local_models import LocalModel
from fedsplit.clients.question import Question
from fedsplit.clients.questions import Descend, Gradient, Line, Prox
from fedsplit.commands.terminal import say
from fedsplit.data.types import Type
from fedsplit.errors import InputError
from fedsplit.federation.messages import Inquiry, Proposal
from fedsplit.federation.questions import encode_request
from fedsplit.federation.regression import RegressionStudy, whole_formula
from fedsplit.federation.study import Study
from fedsplit.regression.client.design import Frame, Scaling, key_of
from fedsplit.regression.client.plan import BasicPlan, Coding, DerivedColumn, Plan
from fedsplit.regression.client.questions import Joint, Settle, SumQuestion, Survey
from fedsplit.regression.client.statistics import CostAlong
from fedsplit.regression.options import FitOptions
from sum_questions import ask_moments, ask_pearson

FORMULA = "y ~ x + C(ward)"
TYPES: dict[str, Type] = {"y": "number", "x": "number", "ward": "text"}
DRAFT = Plan(FORMULA, "poisson", draft=True)
PLAN = Plan(FORMULA, "poisson", {"ward": ["east", "north", "west"]}, TYPES)
LINE = Plan("y ~ x", "poisson", {}, {"y": "number", "x": "number"})
CONSTANT = "a rule of its owner, or its data, do not allow this answer"


def table(seed: int = 0, n: int = 60) -> pd.DataFrame:
    """Rows with a column that no study uses."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n).round(4)
    ward = rng.choice(["east", "west", "north"], n)
    y = rng.poisson(np.exp(0.3 * x + 0.2 * (ward == "west")))
    return pd.DataFrame({"y": y, "x": x, "ward": ward, "secret": 1.0})


def analysis(formula: str = FORMULA, **options: Any) -> RegressionStudy:
    own = {"family": "poisson", **options}
    return RegressionStudy.of(FitOptions(None, formula, **own))


def survey(plan: Plan = DRAFT) -> Survey:
    return Survey(Coding(plan, False, ("a",)))


class Asked(AskedSite):
    """A site with an approved regression."""

    def __init__(self, folder: Path, rows: pd.DataFrame | None = None, **policy: Any) -> None:
        super().__init__(folder, table() if rows is None else rows, **policy)
        self.approved = self.propose(analysis())

    def reply(self, question: Question, study: Study | None = None, key: str = "") -> Reply:
        return self.ask(Request(question, key, 1), study or self.approved)


@pytest.fixture
def site(tmp_path: Path) -> Asked:
    return Asked(tmp_path / "a")


# ---------------------------------------------------------------------- before an approval


def test_before_approval_nothing_about_the_data_leaves(tmp_path: Path) -> None:
    site = AskedSite(tmp_path, table(), approve="ask")
    study = site.federation.study(analysis(), secure=False)
    asked = encode_request(Request(survey(), "", 1))
    for inquired in (study.digest, b"", bytes(32)):
        response = site.send(Inquiry(inquired, 1, asked))
        assert (response.outcome, response.value) == ("refused", b"")
        assert "secret" not in response.reason
    response = site.send(Proposal(study.content))
    assert (response.outcome, response.reason, response.value) == ("waiting", "for its owner", b"")
    response = site.send(Inquiry(study.digest, 1, asked))
    assert response.reason == "its owner's decision on this study is: undecided"
    assert "60 of 60 here have a value" in " ".join(site.site.describe(study).split())


JUNK: list[Any] = [
    *(None, 1, -1, 1.5, float("inf"), float("nan"), 2**70, True, "", "x" * 1000, [], {}, ["a"]),
    *({"a": 1}, "\ud800", "\x1b[31m\n", "y ~ .", "y ~ (" * 200, "y ~ x + " * 3000 + "x"),
    "y ~ (" + " + ".join(f"x{k}" for k in range(40)) + ")^12",
]


def test_whatever_a_coordinator_signs_as_a_study_gets_one_line_or_is_one(tmp_path: Path) -> None:
    site = AskedSite(tmp_path, table(), least_rows=10**6, refusals_before_halt=3)
    content = json.loads(site.federation.study(analysis(), secure=False).content)
    places: list[tuple[str, ...]] = [(key,) for key in content]
    places += [("analysis", key) for key in content["analysis"]]
    places += [("analysis", "options", key) for key in content["analysis"]["options"]]
    read = 0
    for place in places:
        for junk in JUNK:
            changed = copy.deepcopy(content)
            inner = changed
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = junk
            text = json.dumps(changed, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            plain = text.encode("utf-8", "surrogatepass")
            escaped = json.dumps(changed, sort_keys=True, separators=(",", ":")).encode()
            for each in {plain, escaped}:
                response = site.send(Proposal(each))
                assert "\n" not in response.reason
                assert len(response.reason) <= 1000
                read += response.outcome == "answer"
    assert 0 < read < 100  # other titles, ridges, and so on
    assert not site.refusals
    for content in (b"", b"[]", b"{", b"null", b'{"title":"t"}', b"[" * 60_000, b"x" * 2**17):
        response = site.send(Proposal(content))
        assert (response.outcome, response.value) == ("failed", b"")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"members": {"a": "0" * 63}}, "64 hexadecimal digits"),
        ({"members": {"b\u202e\n": "0" * 64}}, "is no name"),
        ({"members": {"a": "0" * 64, "b": "0" * 64}}, "have the same key"),
        ({"coordinator": "1" * 63}, "64 hexadecimal digits"),
        ({"least": 4}, "cannot be the fewest"),
        ({"questions": 0}, "must be at least 1"),
        ({"until": "2027-1-1"}, "must be a day"),
    ],
)
def test_members_and_terms_that_cannot_be_are_no_study(
    tmp_path: Path, change: Mapping[str, Any], why: str
) -> None:
    study = AskedSite(tmp_path, table()).federation.study(analysis(), secure=False)
    with pytest.raises(InputError, match=why):
        replace(study, **change)


def test_a_target_between_organisations_needs_its_columns() -> None:
    options = FitOptions(None, target="y")
    with pytest.raises(InputError, match="name the covariates in columns"):
        whole_formula(options)
    assert whole_formula(replace(options, columns=["x", "a b"])).text == "y ~ x + `a b`"
    assert whole_formula(FitOptions(None, "y ~ x", columns=["x", "z"])).text == "y ~ x"


# ---------------------------------------------------------------------- questions of a study

DERIVED = DerivedColumn(
    BasicPlan("y ~ secret", "poisson", types={"y": "number", "secret": "number"}), (0.0, 1.0)
)


@pytest.mark.parametrize(
    ("question", "what"),
    [
        (survey(replace(DRAFT, formula="y ~ secret")), "in its formula"),
        (survey(replace(DRAFT, formula="y ~ .")), "in its formula"),
        (survey(replace(DRAFT, family="gaussian")), "in its family"),
        (survey(replace(DRAFT, weights="secret")), "in its weights"),
        (survey(replace(DRAFT, exposure="secret")), "in its exposure"),
        (survey(replace(DRAFT, types={"x": "text"})), "in its types"),
        (survey(replace(DRAFT, others=("secret",))), "in its columns"),
        (survey(replace(DRAFT, derived={"p": DERIVED})), "in its derived columns"),
        (survey(replace(PLAN, types={**TYPES, "secret": "number"})), "in its columns"),
        (ask_moments(Coding(replace(PLAN, formula="y ~ secret"), False, ("a",))), "in its formula"),
        (ask_moments(Coding(replace(PLAN, family="logistic"), False, ("a",))), "in its family"),
        (ask_moments(Coding(replace(PLAN, offset="x"), False, ("a",))), "in its offset"),
        (ask_moments(Coding(PLAN, False, ("b",))), r"this is a, and \('b',\) was asked"),
        (Joint({"one": survey(), "two": survey(replace(DRAFT, weights="x"))}), "in its weights"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_in_the_approved_study_is_refused(
    site: Asked, question: Question, what: str
) -> None:
    reply = site.reply(question)
    assert reply.outcome == "refused"
    assert re.search(what, reply.text)
    assert site.reply(survey()).outcome == "answer"


def test_names_of_other_columns_never_leave(site: Asked) -> None:
    for question in (survey(), Joint({"columns": survey()})):
        value = site.reply(question).value
        [found] = value["columns"] if isinstance(value, dict) else value
        assert list(found.profiles) == ["y", "x", "ward"]
        assert set(found.names) == {"y", "x", "ward"}
    study = site.propose(analysis("y ~ nowhere"), title="another")
    types: dict[str, Type] = {"y": "number", "nowhere": "number"}
    coding = Coding(Plan("y ~ nowhere", "poisson", {}, types), False, ("a",))
    reply = site.reply(ask_moments(coding), study)
    assert reply.text == CONSTANT
    assert "there is no column 'nowhere'" in site.refusals[-1]


@pytest.mark.parametrize("rules", ["warn", "refuse"])
@pytest.mark.parametrize(
    ("column", "value", "detail"),
    [
        ("y", -1234, "row 4: y is -1234"),
        ("x", "John Smith", "row 4: 'John Smith' is no number"),
        ("x", np.inf, "row 4: the number is infinite"),
    ],
)
def test_a_value_that_cannot_be_used_is_told_to_its_owner_alone(
    tmp_path: Path, column: str, value: object, detail: str, rules: str
) -> None:
    rows = table().astype({column: object})
    rows.loc[3, column] = value
    site = Asked(tmp_path, rows, rules=rules)
    assert site.reply(ask_moments(Coding(PLAN, False, ("a",)))).text == CONSTANT
    [refused] = site.refusals
    assert detail in refused


@pytest.mark.parametrize(
    "plan",
    [
        replace(LINE, family="cauchy"),
        replace(PLAN, levels={"ward": ["east"]}),
        replace(LINE, formula="log(y) ~ x", classes=["0"]),
        replace(LINE, weights="ward", types={**LINE.types, "ward": "text"}),
        replace(LINE, state={"poly(x, 2)": {"center": [0.0]}}),
        replace(LINE, formula="y ~ poly(x, 2)", state={"poly(x, 2)": {"alpha": [0.0] * 9999}}),
        replace(LINE, formula="y ~ poly(x, 2)", state={"poly(x, 2)": {"center": [np.nan]}}),
        replace(LINE, formula="y ~ __import__('os').system('touch mark')"),
        replace(LINE, formula="y ~ x.__class__"),
        replace(LINE, formula="y ~ open('/etc/passwd')"),
    ],
    ids=lambda plan: plan.formula,
)
def test_a_plan_that_contradicts_itself_or_is_a_program_is_refused(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    site = AskedSite(tmp_path / "a", table())  # to which any question belongs
    reply = site.ask(Request(ask_moments(Coding(plan, False, ("a",))), "", 1))
    assert (reply.outcome, "\n" in reply.text) == ("refused", False)
    assert not (tmp_path / "mark").exists()


COORDINATES = Settle(
    Coding(LINE, False, ("a",)),
    Frame(Scaling(np.zeros(2), np.ones(2), 1.0), None, 1.0, False, np.zeros(2)),
)


def name_of(settle: Settle) -> str:
    """The key of some coordinates."""
    return key_of(settle.coding, settle.frame)


@pytest.fixture
def settled(tmp_path: Path) -> AskedSite:
    """A site whose rows are at hand in some coordinates, to which any question belongs."""
    site = AskedSite(tmp_path / "settled", table(), rules="warn")
    site.ask(Request(ask_moments(COORDINATES.coding), "", 1))
    assert site.ask(Request(COORDINATES, "", 1)).outcome == "answer"
    return site


@pytest.mark.parametrize(
    "question",
    [
        Gradient(np.zeros(7)),
        Gradient(np.zeros((2, 2))),
        Descend(np.zeros(2), 0.1, 2_000_000),
        Prox(np.zeros(2), 0.1, None, fs.GradientProx(steps=2**40)),
        Line(np.zeros(2), np.zeros(2), np.zeros(2000)),
        ask_pearson(np.zeros(7)),
        SumQuestion({"": CostAlong(np.zeros(2), np.ones((5, 1)))}),
        LocalModel(np.zeros(2), None, None, -1.0, None),
        LocalModel(np.zeros(2), None, None, np.nan, None),
    ],
    ids=lambda question: question.name(),
)
def test_points_of_another_shape_and_work_without_end_are_refused(
    settled: AskedSite, question: Question
) -> None:
    key = name_of(COORDINATES)
    assert settled.ask(Request(question, key, 1, COORDINATES)).outcome == "refused"
    good = Request(Gradient(np.zeros(2)), key, 1, COORDINATES)
    assert settled.ask(good).outcome == "answer"


@pytest.mark.parametrize(
    "frame",
    [
        {"whiten": np.zeros((2, 3000))},
        {"ridge": np.zeros(9)},
        {"scaling": Scaling(np.zeros(2), np.zeros(2), 1.0)},
        {"scaling": Scaling(np.full(2, np.nan), np.ones(2), 1.0)},
    ],
    ids=lambda frame: next(iter(frame)),
)
def test_coordinates_that_do_not_fit_the_columns_are_refused(
    settled: AskedSite, frame: Mapping[str, Any]
) -> None:
    other = replace(COORDINATES, frame=replace(COORDINATES.frame, **frame))
    assert settled.ask(Request(other, "", 1)).outcome == "refused"


@pytest.mark.parametrize("key", ["*", "../../*/**/x", "a" * 64, "[0-9a-f]*"])
def test_a_key_of_coordinates_that_were_never_sent_finds_nothing(
    settled: AskedSite, key: str
) -> None:
    settled.start()
    reply = settled.ask(Request(Gradient(np.zeros(2)), key, 1))
    assert reply.text == "a question about coordinates that were never sent"


def test_what_was_prepared_for_one_study_answers_no_question_of_another(site: Asked) -> None:
    types = {"y": "number", "x": "number"}
    study = site.propose(analysis("y ~ x", types=types), title="a line")
    key, point = name_of(COORDINATES), Gradient(np.zeros(2))
    site.reply(ask_moments(COORDINATES.coding), study)
    assert site.ask(Request(point, key, 1, COORDINATES), study).outcome == "answer"
    site.start()
    assert site.ask(Request(Gradient(np.ones(2)), key, 1), study).outcome == "answer"
    reply = site.reply(point, key=key)  # of the study that the site approved first
    assert reply.text == "a question about coordinates that were never sent"
    reply = site.ask(Request(point, key, 1, COORDINATES), site.approved)
    assert "from the approved study in its formula" in reply.text
    for frame in ({"spread": 9.0}, {"ridge": np.ones(2)}):
        other = replace(COORDINATES, frame=replace(COORDINATES.frame, **frame))
        reply = site.ask(Request(point, name_of(other), 1, other), study)
        assert "from the approved study in its" in reply.text


def test_a_study_has_its_questions_and_the_same_one_again_is_none(tmp_path: Path) -> None:
    site = Asked(tmp_path)
    study = site.propose(analysis(), title="of two questions", questions=2)
    moments = ask_moments(Coding(PLAN, False, ("a",)))
    for question in (survey(), moments, survey(replace(DRAFT))):
        assert site.reply(question, study).outcome == "answer"
    site.start()
    more = Joint({"one": survey(), "two": moments})
    assert site.reply(more, study).text == "the study has had its 2 questions"
    assert site.reply(survey(), study).outcome == "answer"


# ---------------------------------------------------------------------- what the record keeps


def test_the_files_of_a_site_are_for_its_owner_alone(site: Asked) -> None:
    site.reply(survey())
    site.reply(survey(replace(DRAFT, family="gaussian")))
    folder = site.site.folder
    assert folder.stat().st_mode & 0o777 == 0o700
    found = {path.name: path.stat().st_mode & 0o077 for path in folder.rglob("*")}
    assert {"site.db", "site.db-wal", "disclosed.db", "copies"} <= found.keys()
    del found["rows.csv"]  # which is the owner's own
    assert not any(found.values()), found


def test_refusals_after_a_halt_and_studies_without_end_do_not_fill_the_disk(
    tmp_path: Path,
) -> None:
    site = Asked(tmp_path, refusals_before_halt=3)
    for _ in range(9):
        assert site.reply(survey(replace(DRAFT, family="gaussian"))).outcome == "refused"
    assert "3 questions were refused: its owner has to let it go on" in site.refusals[-1]
    assert len(site.refusals) == 4
    assert site.site.status().studies[0].waits.startswith("halted")
    assert len(site.site.resume()) == 4
    assert site.reply(survey()).outcome == "answer"
    studies = [site.federation.study(analysis(ridge=1.0 + k), secure=False) for k in range(101)]
    outcomes = [site.send(Proposal(each.content)) for each in studies]
    assert {each.outcome for each in outcomes[:99]} == {"answer"}
    assert outcomes[-1].reason == "100 studies were proposed here within 24 hours"
    assert len(site.site.studies()) == 100
    assert site.reply(survey()).outcome == "answer"  # of those that are there


def test_the_hash_of_the_log_tells_nothing_of_why_a_question_was_refused(tmp_path: Path) -> None:
    entries = []
    for draw in (1, 2):
        rows = table()
        rows.loc[0, "ward"] = "south"
        site = Asked(tmp_path / str(draw), rows, approved_days=10**6)
        site.site.record._clock = lambda: 4e9
        site.site._draw = np.random.default_rng(draw).bytes
        assert site.reply(ask_moments(Coding(PLAN, False, ("a",)))).text == CONSTANT
        entries.append(site.site.log()[-1][0])
    # who guesses all that can be guessed still lacks these random bytes of what is hashed
    contents = {each.content for each in entries}
    assert len(contents) == 2
    assert {len(each) for each in contents} == {16}
    assert len({each._replace(content=b"") for each in entries}) == 1


def test_a_terminal_that_is_gone_changes_no_answer(
    site: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    os.close(read)
    with io.TextIOWrapper(io.FileIO(write, "w"), write_through=True) as gone:
        monkeypatch.setattr("sys.stderr", gone)
        site.site.watch = say
        outcome = site.reply(survey()).outcome
        monkeypatch.undo()
    assert outcome == "answer"
