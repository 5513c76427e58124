"""CG: conjugate gradients on F, for quadratic costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from fedsplit.arrays import EPS, Array
from fedsplit.clients.questions import Gradient
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError
from fedsplit.methods.method import StepMethod, total


class CGState(NamedTuple):
    """The state of CG."""

    # (d,): the server's x and the gradient of F there
    x: Array
    g: Array
    # (d,): the direction, the one before it, and the Hessian times that
    p: Array
    p_before: Array
    Hp_before: Array
    s: float  # the last step
    # the largest curvature and the largest distance met: the scales of rounding
    L: float
    reach: float


@dataclass(frozen=True)
class CG(StepMethod[CGState]):
    """Linear conjugate gradients: exact after as many rounds as ∇²F has distinct eigenvalues.

    Only for quadratic costs. One gradient per round is enough, as Hp = (∇F(x + σp) - ∇F(x))/σ for
    any σ; σp is given the length of x, so that the difference keeps its digits. If pᵀHp' is not
    p'ᵀHp for successive directions, which were computed at different points, the gradient is not
    affine and ``update`` raises ``InputError``. The method ends by itself when the gradient is 0 to
    rounding. The first step, which nothing checks, is set-up. Every client must answer in every
    round.

    Parameters
    ----------
    affine : float
        The gradient is not affine if the two products differ by more than this, relative to the
        lengths of their factors.
    roundoff : float
        What rounding may add to that, relative to the largest curvature.
    """

    affine: float = 1e-6
    roundoff: float = 1e-10

    may_be_zero = ("affine", "roundoff")
    unanimous = True
    device = "sums"
    state_type = CGState
    hazard = "the costs are not quadratic: use LBFGS()"

    def start(self, x0: Array, m: int) -> Dialogue[CGState]:
        g = total("CG", (yield Gradient(x0)))
        state = CGState(x0, g, -g, 0.0 * x0, 0.0 * x0, 1.0, 0.0, _norm(x0))
        return (yield from self.update(state)) or state

    def update(self, state: CGState) -> Dialogue[CGState | None]:
        x, g, p, p_before, Hp_before, _, L, reach = state
        if _norm(g) <= EPS * L * reach:
            return None
        length = _norm(p)
        sigma = reach / length if reach > 0 else 1.0
        Hp = (total("CG", (yield Gradient(x + sigma * p))) - g) / sigma
        L = max(L, _norm(Hp) / length)
        curvature = float(p @ Hp)
        before = _norm(p_before)
        rounding = self.roundoff * L * before * (before + length)
        asymmetry = abs(p_before @ Hp - p @ Hp_before)
        if not asymmetry <= self.affine * before * _norm(Hp) + rounding:
            raise InputError(
                "CG: the gradient is not affine, so these costs are not quadratic: use LBFGS()"
            )
        if not curvature > 0:  # flat along p, which only rounding makes of a gradient of F
            return None
        s = float(g @ g) / curvature
        x = x + s * p
        g_next = g + s * Hp
        p_next = -g_next + (g_next @ g_next) / (g @ g) * p
        return CGState(x, g_next, p_next, p, Hp, s, L, max(reach, _norm(x), s * length))


def _norm(a: Array) -> float:
    return math.sqrt(a @ a)
