"""Which rows a strict client answers from, while its data change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from attacks.server import NAME, ROWS, Server
from fedsplit.commands.app import run
from fedsplit.data.sources.sources import sources
from fedsplit.errors import InputError, StateError
from fedsplit.regression.client.coding import Coding
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.survey import RowCounts, Survey
from fedsplit.sites.events import Event
from fedsplit.sites.options import SiteOptions
from fedsplit.sites.rows.snapshots import Snapshots
from fedsplit.sites.service import Site
from owners import disk_full

STRICT = Rules.strict()


def of(column: str) -> Plan:
    """A plan of one column."""
    return Plan(f"{column} ~ 1", "gaussian", types={column: "number"})


EARLIER = 1_700_000_000


class Clinic(Server):
    """A strict site whose data change, and what its owner is told."""

    def __init__(self, folder: Path, few: int = 0, rules: Rules = STRICT) -> None:
        self.data: str | None = None
        self.seen: list[Event] = []
        super().__init__(folder, rules, few)

    def started(self, fresh: bool = False) -> Site:
        data = self.data or str(self.path)
        options = SiteOptions(rules=self.rules)
        return Site(NAME, data, folder=self.folder, options=options, watch=self.seen.append)

    def write(self, frame: pd.DataFrame) -> None:
        """Write the file, some time ago."""
        frame.to_csv(self.path, index=False)
        os.utime(self.path, (EARLIER, EARLIER))

    def listed(self, text: str) -> None:
        """Take the data from a list, in a folder of its own."""
        self.folder = self.folder.with_name("listed")
        self.data = str(self.path.with_name("list.toml"))
        Path(self.data).write_text(f"[clients.{NAME}]\n{text}", encoding="utf-8")
        self.site = self.started()

    def survey(self, column: str = "age") -> RowCounts:
        """The beginning of a fit."""
        counts: RowCounts = self.ask(Survey(Coding(of(column), False, (NAME,)))).counts
        return counts

    @property
    def told(self) -> str:
        """The last that the owner was told about the data."""
        return [event.text for event in self.seen if event.kind == "data"][-1]


@pytest.fixture
def clinic(tmp_path: Path) -> Clinic:
    return Clinic(tmp_path)


def newcomers(frame: pd.DataFrame, count: int) -> pd.DataFrame:
    """Other rows with the same columns."""
    rng = np.random.default_rng(count)
    return frame.head(count).assign(
        age=np.linspace(30.01, 70.01, count),
        income=np.exp(rng.normal(7.0, 0.5, count)),
        bmi=rng.normal(25, 3, count),
    )


def test_a_file_that_changes_is_used_once_enough_rows_have_come_and_gone(clinic: Clinic) -> None:
    frame = clinic.frame
    extra = newcomers(frame, 3)
    for changed, rows in (
        (frame, ROWS),
        (pd.concat([frame, extra.head(1)]), ROWS),  # one came
        (pd.concat([frame.iloc[1:], extra]), ROWS),  # three came, one went
        (pd.concat([frame.assign(other=1), extra.head(1)]), ROWS),  # with a new column
        (pd.concat([frame, extra]), ROWS + 3),
        (frame, ROWS + 3),  # three went, none came
    ):
        clinic.write(changed)
        assert clinic.survey().rows == rows
    told = [event.text for event in clinic.seen if event.kind == "data"]
    assert len(told) == 5
    assert "(1 row added, 0 removed): they are used once at least 3 rows were added" in told[0]
    assert "(3 rows added, 0 removed), and are used from this fit on" in told[3]


@pytest.mark.parametrize("restarted", [False, True])
def test_the_result_of_a_query_is_frozen_as_a_file_is(clinic: Clinic, restarted: bool) -> None:
    clinic.listed("query = \"select *, age * 2 as twice from 'clinic.csv'\"")
    before = clinic.code("income ~ age")
    clinic.write(clinic.frame.iloc[:-1])
    if restarted:
        clinic.site = clinic.started()
    assert clinic.survey().rows == ROWS
    assert "(0 rows added, 1 removed)" in clinic.told
    assert clinic.code("income ~ age").weight == before.weight == ROWS
    clinic.write(pd.concat([clinic.frame, newcomers(clinic.frame, 50)]))
    assert clinic.survey().rows == ROWS + 50


def test_a_frozen_query_has_the_columns_of_the_query(clinic: Clinic) -> None:
    clinic.listed(
        "query = \"select sum(visits) as visits, ward, date '2026-01-01' as day, ill = 1 as ill, "
        "avg(age) as age from 'clinic.csv' group by ward, ill, visits\""
    )
    rows = clinic.site._rows
    live = rows._open()
    assert rows.source.columns() == live.columns()
    types: dict[str, Any] = {"visits": "number", "age": "number", "day": "date", "ill": "boolean"}
    columns = sorted(types)
    frozen = rows.source.read(types).sort_values(columns, ignore_index=True)
    pd.testing.assert_frame_equal(frozen, live.read(types).sort_values(columns, ignore_index=True))


def test_codes_for_missing_values_of_a_list_hold_for_the_copy_and_its_audit(
    clinic: Clinic, capsys: pytest.CaptureFixture[str]
) -> None:
    clinic.write(clinic.frame.assign(age=clinic.frame["age"].where(clinic.frame.index > 4, -9)))
    clinic.listed('path = "clinic.csv"\n[reading]\nna = ["-9"]')
    assert clinic.survey().complete == ROWS - 5
    assert clinic.site._rows.own_source().read({"age": "number"})["age"].isna().sum() == 5
    assert run(["audit", str(clinic.folder)]) == 0, capsys.readouterr().out


def test_another_way_to_read_the_same_file_is_a_change_of_its_rows(clinic: Clinic) -> None:
    clinic.write(clinic.frame.assign(age=clinic.frame["age"].where(clinic.frame.index > 0, -9)))
    clinic.listed('path = "clinic.csv"')
    assert clinic.survey().complete == ROWS
    clinic.listed('path = "clinic.csv"\n[reading]\nna = ["-9"]')
    assert clinic.survey().complete == ROWS
    assert "(1 row added, 1 removed)" in clinic.told


def test_enough_new_rows_are_used_and_everything_can_be_asked_again(clinic: Clinic) -> None:
    models = ["income ~ age + visits + ill + C(ward)", "visits ~ age + income"]
    for formula in models:
        clinic.code(formula)
    clinic.write(pd.concat([clinic.frame, newcomers(clinic.frame, 100)]))
    clinic.survey()
    for formula in models:
        assert clinic.code(formula).n == ROWS + 100


def test_a_column_that_is_another_in_every_export_hides_no_row_that_came_or_went(
    tmp_path: Path,
) -> None:
    def exported(frame: pd.DataFrame, day: int) -> pd.DataFrame:
        return frame.assign(number=np.arange(len(frame))[::-1], time=np.arange(len(frame)) + day)

    clinic = Clinic(tmp_path)
    clinic.folder = tmp_path / "numbered"
    clinic.write(exported(clinic.frame, 1_000))
    clinic.site = clinic.started()
    before = clinic.code("income ~ age")
    clinic.write(exported(clinic.frame.drop(index=70), 2_000))
    clinic.survey()
    assert clinic.code("income ~ age").n == before.n == ROWS
    assert "0 rows added, 1 removed" in clinic.told
    clinic.write(exported(pd.concat([clinic.frame, newcomers(clinic.frame, 100)]), 3_000))
    clinic.survey()
    assert clinic.code("income ~ age").n == ROWS + 100


def test_corrections_hide_no_row_that_came(clinic: Clinic) -> None:
    frame = clinic.frame.copy()
    frame.loc[:20, "bmi"] += 1
    clinic.write(pd.concat([frame, newcomers(frame, 1)]))
    assert clinic.survey().rows == ROWS
    assert "(22 rows added, 21 removed): not counting corrected values" in clinic.told
    assert "1 row added, 0 removed" in clinic.told
    clinic.write(frame)
    clinic.survey()
    copies = clinic.site._rows._snapshots.copies  # type: ignore[union-attr]  # of a strict site
    assert [copy.number for copy in copies] == [1, 2]
    assert np.array_equal(copies[0].ids, copies[1].ids)


def test_rows_that_left_and_came_back_are_the_same_rows(clinic: Clinic) -> None:
    frame = clinic.frame
    first = clinic.site._rows._snapshots.copies[0]  # type: ignore[union-attr]  # of a strict site
    clinic.write(pd.concat([frame.iloc[50:], newcomers(frame, 50)]))
    clinic.survey()
    clinic.write(pd.concat([frame, newcomers(frame, 50)]))
    clinic.survey()
    last = clinic.site._rows._snapshots.copies[-1]  # type: ignore[union-attr]  # of a strict site
    assert last.number == 3
    assert np.array_equal(last.ids[:ROWS], first.ids)


def test_a_new_column_is_used_though_no_row_came(clinic: Clinic) -> None:
    clinic.code("income ~ age")
    clinic.write(clinic.frame.assign(lab=np.arange(ROWS) % 7))
    assert clinic.survey("lab").complete == ROWS
    assert "other columns (1 added or removed), and are used from this fit on" in clinic.told
    assert clinic.code("income ~ age").n == ROWS


def test_a_file_that_is_being_written_is_neither_used_nor_a_refusal(clinic: Clinic) -> None:
    text = clinic.path.read_text(encoding="utf-8")
    clinic.path.write_text(text * 2, encoding="utf-8")  # just now
    assert clinic.survey().rows == ROWS
    assert "just been changed" in clinic.told
    clinic.path.write_text(text[: len(text) // 2] + ',,,"', encoding="utf-8")
    os.utime(clinic.path, (EARLIER, EARLIER))
    for _ in range(4):
        assert clinic.survey().rows == ROWS
    assert "cannot be used as they are now" in clinic.told
    clinic.path.unlink()
    assert clinic.survey().rows == ROWS
    assert clinic.site.refusals.found() == []
    assert len(list((clinic.folder / "snapshots").glob("[0-9]*"))) == 1


def test_without_room_for_a_new_copy_the_last_one_answers(clinic: Clinic) -> None:
    clinic.survey()
    clinic.write(pd.concat([clinic.frame] + [newcomers(clinic.frame, 200)] * 20))
    with disk_full(100_000):
        assert clinic.survey().rows == ROWS
    assert "File too large" in clinic.told
    candidate = clinic.folder / "snapshots" / ".candidate"
    assert not candidate.exists()
    candidate.mkdir()  # of a process that was killed
    clinic.site = clinic.started()
    assert not candidate.exists()
    assert clinic.survey().rows == 21 * ROWS


def test_a_file_with_its_old_time_and_size_is_seen_to_be_another(clinic: Clinic) -> None:
    clinic.write(clinic.frame)
    clinic.survey()
    clinic.write(clinic.frame.assign(ill=1 - clinic.frame["ill"]))
    clinic.survey()
    assert f"({ROWS} rows added, {ROWS} removed)" in clinic.told


def test_a_fit_that_has_begun_keeps_its_rows_over_a_restart(clinic: Clinic) -> None:
    clinic.survey()
    clinic.write(pd.concat([clinic.frame, newcomers(clinic.frame, 100)]))
    clinic.site = clinic.started()
    assert clinic.code("income ~ age").n == ROWS


@pytest.mark.parametrize("name", ["data.csv", "rows.npy", "about.json"])
@pytest.mark.parametrize("gone", [False, True])
def test_a_copy_that_was_changed_answers_nothing(clinic: Clinic, name: str, gone: bool) -> None:
    path = clinic.folder / "snapshots" / "000001" / name
    content = path.read_bytes()
    path.unlink()
    if not gone:
        path.write_bytes(content[: len(content) // 2])
    with pytest.raises(StateError, match=r"snapshots/000001.* restore it from a backup"):
        clinic.started()
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    clinic.site = clinic.started()
    assert clinic.survey().rows == ROWS


@pytest.mark.parametrize("content", [None, b"", bytes(32)])
def test_rows_are_not_compared_with_another_key(clinic: Clinic, content: bytes | None) -> None:
    key = clinic.folder / "snapshots" / "key"
    key.unlink()
    if content is not None:
        key.write_bytes(content)
    with pytest.raises(StateError, match="snapshots/key"):
        clinic.started()


@pytest.mark.parametrize("number", [1, 2])
def test_a_copy_that_answered_and_is_missing_is_named_and_its_number_not_used_again(
    clinic: Clinic, number: int
) -> None:
    clinic.code("income ~ age")
    clinic.write(pd.concat([clinic.frame, newcomers(clinic.frame, 100)]))
    clinic.survey()
    clinic.code("income ~ age")
    folder = clinic.folder / "snapshots" / f"{number:06d}"
    folder.rename(clinic.folder / "away")
    with pytest.raises(StateError, match=f"the snapshot {number} of the file is missing"):
        clinic.started()
    (clinic.folder / "away").rename(folder)
    clinic.site = clinic.started()
    assert clinic.code("income ~ age").n == ROWS + 100


def test_a_first_file_that_cannot_be_read_is_named(clinic: Clinic, tmp_path: Path) -> None:
    clinic.path.write_text('age\n"1\n2\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"data\.csv|clinic\.csv"):
        Site(NAME, str(clinic.path), folder=tmp_path / "another", options=SiteOptions(rules=STRICT))


def test_what_was_disclosed_of_earlier_copies_counts_with_that_of_later_ones(
    tmp_path: Path,
) -> None:
    clinic = Clinic(tmp_path, few=2)
    clinic.code("income ~ age")
    largest = []
    for more in (0, 100):
        clinic.write(pd.concat([clinic.frame, newcomers(clinic.frame, more)]))
        clinic.site = clinic.started()
        clinic.survey()
        clinic.code("income ~ age + bmi")
        h = clinic.site._rows.cohort.leverages()["clinic"]
        assert len(h) == ROWS + more
        largest.append(h[ROWS - 2 : ROWS].sum())
    # the two rows without a bmi are the difference of both models, whichever copy answered
    assert min(largest) > 0.99


def test_a_copy_is_read_with_the_names_marks_and_dates_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("alter;am\n1,5;31/01/2020\nk.A.;1/2/2020\n")
    (tmp_path / "c.toml").write_text(
        "[clients.a]\npath = 'x.csv'\nna = ['k.A.']\ndecimal = ','\ndates = '%d/%m/%Y'\n"
        "rename = { alter = 'age' }\n"
    )
    [source] = sources(tmp_path / "c.toml")
    snapshots = Snapshots(tmp_path / "state")
    copy = snapshots.accept(snapshots.candidate(source))
    found = copy.source().read({"age": "number", "am": "date"})
    assert found["age"].tolist()[0] == 1.5
    assert found["age"].isna().tolist() == [False, True]
    assert found["am"].tolist() == [18292.0, 18293.0]
    [again] = Snapshots(tmp_path / "state").copies
    assert again.about.reading == source.reading
