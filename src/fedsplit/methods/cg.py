"""CG: conjugate gradients on F, for quadratic costs."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.errors import InputError
from fedsplit.methods.gd import total

EPS = sys.float_info.epsilon

AFFINE = 1e-6
"""A gradient is not affine where conjugate directions are further from it than this, relatively."""

ROUNDING = 1e-10
"""What rounding may add to that, relative to the largest curvature."""


class CGState(NamedTuple):
    """The server's x, the gradient g of F there, the direction p and the one before it, and the last step s.

    ``L`` is the largest curvature and ``reach`` the largest distance that were met: the scales of rounding.
    """

    x: Array
    g: Array
    p: Array
    p_before: Array
    s: float
    L: float
    reach: float

    @property
    def iterate(self) -> Array:
        return self.x


@dataclass(frozen=True)
class CG:
    """Linear conjugate gradients: exact after as many rounds as ∇²F has distinct eigenvalues.

    Only for quadratic costs. One gradient a round is enough, as Hp = (∇F(x + σp) - ∇F(x))/σ for any σ; σp is given the
    length of x, so that the difference keeps its digits. Where pᵀHp' is not 0 for successive directions, the gradient
    is not affine and ``update`` raises ``InputError``. The method ends by itself where the gradient is 0 to rounding.
    The first step, which nothing checks, is set-up. Every client must answer in every round.
    """

    settles: ClassVar[bool] = True
    unanimous: ClassVar[bool] = True
    state_type: ClassVar[type[CGState]] = CGState

    @property
    def hazard(self) -> str:
        return "the costs are not quadratic: use LBFGS()"

    def start(self, clients: Clients, x0: Array) -> CGState:
        xp = array_namespace(x0)
        g = total("CG", clients.gradient(x0))
        state = CGState(x0, g, -g, xp.zeros_like(x0), 1.0, 0.0, _norm(x0))
        return self.update(clients, state) or state

    def update(self, clients: Clients, state: CGState) -> CGState | None:
        x, g, p, p_before, _, L, reach = state
        if _norm(g) <= EPS * L * reach:
            return None
        length = _norm(p)
        sigma = reach / length if reach > 0 else 1.0
        Hp = (total("CG", clients.gradient(x + sigma * p)) - g) / sigma
        L = max(L, _norm(Hp) / length)
        curvature = _dot(p, Hp)
        defect, before = abs(_dot(p_before, Hp)), _norm(p_before)
        if not defect <= AFFINE * before * _norm(Hp) + ROUNDING * L * before * (before + length):
            raise InputError(
                "CG: the gradient is not affine, so these costs are not quadratic: use LBFGS()"
            )
        if not curvature > 0:  # flat along p, which a gradient of F is not but for rounding
            return None
        s = _dot(g, g) / curvature
        x, g_next = x + s * p, g + s * Hp
        p_next = -g_next + _dot(g_next, g_next) / _dot(g, g) * p
        return CGState(x, g_next, p_next, p, s, L, max(reach, _norm(x), s * length))


def _dot(a: Array, b: Array) -> float:
    return float(array_namespace(a).sum(a * b))


def _norm(a: Array) -> float:
    return math.sqrt(_dot(a, a))
