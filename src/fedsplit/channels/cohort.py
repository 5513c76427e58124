"""The clients of a problem as one cohort."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array
from fedsplit.channels.channel import Request
from fedsplit.clients.oracle import Clients
from fedsplit.clients.question import Answer, CostQuestion, Question
from fedsplit.clients.questions import Evaluate
from fedsplit.errors import InputError, listed
from fedsplit.threads import one_blas_thread


@dataclass(frozen=True)
class Fingerprint(Question):
    """Values and gradients at a fixed point: other data give other numbers."""

    answer_type = Array
    prepares = True


class ProblemCohort:
    """Some clients of a problem, or all.

    Parameters
    ----------
    names : sequence of str
    among : callable
        ``among(m)`` gives the clients where there are m in all, who share the ridge.
    """

    def __init__(self, names: Sequence[str], among: Callable[[int], Clients]) -> None:
        self.names = names
        self._among = among

    def answer(self, request: Request) -> Any:
        question = request.question
        with one_blas_thread():
            if question.prepares:
                clients = self._among(1)
                size = max(1.0, clients.d**0.5)
                probe = np.random.default_rng(0).standard_normal(clients.d) / size
                known = clients.ask(Evaluate(probe)).parts
                return np.column_stack([known["value"], known["gradient"]])
            if not isinstance(question, CostQuestion):
                raise InputError(f"the question {question.name()} is not about a client's cost")
            clients = self._among(request.m)
            if not request.places:
                return clients.ask(question)
            return _some(clients, question, np.array(request.places))


def _some(clients: Clients, question: CostQuestion, places: NDArray[np.intp]) -> Answer:
    """The answer of these clients, to a question with one row for each of them."""
    rows = np.zeros(clients.m, dtype=np.intp)
    rows[places] = np.arange(len(places))
    drawn = np.zeros(clients.m, dtype=bool)
    drawn[places] = True
    answer = clients.ask_some(question.share(rows), drawn)
    parts = {name: array[places] for name, array in answer.parts.items()}
    work = answer.work[places]
    return Answer(parts, answer.present[places], answer.seconds[places], work)


def same_data(before: Any, after: Any) -> bool:
    """Whether two answers to one question come from the same data, up to rounding."""
    if isinstance(before, Answer):
        # Its time and work may be others. In secure sums a local model is about a point that
        # depends on what the client remembers, and one that was restarted remembers nothing: the
        # gradient at x itself shows the data.
        if "slope" in before.parts and "slope" in after.parts:
            return same_data(before.parts["slope"], after.parts["slope"])
        return same_data(before.parts, after.parts)
    if isinstance(before, Mapping):
        return before.keys() == after.keys() and all(
            same_data(value, after[name]) for name, value in before.items()
        )
    if isinstance(before, np.ndarray | float):
        same_shape = np.shape(before) == np.shape(after)
        # the same data give the same numbers up to rounding, whatever the machine
        return same_shape and bool(np.allclose(before, after, rtol=1e-9, equal_nan=True))
    if isinstance(before, list | tuple):
        pairs = zip(before, after, strict=False)
        return len(before) == len(after) and all(same_data(a, b) for a, b in pairs)
    return bool(before == after)


def other_data(names: Sequence[str]) -> InputError:
    """The error where they do not."""
    return InputError(
        f"client {listed(names)}: its data changed since the run began: "
        "restore them, or start a new run"
    )
