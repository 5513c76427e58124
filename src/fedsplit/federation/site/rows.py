"""What answers questions about one copy of a site's rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedsplit.channels import codec
from fedsplit.channels.channel import Request
from fedsplit.data.tables import Source
from fedsplit.errors import RequestError
from fedsplit.federation.site.disclosed import RecordedLedger
from fedsplit.fixed_point import Limbs
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.dataset_cohort import DatasetCohort, Memory
from fedsplit.regression.client.design import Frame
from fedsplit.regression.client.guards.requests import (
    check_coding,
    check_frame,
    check_numbers,
    check_question,
)
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.regression.client.plan import Coding
from fedsplit.regression.client.questions import FitQuestion, SumQuestion
from fedsplit.regression.client.statistics import moments_of
from fedsplit.statistic import Values


class StudyRows(DatasetCohort):
    """One site's rows in one study: every question about them is checked before it is answered.

    Parameters
    ----------
    name : str
        Of the site.
    source : Source
    ids : (n,) array of int
        The number of each row among those that are related to it.
    ledger : RecordedLedger
        What was disclosed of these.
    rules : Rules
    """

    def __init__(
        self, name: str, source: Source, ids: Any, ledger: RecordedLedger, rules: Rules
    ) -> None:
        dataset = Dataset(source, name, ids)
        self.ledger = dataset.ledger = ledger
        super().__init__([dataset], rules)
        self._dataset = dataset

    def answer(self, request: Request) -> Any:
        for question in request.parts:
            coding = getattr(question, "coding", None)
            if coding is not None:
                check_coding(coding)
        if self.rules.refuse:
            check_numbers(request.parts)
        value = super().answer(request)
        question = request.question
        if self.rules.refuse and isinstance(question, SumQuestion) and question.kind == "end":
            column = self.rules.person
            persons = None if column is None else self._dataset.persons(column)
            words = self.ledger.in_words(persons)
            if words and self.rules.leverage is None:
                words += " (largest_leverage in site.toml would refuse that)"
            self._dataset.private += filter(None, [words])
        return value

    def contribution(
        self, request: Request, memory: bytes | None, stream: Callable[[Limbs], Any]
    ) -> tuple[Limbs, bytes]:
        """What the site adds to the sums of all, (n, 4), and what it has to remember.

        Parameters
        ----------
        request : Request
        memory : bytes or None
            What it remembered last.
        stream : callable
            By numbers as they are, what their random last digits are drawn from.
        """
        self.memory = Memory() if memory is None else codec.decode(Memory, memory)
        self.stream = stream
        [found] = self.contributions(request)
        return found, codec.encode(self.memory)

    def notes(self) -> list[str]:
        """What the owner alone should know of the last answer; it is said once."""
        found = list(dict.fromkeys(self._dataset.private))
        self._dataset.private = []
        return found

    def has_prepared(self, key: str) -> bool:
        """Whether rows are at hand in the coordinates that a key names."""
        return key in self._prepared

    def _prepare(self, request: Request) -> None:
        super()._prepare(request)
        if request.key and request.key not in self._prepared:
            raise RequestError("a question about coordinates that were never sent")
        if request.key and not isinstance(request.question, FitQuestion):
            check_question(request.question, self._prepared[request.key].problem.d)

    def settle(self, coding: Coding, frame: Frame) -> list[Values]:
        if self._coding != coding:
            self.code(coding)
        check_frame(frame, self.rows[0], moments_of(self._moments(self.rows[0]), coding.plan))
        return super().settle(coding, frame)
