"""A client on its owner's machine: what it answers, what it refuses, and what it writes down."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedsplit as fs
from fedsplit.channels import codec
from fedsplit.channels.channel import Reply, Request
from fedsplit.clients.local_models import LocalModel
from fedsplit.clients.question import Question
from fedsplit.clients.questions import (
    QUESTIONS,
    Descend,
    Gradient,
    Information,
    Line,
    Prox,
)
from fedsplit.commands.client import client_command
from fedsplit.data.tables import Table, Values
from fedsplit.data.types import Type
from fedsplit.regression.client.coding import Coding, Frame
from fedsplit.regression.client.fitted import CostAlong
from fedsplit.regression.client.guards.rules import NO_PROMISE
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.questions import Settle, SumQuestion
from fedsplit.regression.client.survey import Survey
from fedsplit.regression.fit import fit_over
from fedsplit.regression.options import FitOptions
from fedsplit.regression.result.model import Model
from fedsplit.remote import messages
from fedsplit.remote.messages import (
    HELLO,
    Identity,
    MessageChannel,
    read_identity,
    read_reply,
    write_reply,
    write_request,
)
from fedsplit.sites.options import SiteOptions
from fedsplit.sites.refusals import HALTED, REFUSED
from fedsplit.sites.service import ALLOWED, Site
from sum_questions import ask_arguments, ask_moments, ask_pearson

FORMULA = "y ~ x + C(ward)"


def table(seed: int, n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    ward = rng.choice(["east", "west", "north"], n)
    return pd.DataFrame(
        {"y": rng.poisson(np.exp(0.3 * x + 0.2 * (ward == "west"))), "x": x, "ward": ward}
    )


class Mail:
    """Messages to sites in this process; ``restarts`` creates the sites again for every message."""

    def __init__(self, folder: Path, restarts: bool = False, **rules: object) -> None:
        self.folder, self.restarts, self.rules = folder, restarts, rules
        self.sites = {name: self.site(name) for name in ("a", "b", "c")}

    def site(self, name: str) -> Site:
        return Site(
            name,
            str(self.folder / f"{name}.csv"),
            folder=self.folder / f"kept {name}",
            options=SiteOptions(**self.rules),  # type: ignore[arg-type]  # the site's own rules
        )

    def send(
        self, mail: Mapping[str, bytes], timeout: float
    ) -> dict[str, tuple[bytes | None, str, float]]:
        if self.restarts:
            self.sites = {name: self.site(name) for name in self.sites}
        return {name: (self.sites[name].reply(letter), "", 0.01) for name, letter in mail.items()}

    def fit(self, **settings: object) -> Model:
        channel = MessageChannel(self, list(self.sites))
        chosen = FitOptions(None, FORMULA, family="poisson", **settings)  # type: ignore[arg-type]  # fit's own settings
        return fit_over(channel, chosen)

    def log(self, name: str = "a") -> list[dict[str, object]]:
        if not self.sites[name].log.exists():
            return []
        return [
            json.loads(line)
            for line in self.sites[name].log.read_text(encoding="utf-8").splitlines()
        ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed, name in enumerate("abc"):
        table(seed).to_csv(tmp_path / f"{name}.csv", index=False)
    return tmp_path


def in_process(folder: Path, **settings: object) -> Model:
    return fs.fit(folder / "*.csv", FORMULA, family="poisson", **settings)  # type: ignore[arg-type]  # fit's own


@pytest.mark.parametrize(
    "settings", [{}, {"ridge": 0.5}, {"l1": 2.0}, {"ridge": 1.0, "standardize": True}]
)
def test_letters_give_the_bits_of_one_process(folder: Path, settings: dict[str, object]) -> None:
    here, there = in_process(folder, **settings), Mail(folder).fit(**settings)
    assert np.array_equal(here.params, there.params)
    assert here.rounds == there.rounds
    assert here.llf == there.llf
    assert there.converged


def test_letters_give_the_bits_of_one_process_where_columns_are_aliased_and_rows_recede(
    tmp_path: Path,
) -> None:
    for seed, name in enumerate("abc"):
        frame = table(seed)
        # ward east has no events, and 60 - x is, but for 1e-8, what x is
        frame = frame.assign(
            y=frame.y * (frame.ward != "east"),
            near=60 - frame.x + 1e-8 * np.cos(np.arange(60)),
            double=2 * frame.x,
        )
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    formula = "y ~ x + near + double + ward"
    here = fs.fit(tmp_path / "*.csv", formula, family="poisson")
    mail = Mail(tmp_path, restarts=True)
    channel = MessageChannel(mail, list(mail.sites))
    there = fit_over(channel, FitOptions(None, formula, family="poisson"))
    assert list(there.aliased) == ["double"]
    assert there.not_estimable == {
        "Intercept": "-inf",
        "ward[T.north]": "+inf",
        "ward[T.west]": "+inf",
    }
    assert np.array_equal(here.params, there.params, equal_nan=True)
    assert here.llf == there.llf
    assert there.converged


def test_a_new_process_for_every_letter_does_not_read_the_source_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    original = Table.take

    def counted(source: Table, wanted: Mapping[str, Type]) -> dict[str, Values]:
        reads.append(source.name)
        return original(source, wanted)

    monkeypatch.setattr(Table, "take", counted)
    there = Mail(folder, restarts=True).fit()
    assert np.array_equal(there.params, in_process(folder).params)
    assert reads.count("a") == 2 + 1  # to describe, to code; and once in one process


def test_prepared_arrays_are_memory_mapped(folder: Path) -> None:
    mail = Mail(folder)
    mail.fit()
    restarted = mail.site("a")
    [frame] = (folder / "kept a" / "prepared").glob("*/*.frame")
    key, x = frame.stem, np.zeros(4)
    reply = read_reply(restarted.reply(write_request(Request(Gradient(x), key, 3))), fs.Answer, 0.0)
    assert reply.outcome == "answer"
    coding, settled = codec.decode(tuple[Coding, Frame], frame.read_bytes())
    [data] = restarted._cohort._data(coding, settled)
    assert isinstance(data.A, np.memmap)


def test_prepared_data_of_a_changed_source_are_not_used(folder: Path) -> None:
    mail = Mail(folder, restarts=True)
    mail.fit()
    table(99).to_csv(folder / "a.csv", index=False)
    assert np.array_equal(mail.fit().params, in_process(folder).params)


def test_a_source_that_changes_in_the_middle_of_a_run_is_named(folder: Path) -> None:
    class Changing(Mail):
        def send(
            self, mail: Mapping[str, bytes], timeout: float
        ) -> dict[str, tuple[bytes | None, str, float]]:
            rounds = [line for line in self.log("b") if line["question"] == "local_model"]
            if rounds and self.rules != {"strict": False}:  # it has been prepared
                table(99).to_csv(self.folder / "b.csv", index=False)
                os.utime(self.folder / "b.csv", ns=(1, 1))
                self.rules = {"strict": False}
            return super().send(mail, timeout)

    with pytest.raises(fs.InputError, match="client b: its data changed since the run began"):
        Changing(folder, restarts=True).fit()


@pytest.mark.parametrize("restarts", [True, False])
def test_a_source_that_changes_before_the_first_round_is_named(
    folder: Path, restarts: bool
) -> None:
    class Changing(Mail):
        changed = False

        def send(
            self, mail: Mapping[str, bytes], timeout: float
        ) -> dict[str, tuple[bytes | None, str, float]]:
            told = [line for line in self.log("b") if line["question"] == "design_moments"]
            if told and not self.changed:
                table(99).to_csv(self.folder / "b.csv", index=False)
                self.changed = True
            return super().send(mail, timeout)

    mail = Changing(folder, restarts=restarts)
    with pytest.raises(fs.InputError, match="client b: its data changed since the run began"):
        mail.fit()
    assert np.array_equal(mail.fit().params, in_process(folder).params)


def test_nothing_is_answered_that_is_not_on_the_list(folder: Path) -> None:
    site = Mail(folder).sites["a"]
    for letter in (
        b"rows\n",
        b"_data\n",
        b"__init__\n",
        b"eval\n1+1",
        b"",
        b"\n",
        b"prox",
        b"\xff\xfe\n",
        b"x" * 100,
    ):
        reply = read_reply(site.reply(letter), str, 0.0)
        assert reply.outcome == "refused"
    assert set(ALLOWED) == {
        "hello",
        "propose",
        "finish",
        "survey",
        "joint",
        "sums",
        "settle",
        "noisy_sums",
        "share_keys",
        *QUESTIONS,
    }


@given(st.sampled_from(sorted(ALLOWED)), st.binary(max_size=200))
def test_no_letter_brings_a_client_down(
    tmp_path_factory: pytest.TempPathFactory, name: str, body: bytes
) -> None:
    site = _any_site(tmp_path_factory)
    reply = read_reply(site.reply(name.encode() + b"\n" + body), ALLOWED[name].answer_type, 0.0)
    assert reply.outcome in ("answer", "refused")
    assert reply.outcome == "refused" or name == "hello"


_SITES: list[Site] = []


def _any_site(factory: pytest.TempPathFactory) -> Site:
    if not _SITES:
        folder = factory.mktemp("site")
        table(0).to_csv(folder / "a.csv", index=False)
        _SITES.append(Site("a", str(folder / "a.csv"), folder=folder / "kept"))
    return _SITES[0]


def test_the_guards_of_a_strict_client_hold_whatever_the_server_wants(folder: Path) -> None:
    frame = table(0)
    frame.loc[0, "ward"] = "south"
    frame.to_csv(folder / "a.csv", index=False)
    assert Mail(folder).fit().warnings
    mail = Mail(folder, strict=True)
    with pytest.raises(fs.InputError, match=f"client a: {REFUSED}"):
        mail.fit()
    assert "client a has fewer than 3 rows of a kind: ward = south in 1" in why(mail.sites["a"])


def test_a_strict_client_is_strict_without_being_asked_to_describe_itself(folder: Path) -> None:
    frame = table(0)
    frame.loc[0, "ward"] = "east-1"
    frame.assign(weight=[1.0] * 5 + [0.0] * 55).to_csv(folder / "a.csv", index=False)
    site = Mail(folder, strict=True).sites["a"]
    levels = {"ward": ["east-1", "east", "north", "west"]}
    types: dict[str, Type] = {"y": "number", "x": "number", "weight": "number", "ward": "text"}
    plans = [
        Plan("y ~ x + C(ward)", "poisson", levels, types),
        Plan("y ~ x", "poisson", {}, types, weights="weight"),
    ]
    for plan, what in zip(plans, ("ward = east-1 in 1", "5 rows, fewer than 10"), strict=True):
        reply = ask(site, ask_moments(Coding(plan, False, ("a",))))
        assert (reply.outcome, reply.text) == ("refused", f"client a: {REFUSED}")
        assert what in why(site)


def test_rows_that_were_coded_before_a_client_became_strict_are_coded_again(folder: Path) -> None:
    frame = table(0)
    frame.loc[0, "ward"] = "south"
    frame.to_csv(folder / "a.csv", index=False)
    mail = Mail(folder)
    mail.fit()
    [frame_file] = (folder / "kept a" / "prepared").glob("*/*.frame")
    coding, settled = codec.decode(tuple[Coding, Frame], frame_file.read_bytes())
    strict = Mail(folder, strict=True).sites["a"]
    assert ask(strict, Gradient(np.zeros(5)), frame_file.stem).outcome == "unprepared"
    assert ask(strict, Settle(coding, settled)).outcome == "refused"


@pytest.mark.parametrize(
    "question",
    [
        Gradient(np.zeros(7)),
        Gradient(np.zeros((2, 4))),
        Descend(np.zeros(4), 0.1, 2_000_000),
        Prox(np.zeros(4), 0.1, None, fs.GradientProx(steps=2**40)),
        Line(np.zeros(4), np.zeros(4), np.zeros(2000)),
        ask_pearson(np.zeros(7)),
        SumQuestion({"": CostAlong(np.zeros(4), np.ones((5, 1)))}),
        LocalModel(np.zeros(4), None, None, -1.0, None),
        LocalModel(np.zeros(4), None, None, np.nan, None),
    ],
    ids=lambda question: question.name(),
)
def test_points_of_another_shape_and_work_without_end_are_refused(
    folder: Path, question: Question
) -> None:
    mail = Mail(folder)
    mail.fit()
    [frame] = (folder / "kept a" / "prepared").glob("*/*.frame")
    assert ask(mail.sites["a"], question, frame.stem).outcome == "refused"


def test_a_refusal_names_the_file_to_its_owner_alone(folder: Path) -> None:
    mail = Mail(folder)
    (folder / "a.csv").write_text("y,x,ward\n1,2\n", encoding="utf-8")
    reply = ask(mail.site("a"), Survey(Coding(LINE, False, ("a",))))
    assert reply.outcome == "refused"
    assert reply.text.startswith("client a: its file: ")
    assert str(folder) not in reply.text
    assert str(folder) in str(mail.log()[-1]["trouble"])


def test_a_key_that_is_a_pattern_or_a_path_finds_nothing(folder: Path) -> None:
    mail = Mail(folder)
    mail.fit()
    for key in ("*", "../../*/**/x", "a" * 64, "[0-9a-f]*"):
        assert ask(mail.site("a"), Gradient(np.zeros(4)), key).outcome == "unprepared"


def test_coordinates_that_do_not_fit_the_columns_are_refused(folder: Path) -> None:
    mail = Mail(folder)
    mail.fit()
    [path] = (folder / "kept a" / "prepared").glob("*/*.frame")
    coding, frame = codec.decode(tuple[Coding, Frame], path.read_bytes())
    scaling = frame.scaling
    for other in (
        replace(frame, whiten=np.zeros((4, 3000))),
        replace(frame, ridge=np.zeros(9)),
        replace(frame, scaling=scaling._replace(scale=np.zeros(4))),
        replace(frame, scaling=scaling._replace(centre=np.full(4, np.nan))),
    ):
        assert ask(mail.sites["a"], Settle(coding, other)).outcome == "refused"


LINE = Plan("y ~ x", "poisson", {}, {"y": "number", "x": "number"})
SPLINE = Plan("y ~ poly(x, 2)", "poisson", {}, {"y": "number", "x": "number"})
EYE = ((1.0, 0.0), (0.0, 1.0))


def test_a_server_cannot_count_single_rows_by_the_breaks_of_cut(folder: Path) -> None:
    site = Mail(folder, strict=True).sites["a"]
    x = float(pd.read_csv(folder / "a.csv")["x"][7])
    plan = replace(LINE, formula=f"y ~ cut(x, c({x - 1e-9!r}, {x + 1e-9!r})) + scale(x)")
    reply = ask(site, ask_arguments(Coding(plan, False, ("a",)), {}))
    assert (reply.outcome, "1 rows, fewer than 10" in why(site)) == ("refused", True)


@pytest.mark.parametrize(
    "coding",
    [
        Coding(replace(LINE, family="cauchy"), False, ("a",)),
        Coding(replace(LINE, levels={"ward": ["east"]}), False, ("a",)),
        Coding(replace(LINE, formula="log(y) ~ x", classes=["0"]), False, ("a",)),
        Coding(replace(LINE, weights="ward", types={**LINE.types, "ward": "text"}), False, ("a",)),
        Coding(replace(LINE, state={"poly(x, 2)": {"center": [0.0]}}), False, ("a",)),
        Coding(replace(SPLINE, state={"poly(x, 2)": {"alpha": [0.0] * 9999}}), False, ("a",)),
        Coding(replace(SPLINE, state={"poly(x, 2)": {"center": [np.nan]}}), False, ("a",)),
        Coding(
            replace(
                SPLINE,
                state={"poly(x, 2)": {"center": [0], "scale": [1], "alpha": [0], "norm2": [1, 1]}},
            ),
            False,
            ("a",),
        ),
    ],
    ids=lambda coding: coding.plan.formula,
)
def test_a_plan_that_contradicts_itself_is_refused(folder: Path, coding: Coding) -> None:
    reply = ask(Mail(folder).sites["a"], ask_moments(coding))
    assert (reply.outcome, "\n" in reply.text) == ("refused", False)


def test_what_is_kept_is_for_its_owner_alone(folder: Path) -> None:
    Mail(folder).fit()
    assert (folder / "kept a").stat().st_mode & 0o777 == 0o700
    (folder / "kept a").chmod(0o755)
    with pytest.raises(fs.InputError, match="other users of this machine may read it"):
        Mail(folder)
    assert (folder / "kept a").stat().st_mode & 0o777 == 0o755


def why(site: Site) -> str:
    """What the owner of a site sees of what it refused."""
    return " ".join(each["why"] for each in site.refusals.found())


def ask(site: Site, question: Question, key: str = "") -> Reply:
    message = write_request(Request(question, key, 3))
    return read_reply(site.reply(message), question.answer_type, 0.0)


def test_a_strict_client_tells_nothing_before_it_refuses(folder: Path) -> None:
    table(0, n=8).to_csv(folder / "a.csv", index=False)
    mail = Mail(folder, strict=True)
    with pytest.raises(fs.InputError, match=f"client a: {REFUSED}"):
        mail.fit()
    assert [line["outcome"] for line in mail.log()] == ["refused"]
    assert "client a has 8 rows, fewer than 10" in why(mail.sites["a"])


BAD: dict[str, tuple[str, object, str]] = {
    "a level of one row": ("ward", "south", "ward = south in 1"),
    "a value that cannot be used": ("y", -1, "y is -1"),
    "text among numbers": ("x", "John Smith", "John Smith"),
    "a missing sum": ("x", np.inf, "x"),
}


@pytest.mark.parametrize("strict", [{"strict": True}, {}], ids=["site", "server"])
@pytest.mark.parametrize(("column", "value", "detail"), BAD.values(), ids=list(BAD))
def test_a_refusal_that_depends_on_data_is_one_constant_sentence(
    folder: Path, column: str, value: object, detail: str, strict: dict[str, bool]
) -> None:
    frame = table(0).astype({column: object})
    frame.loc[3, column] = value
    frame.to_csv(folder / "a.csv", index=False)
    mail = Mail(folder, **strict)
    with pytest.raises(fs.InputError, match=rf"client a: {REFUSED}$"):
        mail.fit(strict=not strict, types={"x": "number", "y": "number", "ward": "text"})
    assert detail in why(mail.sites["a"])
    assert detail in str(mail.log()[-1]["trouble"])


def test_after_three_refusals_nothing_is_answered_until_the_owner_has_looked(
    folder: Path,
) -> None:
    mail = Mail(folder, restarts=True, strict=True)
    x = float(pd.read_csv(folder / "a.csv")["x"].max())
    honest = ask_moments(Coding(LINE, False, ("a",)))
    for k in range(3):
        assert ask(mail.site("a"), honest).outcome == "answer"
        plan = replace(LINE, formula=f"y ~ x + I(x >= {x - 1e-9 * k!r})")
        for _ in range(2 - k // 2):  # the same again tells nothing new, and does not count
            reply = ask(mail.site("a"), ask_moments(Coding(plan, False, ("a",))))
            assert reply.text == f"client a: {REFUSED}"
    for question in (honest, ask_moments(Coding(replace(LINE, family="cauchy"), False, ("a",)))):
        assert ask(mail.site("a"), question).text == f"client a: {HALTED}"
    assert len(mail.site("a").refusals.found()) == 3
    mail.rules["fresh"] = True
    assert ask(mail.site("a"), honest).outcome == "refused"
    mail.site("a").refusals.clear()
    assert ask(mail.site("a"), honest).outcome == "answer"


def test_lines_of_refusals_that_are_damaged_count(folder: Path) -> None:
    site = Mail(folder, strict=True).sites["a"]
    site.refusals.path.write_text('[1]\n{"x\n{}\n', encoding="utf-8")
    assert [each["why"] for each in site.refusals.found()] == ["[1]", '{"x', "{}"]
    assert ask(site, ask_moments(Coding(LINE, False, ("a",)))).text == f"client a: {HALTED}"


def test_what_is_refused_does_not_fill_the_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsplit.sites.log.exchange_log.UNANSWERED_LINES", 4)
    mail = Mail(folder)
    site = mail.sites["a"]
    message = b"code\n" + b"x" * 10**6
    for _ in range(6):
        assert read_reply(site.reply(message), str, 0.0).outcome == "refused"
    lines = mail.log()
    assert len(lines) == 4
    assert len(json.dumps(lines)) < 40_000
    for line in lines:
        assert line["received_bytes"] == len(message)
        assert line["message_sha256"] == hashlib.sha256(message).hexdigest()
    assert "what else is refused today is not logged" in str(lines[-1]["note"])
    assert ask(site, ask_moments(Coding(LINE, False, ("a",)))).outcome == "answer"
    assert len(mail.log()) == 5


def test_a_request_that_is_wrong_whatever_the_data_says_so_and_does_not_count(
    folder: Path,
) -> None:
    site = Mail(folder, strict=True).sites["a"]
    for _ in range(5):
        reply = ask(site, ask_moments(Coding(replace(LINE, family="cauchy"), False, ("a",))))
        assert "unknown family" in reply.text
    assert site.refusals.found() == []


def test_rounds_end_at_the_owners_limit_also_after_a_restart_and_for_other_models(
    folder: Path,
) -> None:
    limit = in_process(folder).rounds + 5  # to describe, code, at last to fit, and two more
    assert Mail(folder, max_rounds=limit).fit().converged
    with pytest.raises(
        fs.InputError,
        match=f"client a: its owner allows {limit} questions, and all have been answered",
    ):
        Mail(folder, max_rounds=limit).fit(tol=1e-6)
    assert Mail(folder, max_rounds=limit, fresh=True).fit().converged


def test_matrices_are_counted_on_after_a_restart_and_after_a_start_by_the_owner(
    folder: Path,
) -> None:
    mail = Mail(folder, restarts=True, vectors=True)
    mail.fit()
    [frame] = (folder / "kept a" / "prepared").glob("*/*.frame")
    for k in range(16):
        ask(mail.site("a"), Information(np.full(4, 0.01 * k)), frame.stem)
    for fresh in (False, True):
        mail.rules["fresh"] = fresh
        reply = ask(mail.site("a"), Information(np.ones(4)), frame.stem)
        assert reply.outcome == "refused"
        assert "has disclosed 16 matrices of its rows" in reply.text


def test_every_question_and_what_was_sent_is_in_the_log(folder: Path) -> None:
    mail = Mail(folder)
    model = mail.fit()
    lines = mail.log()
    questions = [line["question"] for line in lines]
    assert questions[:2] == ["survey", "design_moments"]
    assert questions[-1] == "log_likelihood cost_along pearson_squares"
    assert FORMULA in str(lines[1]["asked"])
    # the coordinates travel with the first question of the rounds
    assert [FORMULA in str(line.get("prepared")) for line in lines[2:5]] == [True, False, False]
    # the last round is that of how well the model fits
    assert questions.count("local_model") + 1 == int((model.trace.kind == "round").sum())
    told = lines[0]["sent"]
    assert isinstance(told, list)
    assert (
        told[0]["counts"]["levels"]["ward"]
        == table(0)["ward"].value_counts().sort_index().to_dict()
    )
    assert all(isinstance(line["sent_bytes"], int) and line["sent_bytes"] > 0 for line in lines)


def test_a_bad_value_is_told_to_its_owner_and_not_to_the_server(folder: Path) -> None:
    frame = table(0)
    frame.loc[7, "y"] = -1234
    frame.to_csv(folder / "a.csv", index=False)
    mail = Mail(folder)
    with pytest.raises(
        fs.InputError, match="client a: y has 1 values that cannot be used"
    ) as caught:
        mail.fit()
    assert "1234" not in str(caught.value)
    assert "row 8: y is -1234" in str(mail.log()[-1]["trouble"])


@pytest.mark.parametrize("text", ["John Smith", "n/k"])
def test_text_among_numbers_is_told_to_its_owner_and_not_to_the_server(
    folder: Path, text: str
) -> None:
    frame = table(0).astype({"x": object})
    frame.loc[3, "x"] = text
    frame.to_csv(folder / "a.csv", index=False)
    mail = Mail(folder)
    with pytest.raises(
        fs.InputError, match="client a: its file: column 'x' has a value that is no number"
    ) as caught:
        mail.fit()
    assert text not in str(caught.value)
    assert str(folder) not in str(caught.value)
    assert text in str(mail.log()[-1]["trouble"])


def test_the_terms_say_what_leaves_and_what_does_not(folder: Path) -> None:
    terms = Mail(folder, max_rounds=40, strict=True).sites["a"].terms()
    assert re.search(r"client a: 60 rows and 3 columns", terms)
    for words in (
        "Rows never leave",
        "is refused",
        "At most 40 questions",
        "questions.jsonl",
        "takes no code",
    ):
        assert words in terms


def test_a_client_of_another_protocol_is_refused_with_both_versions() -> None:
    other = Identity("a", "9.1.0", messages.PROTOCOL + 1)
    with pytest.raises(
        fs.InputError,
        match=rf"client a runs fedsplit 9.1.0 .* this server fedsplit {fs.__version__}",
    ):
        read_identity(write_reply(Reply("answer", other)))
    read_identity(write_reply(Reply("answer", Identity("a", "9.1.0", messages.PROTOCOL))))


def test_hello_names_the_client_and_its_version(folder: Path) -> None:
    assert read_identity(Mail(folder).sites["b"].reply(HELLO)) == Identity(
        "b", fs.__version__, messages.PROTOCOL
    )


def test_a_client_answers_in_its_own_name_only(folder: Path) -> None:
    coding = Coding(Plan("y ~ x", "poisson", {}), False, ("b",))
    reply = read_reply(
        Mail(folder).sites["a"].reply(write_request(Request(ask_moments(coding)))), str, 0.0
    )
    assert (reply.outcome, reply.text) == ("refused", "client a: it is a, but was asked as b")


def test_a_formula_from_the_server_runs_no_code(folder: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    site = Mail(folder).sites["a"]
    site.reply(write_request(Request(Survey(Coding(LINE, False, ("a",))))))
    for formula in (
        f"y ~ __import__('os').system('touch {mark}')",
        "y ~ x.__class__",
        "y ~ open('/etc/passwd')",
    ):
        coding = Coding(replace(Plan("y ~ x", "poisson", {}), formula=formula), False, ("a",))
        assert (
            read_reply(site.reply(write_request(Request(ask_moments(coding)))), str, 0.0).outcome
            == "refused"
        )
    assert not mark.exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [("nothing.csv", "there is no such file"), ("*.csv", "a client has one file, this names 3")],
)
def test_a_client_without_its_one_file_is_refused(folder: Path, data: str, message: str) -> None:
    with pytest.raises(fs.InputError, match=message):
        Site("a", str(folder / data), folder=folder / "kept")


def test_grouped_rows_at_sites_that_restart_give_the_table_of_this_process(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in "abc":
        x = rng.standard_normal(30)
        trials = rng.integers(1, 9, 30)
        died = rng.binomial(trials, 1 / (1 + np.exp(-x)))
        frame = pd.DataFrame({"x": x, "died": died, "lived": trials - died})
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    formula = "cbind(died, lived) ~ x"
    mail = Mail(tmp_path, restarts=True)
    options = FitOptions(None, formula, family="logistic")
    there = fit_over(MessageChannel(mail, list(mail.sites)), options)
    here = fs.fit(tmp_path / "*.csv", formula, family="logistic")
    assert there.nobs == 90
    assert there.to_dict()["log_likelihood"] == here.llf
    assert there.deviance == here.deviance
    assert there.null_deviance == here.null_deviance


def test_what_no_rule_can_promise_is_said_in_the_same_words_everywhere(folder: Path) -> None:
    guide = Path(__file__).parent.parent / "docs" / "guards.md"
    help_text = client_command.__doc__ or ""
    terms = Mail(folder, strict=True).sites["a"].terms()
    for text in (terms, help_text, guide.read_text(encoding="utf-8")):
        assert NO_PROMISE in " ".join(text.split())
