"""A malicious server against a real site: attacks succeed without their guard, and fail with it.

``python tests/test_attacks.py`` prints the table of docs/guards.md.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from attacks import bits, columns, points
from attacks.server import (
    NAME,
    ROWS,
    STRICT,
    TYPES,
    Attack,
    Guess,
    Refused,
    Server,
)
from fedsplit.clients.question import Question
from fedsplit.regression.client.description import ColumnRequest
from fedsplit.regression.client.fit_questions import (
    Describe,
)
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.sites.events import Event
from fedsplit.sites.service import Site

ATTACKS: Sequence[Attack] = [*columns.ATTACKS, *points.ATTACKS, *bits.ATTACKS]

CASES = [(attack, few) for attack in ATTACKS for few in attack.few]


def outcome(attack: Attack, few: int, rules: Rules, folder: Path) -> Guess | str:
    """What a server finds out about ``few`` rows, or why it does not."""
    folder.mkdir(parents=True)
    try:
        return attack.run(Server(folder, rules, few))
    except Refused as error:
        return str(error)


@pytest.mark.parametrize(("attack", "few"), CASES, ids=[f"{a.title} {n}" for a, n in CASES])
def test_an_attack_fails_under_rules_and_succeeds_without_its_guard(
    attack: Attack, few: int, tmp_path: Path
) -> None:
    smallest = max(3, few + 1)
    without = outcome(attack, few, attack.off, tmp_path / "without")
    assert isinstance(without, Guess), without
    assert without.right, without
    found = outcome(attack, few, replace(STRICT, smallest=smallest), tmp_path / "with")
    assert isinstance(found, str) or not found.right, found


FAR_OUT = [(attack, few) for attack, few in CASES if attack.guard == points.POINT]


@pytest.mark.parametrize(("attack", "few"), FAR_OUT, ids=[f"{a.title} {n}" for a, n in FAR_OUT])
def test_points_are_refused_by_what_few_rows_carry_there_and_not_only_by_how_far_they_are(
    attack: Attack, few: int, tmp_path: Path
) -> None:
    unbounded = replace(STRICT, smallest=max(3, few + 1), predictor=math.inf)
    found = outcome(attack, few, unbounded, tmp_path / "with")
    assert isinstance(found, str) or not found.right, found


def test_what_was_answered_is_known_after_a_restart_and_under_a_later_snapshot(
    tmp_path: Path,
) -> None:
    server = Server(tmp_path, STRICT, 2)
    server.code("income ~ age")
    for more in (0, 40):
        frame = pd.concat([server.frame, server.frame.head(more).assign(age=50.5)])
        frame.to_csv(server.path, index=False)
        server.site = server.started()
        with pytest.raises(Refused):
            server.code("income ~ age + bmi")
        server.site.refusals.clear()
    assert server.code("income ~ age").n == ROWS + 40


def test_models_with_some_of_the_columns_of_a_study_have_the_same_rows(tmp_path: Path) -> None:
    server = Server(tmp_path, STRICT, 2)
    types = {name: TYPES[name] for name in ("income", "age", "visits")}
    for formula in ("income ~ age + visits + bmi", "income ~ age", "income ~ age + visits"):
        moments = server.code(formula, others=("bmi",), types={**types, "bmi": "number"})
        assert moments.n == ROWS - 2


@pytest.mark.parametrize("fresh", [False, True])
def test_what_points_have_told_together_is_known_after_a_restart(
    tmp_path: Path, fresh: bool
) -> None:
    server = Server(tmp_path, STRICT, 1)
    ask = server.ask

    def restarted(question: Question, key: str = "") -> Any:
        server.site = server.started(fresh)
        return ask(question, key)

    server.ask = restarted  # type: ignore[method-assign]  # a process for each question
    with pytest.raises(Refused):
        points.by_prony(server)
    assert "rows stand out of those before" in server.site.refusals.found()[0]["why"]


def test_a_file_that_changes_is_used_once_enough_rows_have_come_and_gone(tmp_path: Path) -> None:
    server = Server(tmp_path, STRICT, 2)
    seen: list[Event] = []
    server.site = Site(
        NAME, str(server.path), folder=server.folder, rules=STRICT, watch=seen.append
    )
    request = Describe(ColumnRequest({"age": "number"}, frozenset(), frozenset(), False))
    extra = server.frame.head(3).assign(age=[41.5, 42.5, 43.5])
    for changed, rows in (
        (server.frame, ROWS),
        (pd.concat([server.frame, extra.head(2)]), ROWS),  # two came
        (pd.concat([server.frame.iloc[1:], extra]), ROWS),  # three came, one went
        (pd.concat([server.frame.assign(other=1), extra.head(1)]), ROWS),  # with a new column
        (pd.concat([server.frame, extra]), ROWS + 3),
        (server.frame, ROWS + 3),  # three went, none came
    ):
        changed.to_csv(server.path, index=False)
        assert server.ask(request).rows == rows
    told = [event.text for event in seen if event.kind == "data"]
    assert len(told) == 5
    assert "(2 rows came, 0 went)" in told[0]
    assert "3 rows came, 0 went), and is used from the next fit on" in told[3]


def table() -> list[str]:
    """The lines of the table in docs/guards.md."""
    lines = [
        "| attack | rows | without its guard | under `--strict` | what stops it |",
        "| --- | --- | --- | --- | --- |",
    ]
    for attack in ATTACKS:
        few = attack.few[-1]
        rules = replace(STRICT, smallest=max(3, few + 1))
        with tempfile.TemporaryDirectory() as name:
            without = outcome(attack, few, attack.off, Path(name) / "without")
            found = outcome(attack, few, rules, Path(name) / "with")
        assert isinstance(without, Guess)
        told = "refused"
        if isinstance(found, Guess):
            told = f"answered, which gives {found.found:.5g}"
        rows = ", ".join(map(str, attack.few))
        read = f"{without.found:.6g} of {without.true:.6g}"
        lines.append(f"| {attack.title} | {rows} | {read} | {told} | {attack.guard} |")
    return lines


if __name__ == "__main__":
    sys.stdout.write("\n".join(table()) + "\n")
