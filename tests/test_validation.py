"""Answers of the right type that make no sense: the client is named, without a stack trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import fedsplit as fs
from fedsplit.channels.channel import LocalChannel, Reply, Request
from fedsplit.channels.patience import Patience
from fedsplit.data.sources import sources
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.client.guards.rules import Finding, in_lines
from fedsplit.regression.fit import fit_over
from fedsplit.regression.options import FitOptions
from hospitals import people


class Lying:
    """Three clients, each a cohort; the second's answer to one question passes through ``lie``."""

    free = False
    recorded = True

    def __init__(self, question: str, lie: Callable[[Any], Any]) -> None:
        self._channels = [
            LocalChannel(DatasetCohort([Dataset(source)])) for source in sources(people())
        ]
        self.names = [channel.names[0] for channel in self._channels]
        self._question, self._lie, self._time = question, lie, 0.0

    def ask(self, requests: Mapping[int, Request], timeout: float) -> dict[int, Reply]:
        self._time += 1.0
        replies = {
            at: self._channels[at].ask({0: request}, timeout)[0] for at, request in requests.items()
        }
        if 1 in requests and self._question in requests[1].question.titles:
            replies[1] = self._lie(replies[1])
        return replies

    def now(self) -> float:
        return self._time

    def wait(self, seconds: float) -> None:
        self._time += seconds


def of_survey(**changes: Any) -> Callable[[Reply], Reply]:
    return lambda reply: reply._replace(value=[reply.value[0]._replace(**changes)])


def of_counts(**changes: Any) -> Callable[[Reply], Reply]:
    return lambda reply: of_survey(counts=reply.value[0].counts._replace(**changes))(reply)


def of_sums(**changes: Any) -> Callable[[Reply], Reply]:
    """A lie about parts of the first statistic: each is a number, an array, or entries by place."""

    def lie(reply: Reply) -> Reply:
        [told] = reply.value
        [name, *others] = told.values
        parts = dict(told.values[name])
        for part, change in changes.items():
            own = parts[part].copy()
            for at, value in change.items() if isinstance(change, dict) else ():
                own[at] = value
            parts[part] = own if isinstance(change, dict) else change
        values = {name: parts, **{each: told.values[each] for each in others}}
        return reply._replace(value=[told._replace(values=values)])

    return lie


def without_a_part(reply: Reply) -> Reply:
    [told] = reply.value
    values = {name: dict(list(parts.items())[1:]) for name, parts in told.values.items()}
    return reply._replace(value=[told._replace(values=values)])


def unprepared(reply: Reply) -> Reply:
    return Reply("unprepared")


MOMENTS, LIKELIHOOD = "design_moments", "log_likelihood"

LIES: list[tuple[str, Callable[[Reply], Reply], str]] = [
    ("survey", of_counts(missing={}), "counts of other columns"),
    ("survey", of_counts(types={"score": "number"}), "counts of other columns"),
    ("survey", of_counts(levels={"hours": {}}), "levels of other columns"),
    (
        "survey",
        of_counts(levels={"ward": {" a": 5}}),
        "levels that are not of their column's type",
    ),
    ("survey", of_counts(orders={"age": True}), "levels of other columns"),
    ("survey", of_counts(complete=-1), "negative counts"),
    (
        "survey",
        of_counts(levels={"ward": {}}, orders={"ward": True}),
        "levels of another number of rows",
    ),
    ("survey", of_counts(missing={"score": -2, "age": 0, "ward": 0}), "negative counts"),
    ("survey", of_survey(names=("score", "age")), "types of columns that it has not"),
    ("survey", lambda reply: reply._replace(value=[]), "an answer of the wrong type"),
    ("survey", unprepared, "it lost what it was prepared with"),
    (MOMENTS, of_sums(moments=np.zeros(1)), "numbers of shape (1,) where"),
    (MOMENTS, of_sums(n=np.zeros((2, 3))), "numbers of shape (2, 3) where (1, 1)"),
    (MOMENTS, without_a_part, "the parts ['exposed', 'floor', 'moments', 'withholds'] where"),
    (MOMENTS, of_sums(n={(0, 0): -1000.0}), "sums below zero"),
    (MOMENTS, of_sums(n={(0, 0): 0.0}), "no rows, or weights"),
    (MOMENTS, of_sums(moments={0: -120.0}), "weights that are not positive"),
    (MOMENTS, of_sums(moments={5: np.nan}), "means that are not finite"),
    (MOMENTS, of_sums(moments={7: -1.0}), "negative sums of squares"),
    (MOMENTS, unprepared, "it lost what it was prepared with"),
    (LIKELIHOOD, of_sums(total=np.full((1, 1), np.nan)), "an answer that is not finite"),
    (LIKELIHOOD, without_a_part, "the parts [] where ['total']"),
    (LIKELIHOOD, unprepared, "it lost what it was prepared with"),
    ("local_model", unprepared, "it lost what it was prepared with"),
]


@pytest.mark.parametrize(("question", "lie", "what"), LIES)
def test_a_client_that_makes_no_sense_is_named_and_removed(
    question: str, lie: Callable[[Reply], Reply], what: str
) -> None:
    channel = Lying(question, lie)
    liar = channel.names[1][0]
    patience = Patience(give_up=30.0, min_clients=2)
    model = fit_over(channel, FitOptions(None, "score ~ age + ward", patience=patience))
    assert list(model.removed) == [liar]
    assert any(what in incident.what for incident in model.run.incidents)
    others = fs.fit(
        {name: frame for name, frame in people().items() if name != liar}, "score ~ age + ward"
    )
    assert model.converged
    np.testing.assert_allclose(model.params, others.params, rtol=1e-9)
    assert model.llf == pytest.approx(others.llf, rel=1e-12)


def test_a_warning_is_one_line_whatever_a_client_sends() -> None:
    [line] = in_lines([Finding("a", "client a has\n\x1d levels " * 500, "clients", "a")])
    assert line.startswith("client a has levels")
    assert len(line) <= 1_000
