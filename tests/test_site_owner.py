"""What an owner decides at a site, and what is said before: trials, partners, the record."""

from __future__ import annotations

import os
import re
import sqlite3
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedsplit as fs
from carried import Ends, Once
from fedsplit.errors import InputError, StateError, TooFewClients
from fedsplit.federation.coordinator import Interruption, StudyResult
from fedsplit.federation.database import Database
from fedsplit.federation.site.overlaps import exposed, followed
from fedsplit.federation.site.policy import Policy
from fedsplit.federation.study import Study
from fedsplit.federation.transport.files import answer_files
from fedsplit.testing import Federation
from test_malicious import AT_ONCE
from test_site_and_coordinator import FORMULA, TABLES, hospital, result_of, study_of

ASK: dict[str, Any] = {"approve": "ask", "partners": None}


def of(folder: Path, north: pd.DataFrame | None = None, **policy: Any) -> Federation:
    """A federation in which the rows of north may be others."""
    tables = TABLES if north is None else {**TABLES, "north": north}
    return Federation(folder, tables, seed=1, **{**ASK, **policy})


def proposed(federation: Federation, mode: str = "secure", **terms: Any) -> Study:
    study = study_of(federation, mode, **terms)
    federation.run_once(study)
    return study


# ---------------------------------------------------------------------- trials


def test_a_trial_holds_where_the_study_does_and_leaves_no_trace(tmp_path: Path) -> None:
    federation = of(tmp_path)
    study = proposed(federation)
    site = federation.site("north")
    before = site.record.head()
    trial = site.trial(study.hash)
    assert (trial.answered, trial.refused, trial.ended) == (7, "", "")
    assert site.trial(study.hash) == trial
    assert site.record.head() == before
    assert site.disclosed.scalar("SELECT count(*) FROM entries") == 0
    for name in federation.names:
        federation.site(name).approve(study.hash)
    found = federation.run(study)
    assert isinstance(found, StudyResult)
    assert found.questions == trial.answered


def test_what_a_trial_notes_about_leverages_names_the_key_that_refuses_them(tmp_path: Path) -> None:
    federation = of(tmp_path / "without")
    [note] = federation.site("north").trial(proposed(federation).hash).notes
    assert re.match(r"\d+ of 80 rows have a leverage above 0.9", note)
    assert "largest_leverage in site.toml would refuse that" in note
    limited = of(tmp_path / "with", largest_leverage=0.9)
    assert "largest_leverage" in limited.site("north").trial(proposed(limited).hash).refused


@pytest.mark.parametrize("mode", ["open", "secure"])
@pytest.mark.parametrize(
    ("rows", "why"), [(5, "least_rows"), (14, "parameters_per_row"), (80, "the level south")]
)
def test_a_study_that_would_be_refused_is_not_approved(
    tmp_path: Path, mode: str, rows: int, why: str
) -> None:
    table = hospital(0, rows)
    if rows == 80:
        if mode == "open":  # in which levels are agreed on
            return
        table.loc[:9, "region"] = "south"
    federation = of(tmp_path, table, secure_sums_only=False)
    study = proposed(federation, mode)
    site = federation.site("north")
    with pytest.raises(InputError, match=f"would be refused here: .*{why}"):
        site.approve(study.hash)
    assert site.waiting() == [study]
    assert "REFUSED" in site.describe(study.hash)


def test_a_study_is_approved_once_the_policy_allows_it(tmp_path: Path) -> None:
    federation = of(tmp_path, hospital(0, 14))
    study = proposed(federation)
    with pytest.raises(InputError, match="parameters_per_row"):
        federation.site("north").approve(study.hash)
    federation._policy["parameters_per_row"] = 1.0
    federation.site("north").approve(study.hash)
    assert federation.site("north").waiting() == []


def test_a_trial_names_a_column_that_is_not_here(tmp_path: Path) -> None:
    federation = of(tmp_path, TABLES["north"].rename(columns={"smoker": "smokers"}))
    study = proposed(federation)
    trial = federation.site("north").trial(study.hash)
    assert trial.refused == "there is no column smoker here: did you mean smokers?"
    assert "smoker (number): is not here" in federation.site("north").describe(study.hash)


def test_a_trial_of_rows_that_have_no_such_model_says_so(tmp_path: Path) -> None:
    federation = of(tmp_path, TABLES["north"].assign(region="west"))
    study = proposed(federation)
    trial = federation.site("north").approve(study.hash)
    assert not trial.refused
    assert "there is west" in trial.ended
    assert "no row here has east, north" in federation.site("north").describe(study.hash)


def test_noise_that_is_spent_is_said_before_approval(tmp_path: Path) -> None:
    federation = of(tmp_path, secure_sums_only=False, privacy_epsilon=1.5)
    for title, refused in (("first", ""), ("second", "privacy_epsilon: 1 of 1.5 is spent")):
        study = proposed(federation, "noise", title=title)
        if not refused:
            for name in federation.names:
                federation.site(name).approve(study.hash)
            assert isinstance(federation.run(study), StudyResult)
        assert refused == federation.site("north").trial(study).refused
    words = " ".join(federation.site("north").describe(study.hash).split())
    assert "this adds to ε 1 and δ 1e-05 of earlier studies" in words


# ---------------------------------------------------------------------- partners


def test_keys_of_partners_are_shown_as_new_known_or_changed(tmp_path: Path) -> None:
    federation = of(tmp_path)
    first = proposed(federation)
    site = federation.site("north")
    words = site.describe(first.hash)
    assert words.count("NEW, compare this key") == 2
    digits = federation.members["south"]
    assert digits in "".join(words.split())
    site.approve(first.hash)
    second = proposed(federation, title="again")
    assert site.describe(second.hash).count("as you approved before") == 2
    other = Federation(tmp_path / "other", TABLES, seed=2)
    members = {**federation.members, "south": other.members["south"]}
    changed = Study("a third", second.analysis, members, second.coordinator)
    words = site.describe(changed)
    assert words.count("ANOTHER KEY THAN BEFORE") == 1
    assert words.count("as you approved before") == 1


def test_a_study_with_unknown_partners_waits_whatever_the_policy_approves(tmp_path: Path) -> None:
    federation = of(tmp_path, approve="always")
    study = proposed(federation)
    lines: list[str] = []
    transport = federation.direct(watch=lines.append)
    assert isinstance(federation.coordinator(transport).run(study), Interruption)
    assert sum("keys of south, west are not known" in line for line in lines) == 1
    for name in federation.names:
        federation.site(name).approve(study.hash)
    assert isinstance(federation.run(study), StudyResult)
    # from now on they are known, by these keys
    assert isinstance(federation.run(study_of(federation, "secure", title="b")), StudyResult)
    federation.members["west"] = "5" * 64
    transport = federation.direct(watch=lines.append)
    changed = study_of(federation, "secure", title="c")
    federation.coordinator(transport, patience=AT_ONCE).run(changed)
    assert any("the keys of west are not known here" in line for line in lines)
    assert [each.hash for each in federation.site("north").waiting()] == [changed.hash]


def test_with_partners_in_the_policy_no_others_are_accepted(tmp_path: Path) -> None:
    federation = of(tmp_path, partners={"south": "a" * 64})
    study = study_of(federation, "secure")
    with pytest.raises(TooFewClients, match="partners: south is none of them"):
        federation.run(study)
    [state] = federation.site("north").studies()
    assert state.decision == "declined"
    assert federation.site("north").record.reason(state).startswith("partners: south")
    with pytest.raises(InputError, match="would be refused here: partners"):
        federation.site("north").approve(study.hash)


class Asked:
    """A study as far as overlaps look at it."""

    def __init__(self, members: str, secure: bool = True, columns: str = "x") -> None:
        self.members = dict.fromkeys(members)
        self.secure = secure
        self.analysis: Any = self
        self.columns = columns
        self.hash = f"{members}{columns}"


@pytest.mark.parametrize(
    ("new", "earlier", "who"),
    [
        (Asked("abcd"), [Asked("abc")], {("d",): ("abcx",)}),
        (Asked("abcde"), [Asked("abc")], {("d", "e"): ("abcx",)}),
        (Asked("abcdef"), [Asked("abc")], {}),
        (Asked("abc"), [Asked("abc")], {}),
        (Asked("abcd"), [Asked("abc", columns="y")], {}),
        (Asked("abcd"), [Asked("ab", secure=False)], {("c", "d"): ("abx",)}),
        (Asked("abcd", secure=False), [Asked("abcd")], {}),
        # of two and two pairs neither earlier study alone says anything
        (
            Asked("abcdefgh"),
            [Asked("abcde"), Asked("defgh")],
            {("d", "e"): ("abcdex", "defghx")},
        ),
    ],
)
def test_a_combination_of_sums_that_is_about_a_site_or_two_is_found(
    new: Any, earlier: list[Any], who: Mapping[tuple[str, ...], tuple[str, ...]]
) -> None:
    assert exposed(new, earlier) == who


def test_a_study_that_exposes_a_site_is_shown_and_not_approved_by_itself(tmp_path: Path) -> None:
    tables = {**TABLES, "east": hospital(7)}
    federation = Federation(tmp_path, tables, seed=1)
    result_of(federation, study_of(federation, "secure"))
    members = {name: key for name, key in federation.members.items() if name != "east"}
    study = study_of(federation, "secure", title="without east")
    fewer = Study("without east", study.analysis, members, study.coordinator)
    site = federation.site("north")
    assert "EXPOSES east: you are in study" in site.describe(fewer)
    transport = federation.direct()
    found = federation.coordinator(transport).run(fewer)
    assert isinstance(found, Interruption)
    assert federation.site("north").waiting() == [fewer]


# ---------------------------------------------------------------------- decisions


def test_the_coordinator_hears_why_a_study_is_declined(tmp_path: Path) -> None:
    federation = of(tmp_path)
    study = proposed(federation)
    federation.site("south").decline(study.hash[:8], "no ethics\nvote yet")
    with pytest.raises(TooFewClients, match=r"declined the study: no ethics vote yet"):
        federation.run(study)
    federation.site("south").approve(study.hash)
    for name in ("north", "west"):
        federation.site(name).approve(study.hash)
    assert isinstance(federation.run(study), StudyResult)
    for decide in (federation.site("south").decline, federation.site("south").approve):
        with pytest.raises(InputError, match="has ended"):
            decide(study.hash)


def test_a_halted_study_goes_on_once_its_owner_has_looked_at_the_refusals(tmp_path: Path) -> None:
    federation = of(
        tmp_path, approve="always", partners=None, secure_sums_only=False, refusals_before_halt=1
    )
    study = study_of(federation, "open")
    result_of(federation, study)
    federation._policy["least_rows"] = 1000
    again = study_of(federation, "open", title="again")
    with pytest.raises(InputError, match="do not allow this answer"):
        federation.run(again)
    [_, status] = federation.site("north").status().studies
    assert (status.decision, status.refused) == ("approved", 1)
    assert status.waits.startswith("halted")
    federation._policy["least_rows"] = 10
    with pytest.raises(InputError, match="its owner has to let it go on"):
        federation.run(again)
    entries = {name: federation.site(name).resume() for name in federation.names}
    assert "least_rows" in entries["north"][0].detail
    assert federation.site("north").resume() == []
    assert isinstance(federation.run(again), StudyResult)


def test_a_data_file_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    federation = Federation(tmp_path, TABLES, seed=1)
    path = tmp_path / "north" / "rows.csv"
    away = path.rename(path.with_name("elsewhere.csv"))
    study = study_of(federation, "secure")
    assert "rows.csv" in federation.site("north").trouble()
    found = federation.run(study)
    assert isinstance(found, Interruption)
    assert list(found.missing) == ["north"]
    assert "cannot be read: " in federation.site("north").describe(study)
    away.rename(path)
    assert federation.site("north").trouble() == ""
    assert isinstance(federation.run(study), StudyResult)
    path.unlink()  # questions are answered from a copy
    assert federation.site("north").audit().wrong == []


@pytest.mark.parametrize("why", ["is away", "declines", "is left out", "is left out by files"])
def test_an_open_study_goes_on_without_a_site_where_it_says_with_how_few(
    tmp_path: Path, why: str
) -> None:
    federation = Federation(tmp_path, TABLES, seed=1, secure_sums_only=False, least_sites=2)
    study = study_of(federation, "open", least=2)
    chosen: dict[str, Any] = {}
    if "left out" in why:
        chosen["without"] = {"west": "by the coordinator"}
    if "by files" in why:
        found = federation.by_files(study, **chosen)
    else:
        with suppress(Ends):
            federation.coordinator(Once(federation.direct(), 3)).run(study)
        if why == "declines":
            federation.site("west").decline(study.hash, "no more")
        transport = federation.direct()
        if why == "is away":
            del transport._sites["west"]
        patience = fs.Patience(round_timeout=0.05, give_up=1e-9)
        found = federation.coordinator(transport, patience=patience).run(study, **chosen)
    assert isinstance(found, StudyResult)
    assert list(found.result.removed) == ["west"]
    here = fs.fit({each: TABLES[each] for each in ("north", "south")}, FORMULA, family="poisson")
    assert np.abs((found.result.params - here.params) / here.bse).max() < 1e-9
    assert found.result.nobs == 160


def test_an_approval_that_has_ended_is_renewed_and_the_study_goes_on_with_its_rows(
    tmp_path: Path,
) -> None:
    clock = [4e9]
    federation = of(tmp_path, approved_days=2)
    study = proposed(federation)

    def sites() -> Any:
        return federation.direct(clock=lambda: clock[0])

    for name in federation.names:
        federation.site(name, clock=lambda: clock[0]).approve(study.hash)
    with suppress(Ends):
        federation.coordinator(Once(sites(), 3)).run(study)
    clock[0] += 3e5
    hospital(9).to_csv(federation.folder / "north" / "rows.csv", index=False)
    with pytest.raises(InputError, match="the approval of the study has ended"):
        federation.coordinator(sites()).run(study)
    site = federation.site("north", clock=lambda: clock[0])
    assert site.status().studies[0].waits.startswith("for you: the approval has ended")
    copy = site.studies()[0].copy
    for name in federation.names:
        federation.site(name, clock=lambda: clock[0]).approve(study.hash)
    assert site.studies()[0].copy == copy
    assert isinstance(federation.coordinator(sites()).run(study), StudyResult)


def test_a_column_that_one_site_lacks_is_named_and_no_other_one(tmp_path: Path) -> None:
    tables = {**TABLES, "west": TABLES["west"].rename(columns={"age": "years"})}
    federation = Federation(tmp_path, tables, seed=1, secure_sums_only=False)
    with pytest.raises(InputError) as error:
        federation.run(study_of(federation, "open"))
    assert str(error.value) == "client west: there is no column age (client north has it)"


def test_sites_that_send_no_matrices_have_an_open_study_by_vectors(tmp_path: Path) -> None:
    federation = Federation(tmp_path, TABLES, seed=1, secure_sums_only=False, matrices=False)
    model = result_of(federation, study_of(federation, "open"))
    assert model.settings.method == "quasi-newton"
    assert model.converged
    with pytest.raises(InputError, match="allow no matrix in every round"):
        federation.run(study_of(federation, "secure"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="root alone may")
def test_root_writes_nothing_into_the_folder_of_another_user(tmp_path: Path) -> None:
    federation = Federation(tmp_path, TABLES, seed=1)
    folder = tmp_path / "north"
    os.chown(folder, 12345, 12345)
    with pytest.raises(InputError, match="belongs to another user: sudo -u '#12345'"):
        federation.site("north")
    assert [path.name for path in folder.iterdir()] == ["rows.csv"]


# ---------------------------------------------------------------------- the record


@pytest.mark.parametrize("mode", ["open", "secure", "noise"])
def test_an_audit_computes_every_answer_again(tmp_path: Path, mode: str) -> None:
    federation = Federation(tmp_path, TABLES, seed=1, secure_sums_only=False)
    found = federation.run(study_of(federation, mode))
    assert isinstance(found, StudyResult)
    audit = federation.site("west").audit((found.heads["west"].number, found.heads["west"].hash))
    assert audit.wrong == []
    assert audit.exact + audit.with_noise == found.questions
    assert (audit.with_noise > 0) == (mode == "noise")


CHANGES = [
    *(("log", column) for column in ("time", "detail", "content", "hash")),
    *(("sent", column) for column in ("value", "question", "digest")),
    ("studies", "content"),
]


@pytest.mark.parametrize(
    ("mode", "table", "column"),
    [
        *((mode, *change) for mode in ("open", "secure") for change in CHANGES),
        ("noise", "sent", "value"),  # which cannot be drawn again
    ],
)
def test_an_audit_notices_whatever_is_changed(
    tmp_path: Path, mode: str, table: str, column: str
) -> None:
    federation = Federation(tmp_path, TABLES, seed=1, secure_sums_only=False)
    result_of(federation, study_of(federation, mode))
    path = tmp_path / "north" / "site.db"
    with sqlite3.connect(path) as connection:
        order = "number" if table != "studies" else "rowid"
        rows = connection.execute(f"SELECT {order}, {column} FROM {table} ORDER BY {order}")
        number, value = rows.fetchall()[-1 if table != "log" else 4]
        changed: Any = value
        if isinstance(value, bytes):
            changed = value[:-9] + bytes([value[-9] ^ 1]) + value[-8:]
        elif isinstance(value, float):
            changed = value + 1
        else:
            changed = f"{value}x"
        statement = f"UPDATE {table} SET {column} = ? WHERE {order} = ?"
        connection.execute(statement, (changed, number))
    audit = federation.site("north").audit()
    assert audit.wrong
    with sqlite3.connect(path) as connection:
        connection.execute(statement, (value, number))
    assert federation.site("north").audit().wrong == []


def test_an_audit_notices_a_wrong_answer_that_is_in_the_chain(tmp_path: Path) -> None:
    federation = Federation(tmp_path, TABLES, seed=1, secure_sums_only=False)
    study = study_of(federation, "open")
    site = federation.site("north")
    honest = type(site).computed

    def wrong(*given: Any) -> Any:
        value, memory = honest(*given)
        if "survey" in given[3].question.titles:
            return value, memory
        return value[:-8] + np.array([1.5]).tobytes(), memory

    site.computed = wrong.__get__(site)  # type: ignore[method-assign]
    transport = federation.direct()
    transport._sites["north"] = site.reply
    with suppress(TooFewClients, ValueError):
        federation.coordinator(transport, patience=fs.Patience(0.05, 0.05)).run(study)
    audit = federation.site("north").audit()
    assert audit.wrong[0] == (5, "is another answer than that of the rows")
    assert audit.exact == 1


def test_an_audit_notices_that_the_end_of_the_log_is_missing(tmp_path: Path) -> None:
    federation = Federation(tmp_path, TABLES, seed=1)
    found = federation.run(study_of(federation, "secure"))
    assert isinstance(found, StudyResult)
    head = found.heads["north"]
    with sqlite3.connect(tmp_path / "north" / "site.db") as connection:
        connection.execute("DELETE FROM log WHERE number >= ?", (head.number,))
    assert federation.site("north").audit().wrong == []
    [wrong] = federation.site("north").audit((head.number, head.hash)).wrong
    assert wrong[0] == head.number


@pytest.mark.parametrize("mode", ["open", "secure"])
def test_by_files_the_owner_has_a_readable_copy_of_every_number_that_leaves(
    tmp_path: Path, mode: str
) -> None:
    federation = Federation(tmp_path, TABLES, seed=1, secure_sums_only=False)
    found = federation.by_files(study_of(federation, mode))
    assert isinstance(found, StudyResult)
    post = tmp_path / "post" / "north"
    own = tmp_path / "north" / "answers"
    copies = {path.read_text().split("\n")[0]: path for path in own.glob("*.txt")}
    assert len(copies) == len(list(post.glob("*.answer"))) == found.questions + 1
    assert all(path.stat().st_mode & 0o077 == 0 for path in copies.values())
    first = copies["answer of north in exchange 1"].read_text()
    counts = TABLES["north"]["region"].value_counts()
    assert all(re.search(rf"{level}: +{count}\n", first) for level, count in counts.items())
    assert ("before it is masked" in first) == (mode == "secure")
    for entry, chained in federation.site("north").log():
        if entry.event == "answer":
            text = copies[f"answer of north in exchange {entry.exchange}"].read_text()
            assert f"entry {entry.number} of the log: {chained.hex()}" in text


@pytest.mark.parametrize("mode", ["open", "secure"])
def test_by_files_what_was_refused_or_declined_can_be_answered_later(
    tmp_path: Path, mode: str
) -> None:
    federation = Federation(tmp_path, TABLES, seed=1, secure_sums_only=False)
    study = study_of(federation, mode)
    assert isinstance(federation.by_files(study), StudyResult)
    other = study_of(federation, mode, title="another")
    federation._policy["least_rows"] = 1000
    with pytest.raises(InputError, match="do not allow this answer"):
        federation.by_files(other)
    federation._policy["least_rows"] = 10
    assert isinstance(federation.by_files(other), StudyResult)
    third = study_of(federation, mode, title="a third")
    federation._policy["approve"] = "ask"
    assert isinstance(federation.by_files(third), Interruption)
    for name in federation.names:
        federation.site(name).decline(third.hash, "not yet")
    with pytest.raises(TooFewClients, match="not yet"):
        federation.by_files(third)
    for name in federation.names:
        federation.site(name).approve(third.hash)
    found = federation.by_files(third)
    assert isinstance(found, StudyResult)
    assert federation.site("north").record.count("answer", third.digest) == found.questions


def test_a_link_in_the_place_of_a_new_answer_is_not_followed(tmp_path: Path) -> None:
    # the folder may be shared: whoever writes questions can write a link too
    federation = Federation(tmp_path / "made", TABLES, seed=1)
    study = study_of(federation, "secure")
    post = tmp_path / "post"
    transport = fs.FileTransport(post, federation.key, federation.members)
    federation.coordinator(transport).run(study)
    own = tmp_path / "site.key"
    own.write_text("a private key")
    [question] = (post / "north").glob("*.question")
    question.with_name(f".{question.stem}.answer.partial").symlink_to(own)
    [answer] = answer_files(federation.site("north"), federation.keys["north"], post / "north")
    assert answer.read_bytes() != b""
    assert own.read_text() == "a private key"


def test_a_folder_of_an_earlier_fedsplit_is_refused_untouched(tmp_path: Path) -> None:
    for name in ("questions.jsonl", "settings", "studies"):
        federation = Federation(tmp_path / name, TABLES, seed=1)
        (tmp_path / name / "north" / name).touch()
        before = sorted((tmp_path / name).rglob("*"))
        with pytest.raises(InputError, match="belongs to an earlier fedsplit") as error:
            federation.site("north")
        assert "\n" not in str(error.value)
        assert sorted((tmp_path / name).rglob("*")) == before


def test_a_database_of_an_earlier_version_is_upgraded_as_a_whole_or_not(tmp_path: Path) -> None:
    path = tmp_path / "some.db"
    first = "CREATE TABLE t (a); CREATE TABLE u (a)"
    old = Database(path, first, 1)
    old.execute("INSERT INTO t VALUES (1)")
    old.close()
    broken = {1: "ALTER TABLE t ADD COLUMN b DEFAULT 5; ALTER TABLE none ADD COLUMN b"}
    with pytest.raises(StateError, match="no such table: none"):
        Database(path, first, 2, upgrades=broken)
    assert Database(path, first, 1).execute("SELECT * FROM t") == [(1,)]
    steps = {1: "ALTER TABLE t ADD COLUMN b DEFAULT 5", 2: "UPDATE t SET b = b + 1; DROP TABLE u"}
    second = Database(path, "CREATE TABLE t (a, b)", 3, upgrades=steps)
    assert second.execute("SELECT * FROM t") == [(1, 6)]
    assert second.scalar("PRAGMA user_version") == 3
    second.close()
    assert Database(path, "", 3, upgrades=steps).execute("SELECT * FROM t") == [(1, 6)]
    for version, upgrades in ((2, steps), (5, steps)):
        with pytest.raises(StateError, match=f"has version 3, this fedsplit reads .* {version}"):
            Database(path, "", version, upgrades=upgrades)


def test_the_template_of_a_policy_has_every_key_with_its_default() -> None:
    import fedsplit.federation.site as package

    text = (Path(package.__file__).parent / "site.toml").read_text(encoding="utf-8")
    lines = [line.removeprefix("# ") for line in text.splitlines() if " = " in line]
    keys = tomllib.loads("\n".join(line for line in lines if line.split(" = ")[0].isidentifier()))
    for each in msgspec.structs.fields(Policy):
        default = each.default
        if default is msgspec.NODEFAULT:
            default = each.default_factory() if callable(each.default_factory) else ""
        assert each.name in keys
        if default is not None:
            assert keys[each.name] == default, each.name
    assert len(keys) == len(msgspec.structs.fields(Policy))


def test_what_an_open_study_would_warn_its_coordinator_of_is_said_to_the_owner_first(
    tmp_path: Path,
) -> None:
    federation = of(tmp_path, hospital(0, 14), secure_sums_only=False, rules="warn")
    study = proposed(federation, "open")
    trial = federation.site("north").approve(study.hash)
    assert any("14 rows for 5 parameters" in note for note in trial.notes)
    assert "IS SENT, with a warning" in federation.site("north").describe(study.hash)


def test_a_study_with_too_few_questions_or_days_left_is_not_approved(tmp_path: Path) -> None:
    federation = of(tmp_path)
    for terms, why in (
        ({"questions": 3}, "allows 3 questions"),
        ({"until": "2020-01-31"}, "ended"),
    ):
        study = proposed(federation, title=why, **terms)
        with pytest.raises(InputError, match=why):
            federation.site("north").approve(study.hash)


# ---------------------------------------------------------------------- rules

BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"families": ["gaussian"]}, "families: poisson is none of gaussian"),
    ({"columns_denied": ["reg*"]}, "columns_denied: region"),
    ({"columns_allowed": ["visits", "age", "smoker"]}, "columns_allowed: region"),
    ({"least_sites": 4}, "least_sites: it goes on with 3, fewer than 4"),
    ({"questions": 20}, "questions: at most 20 are answered, the study has 40"),
    ({"privacy_only": True}, "privacy_only: the study has no noise"),
    ({"secure_sums_only": True}, "secure_sums_only"),
    ({"partners": {}}, "partners: south is none of them"),
]


@pytest.mark.parametrize(("rule", "why"), BROKEN, ids=[why.split(":")[0] for _, why in BROKEN])
def test_a_study_that_breaks_a_rule_is_declined_and_both_ends_read_which(
    tmp_path: Path, rule: dict[str, Any], why: str
) -> None:
    federation = of(tmp_path, **{"secure_sums_only": False, "approve": "always", **rule})
    study = study_of(federation, "secure" if "partners" in rule else "open")
    lines: list[str] = []
    with pytest.raises(TooFewClients, match=why):
        federation.coordinator(federation.direct(watch=lines.append)).run(study)
    assert any(f"is declined: {why}" in line for line in lines)
    [state] = federation.site("north").studies()
    assert state.decision == "declined"
    assert why in federation.site("north").record.reason(state)
    assert not state.copy  # of which no row was looked at
    # once the owner has changed the rule, the owner decides
    federation._policy.update({key: getattr(_plain(tmp_path), key) for key in rule})
    federation.site("north").approve(study.hash)


def _plain(folder: Path) -> Policy:
    return of(folder / "plain", secure_sums_only=False).policy("north")


@pytest.mark.parametrize(("rule", "why"), BROKEN, ids=[why.split(":")[0] for _, why in BROKEN])
def test_rules_that_are_made_stricter_hold_for_studies_that_were_approved_before(
    tmp_path: Path, rule: dict[str, Any], why: str
) -> None:
    federation = of(tmp_path, approve="always", secure_sums_only=False, partners=None, rules="warn")
    study = study_of(federation, "secure" if "partners" in rule else "open")
    if study.secure:  # whose partners an owner sees first
        federation.run_once(study)
        for name in federation.names:
            federation.site(name).approve(study.hash)
    with suppress(Ends):
        federation.coordinator(Once(federation.direct(), 2)).run(study)
    answered = federation.site("north").record.count("answer", study.digest)
    federation._policy.update(rule)
    with pytest.raises(InputError, match=f"policy does not allow the study: {why}"):
        federation.run(study)
    assert federation.site("north").record.count("answer", study.digest) == answered


def test_within_a_day_so_many_studies_begin_and_those_that_have_begun_go_on(
    tmp_path: Path,
) -> None:
    clock = [1e9]
    federation = Federation(tmp_path, TABLES, seed=1, studies_per_day=1)

    def run(title: str) -> Any:
        transport = federation.direct(clock=lambda: clock[0])
        study = study_of(federation, "secure", title=title)
        return federation.coordinator(transport).run(study)

    with suppress(Ends):
        first = study_of(federation, "secure", title="first")
        direct = federation.direct(clock=lambda: clock[0])
        federation.coordinator(Once(direct, 3)).run(first)
    with pytest.raises(InputError, match="its owner allows 1 studies a day"):
        run("second")
    assert isinstance(run("first"), StudyResult)
    clock[0] += 86_401
    assert isinstance(run("second"), StudyResult)


# ---------------------------------------------------------------------- sums over sites


@given(
    st.lists(st.frozensets(st.sampled_from("abcdefgh"), min_size=3), min_size=1, max_size=5),
)
def test_what_is_said_to_follow_from_sums_is_a_combination_of_them(
    groups: list[frozenset[str]],
) -> None:
    names = "abcdefgh"
    matrix = np.array([[name in group for name in names] for group in groups], dtype=float)
    for sites in followed(groups):
        inside = np.array([name in sites for name in names])
        # coefficients that vanish on all other sites, and not on these
        _, sizes, directions = np.linalg.svd(matrix[:, ~inside].T)
        free = directions[np.count_nonzero(sizes > 1e-9) :]
        assert np.abs(free @ matrix[:, inside]).max() > 1e-9
        assert len(sites) < 3
