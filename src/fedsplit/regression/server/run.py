"""Rounds of a method, one by one, as the search of a fit drives them.

The loop of ``solve`` is a dialogue of its own. A fit still decides about every round in ``Search``,
which may change the method between two rounds, so that this adapter drives start and update.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from fedsplit.arrays import Array, length
from fedsplit.clients.effects import Measurement
from fedsplit.clients.oracle import Clients
from fedsplit.clients.question import CostQuestion
from fedsplit.clients.stacked import QUIET
from fedsplit.dialogue import BudgetSpent, converse
from fedsplit.loop.certificate import NOT_ASKED
from fedsplit.loop.conversation import Conversation
from fedsplit.loop.divergence import Divergence
from fedsplit.loop.result import Diverged, Result, RunState, StoppedBy
from fedsplit.loop.trace import Trace
from fedsplit.methods.method import Method
from fedsplit.penalties.penalty import Penalty
from fedsplit.threads import one_blas_thread


class FitRule(Protocol):
    """What decides about the rounds of a fit."""

    def begin(self, run: FitRun) -> None:
        """Set ``run.limit``, at the beginning or for another method."""

    def look(self, run: FitRun, before: Any, residual: float) -> StoppedBy | None:
        """Why the run stops after a round; None if it goes on."""

    def finish(self, run: FitRun, stopped_by: StoppedBy) -> StoppedBy | None:
        """Have the last word at the limit; None if the run goes on all the same."""


class FitRun:
    """The rounds of one fit.

    Parameters
    ----------
    clients : Clients
    method : Method
        With the penalty.
    rule : FitRule
    rounds : int
        The budget.
    penalty : Penalty or None
        Added to the objective that is recorded.

    Attributes
    ----------
    state : Any
        The method's state after the last round.
    trace : Trace
        All rounds so far.
    limit : int
        The number of rounds after which the rule has its last word.
    divergence : Divergence
        What is known of the run's moves.
    """

    def __init__(
        self,
        clients: Clients,
        method: Method[Any],
        rule: FitRule,
        rounds: int,
        penalty: Penalty | None = None,
    ) -> None:
        self.clients = clients
        self.method = method
        self.rule = rule
        self.rounds = rounds
        self.limit = rounds
        self.penalty = penalty
        self.state: Any = None
        self._meet(method)
        self.trace: Trace = self.conversation.trace

    def _meet(self, method: Method[Any]) -> None:
        """Ask for this method from now on."""
        self.method = method
        asked = self.clients.insistent() if method.unanimous else self.clients
        self.conversation = Conversation(asked)

    @property
    def subgradient(self) -> Array | None:
        """The penalty's at the x of the state, (d,); None without a penalty."""
        return None if self.penalty is None else self.method.subgradient(self.state)

    @property
    def objective(self) -> float:
        """F(x), as measured last."""
        return self.trace.rows[-1].objective if self.trace.rows else self.trace.start

    def go(self, start: Array, state: Any = None) -> Result:
        """FitRun from a state, or else from the method's set-up at ``start``."""
        with one_blas_thread(), np.errstate(**QUIET):
            self.rule.begin(self)
            self.trace.start, _ = self._measured(start, None)
            self.divergence = Divergence(self.trace.start)
            if state is None:
                self.start_with(self.method, start)
            else:
                self.state = state
            stopped_by = None
            while stopped_by is None:
                stopped_by = self._advance()
        return self._result(stopped_by)

    def start_with(self, method: Method[Any], x: Array) -> None:
        """Begin, or go on, with the set-up of a method at x."""
        self._meet(method)
        self.state = converse(method.start(x, self.clients.m), self.conversation)
        self._record("setup", self._measured(self.state.x, None)[0], math.nan)

    def _advance(self) -> StoppedBy | None:
        """One more round; why the run stops, or None."""
        method = self.method
        before = self.state
        if len(self.trace) >= self.limit:
            return self.rule.finish(self, "rounds")
        try:
            after = converse(method.update(before), self)
        except BudgetSpent:
            # a round of several questions, which were asked in vain: the state is the last one
            self._record("round", self.objective, math.nan)
            return self.rule.finish(self, "rounds")
        except (np.linalg.LinAlgError, ArithmeticError) as error:
            raise self._diverged(f"the arithmetic left float64 ({error})") from None
        if after is None:
            return self.rule.finish(self, "method")
        moved = residual = length(method.iterate(after) - method.iterate(before))
        objective, value = self._measured(after.x, method.values(after))
        if method.evidence(after) is not None and np.isfinite(residual):
            moved = 0.0  # x has moved, and the iterate is a proposal that is refused if F rises
        sign = self.divergence.sign(method.iterate(before), moved, objective, value)
        if sign and self.conversation.present.any():
            raise self._diverged(sign)
        self.state = after
        self._record("round", objective, residual)
        return self.rule.look(self, before, residual)

    def ask(self, question: Any) -> Any:
        """The answer to a question of a round, if the limit allows it."""
        asked = len(self.trace) + self.conversation.waiting
        if isinstance(question, CostQuestion) and asked >= self.limit:
            raise BudgetSpent
        return self.conversation.ask(question)

    def _record(self, kind: Any, objective: float, residual: float) -> None:
        """Enter what the conversation was asked into the trace, which methods share."""
        exchanges = self.conversation.take()
        for each in exchanges[:-1]:
            self.trace.rows.append(each._replace(objective=self.objective, kind=kind))
        for each in exchanges[-1:]:
            row = each._replace(objective=objective, residual=residual, kind=kind)
            self.trace.rows.append(row)

    def _measured(self, x: Array, values: Array | None) -> tuple[float, float | None]:
        """F(x) with the penalty, nan where it is not known, and without it, None there."""
        value = self.conversation.ask(Measurement(x)) if values is None else float(values.sum())
        if value is None:
            return math.nan, None
        return value + (0.0 if self.penalty is None else self.penalty.value(x)), value

    def _diverged(self, sign: str) -> Diverged:
        return Diverged(sign, self.method.hazard, self._result("diverged"))

    def _result(self, stopped_by: StoppedBy) -> Result:
        """The result; what a fit proves of it stands in its ``Proof``."""
        return Result(
            x=self.state.x,
            rounds=len(self.trace),
            converged=False,
            stopped_by=stopped_by,
            state=RunState(self.state, None, self.conversation.number),
            trace=self.trace,
            method=self.method.described(),
            step=self.method.step_of(self.state),
            certificate=NOT_ASKED,
            notes=self.method.notes(self.state),
        )
