"""Anderson acceleration of the map z → z⁺, by a k×k least squares problem at the server."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from array_api_compat import array_namespace

from fedsplit.arrays import Array
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
    accuracy: ClassVar[float] = 0.05

    def __post_init__(self) -> None:
        count("Anderson: memory", self.memory)
        number("Anderson: regularise", self.regularise, strict=False)

    def propose(self, view: View) -> Proposal:
        memory = view.memory
        z = view.z
        if view.trusted:
            z = self._extrapolated(view)
        x, y = view.plain_step(z)
        sigma = memory.moving_curvature()
        return Proposal(x, y, memory, sigma, sigma, view.trusted, view.trusted)

    def _extrapolated(self, view: View) -> Array:
        """z - Σ_i γ_i dz_i, with γ that minimises ‖r - Σ_i γ_i dr_i‖², regularised.

        z is the plain next iterate and r = p - x the residual that led to it; dr and dz are their
        changes in earlier rounds.
        """
        memory = view.memory
        xp = array_namespace(view.z)
        k, m, d = memory.dp.shape
        r = xp.reshape(memory.p - memory.x, (m * d,))
        R = xp.reshape(memory.dp - memory.dx[:, None], (k, m * d))
        gram = R @ R.T
        # The tiny term keeps the system regular while all pairs are zero.
        ridge = self.regularise * float(xp.linalg.trace(gram)) + 1e-300
        gamma = xp.linalg.solve(gram + ridge * xp.eye(k), R @ r)
        # dz = dp - s dy, combined without an array of its size
        P = xp.reshape(memory.dp, (k, m * d))
        Y = xp.reshape(memory.dy, (k, m * d))
        mixed: Array = view.z - xp.reshape(gamma @ P - view.step.s * (gamma @ Y), (m, d))
        return mixed
