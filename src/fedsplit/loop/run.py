"""The loop of ``solve``: rounds of a method, until a rule, a callback or the method ends them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fedsplit.arrays import Array, to_host
from fedsplit.clients.effects import Account, Kind, Measurement, TraceEntry
from fedsplit.clients.question import CostQuestion
from fedsplit.dialogue import Dialogue, Removal
from fedsplit.errors import InputError
from fedsplit.loop.certificate import NOT_ASKED, SEPARABLE, Certificate
from fedsplit.loop.divergence import Divergence
from fedsplit.loop.result import StoppedBy
from fedsplit.loop.stopping import ProvedGap
from fedsplit.methods.method import Method
from fedsplit.penalties.penalty import Penalty


class Outcome(NamedTuple):
    """How a run ended.

    Attributes
    ----------
    state : Any
        The method's last state.
    stopped_by : StoppedBy
    certificate : Certificate
    reached : bool
        Whether the tolerance is reached, or the method did all it promised.
    """

    state: Any
    stopped_by: StoppedBy
    certificate: Certificate
    reached: bool


class Astray(Exception):
    """A run that cannot go on, with its state before the round that showed it.

    Attributes
    ----------
    sign : str
        What showed it.
    state : Any
    direction : (d,) array or None
        Where every cost falls for ever, if that is why.
    """

    def __init__(self, sign: str, state: Any, direction: Array | None = None) -> None:
        super().__init__(sign)
        self.sign = sign
        self.state = state
        self.direction = direction


def iterate(
    method: Method[Any],
    x: Array,
    m: int,
    rounds: int,
    *,
    rule: ProvedGap | None = None,
    state: Any = None,
    start: float = math.nan,
) -> Dialogue[Outcome]:
    """Rounds of a method until its x is proved to be good, or the budget is spent.

    Clients that leave for good end the round that they leave in; the method goes on without them
    from its last state, or starts anew from its x.

    Parameters
    ----------
    method : Method
    x : (d,) array
        Where to start.
    m, rounds : int
        The number of clients, and the budget of questions.
    rule : ProvedGap or None
        When to stop before the budget is spent; None spends it, and proves nothing.
    state : Any
        Where to go on from; None for the method's own start.
    start : float
        F(x) at the start; nan if it is not known.
    """
    limit = rounds if rule is None else rule.limit
    penalty = method.penalty
    divergence = Divergence(start)
    nobody = np.zeros(m, dtype=bool)
    account = Account(0, 0.0, math.nan, nobody, nobody)
    if rule is not None:
        rule.begin(m)
    while True:
        kind: Kind = "setup" if state is None else "round"  # what is being asked for
        try:
            if state is None:
                begun: Any = yield from _begun(method, x, m, rounds - account.rounds)
                value = yield Measurement(begun.x)
                account = yield TraceEntry("setup", _with(penalty, begun.x, value))
                state = begun
                kind = "round"
            after: Any = None
            if account.rounds < limit:
                try:
                    after = yield from method.update(state)
                except (np.linalg.LinAlgError, ArithmeticError) as error:
                    raise Astray(f"the arithmetic left float64 ({error})", state) from None
            if after is None:
                end: StoppedBy = "method" if account.rounds < limit else "rounds"
                if rule is None:
                    return Outcome(state, end, NOT_ASKED, end == "method")
                kind = "certificate"
                yield from rule.finish(state, end, account)
                if rule.certificate.separable:
                    raise Astray(SEPARABLE, state, state.x)
                return Outcome(state, end, *rule.conclude(state, end))
            residual = method.residual(state, after)
            values = method.values(after)
            value = (yield Measurement(after.x)) if values is None else float(values.sum())
            objective = math.nan if value is None else value
            if penalty is not None:
                objective += penalty.value(to_host(after.x))
            sign = divergence.sign(
                method.iterate(state), _moved(method, after, residual), objective, value
            )
            if sign:
                raise Astray(sign, state)
            earlier, state = state, after
            account = yield TraceEntry("round", objective, residual, state)
            evidence = method.evidence(state)
            if penalty is None and evidence is not None and evidence.margin > 0:
                raise Astray(SEPARABLE, state, state.x)
            if account.margin > 0 and penalty is None and account.present.all():
                raise Astray(SEPARABLE, state, method.asked_about(earlier))
            stopped_by: StoppedBy | None = None
            if rule is not None:
                kind = "certificate"
                stopped_by = yield from rule.look(earlier, state, residual, objective, account)
                if rule.asked > account.rounds:
                    account = account._replace(rounds=rule.asked)
                if rule.certificate.separable:
                    raise Astray(SEPARABLE, state, state.x)
            if stopped_by is None and account.stop:
                stopped_by = "callback"
            if stopped_by is not None:
                if rule is None:
                    return Outcome(state, stopped_by, NOT_ASKED, False)
                return Outcome(state, stopped_by, *rule.conclude(state, stopped_by))
        except Removal as removal:
            # the round is void, though its questions count: nothing of it has reached ``state``
            account = yield TraceEntry(kind)
            m = int(removal.kept.sum())
            if state is not None:
                x = state.x
                state = method.without(state, removal.kept)
            if rule is not None:
                rule.begin(m)


def _begun(method: Method[Any], x: Array, m: int, most: int) -> Dialogue[Any]:
    """The method's first state; raises InputError if that takes more questions than ``most``."""
    dialogue = method.start(x, m)
    answer = None
    asked = 0
    try:
        while True:
            question = dialogue.send(answer)
            asked += isinstance(question, CostQuestion)
            if asked > most:
                raise InputError(
                    f"rounds: the budget ended in the set-up of {type(method).__name__}, which "
                    f"takes more than {most} of them"
                )
            answer = yield question
    except StopIteration as end:
        return end.value


def _with(penalty: Penalty | None, x: Array, value: float | None) -> float:
    """F(x) with the penalty; nan if it was not measured."""
    if value is None:
        return math.nan
    return value if penalty is None else value + penalty.value(to_host(x))


def _moved(method: Method[Any], after: Any, residual: float) -> float:
    """How far the iterate has moved, as a sign of divergence."""
    # With evidence x has moved, and the iterate is only a proposal that is refused if F rises.
    if math.isfinite(residual) and method.evidence(after) is not None:
        return 0.0
    return residual
