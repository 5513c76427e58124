"""What follows from the parts that a question declares: shapes, checks, sums, and who answered."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import pytest

import fedsplit as fs
from fedsplit import fixed_point
from fedsplit.arrays import Array
from fedsplit.clients.local_models import LocalModel, ModifiedScore
from fedsplit.clients.question import NOT_FINITE, Answer, CostQuestion, Part
from fedsplit.clients.questions import (
    Evaluate,
    Gradient,
    Information,
    Line,
    Margin,
    ProofScalars,
    Prox,
    Value,
)
from fedsplit.local.newton import ExactProx
from fedsplit.losses.costs import Costs
from fedsplit.sums import SUM, Total
from problems import problem

D = 3
X = np.array([0.5, -0.25, 1.0])
TRIANGLE = np.array([1.0, 0.1, 1.0, 0.1, 0.1, 1.0])

SUMMED: list[CostQuestion] = [
    Gradient(X),
    Value(X),
    Evaluate(X, trial=0.5 * X, margin=True),
    Line(X, -X, np.array([1.0, 0.5])),
    Margin(X),
    Information(X),
    LocalModel(X, None, None, 256.0, 0.5 * X, both=True),
    LocalModel(X, None, None, 0.0, None, hessian=False),
    ModifiedScore(X, TRIANGLE, 0.5 * X, hessian=True, augmented=True),
]


def summed(question: CostQuestion, *answers: Answer) -> Answer:
    """The answer that the server reads, of all clients that contributed."""
    vectors = [each.vector for answer in answers for each in question.summands(answer)]
    return question.of_total(Total(fixed_point.total(vectors, len(vectors[0])), len(vectors)))


def separated() -> fs.Problem:
    """Two clients whose rows are all on their side at X."""
    rng = np.random.default_rng(1)
    A = rng.normal(size=(2, 20, D))
    return fs.Problem(fs.Logistic(), [(each, np.sign(each @ X)) for each in A])


PROBLEMS: dict[str, Callable[[], fs.Problem]] = {
    "logistic": lambda: problem("logistic", [20, 30, 25], D),
    "separated": separated,  # a margin of 1
    "huber": lambda: problem("huber", [20, 30, 25], D),  # a radius above 0
    "least squares": lambda: problem("least-squares", [20, 30, 25], D),  # an infinite one
}


@pytest.mark.parametrize("question", SUMMED, ids=lambda question: question.name())
def test_answers_have_the_parts_and_shapes_that_the_question_declares(
    question: CostQuestion,
) -> None:
    clients = problem("logistic", [20, 30, 25], D).clients
    for answer in (clients.ask(question), summed(question, clients.ask(question))):
        m = len(answer.present)
        assert not question.check(answer, m, D)
        shapes = {name: (m, *shape) for name, shape in question.shapes(D).items()}
        assert {name: part.shape for name, part in answer.parts.items()} == shapes
        assert list(question.unanswered(m, D)) == list(answer.parts)


@pytest.mark.parametrize("kind", PROBLEMS)
def test_bounds_of_a_sum_suit_every_client(kind: str) -> None:
    question = LocalModel(X, None, None, 1.0, 0.5 * X)
    answer = PROBLEMS[kind]().clients.ask(question)
    parts, added = answer.parts, summed(question, answer).parts
    for name in ("norm", "spread"):
        assert added[name][0] >= parts[name].max()
        assert added[name][0] <= 1.01 * np.linalg.norm(parts[name])
    least = parts["steady"].min()
    assert 0.5 * least <= added["steady"][0] <= least
    assert (least > 0) == (kind in ("huber", "least squares"))
    assert added["margin"][0] == parts["margin"].min() or np.isnan(added["margin"][0])


def test_a_model_that_does_not_fit_into_a_sum_makes_its_value_infinite() -> None:
    question = LocalModel(X, None, None, 0.0, 0.5 * X)
    answer = PROBLEMS["logistic"]().clients.ask(question)
    added = summed(question, changed(answer, "gradient", (1, 0), 1e300)).parts
    assert added["values"][0, 0] == np.inf
    assert np.isfinite(added["values"][0, 1:]).all()
    # the models of the others are added
    np.testing.assert_allclose(
        added["hessian"][0], answer.parts["hessian"][[0, 2]].sum(axis=0), rtol=1e-12
    )


def test_a_curvature_below_the_unit_of_sums_proves_nothing() -> None:
    question = LocalModel(X, None, None, 0.0, None)
    answer = PROBLEMS["logistic"]().clients.ask(question)
    assert np.isfinite(summed(question, answer).parts["norm"]).all()
    flat = np.array(answer.parts["hessian"])
    flat[:, 0] = 1e-30  # the first entry of the diagonal
    small = answer._replace(parts={**answer.parts, "hessian": flat})
    assert summed(question, small).parts["norm"][0] == np.inf


def test_a_metric_is_shared_among_those_who_add() -> None:
    asked = LocalModel(X, np.ones((4, D)), TRIANGLE, 1.0, None).for_sums(4)
    assert asked.v is None
    assert asked.metric is not None
    np.testing.assert_array_equal(asked.metric, TRIANGLE / 4)


def test_last_digits_of_sums_are_no_change_of_value() -> None:
    question = LocalModel(X, None, None, 0.0, 0.5 * X)
    answer = PROBLEMS["logistic"]().clients.ask(question)
    values = np.array(answer.parts["values"])
    values[:, :-1] = values[:, -1:] * (1 + 2.0**-45)
    values[:, 1] = values[:, -1] * (1 + 2.0**-40)
    added = summed(question, answer._replace(parts={**answer.parts, "values": values})).parts
    [along] = added["values"]
    assert along[0] == along[-1]
    assert along[1] > along[-1]


def test_a_part_is_there_when_its_field_is_set() -> None:
    assert list(Evaluate(X).answer_parts()) == ["value", "gradient"]
    assert list(Evaluate(X, trial=0.0 * X).answer_parts())[2:] == ["value_at_trial"]
    assert list(Evaluate(X, margin=True).answer_parts())[2:] == ["margin"]
    # a triangle has the entries on and below the diagonal, a line one value for each length
    assert LocalModel(X, None, None, 0.0, None).shapes(D)["hessian"] == (6,)
    assert Line(X, X, np.ones(7)).shapes(D) == {"values": (7,)}


@dataclass(frozen=True)
class Half(CostQuestion):
    """A gradient that may be added, and a value that may not."""

    x: Array

    parts: ClassVar = {"gradient": Part(("d",), together=SUM), "value": Part()}

    def answer(self, costs: Costs, x: Array) -> Mapping[str, Array]:
        return {"gradient": costs.gradient(x), "value": costs.value(x)}


def test_a_question_is_summable_if_every_part_is() -> None:
    assert all(question.summable for question in SUMMED)
    assert not Half(X).summable


def changed(answer: Answer, name: str, at: tuple[int, ...], value: float) -> Answer:
    """The answer with another number at one place."""
    array = np.array(answer.parts[name])
    array[at] = value
    return answer._replace(parts={**answer.parts, name: array})


PROX = Prox(X, 1.0, None, ExactProx())
MODEL = LocalModel(X, None, None, 0.0, None)
LINE = Line(X, X, np.ones(2))
BELOW = "is below zero"


@pytest.mark.parametrize(
    ("question", "name", "at", "value", "says"),
    [
        (PROX, "error", (1,), -1.0, BELOW),
        (PROX, "error", (1,), np.inf, NOT_FINITE),
        (PROX, "point", (0, 2), np.inf, NOT_FINITE),
        (PROX, "margin", (0,), np.nan, ""),
        (MODEL, "hessian", (0, 0), -1e-9, BELOW),  # on the diagonal
        (MODEL, "hessian", (0, 1), -1e-9, ""),  # beside it
        (MODEL, "hessian", (1, 1), np.inf, NOT_FINITE),
        (MODEL, "norm", (0,), np.inf, ""),
        (MODEL, "norm", (0,), -1.0, BELOW),
        (MODEL, "norm", (0,), np.nan, NOT_FINITE),
        (MODEL, "floor", (0,), -np.inf, ""),
        (MODEL, "floor", (0,), np.nan, NOT_FINITE),
        (LINE, "values", (0, 0), np.nan, ""),  # far out on a line
        (LINE, "values", (0,), np.nan, NOT_FINITE),  # of one client, all along
    ],
)
def test_numbers_that_cannot_be_used_are_found(
    question: CostQuestion, name: str, at: tuple[int, ...], value: float, says: str
) -> None:
    answer = problem("logistic", [20, 30], D).clients.ask(question)
    assert not question.check(answer, 2, D)
    wrong = question.check(changed(answer, name, at, value), 2, D)
    assert wrong == (f"{name} {BELOW}" if says == BELOW else says)


def test_an_answer_of_another_shape_or_type_is_found() -> None:
    question = Gradient(X)
    answer = problem("logistic", [20, 30], D).clients.ask(question)
    wrong: dict[str, Any] = {
        "an answer of the wrong type, int": 3,
        "an answer with value, expected gradient": Answer.of(value=np.zeros(2)),
        "gradient has the wrong type, float32": Answer.of(gradient=np.zeros((2, D), np.float32)),
        "gradient has the wrong type, list": Answer.of(gradient=cast(Any, [1.0, 2.0])),
        "gradient has the wrong shape, (2, 4), expected (2, 3)": Answer.of(
            gradient=np.ones((2, 4))
        ),
        "work has the wrong shape, (2, 4), expected (2, 3)": answer._replace(work=np.zeros((2, 4))),
    }
    for says, value in wrong.items():
        assert question.check(value, 2, D) == says


def test_of_answers_that_are_joined_the_first_one_of_a_client_counts() -> None:
    def answer(value: float, present: list[bool]) -> Answer:
        here = np.array(present)
        rows = np.where(here, value, np.nan)
        return Answer({"value": rows}, here, np.where(here, 0.5, np.nan), np.ones((3, 3)))

    joined = answer(1.0, [True, False, False]).joined(answer(2.0, [True, True, False]))
    np.testing.assert_array_equal(joined.rows, [1.0, 2.0, np.nan])
    assert joined.present.tolist() == [True, True, False]
    np.testing.assert_array_equal(joined.seconds, [1.0, 0.5, 0.0])
    assert joined.work[0, 0] == 2.0


@pytest.mark.parametrize("d", [D, 70])  # above 64 coordinates clients are asked one by one
def test_who_is_not_drawn_has_no_answer_and_takes_no_time(d: int) -> None:
    clients = problem("logistic", [20, 30, 25], d, ridge=1.0).clients
    question = Prox(np.ones(d), 1.0, None, ExactProx())
    drawn = np.array([True, False, True])
    some, whole = clients.ask_some(question, drawn), clients.ask(question)
    for name in ("point", "error"):
        np.testing.assert_allclose(some.parts[name][drawn], whole.parts[name][drawn], atol=1e-9)
        assert np.isnan(some.parts[name][1]).all()
    np.testing.assert_array_equal(np.isnan(some.seconds), ~drawn)
    assert not some.work[1].any()
    assert some.error[1] == 0.0
    assert some.largest_error() == some.parts["error"][drawn].max()
    assert np.isnan(some.margin)


def test_what_is_unknown_proves_nothing() -> None:
    scalars = ProofScalars.of({"value": np.ones(2), "ell": np.full(2, 3.0)})
    assert scalars.ell.tolist() == [3.0, 3.0]
    assert np.isinf([scalars.q, scalars.norm, scalars.leverage]).all()
    assert (scalars.floor == -np.inf).all()
    assert not np.any([scalars.mu, scalars.steady])


def test_a_client_that_was_drawn_may_be_absent_all_the_same() -> None:
    answer = Answer.of(value=np.arange(4.0)).only(np.array([True, False, True, True]))
    drawn = answer.only(np.array([True, True, False, True]))
    np.testing.assert_array_equal(drawn.present, [True, False, False, True])
    np.testing.assert_array_equal(drawn.rows, [0.0, np.nan, np.nan, 3.0])


def test_the_point_of_a_question_is_the_first_that_all_clients_have_in_common() -> None:
    x, v = np.ones(2), np.ones((3, 2))
    assert Prox(v, 1.0, x, ExactProx()).common_point is x
    assert Prox(x, 1.0, v, ExactProx()).common_point is x
    assert Prox(v, 1.0, None, ExactProx()).common_point is None
    assert Gradient(x).common_point is x


def test_every_number_of_a_question_counts_as_sent() -> None:
    x, v = np.ones(2), np.ones((3, 2))
    assert Line(x, x, np.ones(5)).floats_down() == 2 + 2 + 5
    assert Prox(v, 1.0, None, ExactProx()).floats_down() == 2 + 1  # each client gets its own row
    assert LocalModel(x, v, np.ones(3), 1.0, None).floats_down() == 2 + 2 + 3 + 1
