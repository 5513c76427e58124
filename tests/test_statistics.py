"""Sums over rows: what follows from a statement, and that nothing else is answered or believed."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from asked import AskedSite
from fedsplit import fixed_point
from fedsplit.arrays import Array
from fedsplit.channels import codec
from fedsplit.channels.channel import Request
from fedsplit.clients.question import CostQuestion, Part
from fedsplit.clients.rounding import GRID
from fedsplit.data.sources import sources
from fedsplit.errors import InputError
from fedsplit.federation.questions import encode_request
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.client.design import Design, Frame, Scaling, key_of
from fedsplit.regression.client.guards.ledger import Disclosed
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.regression.client.plan import Coding, Plan
from fedsplit.regression.client.questions import Settle, SumAnswer, SumQuestion
from fedsplit.regression.client.release import Release
from fedsplit.regression.client.statistics import (
    CalibrationCounts,
    CostAlong,
    CostAt,
    DesignMoments,
    ExpectedInformation,
    FitRows,
    LogLikelihood,
    RowsAlong,
    RowsInside,
    ScoreProducts,
)
from fedsplit.statistic import (
    STATISTICS,
    AboutMeans,
    MeanProducts,
    RowSum,
    Shape,
    Statistic,
    StatisticPart,
    Sums,
    triangle,
)
from fedsplit.sums import Total

PLAN = Plan("y ~ x", "poisson", types={"y": "number", "x": "number"})
CODING = Coding(PLAN, False, ("a",))

Table: TypeAlias = tuple[Array, Array, Array]
"""Left and right columns, and weights."""


@dataclass(frozen=True)
class Invented(Statistic):
    """A statistic of given columns: a product, a symmetric one, products about means."""

    p: int
    q: int

    def shapes(self, plan: Any) -> Mapping[str, Shape]:
        return {
            "two": Sums(self.p, self.q),
            "one": Sums(self.p, None),
            "means": AboutMeans(self.q, triangle(self.q)),
        }

    def sums(self, rows: Table) -> Mapping[str, StatisticPart]:
        left, right, w = rows
        return {
            "two": RowSum(left, right, w),
            "one": RowSum(left, weights=w),
            "means": MeanProducts(right, w, triangle(self.q)),
        }


@st.composite
def tables(draw: st.DrawFn) -> tuple[Invented, list[Table]]:
    """An invented statistic, and the rows of a few clients, of whom one may have none."""
    p, q = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    sizes = draw(st.lists(st.integers(0, 6), min_size=3, max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    far = draw(st.sampled_from([0.0, 1e6]))
    rows: list[Table] = [
        (rng.standard_normal((n, p)), far + rng.standard_normal((n, q)), rng.integers(1, 4, n) / 2)
        for n in sizes
    ]
    return Invented(p, q), rows


def parts_of(statistic: Statistic, rows: Any) -> dict[str, Array]:
    return {name: part.value() for name, part in statistic.sums(rows).items()}


@given(tables())
def test_sums_over_clients_open_and_secure_are_those_of_all_rows(
    made: tuple[Invented, list[Table]],
) -> None:
    statistic, rows = made
    together = tuple(np.concatenate([each[k] for each in rows]) for k in range(3))
    expected = parts_of(statistic, together)
    own = [parts_of(statistic, each) for each in rows]
    question = SumQuestion({"s": statistic})
    entries = [SumAnswer({"s": each}) for each in own]
    assert not any(question.check(each) for each in entries)
    contributions = [each.vector for each in question.summands(entries)]
    total = Total(fixed_point.total(contributions, len(contributions[0])), len(rows))
    for found in (question.pooled(entries)["s"], question.read(total).values["s"]):
        for name, part in found.items():
            np.testing.assert_allclose(part, expected[name], rtol=1e-9, atol=1e-8, err_msg=name)
    total.end()


@given(tables())
def test_a_client_without_rows_adds_the_zeros_of_the_shapes(
    made: tuple[Invented, list[Table]],
) -> None:
    statistic, rows = made
    nothing = tuple(each[:0] for each in rows[0])
    values = parts_of(statistic, nothing)
    for name, shape in statistic.shapes(None).items():
        assert np.array_equal(values[name], shape.zeros), name
    assert not statistic.check(values, statistic.shapes(None))


@given(tables())
def test_under_rules_sums_are_rounded_relative_to_what_they_could_be_at_most(
    made: tuple[Invented, list[Table]],
) -> None:
    statistic, rows = made
    for each in rows:
        parts = statistic.sums(each)
        shapes = statistic.shapes(None)
        told = Release({}, Rules.strict()).of("", np.arange(len(each[2])), statistic, each, shapes)
        for name, part in parts.items():
            bounds = part.bounds()
            if bounds is None:
                continue
            slack = 1e-12 * (np.abs(bounds) + 1e-300)
            assert (np.abs(part.value()) <= bounds + slack).all(), name
            assert (np.abs(told[name] - part.value()) <= GRID * bounds + slack).all(), name


@given(tables())
def test_what_is_disclosed_are_vectors_whose_sums_determine_the_answer(
    made: tuple[Invented, list[Table]],
) -> None:
    _, rows = made
    left, right, w = max(rows, key=lambda each: len(each[2]))
    n = len(w)
    for part in (RowSum(left, right, w), RowSum(left, weights=w), RowSum(left, right)):
        [own] = part.disclosed()
        vectors = Disclosed(np.arange(n), own).vectors()
        # each vector is a power of two times the product that is summed
        sums = vectors.sum(axis=0)
        value = part.value()
        numbers = value[np.triu_indices(len(value))] if part.right is None else value.ravel()
        for one, other in zip(sums, numbers, strict=True):
            if abs(other) > 1e-9:
                assert abs(np.log2(one / other) - round(np.log2(one / other))) < 1e-6


KNOWN: list[tuple[Statistic, Any]] = [
    (DesignMoments(), PLAN),
    (RowsInside(), PLAN),
    (CostAlong(np.zeros(2), np.eye(2), True), None),
    (ScoreProducts(np.zeros(2)), None),
    (LogLikelihood(np.zeros(2), 1.0), None),
    (ExpectedInformation(np.zeros(2), 2), None),
    (CalibrationCounts(np.zeros(2)), None),
    (RowsAlong(np.zeros((1, 2))), None),
    (Invented(2, 3), None),
]


@pytest.mark.parametrize("curved", [False, True])
def test_a_cost_discloses_its_gradient_and_where_it_is_asked_for_its_hessian(curved: bool) -> None:
    A = np.array([[1.0, 2.0], [1.0, -1.0], [1.0, 0.5]])
    slopes, weights = np.array([0.2, -0.6, 0.1]), np.array([0.1, 0.2, 0.3])

    made = [RowSum(A, slopes[:, None])]

    def hessian() -> Array:
        made.append(RowSum(A, weights=weights))
        return made[-1].value()

    cost = CostAt(0.5, A.T @ slopes, hessian, lambda: made)
    rows: Any = SimpleNamespace(m=10, frame=SimpleNamespace(ridge=np.zeros(2)), cost=lambda x: cost)
    x = np.zeros(2)
    parts = CostAlong(x, np.eye(2), curved).sums(rows)
    told = [each.value() for part in parts.values() for each in part.disclosed()]
    expected = [parts["slope"].value(), *([parts["curvature"].value()] if curved else [])]
    assert len(told) == len(expected)
    assert all(np.allclose(a, b) for a, b in zip(told, expected, strict=True))
    del made[1:]
    products = ScoreProducts(x).sums(rows)
    [gradient] = [each.value() for part in products.values() for each in part.disclosed()]
    assert np.allclose(gradient @ gradient.T, products["products"].value())


@given(
    st.sampled_from(KNOWN),
    st.sampled_from(["shape", "nan", "lost", "more", "other"]),
    st.integers(0, 20),
    st.text(string.ascii_lowercase, min_size=1, max_size=8),
    st.lists(st.integers(0, 4), max_size=3),
)
def test_parts_and_shapes_that_were_not_asked_for_are_not_believed(
    known: tuple[Statistic, Any], lie: str, at: int, name: str, shape: list[int]
) -> None:
    statistic, plan = known
    question = SumQuestion({"s": statistic}, CODING if plan is not None else None)
    values = {part: each.zeros for part, each in statistic.shapes(plan).items()}
    part = list(values)[at % len(values)]
    own = values[part].copy()
    match lie:
        case "shape":
            if tuple(shape) == own.shape:
                return
            values[part] = np.zeros(shape)
        case "nan":
            own.flat[at % own.size] = np.nan
            values[part] = own
            if isinstance(statistic.shapes(plan)[part], AboutMeans) and np.isnan(own[-1]):
                return  # squares beyond float64 have a message of their own
        case "lost":
            del values[part]
        case "more":
            if name in values:
                return
            values[name] = np.zeros((1, 1))
        case "other":
            assert question.check(SumAnswer({name + "?": values})) == "sums of other statistics"
            return
    assert statistic.check(values, statistic.shapes(plan))
    assert question.check(SumAnswer({"s": values}))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> AskedSite:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.standard_normal(60), "y": rng.poisson(2.0, 60)})
    return AskedSite(tmp_path_factory.mktemp("invented"), frame)


@given(
    name=st.text(string.ascii_lowercase + "_", min_size=1, max_size=12),
    p=st.integers(0, 5),
    as_question=st.booleans(),
)
def test_questions_and_statistics_that_nobody_knows_are_not_answered(
    site: AskedSite, name: str, p: int, as_question: bool
) -> None:
    made: Any = type(name.title().replace("_", ""), (Invented,), {"__annotations__": {}})
    statistic = dataclass(frozen=True)(made)(p, p)
    if type(statistic).__name__ in STATISTICS:
        return
    asked = encode_request(Request(SumQuestion({name: statistic}, CODING), "", 1))
    if as_question:
        asked = f"{name}x\n".encode() + asked.partition(b"\n")[2]
    response = site.inquire(asked)
    assert response.outcome == "refused"
    assert "owner" not in response.reason  # it depends on the question alone


def test_known_statistics_are_answered_by_the_same_site(site: AskedSite) -> None:
    [answer] = site.ask(Request(SumQuestion({"m": DesignMoments()}, CODING), "", 1)).value
    assert SumQuestion({"m": DesignMoments()}, CODING).check(answer) == ""
    assert answer.values["m"]["n"] == 60


def test_a_statistic_that_says_nothing_of_its_sums_is_none() -> None:
    class Silent(Statistic):
        def shapes(self, plan: Any) -> Mapping[str, Shape]:
            return {}

    with pytest.raises(TypeError, match="abstract"):
        Silent()  # type: ignore[abstract]  # which the type checker says, too


def test_a_statistic_that_makes_other_shapes_than_it_states_is_a_mistake_that_is_named() -> None:
    class Wrong(Invented):
        def shapes(self, plan: Any) -> Mapping[str, Shape]:
            return {**super().shapes(plan), "one": Sums(self.p + 1, None)}

    rows = np.ones((4, 2)), np.ones((4, 2)), np.ones(4)
    with pytest.raises(TypeError, match="Wrong states"):
        Release({}, Rules()).of("", np.arange(4), Wrong(2, 2), rows, Wrong(2, 2).shapes(None))


@pytest.mark.parametrize("more", ["states", "makes"])
def test_a_statistic_whose_parts_are_not_those_that_it_states_is_a_mistake(more: str) -> None:
    shapes = dict(Invented(2, 2).shapes(None))
    if more == "states":
        shapes["other"] = Sums()
    else:
        del shapes["one"]
    rows = np.ones((4, 2)), np.ones((4, 2)), np.ones(4)
    with pytest.raises(TypeError, match="Invented states"):
        Release({}, Rules()).of("", np.arange(4), Invented(2, 2), rows, shapes)


@pytest.mark.parametrize("strict", [False, True])
def test_the_likelihood_of_least_squares_is_that_of_every_row(strict: bool) -> None:
    plan = Plan("y ~ u + v + z", "gaussian")
    rng = np.random.default_rng(3)
    n = 40
    A, b, w, o = rng.standard_normal((n, 3)), *rng.uniform(0.5, 2.0, (3, n))
    design = Design("a", plan, A.copy(), b, w, o, np.arange(n))
    scaling = Scaling(rng.standard_normal(3), rng.uniform(0.5, 2.0, 3), 2.5, 0.3)
    design.scaling = scaling
    x = rng.standard_normal(3)
    rows = FitRows(design, Rules.strict() if strict else Rules())
    found = LogLikelihood(x, 1.7).sums(rows)["total"]
    eta = o + scaling.origin + scaling.unit * ((A - scaling.centre) / scaling.scale @ x)
    expected = norm(eta, np.sqrt(1.7 / w)).logpdf(b).sum()
    assert found.value() == pytest.approx(expected, rel=1e-12)


def test_a_question_about_costs_that_states_nothing_is_refused_under_rules() -> None:
    @dataclass(frozen=True)
    class Longest(CostQuestion):
        x: Array
        parts: ClassVar[Mapping[str, Part]] = {"longest": Part(())}

        def answer(self, costs: Any, x: Array) -> Mapping[str, Array]:
            return {"longest": np.abs(costs.terms.A).max(axis=(1, 2))}

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.standard_normal(60), "y": rng.poisson(2.0, 60)})
    cohort = DatasetCohort([Dataset(each) for each in sources({"a": frame})], Rules.strict())
    cohort.answer(Request(SumQuestion({"m": DesignMoments()}, CODING), "", 1))
    frame_of = Frame(Scaling(np.zeros(2), np.ones(2), 1.0), None, 1.0, False, np.zeros(2))
    cohort.answer(Request(Settle(CODING, frame_of), "", 1))
    with pytest.raises(InputError, match="longest does not state what it discloses"):
        cohort.answer(Request(Longest(np.zeros(2)), key_of(CODING, frame_of), 1))


def test_the_bytes_of_a_statistic_are_read_back_as_it_is() -> None:
    question = SumQuestion({"m": DesignMoments(), "c": CalibrationCounts(np.arange(2.0))}, CODING)
    back = codec.decode(SumQuestion, codec.encode(question))
    assert back.statistics["m"] == DesignMoments()
    assert np.array_equal(back.statistics["c"].x, np.arange(2.0))
    assert back.titles == ("design_moments", "calibration_counts")
