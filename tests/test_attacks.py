"""A malicious server against a real site: what is read, what the ledger says, what rules stop.

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

import numpy as np
import pandas as pd
import pytest

from attacks import bits, cells, columns, points
from attacks.colluding import Colluding
from attacks.server import (
    ROWS,
    STRICT,
    TALKATIVE,
    TYPES,
    WARN,
    Attack,
    Guess,
    Keys,
    Refused,
    Server,
    bisected,
)
from fedsplit.clients.local_models import WAY, LocalModel
from fedsplit.clients.question import Question
from fedsplit.clients.questions import Gradient
from fedsplit.data.formula.formula import Formula
from fedsplit.data.pooled.column_statistics import Histogram
from fedsplit.losses.costs import parabola
from fedsplit.regression.client.design import Scaling
from fedsplit.regression.client.guards import rounding
from fedsplit.regression.client.questions import SumQuestion
from fedsplit.regression.client.statistics import LogLikelihood
from sum_questions import argument_in, ask_arguments, ask_calibration, ask_moments, calibration_in

ATTACKS: Sequence[Attack] = [*columns.ATTACKS, *points.ATTACKS, *cells.ATTACKS, *bits.ATTACKS]

CASES = [(attack, few) for attack in ATTACKS for few in attack.few]


def outcome(
    attack: Attack, few: int, rules: Keys, folder: Path, kind: type[Server] = Server
) -> Guess | str:
    """What a server finds out about ``few`` rows, or why it does not."""
    folder.mkdir(parents=True)
    return found_by(attack, kind(folder, rules, few))


def found_by(attack: Attack, server: Server) -> Guess | str:
    """What an attack finds out by a server, or why it does not."""
    try:
        return attack.run(server)
    except Refused as error:
        return str(error)


def sampled(cases: Sequence[tuple[Attack, int]]) -> list[Any]:
    """The cases as parameters: of each attack that with the most rows, the others in slow tests."""
    return [
        pytest.param(
            attack,
            few,
            id=f"{attack.title} {few}",
            marks=[pytest.mark.slow] * (few < max(attack.few)),
        )
        for attack, few in cases
    ]


@pytest.mark.parametrize(("attack", "few"), sampled(CASES))
def test_an_attack_reads_rows_unless_the_rules_of_strict_stop_it(
    attack: Attack, few: int, tmp_path: Path
) -> None:
    smallest = max(3, few + 1)
    (tmp_path / "without").mkdir()
    server = Server(tmp_path / "without", attack.off, few)
    without = found_by(attack, server)
    assert isinstance(without, Guess), without
    assert without.right, without
    if few == 1 and attack.seen:
        assert rests_on_few_rows(attack, server)
    found = outcome(attack, few, {**STRICT, "smallest_group": smallest}, tmp_path / "with")
    read = isinstance(found, Guess) and found.right
    assert read == (not attack.guard), found


def rests_on_few_rows(attack: Attack, server: Server) -> bool:
    """Whether the ledger shows that what was read is that of the rows read."""
    return bool(server.leverages()[-attack.rows :].sum() >= 0.9)


@pytest.mark.parametrize(
    "attack",
    [pytest.param(each, id=each.title) for each in ATTACKS if each.seen and max(each.few) > 1],
)
def test_the_ledger_shows_that_an_attack_rests_on_one_row(attack: Attack, tmp_path: Path) -> None:
    server = Server(tmp_path, attack.off, 1)
    assert attack.run(server).right
    assert rests_on_few_rows(attack, server)


@pytest.mark.parametrize(
    "attack", [pytest.param(each, id=each.title) for each in ATTACKS if not each.guard][::4]
)
def test_an_attack_that_strict_does_not_stop_is_stopped_by_a_limit_on_leverages(
    attack: Attack, tmp_path: Path
) -> None:
    found = outcome(attack, 1, {**STRICT, "largest_leverage": 0.9 / attack.rows}, tmp_path / "with")
    assert isinstance(found, str) or not found.right, found


IN_SUMS = {
    "two models, one with a column that few rows lack",
    "a product of two conditions",
    "sums of exponentials at many points near by",
    "two of Huber's matrices, between which few rows cross δ",
    "Firth's penalty with several metrics",
    "bisection by a target that is refused",
    "calibration as the intercept moves",
}
"""Attacks by what a site adds to sums that are tried in every run; the others are slow tests."""


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(each, id=each.title, marks=[pytest.mark.slow] * (each.title not in IN_SUMS))
        for each in ATTACKS
    ],
)
def test_an_attack_by_what_a_site_adds_to_secure_sums_is_stopped_by_the_same_rules(
    attack: Attack, tmp_path: Path
) -> None:
    few = max(attack.few)
    assert {each.title for each in ATTACKS} >= IN_SUMS
    if attack.title in IN_SUMS:
        without = outcome(attack, few, attack.off, tmp_path / "without", Colluding)
        assert isinstance(without, Guess), without
        assert without.right, without
    if not attack.guard:
        return
    rules = {**STRICT, "smallest_group": max(3, few + 1)}
    found = outcome(attack, few, rules, tmp_path / "with", Colluding)
    assert isinstance(found, str) or not found.right, found


def test_forty_conditions_at_once_are_refused_by_a_limit_on_leverages(
    tmp_path: Path,
) -> None:
    ages = np.linspace(20, 80, 2_400).round(3)
    frame = pd.DataFrame({"age": ages, "income": np.sin(ages)})
    server = Server(tmp_path, {**STRICT, "largest_leverage": 0.9}, 1, frame)
    # neighbouring conditions differ in one row, and each one holds for hundreds
    terms = " + ".join(f"I(age >= {ages[at]})" for at in range(400, 440))
    with pytest.raises(Refused):
        server.code(f"income ~ {terms}")
    assert "the leverage of a row would be" in server.asked.refusals[0]


def test_an_honest_calibration_and_the_same_histogram_again_are_told(tmp_path: Path) -> None:
    server = Server(tmp_path, STRICT, 1)
    coding = server.coding("ill ~ age", "logistic")
    server.ask(ask_moments(coding))
    key = server.settle(coding, 2)
    question = ask_calibration(np.array([-0.5, 0.01]))
    for _ in range(6):
        assert calibration_in(server.ask(question, key)).rows.sum() > 100
    coding = server.coding("income ~ ns(age, 4)")
    for _ in range(10):
        told = server.ask(ask_arguments(coding, {"ns(age, 4)": Histogram(20.0, 5.0, 12)}))
        assert argument_in(told, "ns(age, 4)").sum() > 100


def test_whether_two_columns_have_the_same_histogram_does_not_depend_on_their_values(
    tmp_path: Path,
) -> None:
    server = Server(tmp_path, STRICT, 1)

    def answers(argument: str) -> bool:
        text = Formula(f"income ~ ns({argument}, 4)").pooled[0].text
        coding = server.coding(f"income ~ ns({argument}, 4)")
        return server.answers(ask_arguments(coding, {text: Histogram(20.0, 12.0, 5)}))

    assert answers("age")
    assert answers("age")
    # nobody is older than 90: the values of all of these are the same
    told = [answers(f"ifelse(age > {cut}, age + 1, age)") for cut in range(90, 100)]
    assert told == [True] * 7 + [False] * 3
    assert not answers("ifelse(age > 30, age + 1, age)")
    assert answers("age")


def test_how_far_an_origin_may_be_follows_from_the_moments(tmp_path: Path) -> None:
    server = Server(tmp_path, TALKATIVE, 1)
    coding = server.coding("income ~ age")
    moments = server.moments(coding)

    def refused(origin: float) -> bool:
        try:
            server.settle(coding, 2, scaling=Scaling(np.zeros(2), np.ones(2), 1.0, origin * 1e6))
        except Refused:
            return True
        return False

    found = bisected(0, 1e5, lambda origin: not refused(origin), bits=30)
    size = math.sqrt(moments.target_scatter / moments.weight + moments.target_mean**2)
    assert found == pytest.approx(size, rel=1e-6)


@pytest.mark.parametrize("dispersion", [5e-324, 1e-200, 1e200, math.inf, math.nan])
def test_a_dispersion_beyond_all_measure_is_refused_whatever_the_rows(
    dispersion: float, tmp_path: Path
) -> None:
    server = Server(tmp_path, STRICT, 1)
    types = {name: TYPES[name] for name in ("visits", "bmi", "age")}
    coding = server.coding("visits ~ bmi", weights="age", types=types)
    server.ask(ask_moments(coding))
    key = server.settle(coding, 2)
    with pytest.raises(Refused, match="neither 0 nor between"):
        server.ask(SumQuestion({"": LogLikelihood(np.zeros(2), dispersion)}), key)


def test_rows_beyond_boundary_knots_are_shown_to_the_owner_alone(tmp_path: Path) -> None:
    server = Server(tmp_path, STRICT, 1)
    formula = "income ~ bs(age, degree=1, Boundary.knots=c(0, 60))"
    assert not server.ask(ask_moments(server.coding(formula))).warnings
    assert any("beyond the boundary knots" in each for each in server.asked.seen)


def test_models_with_some_of_the_columns_of_a_study_have_the_same_rows(tmp_path: Path) -> None:
    server = Server(tmp_path, STRICT, 2)
    types = {name: TYPES[name] for name in ("income", "age", "visits")}
    for formula in ("income ~ age + visits + bmi", "income ~ age", "income ~ age + visits"):
        moments = server.code(formula, others=("bmi",), types={**types, "bmi": "number"})
        assert moments.n == ROWS - 2


def test_what_is_disclosed_is_on_disk(tmp_path: Path) -> None:
    server = Server(tmp_path, STRICT, 1)
    coding = replace(server.coding("visits ~ age", "poisson"), strict=True)
    server.ask(ask_moments(coding))
    key = server.settle(coding, 2)
    for _ in range(3):
        server.ask(Gradient(np.array([0.5, 0.01])), key)
    # the moments, the coordinates, and one point
    assert server.asked.site.disclosed.scalar("SELECT count(*) FROM entries") == 3


def test_what_was_disclosed_is_known_after_a_restart(tmp_path: Path) -> None:
    server = Server(tmp_path, {**STRICT, "largest_leverage": 0.999}, 1)
    ask = server.ask

    def restarted(question: Question, key: str = "") -> Any:
        server.asked.start()
        return ask(question, key)

    server.ask = restarted  # type: ignore[method-assign]  # a process for each question
    with pytest.raises(Refused):
        points.by_mixed_gradients(server)
    assert "the leverage of a row would be" in server.asked.refusals[0]


def test_a_question_that_states_nothing_is_refused_under_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(tmp_path, STRICT, 1)
    coding = server.coding("visits ~ age", "poisson")
    server.ask(ask_moments(coding))
    key = server.settle(coding, 2)
    monkeypatch.setattr(rounding, "ALLOWED", rounding.ALLOWED - {Gradient})
    with pytest.raises(Refused, match="gradient does not state what it discloses"):
        server.ask(Gradient(np.array([0.5, 0.01])), key)


@pytest.mark.parametrize(
    ("formula", "family", "scaling", "why"),
    [
        ("visits ~ age", "poisson", Scaling(np.zeros(2), np.ones(2), 5e3), "has none"),
        ("visits ~ age", "poisson", Scaling(np.zeros(2), np.ones(2), 1.0, 3.0), "has none"),
        ("income ~ age", "gaussian", Scaling(np.zeros(2), np.ones(2), 1.0, -(2.0**58)), "far from"),
    ],
)
def test_units_and_origins_that_no_honest_fit_has_are_refused(
    formula: str, family: str, scaling: Scaling, why: str, tmp_path: Path
) -> None:
    server = Server(tmp_path, STRICT, 1)
    coding = server.coding(formula, family)
    server.ask(ask_moments(coding))
    with pytest.raises(Refused, match=why):
        server.settle(coding, 2, scaling=scaling)


def test_values_on_the_way_follow_from_both_ends_under_rules(tmp_path: Path) -> None:
    told = {}
    for name, rules in (("open", WARN), ("strict", STRICT)):
        (tmp_path / name).mkdir()
        server = Server(tmp_path / name, rules, 1)
        coding = server.coding("visits ~ age", "poisson")
        server.ask(ask_moments(coding))
        key = server.settle(coding, 2)
        question = LocalModel(np.array([-1.0, 0.05]), None, None, 0.0, np.zeros(2))
        told[name] = server.ask(question, key).parts
    start, end = (told["open"]["values"][:, at] for at in (-1, 0))
    slope = told["open"]["slope"] @ np.array([-1.0, 0.05])
    assert np.allclose(told["strict"]["values"], parabola(start, end, slope, WAY), rtol=1e-12)
    assert not np.allclose(told["open"]["values"], told["strict"]["values"], rtol=0.05)


def table() -> list[str]:
    """The lines of the table in docs/guards.md."""
    lines = [
        "| attack | rows | what is read | h of the row | under `--strict` |",
        "| --- | --- | --- | --- | --- |",
    ]
    for attack in ATTACKS:
        few = attack.few[-1]
        rules = {**STRICT, "smallest_group": max(3, few + 1)}
        with tempfile.TemporaryDirectory() as name:
            without = outcome(attack, few, attack.off, Path(name) / "without")
            found = outcome(attack, few, rules, Path(name) / "with")
            (Path(name) / "one").mkdir()
            server = Server(Path(name) / "one", attack.off, 1)
            attack.run(server)
            h = f"{server.leverages()[-attack.rows :].sum():.4f}" if attack.seen else "no sum"
        assert isinstance(without, Guess)
        told = "**read**"
        if attack.guard:
            told = f"refused: {attack.guard}"
            if isinstance(found, Guess):
                told = f"answered, which gives {found.found:.5g}: {attack.guard}"
        rows = ", ".join(map(str, attack.few))
        read, true = f"{without.found:.6g}", f"{without.true:.6g}"
        if read != true:
            read += f" of {true}"
        lines.append(f"| {attack.title} | {rows} | {read} | {h} | {told} |")
    return lines


if __name__ == "__main__":
    sys.stdout.write("\n".join(table()) + "\n")
