"""The tables of functions that depend on the rows of all clients."""

from __future__ import annotations

from fedsplit.data.cutting import Cut
from fedsplit.data.polynomials import Poly
from fedsplit.data.pooled import PooledCategory, PooledNumbers
from fedsplit.data.scaling import Center, Scale
from fedsplit.data.spline_functions import SplineFunction

NUMBERS: dict[str, PooledNumbers] = {
    "poly": Poly(),
    "scale": Scale(),
    "center": Center(),
    "bs": SplineFunction(natural=False),
    "ns": SplineFunction(natural=True),
}
"""Those with columns of numbers."""

CATEGORIES: dict[str, PooledCategory] = {"cut": Cut()}
"""Those with the levels of a category."""
