"""The tables of functions that depend on the rows of all clients."""

from __future__ import annotations

from fedsplit.data.pooled import PooledCategory, PooledNumbers

NUMBERS: dict[str, PooledNumbers] = {}
"""Those with columns of numbers."""

CATEGORIES: dict[str, PooledCategory] = {}
"""Those with the levels of a category."""
