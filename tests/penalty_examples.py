"""An example of every penalty, for the conformance tests."""

from collections.abc import Callable

import numpy as np

from fedsplit.penalties.coordinatewise import (
    L1,
    Box,
    ElasticNet,
    NonNegative,
    NonNegativeElasticNet,
)
from fedsplit.penalties.joint import GroupL1, L2Ball, Simplex
from fedsplit.penalties.penalty import Penalty

PENALTIES: dict[str, Callable[[int], Penalty]] = {
    "l1": lambda d: L1(0.7),
    "l1-weighted": lambda d: L1(np.linspace(0.0, 2.0, d)),
    "elastic-net": lambda d: ElasticNet(0.5, 2.0),
    "elastic-net-weighted": lambda d: ElasticNet(
        np.linspace(1.0, 0.0, d), np.linspace(0.0, 3.0, d)
    ),
    "group-l1": lambda d: GroupL1(0.8, [[0, d - 1], [1]]),
    "box": lambda d: Box(-0.3, 0.5),
    "box-by-coordinate": lambda d: Box(
        [-np.inf, *np.linspace(-1.0, 0.2, d - 1)], [0.3, np.inf, *np.full(d - 2, 0.2)]
    ),
    "nonnegative": lambda d: NonNegative(),
    "nonnegative-some": lambda d: NonNegative(range(1, d, 2)),
    "nonnegative-elastic-net": lambda d: NonNegativeElasticNet(
        np.full(d, 0.5), np.linspace(0.0, 2.0, d), np.arange(d) % 2 == 1
    ),
    "simplex": lambda d: Simplex(1.5),
    "l2-ball": lambda d: L2Ball(0.9),
}
"""An example of every penalty for x with d ≥ 3 coordinates; conformance tests read this table."""
