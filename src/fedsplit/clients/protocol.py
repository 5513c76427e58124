"""The one seam between mathematics and machinery: clients as a stateless oracle."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from array_api_compat import array_namespace

from fedsplit.arrays import Array, Mask
from fedsplit.prox.solver import ProxSolver


class Answer(NamedTuple):
    """What the clients answered to one question; row j of everything is client j's.

    ``error`` is a proved distance of each row from the exact answer, 0 where it is exact to rounding. ``seconds`` is
    what each client spent; clients that share one process share its time evenly.
    """

    rows: Array
    present: Mask
    error: Array
    seconds: Array

    def rows_or(self, default: Array) -> Array:
        """The rows, with ``default`` where a client did not answer."""
        xp = array_namespace(self.rows)
        return self.rows if xp.all(self.present) else xp.where(self.present[:, None], self.rows, default)


class Clients(Protocol):
    """m clients that answer questions about their own f_j and remember nothing."""

    @property
    def m(self) -> int: ...

    @property
    def d(self) -> int: ...

    def prox(self, v: Array, s: float | Array, start: Array, solver: ProxSolver) -> Answer:
        """prox_{s f_j}(v_j), (m, d). v and start are (m, d), or (d,) where all clients get the same."""

    def descend(self, x: Array, step: float, steps: int) -> Answer:
        """G_j^e(x): e gradient steps on f_j from x, (m, d)."""

    def gradient(self, x: Array) -> Answer:
        """∇f_j(x), (m, d)."""

    def value(self, x: Array) -> Answer:
        """f_j(x), (m,)."""

    def curvature(self, x: Array | None = None) -> Answer:
        """ℓ_j and L_j, (m, 2): those that hold everywhere (0 and inf where there are none), or those at x."""

    def information(self, x: Array) -> Answer:
        """∇²f_j(x), (m, d, d)."""
