"""What was disclosed is recorded once, in the transaction of the answer, and damage is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from asked import AskedSite
from fedsplit.channels.channel import Request
from fedsplit.errors import StateError
from fedsplit.federation.site.disclosed import DisclosedRows, Known, RecordedLedger
from fedsplit.regression.client.coding import Coding
from fedsplit.regression.client.guards.ledger import Disclosed
from fedsplit.regression.client.plan import Plan
from fedsplit.statistic import RowSum
from sum_questions import ask_moments

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
