"""A cohort that tells sums alone: the same questions, answered by numbers that are added up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedsplit import fixed_point
from fedsplit.channels.channel import Request
from fedsplit.channels.summed import FEWEST
from fedsplit.clients.local_models import LastModels, LocalModel
from fedsplit.clients.stacked import QUIET
from fedsplit.errors import RequestError
from fedsplit.fixed_point import Limbs
from fedsplit.last_digits import KEPT, KEPT_OF_ROUNDED, LastDigits
from fedsplit.regression.client.guards.thresholds import Finding
from fedsplit.regression.client.questions import FitQuestion
from fedsplit.sums import Summands

if TYPE_CHECKING:
    from fedsplit.regression.client.dataset_cohort import DatasetCohort


class Memory(NamedTuple):
    """What a cohort that tells sums alone keeps from one question to the next."""

    # the last models, with the key that they were made under
    last: tuple[str, LastModels] | None = None


class SumsOfCohort:
    """What a cohort adds to the sums of all clients.

    Of its own last models a cohort keeps what it needs for its centres in the next round; if they
    are lost, it stays at x.

    Parameters
    ----------
    cohort : DatasetCohort
        Who answers.

    Attributes
    ----------
    stream : callable or None
        By numbers as they are, (n, 4), what random last digits are drawn from; None for those of
        the numbers, which is for sums that no other organisation can read.
    """

    def __init__(self, cohort: DatasetCohort) -> None:
        self._cohort = cohort
        self.memory = Memory()
        self.stream: Callable[[Limbs], Callable[[int], bytes]] | None = None
        # the warnings that owners were told
        self._warned: set[Finding] = set()

    def answer(self, request: Request) -> Limbs:
        """The sum over the clients of the cohort, (n, 4)."""
        contributions = self.contributions(request)
        return fixed_point.total(contributions, len(contributions[0]))

    def contributions(
        self, request: Request, answer: Callable[[Request], Any] | None = None
    ) -> list[Limbs]:
        """What each client of the cohort adds, each (n, 4).

        Parameters
        ----------
        answer : callable, optional
            How the cohort answers a request of its own; by default its ``answer``.
        """
        question = request.question
        if not question.summable:
            raise RequestError(f"the question {question.name()} is about single clients")
        if request.m < FEWEST:
            raise RequestError(f"a sum of {request.m} clients, where {FEWEST} are the fewest")
        if isinstance(question, FitQuestion):
            question = question.for_sums(request.m)  # whatever the server says how many there are
        if any(isinstance(each, FitQuestion) and each.names for each in request.parts):
            raise RequestError("a question about sums is for all clients, and names none")
        asked = question
        if isinstance(question, LocalModel):
            asked = question.centred(self._last(request.key))
        own = request._replace(question=asked, sums=False)
        value = (answer or self._cohort.answer)(own)
        if isinstance(asked, LocalModel) and asked.hessian:
            self.memory = Memory((request.key, LastModels.of(value.parts)))
        if isinstance(question, FitQuestion):
            self._warn(question.entries(value))
        with np.errstate(**QUIET):
            return [self._encoded(each) for each in question.summands(value)]

    def _encoded(self, own: Summands) -> Limbs:
        """What a client adds, with last digits that tell nothing of it where others read sums."""
        if self.stream is None:
            return own.vector
        kept = KEPT_OF_ROUNDED if self._cohort.refuses else KEPT
        return own.encoded(LastDigits(self.stream(own.vector), kept))

    def _warn(self, entries: Sequence[Any]) -> None:
        """Keep for the owners the warnings of which the server hears the number alone."""
        for finding in (each for entry in entries for each in getattr(entry, "warnings", ())):
            if finding not in self._warned:
                self._warned.add(finding)
                self._cohort.datasets[finding.name].private.append(finding.one)

    def _last(self, key: str) -> LastModels | None:
        last = self.memory.last
        if last is None or last[0] != key:
            return None
        return last[1]
