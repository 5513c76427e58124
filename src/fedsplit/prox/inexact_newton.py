"""The default local solver: as many Newton steps as the round needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedsplit.arrays import Array
from fedsplit.checks import number
from fedsplit.losses.costs import Costs
from fedsplit.prox.exact import newton
from fedsplit.prox.solver import Proximal, Start


@dataclass(frozen=True)
class NewtonProx:
    """prox_{s f_j}(v_j) to an accuracy relative to its distance from the server's x.

    Newton steps from x until ‖∇h_j(u)‖ ≤ ratio·‖u - x‖, with h_j = s f_j + ½‖· - v_j‖². As the
    rounds converge, u goes to x and the error to zero: little work per round, and no error floor.
    Quadratic costs are solved exactly, by one stored factor.

    Parameters
    ----------
    ratio : float
        The relative accuracy.
    """

    ratio: float = 0.01

    start: ClassVar[Start] = "broadcast"
    per_coordinate: ClassVar[bool] = True  # s may be (d,)

    def __post_init__(self) -> None:
        number("NewtonProx: ratio", self.ratio)

    def solve(self, costs: Costs, V: Array, s: float | Array, start: Array) -> Proximal:
        return newton(costs, V, s, start, self.ratio)
