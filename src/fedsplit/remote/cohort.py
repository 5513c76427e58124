"""Clients of a problem as one cohort."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Answer, Clients
from fedsplit.errors import InputError
from fedsplit.remote.channel import Question
from fedsplit.threads import one_blas_thread

ROUND_QUESTIONS = frozenset(name for name in vars(Clients) if not name.startswith("_")) - {"m", "d"}
"""The protocol's questions: nothing else is asked in the rounds."""


class OracleCohort:
    """Some clients of a problem, or all.

    ``of`` gives their costs where there are so many clients in all, among whom a ridge is divided.
    """

    kinds: Mapping[str, Any] = dict.fromkeys(ROUND_QUESTIONS, Answer) | {"settle": Array}

    def __init__(self, names: Sequence[str], of: Callable[[int], Clients]) -> None:
        self.names, self._of = names, of

    def answer(self, question: Question) -> Any:
        with one_blas_thread():
            if question.name == "settle":
                return self._fingerprint()
            if question.name not in ROUND_QUESTIONS:
                raise InputError(f"there is no question {question.name!r}")
            _, m, *args = question.args
            return getattr(self._of(m), question.name)(*args)

    def _fingerprint(self) -> Array:
        """Values and gradients at a fixed point: other data, other numbers."""
        clients = self._of(1)
        probe = np.random.default_rng(0).standard_normal(clients.d) / max(1.0, clients.d**0.5)
        return clients.evaluate(probe).rows
