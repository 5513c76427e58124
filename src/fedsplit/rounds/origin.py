"""The problem that a state belongs to, so that a run that goes on from it notices another one.

A method's state remembers the costs: pairs of its secants, the smallest residual. On other data,
with another ridge or another penalty all of that is false, and a run would not get anywhere.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.clients.stacked import QUIET
from fedsplit.methods.method import State
from fedsplit.penalties.penalty import Penalty
from fedsplit.threads import one_blas_thread

SAME = 1e-12
"""Values that differ by a smaller share differ by rounding."""


class Origin(NamedTuple):
    """What a problem shows at one x.

    Attributes
    ----------
    values : (m,) array or None
        f_j(x); None of clients elsewhere, which are not asked for a measurement alone.
    penalty : (k,) array
        Points of the penalty's prox near and far from x, one after the other; empty without one.
    asked : int
        How many questions had been asked there: what is drawn next depends on that number.
    """

    values: Array | None
    penalty: Array
    asked: int = 0

    @classmethod
    def at(cls, x: Array, clients: Clients, penalty: Penalty | None, asked: int = 0) -> Origin:
        """What these clients and this penalty show at x."""
        values = None
        with one_blas_thread(), np.errstate(**QUIET):
            if clients.free:
                if clients.on_device:  # a million numbers would be too many to keep
                    values = np.array([clients.objective(clients.vector(x))])
                else:
                    values = clients.value(x).rows
            points: list[Array] = [np.zeros(0)]
            if penalty is not None:
                shifts = (-1e3, -1.0, 1e-3, 1.0, 1e3)
                points = [penalty.prox(x + by, t) for by in shifts for t in (1e-3, 1.0)]
        return cls(values, np.concatenate(points), asked)

    def is_that_of(self, other: Origin) -> bool:
        """Whether it is the same problem, as far as both show."""
        if not _alike(self.penalty, other.penalty):
            return False
        if self.values is None or other.values is None:
            return True
        return _alike(self.values, other.values)


def _alike(one: Array, other: Array) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=SAME, atol=0, equal_nan=True)


def with_origin(state: State, origin: Origin) -> State:
    """The same state, which knows the problem that it was reached on."""
    kind: Any = _knowing(_plain(type(state)))
    known: Any = kind._make(state)
    known.origin = origin
    kept: State = known
    return kept


def asked_until(state: State) -> int:
    """How many questions had been asked when a state was reached; 0 if that is not known."""
    origin = origin_of(state)
    return 0 if origin is None else origin.asked


def origin_of(state: State | None) -> Origin | None:
    """The problem that a state was reached on, if it is known."""
    return getattr(state, "origin", None)


@cache
def _knowing(kind: type) -> type:
    """The states of this type that have room for an origin."""
    return type(kind.__name__, (kind,), {"origin": None, "__reduce__": _reduce})


def _plain(kind: type) -> type:
    """The type of a method's states, of one that may have an origin."""
    if hasattr(kind, "origin"):
        return kind.__mro__[1]
    return kind


def _reduce(state: Any) -> tuple[Any, ...]:
    kind = _plain(type(state))
    return _restored, (kind, tuple(state), state.origin)


def _restored(kind: Any, fields: tuple[Any, ...], origin: Origin | None) -> State:
    state: State = kind._make(fields)
    if origin is None:
        return state
    return with_origin(state, origin)
