"""The trace of a run: one row per round, and its columns as arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Kind


class Row(NamedTuple):
    """One exchange: one question to every client, whatever its size.

    Attributes
    ----------
    objective : float
        F(x) after the round, a measurement that is not counted as communication.
    residual : float
        ‖z⁺ - z‖ of the method's own variable; nan in a set-up or certificate round.
    kind : str
        "setup", "round" or "certificate"; of a fit also "handshake" and "end", before and after the
        rounds.
    error : float
        The largest proved prox error of a client, Theorem 1's b.
    floats_up, floats_down : int
        Floats received from the clients, and sent to those that were asked.
    answered : int
        How many clients answered.
    seconds : float
        Time spent, without the measurement of the objective.
    margin : float
        1 if every row of a classifier is on its side of the plane at the x of the question, so that
        the classes are separable, and -1 if not. nan for other losses, and where a client did not
        answer.
    latency : mapping of str to float, or None
        By name, the seconds to the answer of each client that gave one; None where the clients are
        in this process.
    questions : int
        1; 0 of what travelled with another question.
    gradients, hessians, factorisations : int
        The work of all clients together: how many of each they computed. A factorisation that a
        client kept from an earlier question or run, and used again, is not counted again.
    clock : float
        The simulated time at the end of the round; nan where time is real.
    """

    objective: float
    residual: float
    kind: Kind
    error: float
    floats_up: int
    floats_down: int
    answered: int
    seconds: float
    margin: float = math.nan
    latency: Mapping[str, float] | None = None
    questions: int = 1
    gradients: int = 0
    hessians: int = 0
    factorisations: int = 0
    clock: float = math.nan


@dataclass
class Trace:
    """The rows of a run, and its columns as arrays with one entry per row.

    Attributes
    ----------
    start : float
        F(x) at the start.
    rows : list of Row
    objective : (rounds + 1,) array
        F(x) at the start and after each round.
    latency : dict of str to (rounds,) array
        By client, the seconds to its answer in every round; nan where it gave none.

    The other attributes are the fields of ``Row``, each a (rounds,) array.
    """

    start: float
    rows: list[Row] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    # columns are made when they are read: most runs are never looked at by them
    def __getattr__(self, name: str) -> NDArray[Any]:
        if name not in Row._fields:
            raise AttributeError(f"a Trace has no {name!r}: it has {', '.join(Row._fields)}")
        return np.array([getattr(row, name) for row in self.rows])

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *Row._fields]

    @property
    def objective(self) -> Array:
        return np.array([self.start, *(row.objective for row in self.rows)])

    @property
    def latency(self) -> dict[str, Array]:
        by_row = [row.latency or {} for row in self.rows]
        # in order of appearance, as a client may join late or leave
        names = dict.fromkeys(name for row in by_row for name in row)
        return {name: np.array([row.get(name, np.nan) for row in by_row]) for name in names}
