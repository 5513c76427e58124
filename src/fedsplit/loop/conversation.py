"""The driver: who is asked, with which seeds, at what cost.

Whatever is done about asking is written here, once: counting, the clients' random seeds, partial
participation, simulated delays, and clients that leave. A dialogue knows nothing of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NoReturn, TypeAlias

import numpy as np

from fedsplit.arrays import Mask
from fedsplit.clients.clock import Clock, Latency
from fedsplit.clients.oracle import (
    Account,
    Arrival,
    Clients,
    Incident,
    Measurement,
    Pooled,
    Post,
    Posting,
    Removed,
    TraceEntry,
    everyone,
)
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.clients.questions import Reflection
from fedsplit.dialogue import BudgetSpent, Removal
from fedsplit.loop.trace import Row, Trace
from fedsplit.losses.batches import Streams

Callback: TypeAlias = Callable[[Row, Any], object]


def streams_of(seed: int, question: int, m: int) -> Streams:
    """One random seed per client for a question, by its number, (m,), whatever m is."""
    return np.random.default_rng([seed, question]).integers(2**63, size=m)


def shuffled_draws(m: int, k: int, seed: int) -> Iterator[Mask]:
    """Masks with k of m clients each, (m,), without end.

    They deal out one shuffled list of all clients after another, so that every client is drawn once
    before any is drawn again.
    """
    left: list[int] = []
    for shuffle in count():
        order = np.random.default_rng([seed, shuffle]).permutation(m).tolist()
        if left:
            # a draw that takes the end of one list and the start of the next has no client twice
            ahead = [j for j in order if j not in left][: k - len(left)]
            order = ahead + [j for j in order if j not in ahead]
        queue = left + order
        whole = len(queue) // k * k
        for start in range(0, whole, k):
            drawn = np.zeros(m, dtype=bool)
            drawn[queue[start : start + k]] = True
            yield drawn
        left = queue[whole:]


def independent_draws(m: int, k: int, seed: int) -> Iterator[Mask]:
    """Masks with k of m clients each, (m,), without end, each drawn from all clients."""
    for number in count():
        yield np.random.default_rng([seed, number]).permutation(m) < k


class Conversation:
    """Asks clients on behalf of dialogues, and keeps account of it.

    What client j draws for a question is a function of the seed, the number of the question, and j.
    """

    def __init__(
        self,
        clients: Clients,
        *,
        seed: int = 0,  # of who takes part, and of what clients draw
        participation: float = 1.0,  # the share of the clients that is asked, at least one of them
        # Whether every client is drawn once before any is drawn again. Otherwise draws are
        # independent, and questions that need everyone are asked of all clients.
        reshuffled: bool = True,
        # one by one in real time, or by a simulated clock with a ``Latency``
        asynchronous: Latency | bool = False,
        asked: int = 0,  # how many questions an earlier run asked that this one continues
        rounds: float = math.inf,  # the budget: who wants to ask more gets a ``BudgetSpent``
        callbacks: Sequence[Callback] = (),  # each called with a row and a state after every round
        trace: Trace | None = None,  # of earlier conversations, whose budget this one shares
    ) -> None:
        self.number = asked  # how many questions were asked, in earlier runs too
        self.trace = Trace(math.nan) if trace is None else trace
        self.removed: tuple[str, ...] = ()  # by name, who has left
        self.places = np.arange(clients.m)  # those that have not left, by their places at the start
        self._seed = seed
        self._participation = participation
        self._reshuffled = reshuffled
        self._asynchronous = asynchronous
        self._rounds = rounds
        self._callbacks = callbacks
        self._incidents = len(clients.incidents)  # those of earlier runs
        self._exchanges: list[Row] = []
        self._began = time.perf_counter()
        self._effects: Mapping[type, Callable[[Any], Any]] = {
            Measurement: self._measure,
            TraceEntry: self._record,
            Post: self._post,
            Pooled: self._ask_pooled,
        }
        self._question: CostQuestion | None = None  # the last one
        self._measurable = 0  # how many rounds F could have been measured after
        self._meet(clients)

    def _meet(self, clients: Clients) -> None:
        """Begin to ask these clients."""
        self.clients = clients
        self.m = clients.m
        self._everyone = everyone(clients.m)
        # (m,): who answered the last question, and who has ever answered one
        self.present: Mask = ~self._everyone
        self.heard: Mask = ~self._everyone
        self._clock: Clock | None = None
        self._posting: Posting | None = None
        if isinstance(self._asynchronous, Latency):
            self._posting = self._clock = Clock(clients, self._asynchronous, self._seed)
        elif self._asynchronous:
            self._posting = clients.asynchronously()
        self._draws: Iterator[Mask] | None = None
        if self._participation < 1.0:
            k = max(1, round(self._participation * clients.m))
            draw = shuffled_draws if self._reshuffled else independent_draws
            self._draws = draw(clients.m, k, self._seed)
            for _ in range(self.number):  # a continued run draws what it would have drawn
                next(self._draws)

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """What went wrong in this conversation."""
        return tuple(self.clients.incidents[self._incidents :])

    def ask(self, question: Any) -> Any:
        """Answer a question of a dialogue, or carry out what it wants of the driver."""
        try:
            effect = self._effects.get(type(question))
            if effect is not None:
                return effect(question)
            reflection = None
            if isinstance(question, Reflection) and not self.clients.on_device:
                # clients elsewhere are asked for a prox, and the centring step is made here
                reflection, question = question, question.prox
            question = self._next(question)
            drawn = self._everyone
            if self._draws is not None:
                # drawn for every question: draws depend on the number of questions alone
                mask = next(self._draws)
                if self._reshuffled or not question.everyone:
                    drawn = mask
            began = time.perf_counter()
            if self._posting is not None:
                answer = self._posting.ask_some(question, drawn)
            elif drawn is self._everyone:
                answer = self.clients.ask(question)
            else:
                answer = self.clients.ask_some(question, drawn)
            asked = self.m if drawn is self._everyone else int(drawn.sum())
            self._count(question, answer, asked, began)
            return answer if reflection is None else reflection.of_prox(answer)
        except Removed as gone:
            self._remove(gone.names)

    def _check_budget(self) -> None:
        """Raise BudgetSpent if the trace is to have no other row."""
        if len(self.trace.rows) + len(self._exchanges) >= self._rounds:
            raise BudgetSpent

    def _next(self, question: CostQuestion) -> CostQuestion:
        """The next question, with the clients' random seeds if they draw for it."""
        self._check_budget()
        self.number += 1
        if question.draws:
            return question.seeded(streams_of(self._seed, self.number, self.m))
        return question

    def _post(self, effect: Post) -> Arrival:
        """Send a question to some clients, and wait for the next answer to anything posted."""
        assert self._posting is not None  # as ``solve`` has made sure
        self._check_budget()
        began = time.perf_counter()
        if effect.to.any():
            self._posting.post(self._next(effect.question), effect.to)
        question, answer = self._posting.collect()
        self._count(question, answer, int(answer.present.sum()), began)
        return Arrival(question, answer, self._posting.idle)

    def _ask_pooled(self, effect: Pooled) -> Answer:
        """A question to the one client that all are together; it counts like one to all of them."""
        question = self._next(effect.question)
        began = time.perf_counter()
        answer = self.clients.pooled().ask(question)
        self._count(question, answer, self.m, began)
        return answer

    def _measure(self, effect: Measurement) -> float | None:
        """Σ_j f_j(x), which is not counted; None where that would cost somebody something."""
        clients = self.clients
        if not clients.free or self._asynchronous is True:
            return None
        self._measurable += effect.sometimes
        if effect.sometimes and self._measurable % clients.measured_every:
            return None
        paused = time.perf_counter()
        value = clients.objective(effect.x)
        self._began += time.perf_counter() - paused  # a measurement is not the run's time
        return value

    def _record(self, effect: TraceEntry) -> Account:
        """Enter the exchanges since the last record into the trace, one row each.

        The last row has the new objective, the residual, and the server's own time.
        """
        exchanges, rows = self.take(), self.trace.rows
        if not exchanges:
            if not rows and effect.objective is not None:
                self.trace.start = effect.objective
            return Account(len(rows), 0.0, math.nan, self.present, self.heard)
        now = time.perf_counter()
        server = now - self._began - sum([each.seconds for each in exchanges])
        self._began = now
        before = rows[-1].objective if rows else self.trace.start
        *earlier, last = exchanges
        rows += [each._replace(objective=before, kind=effect.kind) for each in earlier]
        row = last._replace(
            objective=before if effect.objective is None else effect.objective,
            residual=effect.residual,
            kind=effect.kind,
            seconds=last.seconds + max(0.0, server),
        )
        rows.append(row)
        stop = False
        if self._callbacks and effect.state is not None:
            # every callback is called, whatever those before it return
            stop = any([callback(row, effect.state) for callback in self._callbacks])  # noqa: C419
        asked = self._question if row.margin > 0 else None
        point = None if asked is None else asked.common_point
        return Account(len(rows), row.error, row.margin, self.present, self.heard, point, stop)

    def note(self, exchange: Row) -> None:
        """Count an exchange that somebody else made among those that are to be recorded."""
        self._exchanges.append(exchange)

    def take(self) -> list[Row]:
        """Remove and return the exchanges that are not in the trace yet."""
        taken, self._exchanges = self._exchanges, []
        return taken

    def _remove(self, names: Sequence[str]) -> NoReturn:
        """Go on without some clients: what was asked is void, and the dialogue hears of it."""
        kept = np.array([name not in names for name in self.clients.names or ()])
        self._meet(self.clients.without(names))
        self.removed = (*self.removed, *names)
        self.places = self.places[kept]
        raise Removal(kept)

    def _count(self, question: CostQuestion, answer: Answer, asked: int, began: float) -> None:
        """Note what an exchange has cost, in a row that knows nothing of the method yet."""
        clients = self.clients
        self._question = question
        self.present = present = answer.present
        complete = answer.complete
        self.heard = self._everyone if complete else self.heard | present
        answered = self.m if complete else int(present.sum())
        latency = None
        if clients.names is not None:  # in this process, all share one time
            taken = zip(clients.names, answer.seconds, present, strict=True)
            latency = {name: float(t) for name, t, here in taken if here}
        each = clients.stands_for
        margin = answer.margin
        # a margin that is none does not count as sent
        floats = answer.floats() - ("margin" in answer.parts and math.isnan(margin))
        gradients, hessians, factorisations = answer.total_work()
        row = Row(
            objective=math.nan,
            residual=math.nan,
            kind="round",
            error=answer.largest_error(),
            floats_up=each * answered * clients.words * floats,
            floats_down=each * asked * question.floats_down(),
            answered=each * answered,
            seconds=time.perf_counter() - began,
            margin=margin,
            latency=latency,
            gradients=each * gradients,
            hessians=each * hessians,
            factorisations=each * factorisations,
            clock=math.nan if self._clock is None else self._clock.now,
        )
        self._exchanges.append(row)
