"""A client tells as many matrices of its rows as its owner and strict checks allow."""

from __future__ import annotations

import numpy as np
import pytest

import fedsplit as fs
from fedsplit.clients.questions import Information, LocalModel
from fedsplit.data.sources.sources import sources
from fedsplit.errors import InputError
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.fit import fit_over
from fedsplit.regression.options import FitOptions
from fedsplit.remote.channel import LocalChannel, Request
from hospitals import people

FORMULA = "visits ~ age"


def cohort(sizes: tuple[int, ...] = (60, 45, 30), **rules: bool) -> DatasetCohort:
    return DatasetCohort([Dataset(each) for each in sources(people(sizes=sizes))], **rules)


def fit(clients: DatasetCohort, **settings: object) -> fs.Model:
    options = FitOptions(None, FORMULA, family="poisson", **settings)  # type: ignore[arg-type]  # fit's own settings
    return fit_over(LocalChannel(clients), options)


def test_clients_whose_owner_allows_vectors_only_make_the_whole_fit_use_them() -> None:
    matrices = fit(cohort())
    vectors = fit(cohort(vectors=True))
    assert (matrices.settings.method, vectors.settings.method) == ("information", "fedsplit")
    assert matrices.warnings == []
    assert vectors.warnings == [
        "3 clients allow matrices for proofs only, so that the rounds use vectors: "
        "hospital0, hospital1, hospital2"
    ]
    np.testing.assert_allclose(vectors.coef, matrices.coef, rtol=1e-9)


def test_strict_clients_with_few_rows_tell_no_matrices_in_the_rounds() -> None:
    many = fit(cohort((60, 45, 300)), strict=True)
    few = fit(cohort((60, 45, 20)), strict=True)
    assert (many.settings.method, few.settings.method) == ("information", "fedsplit")
    assert few.warnings == [
        "client hospital2 has too few rows for 10 matrices of them, so that the rounds use vectors"
    ]
    assert fit(cohort((60, 45, 20))).settings.method == "information"  # it is said, not refused


@pytest.mark.parametrize("rules", [{"vectors": True}, {"strict": True}])
def test_a_method_that_needs_more_matrices_is_refused_in_words(rules: dict[str, bool]) -> None:
    with pytest.raises(InputError, match=r"client hospital.*: choose the method fedsplit"):
        fit(cohort((60, 45, 20), **rules), method="information")


def test_a_server_that_goes_on_asking_gets_no_more_matrices() -> None:
    clients = cohort((60, 45, 300), strict=True)
    seen: list[Request] = []

    class Listening(LocalChannel):
        def ask(self, requests, timeout):  # type: ignore[no-untyped-def]  # as it is there
            seen.extend(requests.values())
            return super().ask(requests, timeout)

    model = fit_over(Listening(clients), FitOptions(None, FORMULA, family="poisson"))
    [request] = {each.key: each for each in seen if isinstance(each.question, LocalModel)}.values()
    points = np.random.default_rng(0).standard_normal((15 - model.rounds, 2))
    for x in points:
        clients.answer(request._replace(question=Information(x)))
    clients.answer(request._replace(question=Information(points[-1])))  # a repetition is free
    with pytest.raises(InputError, match="has told 15 matrices of its rows, and strict"):
        clients.answer(request._replace(question=Information(np.zeros(2))))
