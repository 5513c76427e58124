"""Anderson acceleration of the map z → z⁺, by a k×k least squares problem at the server."""

from __future__ import annotations

from dataclasses import dataclass

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.checks import count, number


@dataclass(frozen=True)
class Anderson:
    """Accelerate by combining the last rounds so that their residuals nearly cancel (Anderson mixing, type II).

    Its cost at the server is O(memory·m·d) a round, whatever d: for d beyond some thousands. ``Secants`` needs fewer
    rounds.

    Parameters
    ----------
    memory : int
        How many rounds are combined.
    regularise : float
        The ridge of the least squares problem, relative to the trace of its Gram matrix.
    """

    memory: int = 20
    regularise: float = 1e-12

    def __post_init__(self) -> None:
        count("Anderson: memory", self.memory)
        number("Anderson: regularise", self.regularise, strict=False)

    def pairs(self, m: int, d: int) -> int:
        """How many rounds are kept."""
        return self.memory


def extrapolate(settings: Anderson, r: Array, z: Array, dr: Array, dz: Array) -> Array:
    """z - Σ_i γ_i dz_i, with γ least in ‖r - Σ_i γ_i dr_i‖² and regularised.

    z is the plain next iterate and r the residual that led to it; dr and dz are their changes in earlier rounds.
    """
    xp = array_namespace(z)
    R = xp.reshape(dr, (dr.shape[0], -1))
    gram = R @ R.T
    ridge = settings.regularise * float(xp.linalg.trace(gram)) + 1e-300
    gamma = xp.linalg.solve(gram + ridge * xp.eye(R.shape[0]), R @ xp.reshape(r, (-1,)))
    mixed: Array = z - xp.tensordot(gamma, dz, axes=1)
    return mixed
