"""Steps that are safe when answers arrive late."""

from __future__ import annotations

import math


def arock_relaxation(m: int, delay: int) -> float:
    """The relaxation η of an asynchronous fixed-point iteration over m blocks, 1/(1 + 2τ/√m).

    ARock (Peng, Xu, Yan and Yin, 2016, Theorem 3) converges below it if the map is nonexpansive, no
    answer is older than ``delay`` = τ arrivals, and the blocks are drawn uniformly.
    """
    return 1.0 / (1.0 + 2.0 * delay / math.sqrt(m))
