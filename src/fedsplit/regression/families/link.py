"""Links between the mean of a target and its linear predictor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedsplit.arrays import Array


@dataclass(frozen=True)
class Link:
    """η = g(μ), elementwise, where μ is the mean of the target and η the linear predictor.

    Parameters
    ----------
    name : str
        As printed.
    eta : callable
        g(μ); with several classes, of the probabilities of one row, (K,) -> (K - 1,).
    mean : callable
        g⁻¹(η); with several classes, of every row, (n, K - 1) -> (n, K).
    slope : callable
        dμ/dη from η; with several classes, of each one's μ by its own η.
    multiplicative : bool
        Whether adding to η multiplies μ, so that an exposure is an offset of its logarithm.
    """

    name: str
    eta: Callable[[Array], Array]
    mean: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    multiplicative: bool = False


IDENTITY = Link("identity", eta=np.positive, mean=np.positive, slope=np.ones_like)
LOG = Link("log", eta=np.log, mean=np.exp, slope=np.exp, multiplicative=True)
