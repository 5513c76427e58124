"""The step without knowledge: from the curvature at the start, then from the curvature that is seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.checks import number
from fedsplit.clients.oracle import Clients
from fedsplit.errors import InputError

SCALED = 100.0
"""Coordinates whose curvatures differ by more than this are badly scaled: each gets a step of its own."""

CHANGE = 1.4
"""A step stays until a better one is this far from it, so that clients can keep their factorisations."""

HARDEST = 32.0
"""The most by which a local solver's limits may lower the step."""

ATTEMPTS = 20
"""How often the first question is asked again while nobody answers."""

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
    s = 1/√(smallest · largest curvature seen), changed only when it is off by more than 1.4 times, and smaller where a
    cheap local solver does not manage it.

    Parameters
    ----------
    bound : float
        The most by which the step may be multiplied or divided in each of the first five accelerated rounds, and in
        all the rounds after them together.
    """

    bound: float = 1e6

    def __post_init__(self) -> None:
        number("Adapt: bound", self.bound, least=1.0)

    def start(
        self, clients: Clients, x0: Array, step: float | None, obstacle: str | None
    ) -> Setting:
        """The setting at x0, from one question; absent clients are taken to be like those who answered.

        ``obstacle`` says why the coordinates cannot have steps of their own, if they cannot.
        """
        xp = array_namespace(x0)
        answer = clients.diagonal(x0)
        for _ in range(ATTEMPTS):
            if answer.present.any():
                break
            answer = clients.diagonal(x0)
        told = answer.rows[answer.present]
        if told.shape[0] == 0:
            raise InputError(f"no client answered the first question, asked {ATTEMPTS + 1} times")
        if not xp.all(xp.isfinite(told)):
            raise InputError(
                "no step follows from the curvature at the start, which is not finite: pass another x0"
            )
        diagonals, high = told[:, :-2], told[:, -1]
        low = xp.maximum(told[:, -2], FLATTEST * high)
        total = xp.sum(diagonals, axis=0)
        flat = total <= 0
        logs = xp.where(flat, 0.0, -0.5 * xp.log(xp.where(flat, 1.0, total)))
        middle = xp.sum(logs) / max(1, int(xp.sum(~flat)))
        scale = xp.exp(xp.where(flat, 0.0, logs - middle))
        notes: tuple[str, ...] = ()
        if float(xp.max(scale) / xp.min(scale)) ** 2 <= SCALED:
            scale = xp.ones_like(scale)
        elif obstacle is not None:
            scale = xp.ones_like(scale)
            notes = (
                f"the features are badly scaled, and {obstacle}: expect many rounds, or scale the features",
            )
        else:
            low = high = xp.mean(diagonals * scale**2, axis=1)
        if not xp.any(
            high > 0
        ):  # a flat start, as far from the data of a Huber loss: what is known of every x
            bounds = clients.curvature()
            ends = bounds.rows[bounds.present][:, 1]
            known = float(xp.max(ends)) if ends.shape[0] else xp.inf
            guess = 1.0 / step if step is not None else known if 0.0 < known < xp.inf else 1.0
            low = high = xp.full(told.shape[0], guess)
        curved = high > 0
        sigma = math.exp(float(xp.mean(xp.log(low[curved]) + xp.log(high[curved]))) / 2.0)
        lows, highs = xp.full(clients.m, sigma), xp.full(clients.m, sigma)
        lows[answer.present], highs[answer.present] = (
            xp.where(curved, low, sigma),
            xp.where(curved, high, sigma),
        )
        return Setting(1.0 / sigma if step is None else step, scale, lows, highs, notes)

    def follow(self, s: float, low: float, high: float, first: float, cap: float) -> float:
        """The step for curvature between low and high, at most ``cap``."""
        best = 1.0 / math.sqrt(low) / math.sqrt(high)
        wanted = max(first / self.bound, min(first * self.bound, max(cap, best / HARDEST), best))
        return wanted if not s / CHANGE <= wanted <= s * CHANGE else s
