"""Which rows a site answers from, while its data change."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from asked import Anything, AskedSite
from carried import Ends, Once
from fedsplit.channels.channel import Request
from fedsplit.data.types import Type
from fedsplit.federation.coordinator import StudyResult
from fedsplit.federation.messages import Proposal
from fedsplit.federation.site.record import StudyState
from fedsplit.federation.site.trial import tried
from fedsplit.regression.client.plan import Coding, Plan
from fedsplit.testing import Federation
from sum_questions import ask_moments
from test_site_and_coordinator import TABLES, made, result_of, study_of

ROWS = 60
TYPES: dict[str, Type] = {"age": "number", "income": "number", "ward": "text"}


def people(seed: int, n: int = ROWS) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.normal(50, 12, n).round(2),
            "income": rng.gamma(2.0, 900.0, n).round(2),
            "ward": rng.choice(["east", "west"], n),
        }
    )


class Clinic(AskedSite):
    """A site whose data change; it approves every study."""

    def __init__(self, folder: Path, data: str | None = None, **policy: Any) -> None:
        self.frame = people(0)
        self.path = folder / "clinic.csv"
        folder.mkdir(exist_ok=True)
        self.write(self.frame)
        if data is not None:
            (folder / "list.toml").write_text(f"[clients.a]\n{data}", encoding="utf-8")
        given = self.path if data is None else folder / "list.toml"
        super().__init__(folder / "made", given, **policy)
        self._studies = 0

    def write(self, frame: pd.DataFrame, **settings: Any) -> None:
        frame.to_csv(self.path, index=False, **settings)

    def begun(self) -> StudyState:
        """A new study, with the copy that it is answered from."""
        self._studies += 1
        study = self.propose(Anything(), title=f"no {self._studies}")
        state = self.site.record.study(study.digest)
        assert state is not None
        return state

    def frozen(self, **types: Type) -> pd.DataFrame:
        """The rows that a new study is answered from."""
        return self.site.copies.open(self.begun().copy)[0].read(types or TYPES)

    @property
    def note(self) -> str:
        """What the owner was shown last about the rows."""
        return [each for each in self.seen if "the rows have changed" in each][-1]


@pytest.fixture
def clinic(tmp_path: Path) -> Clinic:
    return Clinic(tmp_path / "clinic")


# ---------------------------------------------------------------------- rows that come and go


def test_changed_rows_are_used_once_enough_came_and_none_or_enough_went(clinic: Clinic) -> None:
    frame, extra = clinic.frame, people(1, 3)
    for changed, rows in (
        (frame, ROWS),
        (pd.concat([frame, extra.head(1)]), ROWS),  # one came
        (pd.concat([frame.iloc[1:], extra]), ROWS),  # three came, one went
        (pd.concat([frame.assign(other=1), extra.head(1)]), ROWS),  # with a new column
        (pd.concat([frame, extra]), ROWS + 3),
        (frame, ROWS + 3),  # three went, none came
        (frame.sample(frac=1.0, random_state=0), ROWS + 3),
    ):
        clinic.write(changed)
        assert len(clinic.frozen()) == rows
        clinic.start()
    notes = [each for each in clinic.seen if "the rows have changed" in each]
    assert "(1 row added, 0 removed), and are used once at least 3 rows were added" in notes[0]
    assert "(0 rows added, 3 removed)" in notes[-1]


def test_rows_are_compared_with_every_copy_that_has_answered(clinic: Clinic) -> None:
    frame, extra = clinic.frame, people(1, 9)
    for changed, rows in (
        (frame, ROWS),
        (pd.concat([frame, extra]), ROWS + 9),
        # against the last copy five went, but only one against the first
        (pd.concat([frame.iloc[1:], extra.head(5), people(2, 3)]), ROWS + 9),
        (pd.concat([frame, extra, people(2, 3)]), ROWS + 12),
    ):
        clinic.write(changed)
        assert len(clinic.frozen()) == rows


def test_a_column_that_is_another_in_every_export_hides_no_row_that_came_or_went(
    clinic: Clinic,
) -> None:
    def exported(frame: pd.DataFrame, day: int) -> pd.DataFrame:
        return frame.assign(number=np.arange(len(frame))[::-1], time=np.arange(len(frame)) + day)

    clinic.write(exported(clinic.frame, 1_000))
    assert len(clinic.frozen()) == ROWS
    clinic.write(exported(clinic.frame.drop(index=30), 2_000))
    assert len(clinic.frozen()) == ROWS
    clinic.write(exported(pd.concat([clinic.frame, people(1, 9)]), 3_000))
    assert len(clinic.frozen()) == ROWS + 9


def test_corrections_hide_no_row_that_came(clinic: Clinic) -> None:
    first = clinic.begun().copy
    frame = clinic.frame.copy()
    frame.loc[:20, "income"] += 1
    clinic.write(pd.concat([frame, people(1, 1)]))
    assert len(clinic.frozen()) == ROWS
    assert "(22 rows added, 21 removed)" in clinic.note
    clinic.write(frame)
    known = [clinic.site.disclosed.copy(each) for each in (first, clinic.begun().copy)]
    assert known[0] is not None
    assert known[1] is not None
    assert known[0].name != known[1].name
    assert np.array_equal(known[0].ids, known[1].ids)


def test_rows_that_left_and_came_back_are_the_same_rows(clinic: Clinic) -> None:
    frame, extra = clinic.frame, people(1, 9)
    copies = []
    for changed in (
        frame,
        pd.concat([frame.iloc[9:], extra]),
        pd.concat([frame, extra, people(2, 9)]),
    ):
        clinic.write(changed)
        copies.append(clinic.site.disclosed.copy(clinic.begun().copy))
    first, _, last = copies
    assert first is not None
    assert last is not None
    assert len(last.ids) == ROWS + 18
    assert np.array_equal(last.ids[:ROWS], first.ids)


def test_a_new_column_is_used_though_no_row_came(clinic: Clinic) -> None:
    clinic.begun()
    clinic.write(clinic.frame.assign(lab=np.arange(ROWS) % 7))
    assert clinic.frozen(lab="number")["lab"].tolist() == [k % 7 for k in range(ROWS)]


def test_a_file_with_its_old_time_and_size_is_seen_to_be_another(clinic: Clinic) -> None:
    clinic.begun()
    times = clinic.path.stat().st_mtime_ns, clinic.path.stat().st_size
    text = clinic.path.read_text(encoding="utf-8")
    clinic.path.write_text(text.replace("west", "east", 1), encoding="utf-8")
    os.utime(clinic.path, ns=(times[0], times[0]))
    assert (clinic.path.stat().st_mtime_ns, clinic.path.stat().st_size) == times
    clinic.begun()
    assert "(1 row added, 1 removed)" in clinic.note


def test_what_was_disclosed_of_earlier_copies_counts_with_that_of_later_ones(
    clinic: Clinic,
) -> None:
    frame = clinic.frame.assign(age=clinic.frame["age"].where(clinic.frame.index < 58))
    clinic.write(frame)
    for columns in ((), ("age",)):  # their sums differ by those of the two rows without an age
        types: dict[str, Type] = {"income": "number", **dict.fromkeys(columns, "number")}
        plan = Plan("income ~ 1", "gaussian", types=types, others=columns)
        asked = Request(ask_moments(Coding(plan, False, ("a",))), "", 1)
        assert clinic.ask(asked).outcome == "answer"
    clinic.write(pd.concat([frame, people(1, 9)]).sample(frac=1.0, random_state=0))
    copy = clinic.begun().copy
    known = clinic.site.disclosed.copy(copy)
    assert known is not None
    assert len(known.ids) == ROWS + 9
    missing = clinic.site.copies.open(copy)[0].read(TYPES)["age"].isna().to_numpy()
    assert missing.sum() == 2
    h = clinic.site.disclosed.ledger(known).leverages()  # of rows that came later: none
    assert h[known.ids[missing]].min() > 0.99
    assert np.sort(h)[-3] < 0.9


# ---------------------------------------------------------------------- how rows are read


@pytest.mark.parametrize("restarted", [False, True])
def test_the_result_of_a_query_is_frozen_as_a_file_is(tmp_path: Path, restarted: bool) -> None:
    query = "query = \"select *, age * 2 as twice from 'clinic.csv'\""
    clinic = Clinic(tmp_path / "clinic", query)
    before = clinic.frozen(twice="number")
    clinic.write(clinic.frame.iloc[:-1])
    if restarted:
        clinic.start()
    pd.testing.assert_frame_equal(clinic.frozen(twice="number"), before)
    assert "(0 rows added, 1 removed)" in clinic.note
    clinic.write(pd.concat([clinic.frame, people(1, 5)]))
    assert len(clinic.frozen()) == ROWS + 5


def test_a_frozen_query_has_the_columns_of_the_query(tmp_path: Path) -> None:
    clinic = Clinic(
        tmp_path / "clinic",
        "query = \"select sum(income) as income, ward, date '2026-01-01' as day, "
        "age > 50 as old, avg(age) as age from 'clinic.csv' group by ward, old\"",
    )
    live = clinic.site.copies.current()
    frozen, _ = clinic.site.copies.open(clinic.begun().copy)
    assert frozen.columns() == live.columns()
    types: dict[str, Type] = {"income": "number", "age": "number", "day": "date", "old": "boolean"}
    columns = sorted(types)
    own = frozen.read(types).sort_values(columns, ignore_index=True)
    pd.testing.assert_frame_equal(own, live.read(types).sort_values(columns, ignore_index=True))


def test_a_copy_is_read_with_the_names_marks_and_dates_of_its_list(tmp_path: Path) -> None:
    (tmp_path / "clinic").mkdir()
    (tmp_path / "clinic" / "x.csv").write_text("alter;am\n1,5;31/01/2020\nk.A.;1/2/2020\n")
    clinic = Clinic(
        tmp_path / "clinic",
        "path = 'x.csv'\nna = ['k.A.']\ndecimal = ','\ndates = '%d/%m/%Y'\n"
        "rename = { alter = 'age' }\n",
    )
    found = clinic.frozen(age="number", am="date")
    assert found["age"].tolist()[0] == 1.5
    assert found["age"].isna().tolist() == [False, True]
    assert found["am"].tolist() == [18292.0, 18293.0]


@pytest.mark.parametrize("mode", ["open", "secure"])
def test_codes_for_missing_values_of_a_list_hold_for_answers_and_their_audit(
    tmp_path: Path, mode: str
) -> None:
    data: dict[str, Any] = dict(TABLES)
    coded = TABLES["north"].assign(age=TABLES["north"]["age"].where(lambda age: age.index > 4, -9))
    coded.to_csv(tmp_path / "north.csv", index=False)
    data["north"] = tmp_path / "north.toml"
    data["north"].write_text('[clients.n]\npath = "north.csv"\n[reading]\nna = ["-9"]\n')
    federation = Federation(tmp_path / "made", data, seed=1, secure_sums_only=False)
    assert result_of(federation, study_of(federation, mode)).nobs == 240 - 5
    audit = federation.site("north").audit()
    assert audit.wrong == []
    assert audit.exact > 3


def test_another_way_to_read_the_same_file_is_a_change_of_its_rows(tmp_path: Path) -> None:
    clinic = Clinic(tmp_path / "clinic")
    clinic.write(clinic.frame.assign(age=clinic.frame["age"].where(clinic.frame.index > 0, -9)))
    first = clinic.begun()
    clinic.federation._policy["na"] = ["-9"]
    clinic.start()
    assert not clinic.frozen()["age"].isna().any()
    assert "(1 row added, 1 removed)" in clinic.note
    # and a study that was begun is answered as it was
    assert clinic.site.copies.open(first.copy)[0].read(TYPES)["age"][0] == -9


# ---------------------------------------------------------------------- faults


def test_a_study_that_has_begun_keeps_its_rows_over_a_restart(tmp_path: Path) -> None:
    undisturbed = made(tmp_path / "undisturbed")
    expected = result_of(undisturbed, study_of(undisturbed, "secure")).params
    federation = made(tmp_path / "changed")
    study = study_of(federation, "secure")
    with suppress(Ends):
        federation.coordinator(Once(federation.direct(), 3)).run(study)
    TABLES["south"].to_csv(federation.folder / "north" / "rows.csv", index=False)
    found = federation.run(study)
    assert isinstance(found, StudyResult)
    assert found.result.params.to_numpy().tobytes() == expected.to_numpy().tobytes()


@contextmanager
def disk_full(room: int) -> Iterator[None]:
    """No file can be larger than this."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


def test_without_room_for_a_copy_nothing_is_approved_and_nothing_left(clinic: Clinic) -> None:
    clinic.begun()
    clinic.write(pd.concat([clinic.frame, people(1, 20_000)]))
    study = clinic.federation.study(Anything(), secure=False, title="large")
    copies = sorted((clinic.site.folder / "copies").iterdir())
    with disk_full(300_000):
        assert clinic.send(Proposal(study.content)).outcome == "failed"
    assert sorted((clinic.site.folder / "copies").iterdir()) == copies
    (clinic.site.folder / "copies" / ".partial").write_text("of a process that was killed")
    assert clinic.send(Proposal(study.content)).outcome == "answer"
    assert not clinic.refusals


def test_a_file_that_is_being_written_waits_and_is_no_refusal(
    clinic: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    copyfile = shutil.copyfile

    def while_it_grows(source: Path, target: Path) -> None:
        copyfile(source, target)
        with source.open("a", encoding="utf-8") as file:
            file.write("50,1000,east\n")

    study = clinic.federation.study(Anything(), secure=False)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", while_it_grows)
        assert clinic.send(Proposal(study.content)).outcome == "waiting"
    assert "was changed while it was copied" in clinic.seen[-1]
    assert not list((clinic.site.folder / "copies").iterdir())
    text = clinic.path.read_text(encoding="utf-8")
    clinic.path.write_text(text[: len(text) // 2] + ',,,"', encoding="utf-8")
    assert clinic.send(Proposal(study.content)).outcome == "waiting"
    assert "the rows cannot be read" in clinic.seen[-1]
    clinic.path.write_text(text, encoding="utf-8")
    assert clinic.send(Proposal(study.content)).outcome == "answer"
    assert not clinic.refusals


@pytest.mark.parametrize("reading", ["", 'na = ["-9"]\n'])
@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_a_copy_that_was_changed_or_lost_answers_nothing_until_it_is_restored(
    tmp_path: Path, damage: str, reading: str
) -> None:
    clinic = Clinic(tmp_path / "clinic", f"path = 'clinic.csv'\n{reading}")
    plan = Plan("income ~ age", "gaussian", types={"income": "number", "age": "number"})
    asked = Request(ask_moments(Coding(plan, False, ("a",))), "", 1)
    clinic.study = clinic.begun().study
    copies = list((clinic.site.folder / "copies").iterdir())
    assert len(copies) == 1 + bool(reading)
    for path in copies:
        content = path.read_bytes()
        path.unlink()
        if damage == "changed":
            path.write_bytes(content + b"\n")
        clinic.start()
        assert clinic.ask(asked).text == "its owner has to look at it"
        assert clinic.seen[-1].startswith(f"nothing is answered: {path.parent}")
        assert "restore it" in clinic.seen[-1]
        assert not clinic.refusals
        path.unlink(missing_ok=True)
        path.write_bytes(content)
    assert clinic.ask(asked).outcome == "answer"


def test_the_rows_that_were_tried_are_those_that_are_approved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = made(tmp_path, approve="ask")
    study = study_of(federation, "secure")
    federation.run(study)
    rows = federation.folder / "north" / "rows.csv"
    before = rows.read_bytes()

    def slowly(*given: Any) -> Any:
        found = tried(*given)
        rows.write_bytes(before + before.partition(b"\n")[2])  # meanwhile the file has changed
        return found

    monkeypatch.setattr("fedsplit.federation.site.site.tried", slowly)
    site = federation.site("north")
    site.approve(study.hash)
    [state] = site.studies()
    assert (site.folder / "copies" / state.copy).read_bytes() == before
