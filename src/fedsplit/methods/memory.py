"""What the server remembers of the clients' answers: the latest ones, and how they changed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from array_api_compat import array_namespace, device

from fedsplit.arrays import Array, Mask, column_means, dots
from fedsplit.clients.question import Answer
from fedsplit.device.programs import Found, for_each_client
from fedsplit.methods.models import Models

ROUNDING = 1e-11
"""A change of p below this share of p says nothing about the curvature."""

RECENT = 5
"""How many of the latest pairs tell how points and gradients move now."""


class Pair(NamedTuple):
    """How the answers of two rounds differ, in the coordinates x/scale; zero where they cannot.

    Attributes
    ----------
    dx : (d,) array
        The change of the server's x.
    dp, dy : (m, d) arrays
        The changes of every client's answer and gradient.
    mean : (d,) array
        The mean of dp over the clients.
    curvature : float
        ‖dy‖/‖dp‖ over all clients; 0 where one of them is.
    """

    dx: Array
    dp: Array
    dy: Array
    mean: Array
    curvature: float

    @classmethod
    def of(cls, dx: Array, dp: Array, dy: Array) -> Pair:
        """The pair of these changes."""
        return cls.measured(dx, dp, dy, column_means(dp), dots(dp, dp), dots(dy, dy))

    @classmethod
    def measured(
        cls, dx: Array, dp: Array, dy: Array, mean: Array, points: Array, gradients: Array
    ) -> Pair:
        """The same where the mean of dp, (d,), and all ‖dp_j‖² and ‖dy_j‖², (m,), are known."""
        xp = array_namespace(dp)
        curvature = 0.0
        square = float(xp.sum(points))
        if square > 0:
            curvature = math.sqrt(float(xp.sum(gradients)) / square)
        return cls(dx, dp, dy, mean, curvature)

    @classmethod
    def none(cls, p: Array) -> Pair:
        """No change of answers of this shape, (m, d)."""
        nothing = array_namespace(p).zeros_like(p)
        return cls(nothing[0, :], nothing, nothing, nothing[0, :], 0.0)

    def where(self, present: Mask, older: Pair) -> Pair:
        """This pair of the clients that are present, (m,), and the older one of the others."""
        xp = array_namespace(self.dp)
        if xp.all(present):
            return self
        own = present[:, None]
        return Pair.of(self.dx, xp.where(own, self.dp, older.dp), xp.where(own, self.dy, older.dy))


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
    sizes, moves : (m,) array
        ‖p_j‖ and ‖p_j - x‖ in the latest round.
    heard : (m,) bool array
        The clients with an answer that their next one can be compared with.
    pairs : tuple of Pair
        The latest k changes of x, p and y, newest first, zero where there is none. They are not
        stacked: rounds share them, and where m·d is large they are most of the memory.
    gram : (k, k) array
        The inner products of the dp, each less its mean over the clients; only where
        all clients make pairs together.
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
    sizes: Array
    moves: Array
    heard: Mask
    pairs: tuple[Pair, ...]
    gram: Array
    low: Array
    high: Array
    value: Array
    models: Models | None = None

    @classmethod
    def empty(cls, x: Array, low: Array, high: Array, value: Array, pairs: int) -> Memory:
        """Before the first answer: x is (d,), and ``pairs`` is the number of pairs to remember."""
        xp = array_namespace(x)
        heard = xp.zeros(low.shape[0], dtype=xp.bool, device=device(x))
        p = xp.tile(x, (low.shape[0], 1))
        none = Pair.none(p)
        gram = xp.zeros((pairs, pairs), device=device(x))
        unknown = xp.zeros_like(low)
        answers = (x, p, none.dp, unknown, unknown, heard)
        return cls(*answers, (none,) * pairs, gram, low, high, value)

    @property
    def dp(self) -> Array:
        """The changes of the answers, (k, m, d)."""
        return _stacked([pair.dp for pair in self.pairs])

    @property
    def dy(self) -> Array:
        """The changes of the gradients, (k, m, d)."""
        return _stacked([pair.dy for pair in self.pairs])

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
        p = in_scale(answer.rows, scale)
        [y] = for_each_client(_gradient, (in_scale(v, scale), p), shared=(s,)).vectors
        if not xp.all(present):
            p = xp.where(present[:, None], p, self.p)
            y = xp.where(present[:, None], y, self.y)
        found = for_each_client(_changes, (p, y, self.p, self.y), shared=(x,))
        dp, dy = found.vectors
        sizes, moves, points, gradients, slope, along, before = found.numbers
        # A change at the level of rounding has no curvature to show.
        new = present & self.heard & (xp.sqrt(points) > ROUNDING * sizes)
        if unanimous and not xp.all(present & self.heard):
            new = xp.zeros_like(new)
        # Rayleigh quotients of the new pair: dpᵀdy/dpᵀdp from below, dyᵀdy/dpᵀdy from above.
        curved = new & (slope > 0)
        lower = slope / xp.where(curved, points, 1.0)
        upper = gradients / xp.where(curved, slope, 1.0)
        # The trapezium of the gradients at both ends. That at the start was not told: with the
        # curvature 1/s, which is FedSplit's model, it is twice the first one.
        ends = along + xp.where(self.heard, before, 2.0 * along)
        later = self._replace(
            x=x,
            p=p,
            y=y,
            sizes=sizes,
            moves=moves,
            heard=self.heard | present,
            low=xp.where(curved, xp.minimum(self.low, lower), self.low),
            high=xp.where(curved, xp.maximum(self.high, upper), self.high),
            value=self.value + 0.5 * ends,
        )
        if not xp.any(new):
            return later
        mean = found.totals[0] / p.shape[0]
        pair = Pair.measured(x - self.x, dp, dy, mean, points, gradients)
        if unanimous:  # the map z → z⁺ is of all clients together
            return later._joined(pair)
        return later._pushed(pair, new)

    def _pushed(self, newest: Pair, present: Mask) -> Memory:
        """With one more pair of the clients that are present, (m,)."""
        moved = (newest, *self.pairs[:-1])
        pairs = zip(moved, self.pairs, strict=True)
        return self._replace(pairs=tuple(pair.where(present, older) for pair, older in pairs))

    def _joined(self, newest: Pair) -> Memory:
        """With one more pair of all clients, and its inner products with the others."""
        xp = array_namespace(self.p)
        pairs = (newest, *self.pairs[:-1])
        away = newest.dp - newest.mean
        # ⟨away, mean⟩ is zero, so the others need not be centred
        products = xp.stack([xp.sum(dots(away, pair.dp)) for pair in pairs])
        older = self.gram[:-1, :-1]
        lower = xp.concat([products[1:, None], older], axis=1)
        return self._replace(pairs=pairs, gram=xp.concat([products[None, :], lower], axis=0))

    def objective(self, x: Array) -> float:
        """About F at x, (d,), near the answers: nan unless the costs at the start are known."""
        xp = array_namespace(self.p)
        return float(xp.sum(self.value + dots(self.y, x - self.p)))

    def residual(self, s: float) -> float:
        """‖p - x‖/√s over the clients that have answered: zero at a fixed point."""
        xp = array_namespace(self.p)
        moves = xp.where(self.heard, self.moves, 0.0)
        residual: float = float(xp.linalg.vector_norm(moves)) / s**0.5
        return residual

    def rough(self, answer: Answer, scale: Array) -> bool:
        """Whether the local solvers' errors in this round are above a tenth of their moves.

        Errors are proved in the norm of the steps s·scale² and stated in that of x, in which they
        are larger by max(scale).
        """
        xp = array_namespace(self.p)
        moves = xp.where(answer.present, self.moves, 0.0)
        # Of a move at the level of rounding, the error says nothing.
        errors = xp.where(moves > ROUNDING * self.sizes, answer.error / xp.max(scale), 0.0)
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
        curvatures = [pair.curvature for pair in self.pairs[:RECENT] if pair.curvature > 0]
        if not curvatures:
            return self.typical_curvature()
        return math.exp(math.fsum(map(math.log, curvatures)) / len(curvatures))

    def with_step(self, s: float, before: float) -> Memory:
        """As if all answers so far had been to questions with step s, not the one ``before``.

        A pair (dp, dy) is of the client's cost, whatever the step. The mean of v_j = p_j + s y_j is
        the server's x, less s times a subgradient of the penalty if there is one, so the mean of
        p - x is in proportion to s. Where a penalty holds x, it does so with any step.
        """
        xp = array_namespace(self.p)
        p = column_means(self.p)

        def moved(pair: Pair) -> Pair:
            dx = pair.mean + s / before * (pair.dx - pair.mean)
            return pair._replace(dx=xp.where(pair.dx == 0.0, 0.0, dx))

        pairs = tuple(map(moved, self.pairs))
        return self._replace(x=p + s / before * (self.x - p), pairs=pairs)

    def with_hessians(self, x: Array, gradients: Array, hessians: Array, scale: Array) -> Memory:
        """With gradients, (m, d), and Hessians, (m, d, d), at x: a pair along every axis.

        Unchanged if it does not hold d pairs.
        """
        xp = array_namespace(x)
        m, d = self.p.shape
        if len(self.pairs) != d:
            return self
        axes = xp.broadcast_to(xp.eye(d)[:, None], (d, m, d))
        changes = xp.permute_dims(hessians * scale * scale[:, None], (1, 0, 2))
        nothing = xp.zeros_like(self.x)
        return self._replace(
            p=xp.tile(x / scale, (m, 1)),
            y=gradients * scale,
            value=self.value + dots(self.y, x / scale - self.p),
            pairs=tuple(Pair.of(nothing, axes[i], changes[i]) for i in range(d)),
            models=None,
        )

    def with_gradients(self, answer: Answer, scale: Array, s: float) -> Memory:
        """With the clients' gradients at p, the same point for all of them, before the first round.

        This is the round after which z_j = p - s∇f_j(p), if all clients tell their gradients: a
        server at p + s·mean(∇f_j) asked for the proxes of v_j = p + s∇f_j(p), which are p.
        """
        xp = array_namespace(self.p)
        if not xp.all(answer.present):
            return self
        y = in_scale(answer.rows, 1.0 / scale)
        if not xp.all(xp.isfinite(y)):
            return self
        return self._replace(x=self.x + s * column_means(y), y=y, heard=answer.present)

    def of(self, kept: Mask) -> Memory:
        """Of these clients alone: their curvatures, without pairs."""
        fewer = self._replace(
            p=self.p[kept],
            y=self.y[kept],
            sizes=self.sizes[kept],
            moves=self.moves[kept],
            heard=self.heard[kept],
            low=self.low[kept],
            high=self.high[kept],
            value=self.value[kept],
        )
        return fewer.without_pairs()

    def without_pairs(self) -> Memory:
        """Without pairs, and with no answer that the next ones can be compared with."""
        xp = array_namespace(self.p)
        return self._replace(
            heard=xp.zeros_like(self.heard),
            pairs=(Pair.none(self.p),) * len(self.pairs),
            gram=xp.zeros_like(self.gram),
            models=None,
        )


def _gradient(operations: Any, v: Array, p: Array, s: float) -> Found:
    """y = (v - p)/s."""
    return Found(vectors=((v - p) / s,))


def _changes(operations: Any, p: Array, y: Array, p0: Array, y0: Array, x: Array) -> Found:
    """What became of a client's p and y since p0 and y0: dp, dy, and what is measured of them."""
    dot = operations.dot
    dp = p - p0
    dy = y - y0
    away = p - x
    lengths = (operations.sqrt(dot(p, p)), operations.sqrt(dot(away, away)))
    products = (dot(dp, dp), dot(dy, dy), dot(dp, dy), dot(y, dp), dot(y0, dp))
    return Found((dp, dy), (*lengths, *products), totals=(dp,))


def _stacked(arrays: Sequence[Array]) -> Array:
    """Arrays as one, (k, m, d); a single one is not copied."""
    if len(arrays) == 1:
        return arrays[0][None, :, :]
    stacked: Array = array_namespace(arrays[0]).stack(arrays)
    return stacked


def in_scale(rows: Array, scale: Array) -> Array:
    """Rows in the coordinates x/scale: the same array where all scales are one."""
    if array_namespace(scale).all(scale == 1.0):
        return rows
    return rows / scale
