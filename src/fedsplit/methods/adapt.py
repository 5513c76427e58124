"""The step without knowledge: from the curvature at the start, then from the curvature that is seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.checks import number
from fedsplit.clients.protocol import Clients
from fedsplit.errors import InputError

SCALED = 100.0
"""Coordinates whose curvatures differ by more than this are badly scaled: each gets a step of its own."""

CHANGE = 1.4
"""A step stays until a better one is this far from it, so that clients can keep their factorisations."""

ROUGH = 0.1
"""A local solver whose error is above this share of its move gets a smaller step, of which it makes more."""

FLATTEST = 1e-6
"""A client's smallest curvature at the start counts as at least this share of its largest."""


class Setting(NamedTuple):
    """The first step s, a scale for each coordinate, (d,), and the curvature of each client in it, (m,)."""

    s: float
    scale: Array
    low: Array
    high: Array
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Adapt:
    """Choose the step from the clients' curvature, and let it follow the curvature that their answers show.

    One set-up round asks for the diagonal of each Hessian at the start and its extreme eigenvalues. Where the
    diagonal's entries differ by more than 100 times, every coordinate gets a step of its own. From then on
    s = 1/√(smallest · largest curvature seen), changed only when it is off by more than 2 times, smaller where a cheap
    local solver does not manage it, and never further than ``bound`` from the first.

    Parameters
    ----------
    bound : float
        The most by which the step may be multiplied or divided in a run.
    """

    bound: float = 1e6

    def __post_init__(self) -> None:
        number("Adapt: bound", self.bound, least=1.0)

    def start(self, clients: Clients, x0: Array, step: float | None, obstacle: str | None) -> Setting:
        """The setting at x0, from one question; absent clients are taken to be like those who answered.

        ``obstacle`` says why the coordinates cannot have steps of their own, if they cannot.
        """
        xp = array_namespace(x0)
        answer = clients.diagonal(x0)
        told = answer.rows[answer.present]
        if told.shape[0] == 0 or not xp.all(xp.isfinite(told)):
            raise InputError("no step follows from the curvature at the start, which is not finite: pass another x0")
        diagonals, high = told[:, :-2], told[:, -1]
        low = xp.maximum(told[:, -2], FLATTEST * high)
        total = xp.sum(diagonals, axis=0)
        flat = total <= 1e-12 * xp.max(total)
        scale = xp.where(flat, 1.0, 1.0 / xp.sqrt(xp.where(flat, 1.0, total)))
        scale = scale / math.exp(float(xp.mean(xp.log(scale))))
        notes: tuple[str, ...] = ()
        if float(xp.max(scale) / xp.min(scale)) ** 2 <= SCALED:
            scale = xp.ones_like(scale)
        elif obstacle is not None:
            scale = xp.ones_like(scale)
            notes = (f"the features are badly scaled, and {obstacle}: expect many rounds, or scale the features",)
        else:
            low = high = xp.mean(diagonals * scale**2, axis=1)
        if not xp.any(high > 0):
            raise InputError("no step follows from the curvature at the start, which is zero: pass another x0")
        curved = high > 0
        sigma = math.exp(float(xp.mean(xp.log(xp.sqrt(low * high)[curved]))))
        lows, highs = xp.full(clients.m, sigma), xp.full(clients.m, sigma)
        lows[answer.present], highs[answer.present] = xp.where(curved, low, sigma), xp.where(curved, high, sigma)
        return Setting(1.0 / sigma if step is None else step, scale, lows, highs, notes)

    def follow(self, s: float, low: float, high: float, first: float, cap: float) -> float:
        """The step for curvature between low and high, at most ``cap``."""
        wanted = max(first / self.bound, min(first * self.bound, cap, 1.0 / math.sqrt(low * high)))
        return wanted if not s / CHANGE <= wanted <= s * CHANGE else s
