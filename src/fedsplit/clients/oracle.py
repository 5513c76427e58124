"""The one seam between mathematics and machinery: clients as a stateless oracle."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from array_api_compat import array_namespace

from fedsplit.arrays import Array, Mask
from fedsplit.prox.solver import ProxSolver


class Answer(NamedTuple):
    """What the clients answered to one question; row j of everything is client j's.

    ``error`` is a proved distance of each row from the exact answer, 0 where it is exact to rounding. ``seconds`` is
    what each client spent; clients that share one process share its time evenly. With a prox a classifier tells its
    ``margin`` at the start, min_i b_i a_iᵀx, which is not a number for other losses: if it is positive for all
    clients, the classes are separable.
    """

    rows: Array
    present: Mask
    error: Array
    seconds: Array
    margin: Array | None = None

    def rows_or(self, default: Array) -> Array:
        """The rows, with ``default`` where a client did not answer."""
        xp = array_namespace(self.rows)
        return (
            self.rows
            if xp.all(self.present)
            else xp.where(self.present[:, None], self.rows, default)
        )


class Decrement(NamedTuple):
    """What client j tells for a certificate at x, given g = ∇F(x) or a subgradient; every field is (m,).

    value : f_j(x).
    q : gᵀ∇²f_j(x)⁻¹g, inf where that is not defined.
    mu : the smallest eigenvalue of ∇²f_j(x), 0 at the level of rounding.
    ell : ℓ_j, the strong convexity of f_j everywhere.
    norm, leverage : how fast the Hessian can change. |D³f_j[h, u, u]| ≤ c D²f_j[u, u] with c = norm·‖h‖, and with
        c = leverage·‖h‖ in the norm of ∇²f_j(x). 0 for a quadratic, inf where there is no such bound.
    floor : a lower bound on f_j.
    steady : the radius of a ball around x in which ∇²f_j is constant: inf for a quadratic, 0 where none is known.
    """

    value: Array
    q: Array
    mu: Array
    ell: Array
    norm: Array
    leverage: Array
    floor: Array
    steady: Array


class Clients(Protocol):
    """m clients that answer questions about their own f_j and remember nothing."""

    @property
    def m(self) -> int: ...

    @property
    def d(self) -> int: ...

    def prox(self, v: Array, s: float | Array, start: Array, solver: ProxSolver) -> Answer:
        """prox_{s f_j}(v_j), (m, d). v and start are (m, d), or (d,) where all clients get the same."""

    def descend(self, x: Array, step: float, steps: int, shift: Array | None = None) -> Answer:
        """e gradient steps on f_j + ⟨shift_j, ·⟩ from x, (m, d). x and shift are (m, d) or (d,)."""

    def gradient(self, x: Array) -> Answer:
        """∇f_j(x), (m, d)."""

    def value(self, x: Array) -> Answer:
        """f_j(x), (m,)."""

    def evaluate(self, x: Array) -> Answer:
        """f_j(x), then ∇f_j(x), (m, 1 + d)."""

    def curvature(self, x: Array | None = None) -> Answer:
        """ℓ_j and L_j, (m, 2): those that hold everywhere (0 and inf where there are none), or those at x."""

    def diagonal(self, x: Array) -> Answer:
        """The diagonal of ∇²f_j(x), then its smallest and largest eigenvalue, (m, d + 2)."""

    def decrement(self, x: Array, g: Array) -> Answer:
        """The scalars of ``Decrement`` at x, (m, 8): what a proof of the gap needs to know of f_j."""

    def line(self, x: Array, direction: Array, t: Array) -> Answer:
        """f_j(x + t_i direction) for every t_i, (m, len(t)): a line search in one question."""

    def direction(self, x: Array, g: Array) -> Answer:
        """∇²f_j(x)⁻¹ g, the local Newton direction, (m, d)."""

    def margin(self, x: Array) -> Answer:
        """min_i b_i a_iᵀx of a classifier, (m,), as in ``Answer.margin``."""

    def information(self, x: Array) -> Answer:
        """∇²f_j(x), (m, d, d)."""
