"""What statistics are made of: the rows of one client, and its cost in the coordinates of a fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.data.pooled.column_statistics import Withheld
from fedsplit.errors import RequestError
from fedsplit.regression.client.coding import Frame
from fedsplit.regression.client.design import Design
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.regression.client.plan import Plan
from fedsplit.statistic import RowSum


class CostAt(NamedTuple):
    """The cost of one client at a point of the rounds, without a ridge.

    Attributes
    ----------
    value : float
    slope : (d,) array
    curvature : callable
        Computes the Hessian, (d, d), where that is wanted.
    discloses : callable
        Given whether the Hessian is told, the sums over rows from which all of it follows.
    """

    value: float
    slope: Array
    curvature: Callable[[], Array]
    discloses: Callable[[bool], list[RowSum]]


@dataclass(frozen=True)
class FitRows:
    """The rows of one client by a plan, and their cost.

    Attributes
    ----------
    plan : Plan
    design : Design
        In the units of the files, or scaled where there is a frame.
    rules : Rules
        Those under which the client answers.
    matrices : bool
        Whether the client tells matrices in every round.
    guarded : bool
        Whether points are under rules.
    m : int
        How many clients take part.
    frame : Frame or None
        The coordinates of the rounds.
    cost : callable or None
        The cost at a point of the rounds.
    """

    plan: Plan
    design: Design
    rules: Rules
    matrices: bool = True
    guarded: bool = False
    m: int = 0
    frame: Frame | None = None
    cost: Callable[[Array], CostAt] | None = None

    @property
    def directions(self) -> bool:
        """Whether the client tells what directions of the server's choice do to its rows."""
        return not self.rules.refuse

    @property
    def withheld(self) -> Withheld:
        """Which counts do not leave the client."""
        return self.rules.withheld

    def check_shape(self, x: Array) -> None:
        """Refuse a point of the scaled columns of another size."""
        size = self.design.family.size(self.design.A.shape[1], self.design.classes)
        if x.shape != (size,):
            raise RequestError(f"the server sent a point of shape {x.shape}, expected ({size},)")

    def check_point(self, x: Array) -> None:
        """Refuse a point of the scaled columns of another size, or too far out."""
        self.check_shape(x)
        if self.guarded:
            self.rules.check_size(self.design.name, self.design.predictor(x))

    def whitened(self) -> Array:
        """The columns of the rounds, (n, r)."""
        if self.frame is None or self.frame.whiten is None:
            return self.design.A
        return np.asarray(self.design.A @ self.frame.whiten)
