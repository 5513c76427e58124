"""The loop of ``solve``: rounds of a method, until a rule, a callback or the method ends them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fedsplit.arrays import Array, length
from fedsplit.clients.oracle import Account, Kind, Measurement, TraceEntry
from fedsplit.dialogue import BudgetSpent, Dialogue, Removal
from fedsplit.errors import InputError
from fedsplit.loop.certificate import NOT_ASKED, SEPARABLE, Certificate
from fedsplit.loop.result import StoppedBy
from fedsplit.loop.stopping import StoppingRule
from fedsplit.methods.method import Method


class Divergence:
    """Looks for signs of divergence in every round.

    They are a residual of 10⁹ times the first one; one of 1000 times the smallest at an objective
    that is above that of the start and does not fall, in ten rounds in a row; and numbers that are
    not finite.
    """

    def __init__(self, start: float) -> None:
        self._start = start
        self._first = math.nan
        self._smallest = math.inf
        self._before = math.nan  # the objective of the round before
        self._uphill = 0

    def sign(self, z: Array, residual: float, objective: float, value: float | None) -> str:
        """What shows that the run diverges; an empty text if nothing does.

        z is the iterate before the round, ``objective`` F(x) after it, nan if it is not known, and
        ``value`` Σ_j f_j(x), of which nan is a sign; None if it was not measured.
        """
        # With a residual of 0 nothing was changed, as by a line search: the next move is the first.
        if residual != 0.0:
            if not math.isfinite(self._first):
                # A run that starts at the optimum moves by rounding alone, which may well grow.
                self._first = max(residual, 1e-9 * max(1.0, length(z)))
            if not residual <= 1e9 * self._first:  # also where it is nan
                if not math.isfinite(residual):
                    return "the iterate is not finite"
                return f"the residual grew to {residual:.1e}"
            self._smallest = min(self._smallest, max(residual, 1e-9 * self._first))
            uphill = objective > self._start and residual > 1e3 * self._smallest
            # steps that were cut short and grow again while F falls lead back from where it rose
            uphill = uphill and not objective < self._before
            self._before = objective
            self._uphill = self._uphill + 1 if uphill else 0
            if self._uphill == 10:
                return f"the objective grew to {objective:.1e}"
        if value is not None and math.isnan(objective):
            return "the objective is not a number"
        return ""


class Outcome(NamedTuple):
    """How a run ended."""

    state: Any  # the method's last state, before the round that showed that the run cannot go on
    stopped_by: StoppedBy
    certificate: Certificate = NOT_ASKED
    reached: bool = False  # whether the tolerance is reached, or the method did all it promised
    sign: str = ""  # what showed that the run diverges
    direction: Array | None = None  # (d,): where every cost falls for ever, if that is why


def iterate(
    method: Method[Any],
    x: Array,
    m: int,
    rule: StoppingRule,
    *,
    state: Any = None,
    start: float = math.nan,
) -> Dialogue[Outcome]:
    """Rounds of a method until its x is proved to be good, or the budget is spent.

    It begins at x, (d,), where F is ``start`` if that is known, or goes on from a state. Clients
    that leave for good end the round that they leave in; the method goes on without them from its
    last state, or starts anew from its x. So does a round end that asks for more than is left of
    the budget.
    """
    penalty = method.penalty
    divergence = Divergence(start)
    nobody = np.zeros(m, dtype=bool)
    account = Account(0, 0.0, math.nan, nobody, nobody)
    rule.begin(m)
    while True:
        kind: Kind = "setup" if state is None else "round"  # what is being asked for
        try:
            if state is None:
                begun: Any = yield from method.start(x, m)
                value = yield Measurement(begun.x)
                account = yield TraceEntry("setup", method.penalised(value, begun.x))
                state = begun
                kind = "round"
            # Only a round that is complete counts: whatever breaks it off leaves ``state`` alone.
            if account.rounds >= rule.limit:
                kind = "certificate"
                yield from rule.finish(state, account)
                yield TraceEntry("certificate")
                if rule.certificate.separable:
                    return _astray(state, SEPARABLE, state.x)
                return _ended(rule, state, "rounds")
            try:
                after: Any = yield from method.update(state)
            except (np.linalg.LinAlgError, ArithmeticError) as error:
                return _astray(state, f"the arithmetic left float64 ({error})")
            if after is None:
                return _ended(rule, state, "method")
            before = method.iterate(state)
            residual = method.residual(state, after)
            values = method.values(after)
            # a simulation looks at F for its plots; organisations would have to be asked
            value = (
                (yield Measurement(after.x, sometimes=True))
                if values is None
                else float(values.sum())
            )
            objective = method.penalised(value, after.x)
            evidence = method.evidence(after)
            # With evidence x has moved, and the iterate is only a proposal, refused if F rises.
            proposed = evidence is not None and math.isfinite(residual)
            sign = divergence.sign(before, 0.0 if proposed else residual, objective, value)
            if sign:
                return _astray(state, sign)
            earlier, state = state, after
            account = yield TraceEntry("round", objective, residual, state)
            if penalty is None and evidence is not None and evidence.margin > 0:
                return _astray(state, SEPARABLE, state.x)
            if penalty is None and account.margin > 0 and account.present.all():
                return _astray(state, SEPARABLE, account.point)
            stopped_by: StoppedBy | None = "callback" if account.stop else None
            if rule.tol > 0:
                kind = "certificate"
                looked = yield from rule.look(earlier, state, residual, objective, account)
                account = yield TraceEntry("certificate")  # what the rule has asked, if anything
                if rule.certificate.separable:
                    return _astray(state, SEPARABLE, state.x)
                stopped_by = looked or stopped_by
            if stopped_by is not None:
                return _ended(rule, state, stopped_by)
        except BudgetSpent:
            if state is None:
                left = rule.rounds - account.rounds
                raise InputError(
                    f"rounds: the budget ended in the set-up of {type(method).__name__}, which "
                    f"takes more than {left} of them"
                ) from None
            yield TraceEntry(kind)
            return _ended(rule, state, "rounds")
        except Removal as removal:
            # the round is void, though its questions count: nothing of it has reached ``state``
            account = yield TraceEntry(kind)
            m = int(removal.kept.sum())
            if state is not None:
                x = state.x
                state = method.without(state, removal.kept)
            rule.begin(m)


def _ended(rule: StoppingRule, state: Any, stopped_by: StoppedBy) -> Outcome:
    return Outcome(state, stopped_by, *rule.conclude(state, stopped_by))


def _astray(state: Any, sign: str, direction: Array | None = None) -> Outcome:
    return Outcome(state, "diverged", sign=sign, direction=direction)
