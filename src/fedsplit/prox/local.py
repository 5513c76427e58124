"""Newton's method for a block of clients, until each one is as accurate as it has to be."""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.prox.exact import MAX_STEPS, STAGNATION, TOLERANCE


class Local(Protocol):
    """Subproblems of k clients, and steps on them; ``at`` is a NamedTuple of (k, ...) arrays."""

    def start(self) -> Any:
        """Where the clients start, δ = 0."""

    def take(self, rows: list[int]) -> Self:
        """The subproblems of some of the clients."""

    def delta(self, at: Any) -> Array:
        """δ, (k, d)."""

    def travelled(self, at: Any) -> Array:
        """‖δ‖ in the metric D, (k,)."""

    def residual(self, at: Any) -> Array:
        """‖∇h‖ in the metric D⁻¹, (k,), which bounds the distance to the prox in the metric D."""

    def step(self, at: Any, active: Mask, enough: float) -> tuple[Any, Mask]:
        """One Newton step of the active clients, and whether each has moved.

        ``enough`` is the residual of a linear system, relative to ‖δ‖, at which it is solved.
        """


def descend(local: Local, at: Any, size: Array, ratio: float) -> tuple[Any, Array]:
    """Newton steps until ‖∇h_j‖ ≤ ratio·‖δ_j‖, or is rounding beside ``size``, (k,).

    Returns where they end, and ‖∇h_j‖ there.

    A block does not wait for its slowest clients: once they are half of it or less, they go on by
    themselves.
    """
    moved: Mask = np.ones(size.shape, dtype=bool)
    residual = np.full(size.shape, np.inf)
    for _ in range(MAX_STEPS):
        before = residual
        residual = local.residual(at)
        enough = np.maximum(TOLERANCE * size, ratio * local.travelled(at))
        rounding = (residual > 0.5 * before) & (residual <= STAGNATION * size)
        active = moved & (residual > enough) & ~rounding
        rows = np.flatnonzero(active).tolist()
        if not rows:
            break
        if 2 * len(rows) <= active.size:
            few = at._make(part[rows] for part in at)
            few, residual[rows] = descend(local.take(rows), few, size[rows], ratio)
            at = at._make(_put(part, rows, own) for part, own in zip(at, few, strict=True))
            break
        at, moved = local.step(at, active, 0.5 * ratio)
    return at, residual


def _put(whole: Array, rows: list[int], own: Array) -> Array:
    """``whole`` with some of its rows replaced."""
    whole = whole.copy()
    whole[rows] = own
    return whole
