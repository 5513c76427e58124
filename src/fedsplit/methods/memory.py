"""What the server remembers of the clients' answers: the latest ones, and how they changed."""

from __future__ import annotations

from typing import NamedTuple

from array_api_compat import array_namespace

from fedsplit.arrays import Array, Mask, dots, norms
from fedsplit.clients.question import Answer
from fedsplit.methods.models import Models

ROUNDING = 1e-11
"""A change of p below this share of p says nothing about the curvature."""

RECENT = 5
"""How many of the latest pairs tell how points and gradients move now."""


class Memory(NamedTuple):
    """The clients' latest answers and secant pairs, in the coordinates x/scale.

    Client j answers the question v_j with p_j = prox_{s f_j}(v_j), which shows its gradient there,
    y_j = (v_j - p_j)/s = ∇f_j(p_j). The changes (dp, dy) from one answer to the next are its pairs.

    Attributes
    ----------
    x : (d,) array
        The server's x in the latest round.
    p, y : (m, d) array
        Each client's latest answer and gradient.
    heard : (m,) bool array
        The clients with an answer that their next one can be compared with.
    dx, dp, dy : (k, d), (k, m, d) and (k, m, d) array
        The latest k changes of x, p and y, newest first, zero where there is none.
    low, high : (m,) array
        The extreme curvatures of each client seen so far.
    value : (m,) array
        About f_j(p_j): the cost at the start, and the integral of the gradients seen since.
    models : Models or None
        What an accelerator has learnt from the pairs before the newest.
    """

    x: Array
    p: Array
    y: Array
    heard: Mask
    dx: Array
    dp: Array
    dy: Array
    low: Array
    high: Array
    value: Array
    models: Models | None = None

    @classmethod
    def empty(cls, x: Array, low: Array, high: Array, value: Array, pairs: int) -> Memory:
        """Before the first answer: x is (d,), and ``pairs`` is the number of pairs to remember."""
        xp = array_namespace(x)
        shape = (low.shape[0], x.shape[0])
        changes = xp.zeros((pairs, *shape))
        heard = xp.zeros(shape[0], dtype=xp.bool)
        dx = xp.zeros((pairs, shape[1]))
        p = xp.tile(x, (shape[0], 1))
        return cls(x, p, xp.zeros(shape), heard, dx, changes, changes, low, high, value)

    def update(
        self, x: Array, v: Array, answer: Answer, scale: Array, s: float, unanimous: bool
    ) -> Memory:
        """With the answers to v, (m, d), asked by a server at x.

        If ``unanimous``, only rounds in which all clients answered make pairs.
        """
        xp = array_namespace(v)
        x = x / scale
        present = answer.present
        # An absent client keeps its latest answer and gradient, so x stays that of all clients.
        p = xp.where(present[:, None], answer.rows / scale, self.p)
        y = xp.where(present[:, None], (v / scale - p) / s, self.y)
        dp = p - self.p
        dy = y - self.y
        # A change at the level of rounding has no curvature to show.
        new = present & self.heard & (norms(dp) > ROUNDING * norms(p))
        if unanimous and not xp.all(present & self.heard):
            new = xp.zeros_like(new)
        dx = self.dx
        if xp.any(new):
            dx = xp.concat([(x - self.x)[None], dx[:-1]], axis=0)
        # Rayleigh quotients of the new pair: dpᵀdy/dpᵀdp from below, dyᵀdy/dpᵀdy from above.
        slope = dots(dp, dy)
        curved = new & (slope > 0)
        lower = slope / xp.where(curved, dots(dp, dp), 1.0)
        upper = dots(dy, dy) / xp.where(curved, slope, 1.0)
        # The trapezium of the gradients at both ends. That at the start was not told: with the
        # curvature 1/s, which is FedSplit's model, it is twice the first one.
        ends = y + xp.where(self.heard[:, None], self.y, 2.0 * y)
        return self._replace(
            x=x,
            p=p,
            y=y,
            heard=self.heard | present,
            dx=dx,
            dp=_pushed(self.dp, dp, new),
            dy=_pushed(self.dy, dy, new),
            low=xp.where(curved, xp.minimum(self.low, lower), self.low),
            high=xp.where(curved, xp.maximum(self.high, upper), self.high),
            value=self.value + 0.5 * dots(ends, dp),
        )

    def objective(self, x: Array) -> float:
        """About F at x, (d,), near the answers: nan unless the costs at the start are known."""
        xp = array_namespace(self.p)
        return float(xp.sum(self.value + dots(self.y, x - self.p)))

    def residual(self, s: float) -> float:
        """‖p - x‖/√s over the clients that have answered: zero at a fixed point."""
        xp = array_namespace(self.p)
        moves = xp.where(self.heard, norms(self.p - self.x), 0.0)
        residual: float = float(xp.linalg.vector_norm(moves)) / s**0.5
        return residual

    def rough(self, answer: Answer, scale: Array) -> bool:
        """Whether the local solvers' errors in this round are above a tenth of their moves.

        Errors are proved in the norm of the steps s·scale² and stated in that of x, in which they
        are larger by max(scale).
        """
        xp = array_namespace(self.p)
        moves = xp.where(answer.present, norms(self.p - self.x), 0.0)
        # Of a move at the level of rounding, the error says nothing.
        errors = xp.where(moves > ROUNDING * norms(self.p), answer.error / xp.max(scale), 0.0)
        return float(xp.sum(errors)) > 0.1 * float(xp.sum(moves))

    def typical_curvature(self) -> float:
        """The geometric mean of all clients' extreme curvatures.

        A smallest curvature counts as at least 1e-4 of the largest: flatter directions may never
        be seen again.
        """
        xp = array_namespace(self.low)
        low = xp.maximum(self.low, 1e-4 * self.high)
        return float(xp.exp(xp.mean(xp.log(low) + xp.log(self.high)) / 2.0))

    def moving_curvature(self) -> float:
        """‖dy‖/‖dp‖ over all clients, a geometric mean over the latest pairs.

        With s = 1 over this, p and s·y move alike from round to round. Directions in which one
        client is flat and the others are not count little, unlike in ``typical_curvature``, which
        stands in before the first pair.
        """
        xp = array_namespace(self.dp)
        points = xp.sum(xp.square(self.dp[:RECENT]), axis=(1, 2))
        gradients = xp.sum(xp.square(self.dy[:RECENT]), axis=(1, 2))
        seen = (points > 0) & (gradients > 0)
        if not xp.any(seen):
            return self.typical_curvature()
        ratios = xp.log(gradients[seen]) - xp.log(points[seen])
        return float(xp.exp(0.5 * xp.mean(ratios)))

    def with_step(self, s: float, before: float) -> Memory:
        """As if all answers so far had been to questions with step s, not the one ``before``.

        A pair (dp, dy) is of the client's cost, whatever the step. The mean of v_j = p_j + s y_j is
        the server's x, less s times a subgradient of the penalty if there is one, so the mean of
        p - x is in proportion to s. Where a penalty holds x, it does so with any step.
        """
        xp = array_namespace(self.p)
        p = xp.mean(self.p, axis=0)
        dp = xp.mean(self.dp, axis=1)
        dx = xp.where(self.dx == 0.0, 0.0, dp + s / before * (self.dx - dp))
        return self._replace(x=p + s / before * (self.x - p), dx=dx)

    def with_hessians(self, x: Array, gradients: Array, hessians: Array, scale: Array) -> Memory:
        """With gradients, (m, d), and Hessians, (m, d, d), at x: a pair along every axis.

        Unchanged if it does not hold d pairs.
        """
        xp = array_namespace(x)
        pairs, m, d = self.dp.shape
        if pairs != d:
            return self
        return self._replace(
            p=xp.tile(x / scale, (m, 1)),
            y=gradients * scale,
            value=self.value + dots(self.y, x / scale - self.p),
            dp=xp.broadcast_to(xp.eye(d)[:, None], self.dp.shape),
            dy=xp.permute_dims(hessians * scale * scale[:, None], (1, 0, 2)),
            models=None,
        )

    def of(self, kept: Mask) -> Memory:
        """Of these clients alone: their curvatures, without pairs."""
        fewer = self._replace(
            p=self.p[kept],
            y=self.y[kept],
            heard=self.heard[kept],
            dp=self.dp[:, kept],
            dy=self.dy[:, kept],
            low=self.low[kept],
            high=self.high[kept],
            value=self.value[kept],
        )
        return fewer.without_pairs()

    def without_pairs(self) -> Memory:
        """Without pairs, and with no answer that the next ones can be compared with."""
        xp = array_namespace(self.dp)
        return self._replace(
            heard=xp.zeros_like(self.heard),
            dx=xp.zeros_like(self.dx),
            dp=xp.zeros_like(self.dp),
            dy=xp.zeros_like(self.dy),
            models=None,
        )


def _pushed(changes: Array, newest: Array, present: Mask) -> Array:
    """The changes, (k, m, d), with the newest at the front for the clients that are present."""
    xp = array_namespace(changes)
    moved: Array = xp.concat([newest[None], changes[:-1]], axis=0)
    if xp.all(present):
        return moved
    pushed: Array = xp.where(present[None, :, None], moved, changes)
    return pushed
