"""Anderson acceleration of the map z → z⁺, by a k×k least squares problem at the server."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from array_api_compat import array_namespace, device

from fedsplit.arrays import Array, column_means, combination, dots
from fedsplit.checks import count, number
from fedsplit.methods.accelerator import Proposal, View


@dataclass(frozen=True)
class Anderson:
    """Accelerate by combining the latest rounds so that their residuals nearly cancel.

    Anderson mixing, type II. Its cost at the server is O(memory·m·d) per round, so it is for d
    beyond some thousands; ``Secants`` needs fewer rounds.

    Parameters
    ----------
    memory : int
        How many rounds are combined.
    regularise : float
        The ridge of the least squares problem, relative to the trace of its Gram matrix.
    """

    memory: int = 20
    regularise: float = 1e-12

    unanimous: ClassVar[bool] = True
    models_costs: ClassVar[bool] = False
    largest_d: ClassVar[float] = math.inf
    accuracy: ClassVar[float] = 0.1

    def __post_init__(self) -> None:
        count("Anderson: memory", self.memory)
        number("Anderson: regularise", self.regularise, strict=False)

    def propose(self, view: View) -> Proposal:
        memory = view.memory
        z = view.z
        if view.trusted:
            z = self._extrapolated(view)
        x = view.average(z)
        sigma = memory.moving_curvature()
        # Σ_j‖p_j - x‖²/s is of the order of F(x) - F*: ∇F is about Σ_j(x - p_j)/s
        gain = view.residual**2
        # the first pair, on the way from the start, says little about the steps that follow
        known = sum(pair.curvature > 0 for pair in memory.pairs)
        adapts = view.trusted and known >= min(2, len(memory.pairs))
        s = view.step.s
        return Proposal(x, z, s, memory, sigma, sigma, view.trusted, adapts, gain)

    def _extrapolated(self, view: View) -> Array:
        """z - Σ_i γ_i dz_i, with γ that minimises ‖r - Σ_i γ_i dr_i‖², regularised.

        z is the plain next iterate and r = p - x the residual that led to it; dr = dp - dx and
        dz = dp - s dy are their changes in earlier rounds. dr is split into what clients have in
        common, the mean of dp less dx, and how they differ, whose inner products are kept.
        """
        memory = view.memory
        used = [i for i, pair in enumerate(memory.pairs) if pair.curvature > 0]
        if not used:
            return view.z
        xp = array_namespace(view.z)
        pairs = [memory.pairs[i] for i in used]
        m = view.z.shape[0]
        mean = column_means(memory.p)
        common = xp.stack([pair.mean - pair.dx for pair in pairs])
        places = xp.asarray(used, device=device(memory.gram))
        gram = xp.take(xp.take(memory.gram, places, axis=0), places, axis=1)
        gram = gram + m * (common @ common.T)
        away = memory.p - mean
        products = xp.stack([xp.sum(dots(away, pair.dp)) for pair in pairs])
        products = products + m * (common @ (mean - memory.x))
        ridge = self.regularise * float(xp.linalg.trace(gram))
        gamma = xp.linalg.solve(gram + ridge * xp.eye(len(used), device=device(gram)), products)
        changes = [pair.dp for pair in pairs] + [pair.dy for pair in pairs]
        return combination([1.0, *-gamma, *(view.step.s * gamma)], [view.z, *changes])
