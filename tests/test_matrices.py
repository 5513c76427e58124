"""A client discloses as many matrices of its rows as its owner allows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fedsplit as fs
from fedsplit.channels.channel import LocalChannel, Request
from fedsplit.clients.questions import Information
from fedsplit.data.sources import sources
from fedsplit.errors import InputError
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.client.design import key_of
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.regression.client.questions import Settle, SumQuestion
from fedsplit.regression.client.statistics import CostAlong, ExpectedInformation
from fedsplit.regression.fit import fit_over
from fedsplit.regression.options import FitOptions
from hospitals import people

FORMULA = "visits ~ age"
FIRST = Information(np.full(2, 1e-7))
RNG = np.random.default_rng(0)


def cohort(
    sizes: tuple[int, ...] = (60, 45, 30), strict: bool = False, vectors: bool = False
) -> DatasetCohort:
    datasets = [Dataset(each) for each in sources(people(sizes=sizes))]
    return DatasetCohort(datasets, Rules(refuse=strict, matrices=not vectors))


def fit(clients: DatasetCohort, **settings: object) -> fs.Model:
    options = FitOptions(None, FORMULA, family="poisson", **settings)  # type: ignore[arg-type]  # fit's own settings
    return fit_over(LocalChannel(clients), options)


def test_clients_whose_owner_allows_vectors_only_make_the_whole_fit_use_them() -> None:
    matrices = fit(cohort())
    vectors = fit(cohort(vectors=True))
    assert (matrices.settings.method, vectors.settings.method) == ("information", "quasi-newton")
    assert matrices.warnings == []
    assert vectors.warnings == [
        "3 clients allow matrices for proofs only, so that the rounds use vectors: "
        "hospital0, hospital1, hospital2"
    ]
    np.testing.assert_allclose(vectors.params, matrices.params, rtol=1e-9)


def test_a_method_that_needs_more_matrices_is_refused_in_words() -> None:
    with pytest.raises(InputError, match=r"client hospital.*: choose the method quasi-newton"):
        fit(cohort((60, 45, 20), vectors=True), method="information")


def asked(clients: DatasetCohort) -> tuple[Settle, Request]:
    """How the clients were prepared in a fit, and one of its requests."""
    seen: list[Request] = []

    class Listening(LocalChannel):
        def ask(self, requests, timeout):  # type: ignore[no-untyped-def]  # as it is there
            seen.extend(requests.values())
            return super().ask(requests, timeout)

    fit_over(Listening(clients), FitOptions(None, FORMULA, family="poisson"))
    request = next(each for each in seen if isinstance(each.preparation, Settle))
    assert isinstance(request.preparation, Settle)
    return request.preparation, request._replace(preparation=None)


def matrices_until_refused(clients: DatasetCohort, request: Request, question: object) -> int:
    for told, x in enumerate(1e-6 * RNG.standard_normal((100, 2))):
        try:
            clients.answer(request._replace(question=question(x)))  # type: ignore[operator]  # made of x
        except InputError:
            return told
    return 100


@pytest.mark.parametrize(
    "question",
    [
        Information,
        lambda x: SumQuestion({"": CostAlong(x, np.eye(2), curved=True)}),
        lambda x: SumQuestion({"": ExpectedInformation(x, 2)}),
    ],
    ids=["information", "along", "expected"],
)
def test_every_way_to_a_matrix_is_counted(question: object) -> None:
    clients = cohort((60, 45, 300), vectors=True)
    _, request = asked(clients)
    assert matrices_until_refused(clients, request, question) <= 16


def test_a_count_goes_on_when_rows_are_coded_and_scaled_anew() -> None:
    clients = cohort((60, 45, 300), vectors=True)
    settle, request = asked(clients)
    clients.answer(request._replace(question=FIRST))
    assert matrices_until_refused(clients, request, Information) < 16
    other = replace(settle.coding.plan, family="gaussian")
    clients.code(replace(settle.coding, plan=other))
    clients.release()
    frame = replace(settle.frame, ridge=settle.frame.ridge + 1e-9)
    clients.settle(settle.coding, frame)
    other_key = request._replace(key=key_of(settle.coding, frame))
    assert matrices_until_refused(clients, other_key, Information) == 0
    clients.settle(settle.coding, settle.frame)
    clients.answer(request._replace(question=FIRST))  # a repetition is free


def test_an_owner_who_allows_matrices_for_proofs_only_tells_no_more_than_proofs_need() -> None:
    clients = cohort((60, 45, 300), vectors=True)
    _, request = asked(clients)
    assert 4 < matrices_until_refused(clients, request, Information) <= 16


def without_events(n: int) -> dict[str, pd.DataFrame]:
    """Clients none of which has an event in ward c."""
    rng = np.random.default_rng(0)
    frames = {}
    for name in "abcd":
        ward = rng.choice(list("abc"), n, p=[0.4, 0.4, 0.2])
        x = rng.standard_normal(n)
        frames[name] = pd.DataFrame({"ward": ward, "x": x})
        frames[name]["y"] = rng.poisson(np.exp(0.3 * x)) * (ward != "c")
    return frames


UNDECIDED = (
    r"the coefficient of C\(ward\)\[T.c\] may grow without bound: the rules of the clients allow "
    "no question that would decide it; add a ridge"
)


@pytest.mark.parametrize("method", ["auto", "quasi-newton"])
def test_whether_rows_recede_along_a_direction_is_no_question_to_strict_clients(
    method: str,
) -> None:
    frames = without_events(400)
    model = fs.fit(frames, "y ~ x + C(ward)", family="poisson", method=method)
    assert model.not_estimable == {"C(ward)[T.c]": "-inf"}
    with pytest.raises(InputError, match=UNDECIDED):
        fs.fit(frames, "y ~ x + C(ward)", family="poisson", method=method, strict=True)
    ridge = fs.fit(frames, "y ~ x + C(ward)", family="poisson", ridge=1.0, strict=True)
    assert ridge.converged
