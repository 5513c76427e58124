"""Secant models of the clients' curvature, from the answers that the server has anyway.

A round of FedSplit shows the server a point p_j and the gradient y_j = ∇f_j(p_j) of every client.
Two rounds make a secant pair, ∇²f_j·(p - p') ≈ y - y'. FedSplit models every client by the
curvature I/s; here the same iteration uses what the pairs show, and I·σ_j where they show nothing:

    x⁺ = argmin_x Σ_j ⟨y_j, x⟩ + ½(x - p_j)ᵀB_j(x - p_j),    v_j = x⁺ + s(y_j + B_j(x⁺ - p_j)).

With B_j = I/s this is Algorithm 1. Stacked arrays hold pairs as (k, m, d), newest first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.checks import count
from fedsplit.device.programs import Found, for_each_client
from fedsplit.losses.systems import lanczos
from fedsplit.methods.accelerator import Proposal, View
from fedsplit.methods.models import learn
from fedsplit.methods.quadratic import gain, minimise

NEARLY_SINGULAR = 1e-8
"""The smallest curvature of the mean model counts as at least this share of its largest."""


@dataclass(frozen=True)
class Secants:
    """Accelerate by modelling each client's curvature from its latest answers.

    The model is a block BFGS matrix per client.

    Parameters
    ----------
    memory : int
        How many answers of each client the server remembers: fewer if that is more than d, or if
        they would take more than 32 MB. A round costs the server
        O(m·memory²·d + m·memory·d² + d³), so ``Anderson`` stands in above d = 1000.
    """

    memory: int = 40

    unanimous: ClassVar[bool] = False
    models_costs: ClassVar[bool] = True
    largest_d: ClassVar[float] = 1000  # it solves a d×d system in every round
    accuracy: ClassVar[float] = 0.01

    def __post_init__(self) -> None:
        count("Secants: memory", self.memory)

    def propose(self, view: View) -> Proposal:
        xp = array_namespace(view.z)
        m = view.z.shape[0]
        scale = view.step.scale
        memory = view.memory
        models = learn(memory.dp, memory.dy, memory.low, memory.high, memory.models)
        memory = memory._replace(low=models.low, high=models.high, models=models)
        total = models.pooled()
        smallest, largest = _extremes(total)
        low = max(smallest, NEARLY_SINGULAR * largest) / m
        high = largest / m
        if view.trusted:
            b = models.right_side(memory.p, memory.y)
            x, slope = minimise(total, b, largest, view.penalty, scale, view.x)
            gained = gain(total, view.penalty, scale, view.x, x, slope)
            excess = max(1.0, float(xp.linalg.vector_norm((x - view.x) / scale)) / view.longest)
            if excess > 1.0 and view.penalty is None:
                x = view.x + (x - view.x) / excess
                gained = math.nan
            # With a penalty, part of the way would not be an output of its prox: no step at all.
            if excess == 1.0 or view.penalty is None:
                # The models' gradients at x, shifted alike so that their sum is -slope.
                s = view.step.s
                at_x = x / scale
                y, total = models.gradients(at_x, memory.p, memory.y)
                shared = (at_x, (total + slope) / m, s)
                [z] = for_each_client(_with_gradient, (y,), shared=shared).vectors
                return Proposal(x, z, s, memory, low, high, True, True, gained)
        x = view.average(view.z)
        return Proposal(x, view.z, view.step.s, memory, low, high, accelerated=False, adapts=False)


def _with_gradient(operations: Any, y: Array, x: Array, shift: Array, s: float) -> Found:
    """z = x - s(y - shift), of which FedSplit takes y - shift to be the gradient at x."""
    return Found(vectors=(x - s * (y - shift),))


def _extremes(M: Array) -> tuple[float, float]:
    """The extreme eigenvalues of M, (d, d), or with many coordinates estimates from products."""
    d = M.shape[0]
    if d > 512:  # d³ operations are then too many for what a round gains by them
        low, high = lanczos(lambda U: U @ M, 1, d)
        return float(low[0]), 1.05 * float(high[0])
    spectrum = array_namespace(M).linalg.eigvalsh(M)
    return float(spectrum[0]), float(spectrum[-1])
