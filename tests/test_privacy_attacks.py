"""Attacks on fits with noise: rows, bounds, points and servers that try to get around it."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import fedsplit as fs
from asked import AskedSite
from fedsplit.channels.channel import Reply, Request
from fedsplit.clients.questions import Gradient
from fedsplit.data.sources import sources
from fedsplit.errors import InputError
from fedsplit.federation.coordinator import StudyResult
from fedsplit.federation.messages import Ending, Inquiry, Message, Proposal
from fedsplit.federation.questions import encode_request
from fedsplit.federation.regression import RegressionStudy
from fedsplit.federation.study import Study
from fedsplit.regression.client.noise import (
    MARGIN,
    BoundedRows,
    Noise,
    RowVectors,
    bounded_rows,
    shortened,
)
from fedsplit.regression.client.plan import Coding, Plan
from fedsplit.regression.client.privacy import bounds_of
from fedsplit.regression.client.questions import Joint, NoisySums, Survey
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.options import FitOptions
from fedsplit.testing import Federation
from test_privacy import NOISY, privacy

T = 3

FORMULA = "y ~ x + C(ward)"
TYPES: Any = {"y": "number", "x": "number", "ward": "text"}
LEVELS = {"ward": ["east", "north", "west"]}
PRIVACY = fs.Privacy(4.0, 1e-6, 2.0, T, score=10.0, weight=10.0, ranges={"x": (-4, 4)})
OPEN: dict[str, Any] = {"types": TYPES, "levels": LEVELS, "dp": PRIVACY}
PLAN = Plan(FORMULA, "poisson", LEVELS, TYPES)
CODING = Coding(PLAN, False, ("a",))


def vectors(family: str, chosen: fs.Privacy, number: int, x: Any) -> RowVectors:
    return RowVectors(
        FAMILIES[family], chosen, bounds_of(FAMILIES[family], chosen), number, np.array(x)
    )


# Rows


def strange_rows(rng: np.random.Generator) -> pd.DataFrame:
    """Rows of ordinary and of absurd values, some of which cannot be used at all."""
    n = 40
    numbers = np.array([0.0, 1.0, -1.0, 0.3, 1e-310, 1e8, -1e155, 1.7e308, np.nan])
    frame = pd.DataFrame({name: rng.choice(numbers, n) for name in ("y", "x", "w", "o")})
    frame["y"] = rng.choice([0.0, 1.0, 1.0, 2.0, 1e300, -1.0], n)
    frame["g"] = rng.choice(["a", "b", "never declared", ""], n, p=[0.4, 0.4, 0.1, 0.1])
    return frame


@pytest.mark.parametrize("family", NOISY)
def test_removing_any_row_of_a_table_moves_all_sums_together_by_one_at_most(family: str) -> None:
    rng = np.random.default_rng(3)
    types: Any = {**dict.fromkeys(["y", "x", "w", "o"], "number"), "g": "text"}
    formula = "{y > 0} ~ x * C(g)" if family == "logistic" else "y ~ x * C(g)"
    plan = Plan(formula, family, {"g": ["a", "b"]}, types, weights="w", offset="o")
    chosen = privacy(family, rounds=T, ranges={"x": (-2.0, 5.0)})
    noise = Noise.of(chosen, 1)
    points = [np.zeros(4), [1e300, -1e300, 1e16, -1e16], [0.1, 40.0, -40.0, 3.0]]

    def sums(frame: pd.DataFrame) -> list[int]:
        [source] = sources({"c": frame})
        rows = bounded_rows(source, plan, chosen, "c")
        asked = [vectors(family, chosen, t + 1, x) for t, x in enumerate(points)]
        return [step for each in asked for step in each.total(rows, noise.step)]

    frame = strange_rows(rng)
    everything = sums(frame)
    moved = []
    for i in range(len(frame)):
        less = sums(frame.drop(index=i).reset_index(drop=True))
        moved.append(sum((a - b) ** 2 for a, b in zip(everything, less, strict=True)))
    assert max(moved) <= int((MARGIN / noise.step) ** 2)
    assert max(moved) > 0.2 / noise.step**2


@pytest.mark.parametrize("family", NOISY)
def test_the_longest_vector_of_a_row_is_found_to_be_as_long_as_its_share(family: str) -> None:
    chosen = privacy(family, rounds=T)

    def length(row: Any) -> float:
        a, (b, w, o) = row[:3], row[3:]
        rows = BoundedRows(shortened(a[None], 2.0), *np.array([[np.exp(b)], [np.exp(w)], [o]]))
        return -float(np.linalg.norm(vectors(family, chosen, T, np.ones(3)).of(rows)))

    starts = np.random.default_rng(0).standard_normal((4, 6)) * [0.7, 0.7, 0.7, 0.5, 3.0, 0.5]
    found = [
        minimize(length, start, method="Nelder-Mead", options={"maxiter": 400}).fun
        for start in starts
    ]
    most = math.sqrt(sum(chosen.shares(T, FAMILIES[family].dispersed)))
    assert -min(found) <= MARGIN * most
    assert -min(found) > 0.99 * most


def test_what_a_row_adds_to_a_sum_does_not_depend_on_the_other_rows() -> None:
    rng = np.random.default_rng(1)
    n, p = 37, 9
    rows = BoundedRows(
        shortened(rng.standard_normal((n, p)), 2.0), np.ones(n), np.ones(n), np.zeros(n)
    )
    chosen = privacy(rounds=1)
    step = Noise.of(chosen, 1).step
    x = rng.standard_normal(p) * 1e15  # so that the rounding of η decides its sign
    x[-1] = -(rows.A[0, :-1] @ x[:-1]) / rows.A[0, -1]
    asked = vectors("logistic", chosen, 1, x)
    each = [asked.total(BoundedRows(*(part[i : i + 1] for part in rows)), step) for i in range(n)]
    assert asked.total(rows, step) == [sum(numbers) for numbers in zip(*each, strict=True)]


def test_a_row_that_got_past_all_bounds_counts_as_none() -> None:
    chosen = privacy(rounds=1)
    A = np.array([[2.0, 0.0], [20.0, 0.0], [np.nan, 0.0], [np.inf, 1.0], [1e308, 1e308]])
    rows = BoundedRows(A, *np.ones((3, 5)))
    with np.errstate(invalid="ignore", over="ignore"):
        found = vectors("logistic", chosen, 1, np.zeros(2)).of(rows)
    assert found[0].any()
    assert not found[1:].any()


@pytest.mark.parametrize("clip", [1e-50, 1e-15, 1.0, 1e50])
def test_rows_of_any_size_are_shortened_without_a_loss_of_digits(clip: float) -> None:
    A = np.random.default_rng(0).standard_normal((200, 3)) * 1e307
    unit = shortened(A, clip) / clip
    assert np.allclose(np.linalg.norm(unit, axis=1), 1.0, rtol=1e-14, atol=0.0)


@pytest.mark.parametrize(
    "bounds",
    [
        {"clip": 5e-324},
        {"clip": 10**400},
        {"score": 1e-170},
        {"score": 1e160},
        {"weight": 5e-324},
        {"ranges": {"x": (1e308, 1.7e308)}},
        {"ranges": {"x": (-1.7e308, 1.7e308)}},
        {"ranges": {"x": (0.0, 5e-324)}},
        {"site_rows": 10**400},
    ],
)
def test_bounds_whose_squares_or_quotients_overflow_are_refused(bounds: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="dp"):
        replace(fs.Privacy(1.0, 1e-6, 2.0, 3), **bounds)


# Servers


class OneSite(AskedSite):
    """A site that approves every study, and what is said to it."""

    def __init__(self, folder: Path, lines: Sequence[str], **policy: Any) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "rows.csv").write_text("\n".join([*lines, ""]), encoding="utf-8")
        super().__init__(folder, folder / "rows.csv", **{"least_rows": 1, **policy})

    def noised(self, study: Study, number: int, **changes: Any) -> Reply:
        """The reply to a question of a study, which names its own number."""
        asked = replace(NoisySums(CODING, PRIVACY, number, np.zeros(4)), **changes)
        return self.ask(Request(asked, "", 1), study)

    def shapes(self, study: Study) -> list[tuple[str, int]]:
        """The kind and the size of everything that it sends during a study."""
        messages: list[Message] = [Proposal(study.content)]
        for number in (1, 2, 3):
            question = NoisySums(CODING, PRIVACY, number, np.zeros(4))
            asked = encode_request(Request(question, "", 1))
            messages.append(Inquiry(study.digest, number, asked))
        messages.append(Ending(study.digest, "the table"))
        responses = [self.send(each) for each in messages]
        return [(each.outcome, len(self.site.signed(each))) for each in responses]


def analysis(formula: str = FORMULA, **settings: Any) -> RegressionStudy:
    return RegressionStudy.of(FitOptions(None, formula, family="poisson", **{**OPEN, **settings}))


def table(n: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x, ward = rng.standard_normal(n), rng.choice(["east", "west", "north"], n)
    return pd.DataFrame({"y": rng.poisson(np.exp(0.3 * x)), "x": x, "ward": ward})


LINES = table().to_csv(index=False).splitlines()
HEADER = LINES[0]


def line(**values: str) -> str:
    own = {"y": "1", "x": "0.5", "ward": "east", **values}
    return ",".join(own.get(column, "") for column in HEADER.split(","))


NEIGHBOURS: dict[str, tuple[Sequence[str], str]] = {
    "the only row": ([HEADER], line()),
    "the only row with a level": (LINES, line(ward="west")),
    "a level that is not declared": (LINES, line(ward="south")),
    "the only missing value": (LINES, line(x="")),
    "text in a column of numbers": (LINES, line(x="abc")),
    "an infinite number": (LINES, line(x="inf")),
    "a number that overflows": (LINES, line(y="1e999")),
    "an impossible target": (LINES, line(y="-1")),
}


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_all_that_leaves_a_site_looks_the_same_with_and_without_a_row(
    name: str, tmp_path: Path
) -> None:
    without, row = NEIGHBOURS[name]
    shapes = []
    for number, lines in enumerate((without, [*without, row])):
        site = OneSite(tmp_path / str(number), lines)
        study = site.federation.study(analysis(), secure=False)
        shapes.append(site.shapes(study))
    assert shapes[0] == shapes[1]
    assert {outcome for outcome, _ in shapes[0]} == {"answer"}


def test_of_a_file_that_cannot_be_read_the_coordinator_learns_nothing_else(tmp_path: Path) -> None:
    site = OneSite(tmp_path, LINES)
    with (tmp_path / "rows.csv").open("a", encoding="utf-8") as file:
        file.write("1,2,3,4,5,6\n")
    response = site.send(Proposal(site.federation.study(analysis(), secure=False).content))
    assert (response.outcome, response.reason) == ("waiting", "for its owner")


def test_a_budget_of_epsilon_holds_for_all_studies_of_the_same_rows(tmp_path: Path) -> None:
    site = OneSite(tmp_path, LINES, privacy_epsilon=6.0)
    other = {"privacy": replace(PRIVACY, rounds=2)}
    first = site.propose(analysis())
    second = site.propose(analysis(dp=other["privacy"]))
    assert "is not the next one" in site.noised(second, 2, **other).text
    assert site.noised(first, 1).outcome == "answer"
    assert "privacy_epsilon: 4 of 6 is spent" in site.noised(second, 1, **other).text
    assert site.noised(first, 2).outcome == "answer"


def test_delta_is_limited_where_an_owner_relies_on_noise(tmp_path: Path) -> None:
    careless = replace(PRIVACY, epsilon=0.01, delta=0.5)
    for policy in ({"privacy_epsilon": 6.0}, {"privacy_only": True}):
        site = OneSite(tmp_path / next(iter(policy)), LINES, **policy)
        study = site.propose(analysis(dp=careless))
        told = site.noised(study, 1, privacy=careless)
        assert told.text == "privacy_delta: 0 of 0.001 is spent"


def test_noise_is_drawn_once_for_a_question_and_is_that_after_a_restart(tmp_path: Path) -> None:
    site = OneSite(tmp_path, LINES)
    study = site.propose(analysis())
    asked = encode_request(Request(NoisySums(CODING, PRIVACY, 1, np.zeros(4)), "", 1))
    first = site.send(Inquiry(study.digest, 1, asked))
    site.start()
    assert site.send(Inquiry(study.digest, 1, asked)).value == first.value
    # at no other point, and in no other exchange, is the same share of ε spent again
    for exchange, number in ((1, 1), (2, 1), (2, 3), (3, 2)):
        question = NoisySums(CODING, PRIVACY, number, np.ones(4))
        other = Inquiry(study.digest, exchange, encode_request(Request(question, "", 1)))
        assert (site.send(other).outcome == "answer") == ((exchange, number) == (3, 2))


@pytest.mark.parametrize("formula", ["y ~ scale(x) + C(ward)", "y ~ bs(x, df=4) + C(ward)"])
def test_no_study_with_noise_has_functions_whose_errors_depend_on_rows(
    formula: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="function of all rows"):
        OneSite(tmp_path, LINES).propose(analysis(formula))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"privacy": replace(PRIVACY, epsilon=40.0)}, "in its privacy"),
        ({"privacy": replace(PRIVACY, clip=20.0)}, "in its privacy"),
        ({"privacy": replace(PRIVACY, seed=1)}, "in its privacy"),
        ({"shares": 100}, "in its share of the noise"),
        (
            {"coding": replace(CODING, plan=replace(CODING.plan, parameters={"delta": 1.0}))},
            "delta",
        ),
        (
            {"coding": replace(CODING, plan=replace(CODING.plan, levels={"ward": ["east"]}))},
            "level",
        ),
        ({"number": 2}, "is not the next one"),
        ({"number": 0}, "is not the next one"),
        ({"x": np.zeros(7)}, "a point of another size"),
    ],
)
def test_a_site_draws_no_less_noise_than_was_approved(
    changes: dict[str, Any], why: str, tmp_path: Path
) -> None:
    site = OneSite(tmp_path, LINES)
    study = site.propose(analysis())
    own: dict[str, Any] = {"number": 1, **changes}
    reply = site.noised(study, own.pop("number"), **own)
    assert (reply.outcome, why in reply.text) == ("refused", True)
    assert site.noised(study, 1).outcome == "answer"


def test_a_study_with_noise_has_its_questions_and_no_others(tmp_path: Path) -> None:
    site = OneSite(tmp_path, LINES)
    study = site.propose(analysis())
    assert study.questions == T
    for question in (Gradient(np.zeros(4)), Survey(CODING), Joint({"": Survey(CODING)})):
        reply = site.ask(Request(question, "", 1), study)
        assert reply.text.startswith("a study with noise has no question ")
    for number in (1, 2, 3):
        assert site.noised(study, number).outcome == "answer"
    site.start()
    assert site.noised(study, 4).text == f"the study has had its {T} questions"


def test_an_answer_with_noise_whose_record_is_lost_is_not_drawn_again(tmp_path: Path) -> None:
    site = OneSite(tmp_path, LINES)
    study = site.propose(analysis())
    for number in (1, 2):
        assert site.noised(study, number).outcome == "answer"
    with sqlite3.connect(site.site.record.path) as connection:
        connection.execute("DELETE FROM sent WHERE number > 0")
    site.start()
    for number in (1, 2):
        for x in (np.zeros(4), np.ones(4)):
            assert "is not the next one with noise" in site.noised(study, number, x=x).text
    assert site.noised(study, 3).outcome == "answer"


@pytest.mark.parametrize(
    ("terms", "changes", "why"),
    [({}, {"seed": 1}, "a seed gives no privacy"), ({"least": 2}, {}, "every member is needed")],
)
def test_noise_that_protects_nobody_is_no_study(
    tmp_path: Path, terms: dict[str, Any], changes: dict[str, Any], why: str
) -> None:
    federation = Federation(tmp_path, {name: table() for name in "abc"})
    noisy = RegressionStudy.of(
        FitOptions(None, FORMULA, family="poisson", **{**OPEN, "dp": replace(PRIVACY, **changes)})
    )
    with pytest.raises(InputError, match=why):
        federation.study(noisy, secure=False, **terms)


def test_an_owner_reads_what_the_noise_promises_and_what_was_spent(tmp_path: Path) -> None:
    site = OneSite(tmp_path, LINES)
    study = site.propose(analysis())
    words = " ".join(site.site.describe(study).split())
    assert "with or without one row all answers together are told apart with ε 4" in words
    assert "of earlier studies" not in words
    site.noised(study, 1)
    second = site.federation.study(analysis(), secure=False, title="a second one")
    words = " ".join(site.site.describe(second).split())
    assert "this adds to ε 4 and δ 1e-06 of earlier studies of these rows" in words


@pytest.mark.parametrize("how", ["direct", "files"])
def test_in_a_secure_study_each_site_adds_its_share_of_the_noise_once(
    tmp_path: Path, how: str
) -> None:
    names = ("east", "north", "south", "west")
    federation = Federation(tmp_path, {name: table() for name in names})
    options: dict[str, Any] = {"family": "poisson", **OPEN}
    study = federation.regression(FORMULA, **options)
    run = federation.run if how == "direct" else federation.by_files
    found = run(study)
    assert isinstance(found, StudyResult)
    model = found.result
    assert isinstance(model, fs.NoisyModel)
    here = fs.fit({name: table() for name in names}, FORMULA, secure=True, **options)
    assert isinstance(here, fs.NoisyModel)
    assert model.noise.rows_error == pytest.approx(here.noise.rows_error)
    assert found.questions == T
    for name in names:
        site = federation.site(name)
        assert site.spent() == (4.0, 1e-6)
        assert site.audit().wrong == []
    if how == "files":
        text = "".join(path.read_text() for path in (tmp_path / "north/answers").glob("*.txt"))
        assert text.count("before it is masked") == T
