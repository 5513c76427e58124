"""What every question about the rows of a cohort has."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from fedsplit.clients.effects import Kind
from fedsplit.clients.question import Question
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
    def answer(self, cohort: DatasetCohort, key: str) -> Any:
        """The entry of every client; ``key`` names what the cohort was prepared with."""

    @property
    def names(self) -> tuple[str, ...]:
        """The clients that it is for; empty for all of a cohort."""
        return getattr(getattr(self, "coding", None), "names", ())

    def among(self, names: Sequence[str]) -> Self | None:
        """The question as it goes to those of some clients that it is for; None if to nobody."""
        coding = getattr(self, "coding", None)
        if coding is None:
            return self
        own = tuple(name for name in names if not coding.names or name in coding.names)
        # every subclass is a dataclass, which a type checker cannot know here
        return replace(self, coding=replace(coding, names=own)) if own else None  # type: ignore[type-var]

    def check(self, entry: Any) -> str:
        """What is wrong with one client's entry: an empty text if nothing is."""
        return ""

    def check_answer(self, value: Any, k: int) -> str:
        """What is wrong with the answer of a cohort of k clients: an empty text if nothing is."""
        if not isinstance(value, list) or len(value) != (len(self.names) or k):
            return f"an answer of the wrong type, {type(value).__name__}"
        return next(filter(None, map(self.check, value)), "")

    def entries(self, value: Any) -> list[Any]:
        """The entries of the clients in the answer of a cohort."""
        return list(value)

    @property
    def summable(self) -> bool:
        return self.adds

    def summands(self, value: Any) -> list[Summands]:
        found = []
        for entry in value:
            own = Summands()
            self.add(own, entry)
            found.append(own)
        return found

    def of_total(self, total: Total) -> Any:
        return [self.read(total)]

    def add(self, to: Summands, entry: Any) -> None:
        """Add one client's entry."""
        raise NotImplementedError

    def read(self, total: Total) -> Any:
        """The entry of one client that has the rows of all."""
        raise NotImplementedError


def strict_is_asked(question: Question) -> bool:
    """Whether a question about rows asks for refusals where answers could disclose single ones."""
    return bool(getattr(getattr(question, "coding", None), "strict", False))
