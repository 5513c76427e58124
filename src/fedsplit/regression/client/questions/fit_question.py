"""What every question about the rows of a cohort has."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from fedsplit.clients.effects import Kind
from fedsplit.clients.question import Question
from fedsplit.errors import RequestError
from fedsplit.sums import Summands, Total

if TYPE_CHECKING:
    from fedsplit.regression.client.dataset_cohort import DatasetCohort


class FitQuestion(Question):
    """A question about the rows of a cohort, answered by a list with one entry per client.

    Attributes
    ----------
    kind : str
        Of the row that it has in a trace.
    adds : bool
        Whether there are ``add`` and ``read``: it can be asked where only sums are told.
    """

    kind: ClassVar[Kind] = "handshake"
    adds: ClassVar[bool] = False

    @abstractmethod
    def answer(self, cohort: DatasetCohort, key: str) -> list[Any]:
        """The entry of every client; ``key`` names what the cohort was prepared with."""

    def check(self, entry: Any) -> str:
        """What is wrong with one client's entry: an empty text if nothing is."""
        return ""

    @property
    def summable(self) -> bool:
        return self.adds

    def summands(self, value: list[Any]) -> list[Summands]:
        found = []
        for entry in value:
            own = Summands()
            self.add(own, entry)
            found.append(own)
        return found

    def of_total(self, total: Total) -> list[Any]:
        return [self.read(total)]

    def of_no_rows(self) -> list[Any]:
        return [self.nothing()]

    def nothing(self) -> Any:
        """The entry of a client that has no row at rest along the directions of recession."""
        raise RequestError(f"the question {self.name()} has no directions of recession")

    def add(self, to: Summands, entry: Any) -> None:
        """Add one client's entry."""
        raise NotImplementedError

    def read(self, total: Total) -> Any:
        """The entry of one client that has the rows of all."""
        raise NotImplementedError


def strict_is_asked(question: Question) -> bool:
    """Whether a question about rows asks for refusals where answers could disclose single ones."""
    about = (getattr(question, name, None) for name in ("wanted", "request", "coding"))
    return any(getattr(each, "strict", False) for each in about)
