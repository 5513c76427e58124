"""The distributions that a coefficient over its standard error is compared with.

``scipy.stats`` has them too, but takes longer to import than a small fit takes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from scipy.special import ndtr, ndtri, stdtr, stdtrit


class Normal:
    """The standard normal distribution."""

    def sf(self, z: Any) -> Any:
        """The probability of more than z."""
        return ndtr(-z)

    def ppf(self, q: float) -> float:
        """The quantile of a probability."""
        return float(ndtri(q))


class StudentT(NamedTuple):
    """Student's t with ``df`` degrees of freedom."""

    df: float

    def sf(self, z: Any) -> Any:
        """The probability of more than z."""
        return stdtr(self.df, -z)

    def ppf(self, q: float) -> float:
        """The quantile of a probability."""
        return float(stdtrit(self.df, q))
