"""The step without tuning: from the curvature at the start, then from the curvature seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from array_api_compat import array_namespace

from fedsplit.arrays import Array, Mask
from fedsplit.checks import number
from fedsplit.clients.question import Answer
from fedsplit.clients.questions import Curvature
from fedsplit.dialogue import Dialogue

SCALED = 100.0
"""Features whose curvatures differ by more than this are badly scaled: each gets its own step."""

CHANGE = 1.4
"""A step stays until a better one is this far from it: clients then keep their factorisations."""

HARDEST = 32.0
"""The most by which an inexact local solver may lower the step."""


class StepSize(NamedTuple):
    """The step, and what limits it.

    Attributes
    ----------
    s : float
        The step in the coordinates x/scale.
    scale : (d,) array
        All ones unless the features are badly scaled.
    first : float
        What ``Adapt.bound`` is relative to.
    cap : float
        The largest step that the local solver can handle.
    """

    s: float
    scale: Array
    first: float
    cap: float = math.inf

    @property
    def in_x(self) -> float | Array:
        """The step for x itself: s·scale², (d,), or the number s if all scales are one."""
        if array_namespace(self.scale).all(self.scale == 1.0):
            return self.s
        return self.s * self.scale**2

    def limited(self, rough: bool) -> StepSize:
        """With half the step as cap if the local solvers were too inexact; else it recovers."""
        if rough:
            return self._replace(cap=0.5 * self.s)
        return self._replace(cap=1.2 * self.cap)


class Outset(NamedTuple):
    """What the set-up round shows.

    Attributes
    ----------
    step : StepSize
        The first step.
    low, high : (m,) array
        The extreme curvatures of each client, in the coordinates x/scale.
    values : (m,) array
        f_j at the start; nan where it is not known.
    notes : tuple of str
        What the user should know.
    """

    step: StepSize
    low: Array
    high: Array
    values: Array
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Adapt:
    """Choose the step from the clients' curvature, and let it follow what their answers show.

    One set-up round asks for the diagonal of each Hessian at the start, its extreme eigenvalues
    and the cost.
    If the diagonal's entries differ by more than 100 times, every coordinate gets its own step.
    From then on s = 1/√(smallest · largest curvature seen), changed only when it is off by more
    than 1.4 times, and lowered for a local solver that is too inexact for it.

    Parameters
    ----------
    bound : float
        The most by which the step may be multiplied or divided in each of the first five
        accelerated rounds, and in all the rounds after them together.
    """

    bound: float = 1e6

    def __post_init__(self) -> None:
        number("Adapt: bound", self.bound, least=1.0)

    def start(self, answer: Answer, step: float | None, obstacle: str | None) -> Dialogue[Outset]:
        """The first step, from a first look; absent clients count as typical of the others.

        Parameters
        ----------
        answer : Answer
            That of ``first_look``.
        step : float or None
            The user's first step.
        obstacle : str or None
            Why the coordinates cannot have their own steps, if they cannot.
        """
        xp = array_namespace(answer.rows)
        diagonals = answer.rows[answer.present]
        high = answer.parts["largest"][answer.present]
        low = answer.parts["smallest"][answer.present]
        low = xp.maximum(low, 1e-6 * high)  # a flat direction must not make s infinite
        notes: tuple[str, ...] = ()
        scale = _equalising(xp.sum(diagonals, axis=0))
        if float(xp.max(scale) / xp.min(scale)) ** 2 <= SCALED:
            scale = xp.ones_like(scale)
        elif obstacle is not None:
            scale = xp.ones_like(scale)
            notes = (
                f"the features are badly scaled, and {obstacle}: "
                "expect many rounds, or scale the features",
            )
        else:
            # In these coordinates only the diagonals are known, not the extreme eigenvalues.
            high = xp.mean(diagonals * scale**2, axis=1)
            low = high
        if not xp.any(high > 0):
            high = xp.full_like(high, (yield from _guess(step)))
            low = high
        # Clients that are flat here, or absent, count as typical of the others.
        curved = high > 0
        sigma = math.exp(float(xp.mean(xp.log(low[curved]) + xp.log(high[curved]))) / 2.0)
        lows = _of_all(answer.present, xp.where(curved, low, sigma), sigma)
        highs = _of_all(answer.present, xp.where(curved, high, sigma), sigma)
        values = answer.parts["value"]
        values = xp.where(answer.present, values, xp.mean(values[answer.present]))
        if step is None:
            step = 1.0 / sigma
        return Outset(StepSize(step, scale, first=step), lows, highs, values, notes)

    def follow(self, step: StepSize, low: float, high: float) -> float:
        """The step for curvature between low and high; the one in use if that is close to it."""
        best = 1.0 / math.sqrt(low) / math.sqrt(high)  # the product of both could overflow
        limit = max(step.cap, best / HARDEST)
        wanted = max(step.first / self.bound, min(step.first * self.bound, limit, best))
        if step.s / CHANGE <= wanted <= step.s * CHANGE:
            return step.s
        return wanted


def _of_all(present: Mask, numbers: Array, default: float) -> Array:
    """The numbers of clients that are present, and the default of the others, (m,)."""
    xp = array_namespace(numbers)
    if xp.all(present):
        return numbers
    found: Array = xp.full(present.shape[0], default)
    found[present] = numbers
    return found


def _equalising(diagonal: Array) -> Array:
    """The scale, (d,), in which this diagonal of a Hessian is constant; its geometric mean is 1."""
    xp = array_namespace(diagonal)
    flat = diagonal <= 0
    logs = xp.where(flat, 0.0, -0.5 * xp.log(xp.where(flat, 1.0, diagonal)))
    middle = xp.sum(logs) / max(1, int(xp.count_nonzero(~flat)))
    scale: Array = xp.exp(xp.where(flat, 0.0, logs - middle))
    return scale


def _guess(step: float | None) -> Dialogue[float]:
    """A curvature for a start where all costs are flat, as far from the data of a Huber loss."""
    if step is not None:
        return 1.0 / step
    bounds: Answer = yield Curvature()
    largest = bounds.rows[bounds.present][:, 1]
    known = math.inf
    if largest.shape[0]:
        known = float(array_namespace(largest).max(largest))
    return known if 0.0 < known < math.inf else 1.0
