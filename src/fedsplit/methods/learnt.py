"""What the server knows beside x and z: the clients' last answers, and what they say about the step."""

from __future__ import annotations

from typing import NamedTuple

from array_api_compat import array_namespace

from fedsplit.arrays import Array, Mask, dots, norms
from fedsplit.clients.questions import Answer
from fedsplit.methods.adapt import Setting
from fedsplit.methods.secants import remember

ROUNDING = 1e-11
"""A change of p below this share of p says nothing about the curvature."""

ROUGH, CAUTION = 0.1, 1.2
"""A local solver whose error is above ROUGH of its move gets half the step; the limit then grows by CAUTION a round."""

REJECT, PAUSE = 15.0, 32
"""A residual REJECT times the smallest so far sends the run back to where that was, for 1, 2, 4, … plain rounds, at
most PAUSE."""

RESTART, RESTARTS = 100.0, 6
"""A step that was wrong by RESTART makes earlier residuals meaningless: trust starts anew, at most RESTARTS times."""

LEAP = 10.0
"""An accelerated step moves x by at most this many times the longest of its last moves."""

TRIALS, TRUST, DECAY = 5, 10.0, 1.1
"""An accelerated step is taken while the residual is at most TRUST·r/n^DECAY, n counting such steps and r being the
largest residual of the first TRIALS of them.

The sum of what is allowed is finite, so either the residual goes to zero or the plain method, which converges, takes
over for good."""


class Learnt(NamedTuple):
    """What the server knows, in the coordinates x/scale.

    scale : (d,).
    s, first, cap : the step in these coordinates, the first one, and the most that the local solver manages.
    low, high : the extreme curvatures of each client seen so far, (m,).
    heard : whose last answer the next one can be compared with, (m,).
    x, p, y : the last question's x, (d,), and each client's last point and gradient, (m, d).
    dx, dp, dy : their latest changes, (k, d) and (k, m, d), the newest first, zero where there is none.
    best, home : the smallest residual when all answered, and what to go back to, the plain next z, (m, d), from there
        with home_s, home_low and home_high, the step and the curvatures at that time.
    early, taken : the largest residual of the first rounds, and the number of accelerated steps.
    reach : the longest of the last moves of x, forgotten by half a round.
    falls, pause : how often the run went back or started anew, and for how many rounds it is still to be plain.
    notes : what the user should know.
    """

    scale: Array
    s: float
    first: float
    cap: float
    low: Array
    high: Array
    heard: Mask
    x: Array
    p: Array
    y: Array
    dx: Array
    dp: Array
    dy: Array
    best: float
    home: Array
    home_s: float
    home_low: Array
    home_high: Array
    early: float
    taken: int
    reach: float
    falls: int
    pause: int
    notes: tuple[str, ...]

    @classmethod
    def nothing(cls, setting: Setting, x: Array, m: int, k: int, notes: tuple[str, ...]) -> Learnt:
        """What is known before the first answer; k is the number of changes to remember."""
        xp = array_namespace(x)
        (d,) = x.shape
        x = x / setting.scale
        z = xp.tile(x, (m, 1))
        changes = xp.zeros((k, m, d))
        return cls(
            scale=setting.scale,
            s=setting.s,
            first=setting.s,
            cap=xp.inf,
            low=setting.low,
            high=setting.high,
            heard=xp.zeros(m, dtype=xp.bool),
            x=x,
            p=z,
            y=xp.zeros((m, d)),
            dx=xp.zeros((k, d)),
            dp=changes,
            dy=changes,
            best=xp.inf,
            home=z,
            home_s=setting.s,
            home_low=setting.low,
            home_high=setting.high,
            early=0.0,
            taken=0,
            reach=0.0,
            falls=0,
            pause=0,
            notes=notes,
        )

    @property
    def steps(self) -> float | Array:
        """The step for x itself: s·scale², a number where all scales are one."""
        xp = array_namespace(self.scale)
        return self.s if xp.all(self.scale == 1.0) else self.s * self.scale**2

    def hear(self, x: Array, v: Array, answer: Answer, together: bool) -> tuple[Learnt, float]:
        """What is known after the answers p_j = prox(v_j), and the residual ‖p - x‖/√s of all who ever gave one.

        ``together``: changes count only in rounds in which all clients answered.
        """
        xp = array_namespace(v)
        present = answer.present
        p = xp.where(present[:, None], answer.rows / self.scale, self.p)
        y = xp.where(present[:, None], (v - p) / self.s, self.y)
        moved = xp.where(present, norms(p - x), 0.0)
        known_of = self.heard | present
        residual = float(xp.linalg.vector_norm(xp.where(known_of, norms(p - x), 0.0))) / self.s**0.5
        errors = xp.where(moved > ROUNDING * norms(p), answer.error, 0.0)
        rough = float(xp.sum(errors)) > ROUGH * float(xp.sum(moved))
        dp, dy = p - self.p, y - self.y
        new = present & self.heard & (norms(dp) > ROUNDING * norms(p))
        if together and not xp.all(present & self.heard):
            new = xp.zeros_like(new)
        slope = dots(dp, dy)
        curved = new & (slope > 0)
        square, product = xp.where(curved, dots(dp, dp), 1.0), xp.where(curved, slope, 1.0)
        known = self._replace(
            cap=0.5 * self.s if rough else CAUTION * self.cap,
            low=xp.where(curved, xp.minimum(self.low, slope / square), self.low),
            high=xp.where(curved, xp.maximum(self.high, dots(dy, dy) / product), self.high),
            heard=known_of,
            x=x,
            p=p,
            y=y,
            dx=xp.concat([(x - self.x)[None], self.dx[:-1]], axis=0) if xp.any(new) else self.dx,
            dp=remember(self.dp, dp, new),
            dy=remember(self.dy, dy, new),
            early=max(self.early, residual) if self.taken < TRIALS else self.early,
            pause=max(0, self.pause - 1),
        )
        return known, residual

    def leaps(self, x: Array, before: Array) -> float:
        """How many times too long a move of x is, against the last ones; at most 1 where it is not."""
        xp = array_namespace(x)
        length = float(xp.linalg.vector_norm((x - before) / self.scale))
        return length / (LEAP * self.reach) if self.reach > 0 else 1.0

    def trusts(self, residual: float) -> bool:
        """Whether the residual is small enough for one more accelerated step."""
        return self.pause == 0 and bool(residual <= TRUST * self.early / (self.taken + 1) ** DECAY)

    def settle(self, residual: float, z: Array) -> tuple[Learnt, Array, bool]:
        """After a round in which all answered: what is known, the plain next z, and whether the run goes back for it.

        It goes back to where the residual was smallest when this one is far above that.
        """
        xp = array_namespace(z)
        rounding = ROUNDING * float(xp.linalg.vector_norm(self.p)) / self.s**0.5
        if residual < self.best:
            best = self._replace(best=max(residual, rounding), home=z)
            return best._replace(home_s=self.s, home_low=self.low, home_high=self.high), z, False
        if residual <= REJECT * self.best or self.taken < TRIALS:
            return self, z, False
        back = self._replace(s=self.home_s, low=self.home_low, high=self.home_high)
        return back._replace(falls=self.falls + 1, pause=min(2**self.falls, PAUSE)), self.home, True

    def misjudged(self, s: float) -> bool:
        """Whether the step in use is so far from s that trust should start anew."""
        return self.falls < RESTARTS and not self.s / RESTART <= s <= self.s * RESTART

    def restart(self, s: float) -> Learnt:
        """With another step, and without the residuals of the old one."""
        return self._replace(
            s=s, first=s, best=float("inf"), early=0.0, taken=0, falls=self.falls + 1
        )

    def told(self, x: Array, gradients: Array, hessians: Array) -> Learnt:
        """With each client's gradient and Hessian at x, (m, d) and (m, d, d): a secant along every axis.

        Where fewer than d changes are kept, everything stays as it is.
        """
        xp = array_namespace(x)
        k, m, d = self.dp.shape
        if k < d:
            return self
        axes = xp.broadcast_to(xp.eye(d)[:, None], self.dp.shape)
        dy = xp.permute_dims(hessians * self.scale * self.scale[:, None], (1, 0, 2))
        return self._replace(
            p=xp.tile(x / self.scale, (m, 1)), y=gradients * self.scale, dp=axes, dy=dy
        )

    def of(self, kept: Mask) -> Learnt:
        """What is known of these clients alone: their curvatures; no change, residual or place to go back to."""
        fewer = self._replace(
            low=self.low[kept],
            high=self.high[kept],
            heard=self.heard[kept],
            p=self.p[kept],
            y=self.y[kept],
            dp=self.dp[:, kept],
            dy=self.dy[:, kept],
            home=self.home[kept],
            home_low=self.home_low[kept],
            home_high=self.home_high[kept],
        )
        return fewer.forget()._replace(
            first=self.s, best=float("inf"), early=0.0, taken=0, reach=0.0, falls=0, pause=0
        )

    def forget(self) -> Learnt:
        """Without the changes, and with nothing to compare the next answers with."""
        xp = array_namespace(self.dp)
        blank = xp.zeros_like(self.dp)
        return self._replace(
            dx=xp.zeros_like(self.dx), dp=blank, dy=blank, heard=xp.zeros_like(self.heard)
        )
