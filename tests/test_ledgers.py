"""What was disclosed is recorded once, in the transaction of the answer, and damage is named."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from asked import AskedSite
from carried import Ends, Once
from fedsplit.channels.channel import Request
from fedsplit.errors import InputError, StateError
from fedsplit.federation.messages import Inquiry, Proposal, read_message, write_message
from fedsplit.federation.site.disclosed import DisclosedRows, Known, RecordedLedger
from fedsplit.federation.site.site import Site
from fedsplit.regression.client.guards.ledger import Disclosed
from fedsplit.regression.client.plan import Coding, Plan
from fedsplit.statistic import RowSum
from sum_questions import ask_moments
from test_malicious import Watched
from test_site_and_coordinator import made, result_of, study_of

COLUMNS = np.arange(40.0).reshape(20, 2) % 7
SUMS = [Disclosed(np.arange(20), RowSum(COLUMNS, np.ones((20, 1))))]


def opened(folder: Path) -> tuple[DisclosedRows, Known]:
    """The record of a machine, and a copy of rows in it."""
    record = DisclosedRows(folder / "disclosed.db")
    hashes = np.arange(40, dtype=np.uint64).reshape(20, 2)
    return record, record.copy("rows") or record.add_copy("rows", ["x", "y"], hashes)


def test_the_same_question_counts_once_and_the_same_array_is_kept_once(tmp_path: Path) -> None:
    record, known = opened(tmp_path)
    ledger = record.ledger(known)
    for key in ("a", "b", "a"):
        ledger.add(key, SUMS, ["matrix"])
    assert record.scalar("SELECT count(*) FROM arrays") == 3
    again = opened(tmp_path)[0].ledger(known)
    for each in (ledger, again):
        assert each.count("matrix") == 2
        assert each.leverages().sum() == pytest.approx(2)


def test_what_a_transaction_undoes_was_not_disclosed_and_can_be_added_again(tmp_path: Path) -> None:
    record, known = opened(tmp_path)

    def interrupted(ledger: RecordedLedger) -> None:
        with record.transaction():
            ledger.add("a", SUMS)
            raise StateError("the disk is full")

    with pytest.raises(StateError):
        interrupted(record.ledger(known))
    assert "a" not in record.ledger(known)
    record.ledger(known).add("a", SUMS)
    assert record.ledger(known).leverages().sum() == pytest.approx(2)


@pytest.mark.parametrize(
    "damage", ["DELETE FROM arrays", "UPDATE arrays SET content = substr(content, 1, 200)"]
)
def test_a_site_answers_nothing_while_a_part_of_its_ledger_is_damaged(
    damage: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(-1, 1, 400), "y": rng.poisson(2.0, 400)})
    site = AskedSite(tmp_path, frame, largest_leverage=0.9)

    def ask(formula: str) -> str:
        plan = Plan(formula, "poisson", types={"y": "number", "x": "number"})
        return site.ask(Request(ask_moments(Coding(plan, False, ("a",))), "", 1)).text

    assert ask("y ~ x") == ""
    before = site.site.disclosed.execute("SELECT * FROM arrays")
    site.site.disclosed.execute(damage)
    site.start()
    assert ask("y ~ x + I(x * x)") == "its owner has to look at it"
    assert "disclosed.db: a part of what was disclosed is missing or damaged" in site.seen[-1]
    assert not site.refusals  # of its owner's trouble nobody is guilty
    for row in before:
        site.site.disclosed.execute("INSERT OR REPLACE INTO arrays VALUES (?, ?)", *row)
    assert ask("y ~ x + I(x * x)") == ""


# ---------------------------------------------------------------------- lost, or restored


def restored(folder: Path, name: str, backup: Path | None) -> None:
    """Put an earlier state of a database in its place, or none."""
    for path in folder.glob(f"{name}*"):
        path.unlink()
    if backup is not None:
        shutil.copy(backup, folder / name)


def saved(path: Path, copy: Path) -> Path:
    with sqlite3.connect(path) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    return copy


def disclosed_at(site: Site) -> tuple[float, dict[str, Any]]:
    """ε spent, and the leverages of the rows of each copy that has answered."""
    found = {}
    for name in site.record.copies():
        known = site.disclosed.copy(name)
        assert known is not None
        found[name] = site.disclosed.ledger(known).leverages().round(8).tolist()
    return site.spent()[0], found


@pytest.mark.parametrize("mode", ["open", "secure", "noise"])
@pytest.mark.parametrize("lost", ["all", "the last answers"])
def test_what_the_record_of_a_machine_has_lost_is_computed_from_that_of_the_site(
    mode: str, lost: str, tmp_path: Path
) -> None:
    # a power cut may take the last commits, a backup takes more, and another machine has none
    federation = made(tmp_path / "made", privacy_epsilon=1.5)
    folder, backup = federation.folder / "north", None
    with suppress(Ends):
        federation.coordinator(Once(federation.direct(), 3)).run(study_of(federation, mode))
    if lost != "all":
        backup = saved(folder / "disclosed.db", tmp_path / "backup.db")
    result_of(federation, study_of(federation, mode))
    before = disclosed_at(federation.site("north"))
    restored(folder, "disclosed.db", backup)
    lines: list[str] = []
    site = federation.site("north", watch=lines.append)
    study = study_of(federation, mode, title="another")
    again = [site.response(write_message(federation.key, Proposal(study.content))) for _ in "ab"]
    assert [each.outcome for each in again] == ["answer", "answer"]
    assert disclosed_at(site) == before
    missing = "what was disclosed is computed again: the machine's record has lost it"
    assert lines.count(missing) == 1
    if mode == "noise":
        with pytest.raises(InputError, match=r"privacy_epsilon: 1 of 1\.5 is spent"):
            federation.run(study)


def test_a_site_db_that_was_restored_alone_is_noticed_without_the_coordinator(
    tmp_path: Path,
) -> None:
    federation = made(tmp_path / "made")
    study, folder = study_of(federation, "noise"), federation.folder / "north"
    transport = Watched(federation)
    with suppress(Ends):
        federation.coordinator(Once(transport, 2)).run(study)
    backup = saved(folder / "site.db", tmp_path / "backup.db")
    federation.coordinator(transport).run(study)
    restored(folder, "site.db", backup)
    lines: list[str] = []
    site = federation.site("north", watch=lines.append)
    # a coordinator that hides the head of the log would have the noise drawn again
    asked = read_message(bytes.fromhex(study.coordinator), transport.sent[2]["north"])
    assert isinstance(asked, Inquiry)
    hidden = replace(asked, head=None)
    response = site.response(write_message(federation.key, hidden))
    assert (response.outcome, response.value) == ("failed", b"")
    assert "restored from a backup" in lines[-1]
