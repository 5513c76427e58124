"""Clients of a problem as one cohort: what a worker on a cluster answers for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.channel import Question
from fedsplit.clients.protocol import Clients
from fedsplit.clients.stacked import StackedClients
from fedsplit.errors import InputError
from fedsplit.problem import Problem
from fedsplit.threads import one_blas_thread

ROUND_QUESTIONS = frozenset(name for name in vars(Clients) if not name.startswith("_")) - {"m", "d"}
"""The protocol's questions: nothing else is asked in the rounds."""


class ProblemCohort:
    """A share of a problem's clients, answered for by the in-process ones; every question says how many are in all."""

    def __init__(self, names: Sequence[str], problem: Problem) -> None:
        self.names, self._problem = names, problem
        self._of: tuple[int, StackedClients] = (0, problem.clients)

    def answer(self, question: Question) -> Any:
        with one_blas_thread():
            if question.name == "settle":
                return self._fingerprint()
            if question.name not in ROUND_QUESTIONS:
                raise InputError(f"there is no question {question.name!r}")
            _, m, *args = question.args
            return getattr(self._clients(m), question.name)(*args)

    def _clients(self, m: int) -> StackedClients:
        if self._of[0] != m:
            share = np.broadcast_to(self._problem.ridge / m, (self._problem.d,))
            self._of = m, self._problem.clients.with_ridge(share)
        return self._of[1]

    def _fingerprint(self) -> Array:
        """Values and gradients at a fixed point: other data, other numbers."""
        probe = np.random.default_rng(0).standard_normal(self._problem.d) / max(1.0, self._problem.d**0.5)
        return self._clients(1).evaluate(probe).rows
