"""Student's t distribution, which is the normal one for infinitely many degrees of freedom.

``scipy.stats`` has it too, but takes longer to import than a small fit takes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from fedsplit.arrays import Array


def t_tail(z: Any, df: float) -> Any:
    """The probability of more than z."""
    return ndtr(-z) if np.isinf(df) else stdtr(df, -z)


def t_quantile(q: float, df: float | Array) -> Any:
    """The quantile of a probability, for each of the degrees of freedom."""
    return np.where(np.isinf(df), ndtri(q), stdtrit(df, q))
