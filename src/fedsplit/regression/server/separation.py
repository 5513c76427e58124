"""Coefficients that grow without bound: directions along which the likelihood rises for ever.

Along such a direction of recession the losses of some rows fall to their infimum, and no loss
rises. In the limit these rows say nothing, and the fit is that of the others. What those do not
determine has no estimate. The limit is reached far out on the direction, where the losses have no
digit left to fall: there the information is singular along all that has no estimate, its kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.oracle import TraceEntry
from fedsplit.clients.questions import Gradient, Information, Line, Margin
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError, listed
from fedsplit.methods.information import Newton
from fedsplit.methods.server_step import Expansions, server_step
from fedsplit.regression.client.design import SMALLEST_CELL
from fedsplit.regression.client.guards.rules import Finding
from fedsplit.regression.client.questions import SumAnswer, SumQuestion
from fedsplit.regression.client.statistics import RowsAlong
from fedsplit.regression.server.federation import Everyone
from fedsplit.regression.server.problem import FitProblem


class Unbounded(InputError):
    """The likelihood has no maximum."""


def regular(H: Array, kernel: Array | None) -> Array:
    """H, made regular along its kernel: what is orthogonal to that does not depend on how."""
    if kernel is None:
        return H
    outside = np.eye(len(H)) - kernel @ kernel.T
    return outside @ H @ outside + float(np.diag(H).max()) * kernel @ kernel.T


@dataclass(frozen=True)
class LimitNewton(Newton):
    """Newton's method outside of a kernel: what rounding has left of H there is no curvature."""

    kernel: Array = field(kw_only=True)

    def minimiser(self, models: Expansions, x: Array) -> tuple[Array, Array]:
        return server_step(x, models.gradient(x), regular(models.hessian(), self.kernel), None)


class Limit(NamedTuple):
    """Where a fit goes whose coefficients grow without bound."""

    x: Array  # (d,): so far out that the losses of receding rows have vanished
    kernel: Array  # (d, k): an orthonormal basis of what the other rows do not determine
    ways: tuple[Array, ...]  # the directions of recession, of length 1; the first goes furthest
    receding: tuple[int, ...]  # how many rows of each client recede along them

    def not_estimable(self, problem: FitProblem) -> Mapping[str, str]:
        """The coefficients that have no estimate, with "+inf" or "-inf"."""
        sizes = problem.for_each(problem.pool.sizes, 1.0)
        # in units in which columns have about the same size
        parts = np.abs(problem.back @ self.kernel) * sizes[:, None]
        reach = (parts / parts.max(axis=0)).max(axis=1)
        ways = [(problem.back @ way) * sizes for way in self.ways]
        lost = np.flatnonzero(reach > 1e-6)  # a smaller part of a direction is rounding
        total = np.sum(ways, axis=0)
        moves = [next((way[j] for way in ways if abs(way[j]) > 1e-6), total[j]) for j in lost]
        return {
            problem.names[j]: "-inf" if move < 0 else "+inf"
            for j, move in zip(lost, moves, strict=True)
        }

    def findings(self, names: Sequence[str]) -> list[Finding]:
        """What the limit could disclose of the rows that it is without."""
        what = f"rows that recede, fewer than {SMALLEST_CELL}"
        many = f"clients have fewer than {SMALLEST_CELL} rows that recede"
        return [
            Finding(name, f"client {name} has {n} {what}", many, f"{name} ({n})", "smallest_group")
            for name, n in zip(names, self.receding, strict=True)
            if 0 < n < SMALLEST_CELL
        ]


@dataclass
class SeparationSearch:
    """Watches for a likelihood that has no maximum, since it rises for ever along a direction.

    Where x keeps moving, Newton's method shows whether there is a direction along which the
    curvature vanishes, and the clients whether rows recede along it.
    """

    problem: FitProblem
    # the moves of this many rounds are examined together, and as often: the fewer, the longer the
    # steps of the method are
    span: int
    # a curvature below this share of the largest is that of rows that have receded
    flat: float = 1e-11

    def __post_init__(self) -> None:
        # whether rows recede along a direction whose limit has not been looked for yet
        self.found = False
        self._points: list[Array] = []  # x after the last rounds
        self._first: Array | None = None  # x after the first round
        self._rest = 0  # the round until which there is no other search
        self._ways: tuple[Array, ...] = ()
        self._receding: tuple[int, ...] = ()
        self._curvature = 0.0  # the largest that a search has seen: all may vanish
        # what is not determined in the limit so far, (d, k)
        self._kernel: Array = np.zeros((self.problem.d, 0))

    def look(self, state: Any, number: int, allowed: int) -> Dialogue[None]:
        """Look at a round, by its number, and every few rounds at the moves of the last ones.

        As many questions may be asked as are ``allowed``.
        """
        x = state.x
        if self._first is None:
            self._first = x
        self._points = [*self._points[-self.span :], x]
        due = number % self.span == 0 and number > max(2 * self.span, self._rest)
        if not due or len(self._points) <= self.span:
            return
        move = self._size(x - self._points[0])
        # Near a minimum each step is much shorter than the last, and not so on the way along a
        # direction of recession.
        ahead = getattr(state, "ahead", None)  # which few methods know
        step = 0.0 if ahead is None else self._size(ahead - x)
        settles = 0.0 < step < 0.25 * self._size(x - self._points[-2])
        if move > 0.01 * self._size(x) and not settles:
            asked = yield from self.search(x, allowed)
            if self.problem.rows.directions:
                # Nearly separable data keep moving too: a search in vain is not soon repeated.
                self._rest = 2 * (number + asked)

    def _size(self, move: Array) -> float:
        """The length of a move without its part in the kernel."""
        return float(np.linalg.norm(move - self._kernel @ (self._kernel.T @ move)))

    def search(self, x: Array, allowed: int) -> Dialogue[int]:
        """Search for a direction of recession from x; the number of questions about costs."""
        if self._first is None or allowed < 1:
            return 0
        if not self.problem.rows.directions:
            direction = yield from self._faded(x, self._first)
            if direction is not None:
                yield TraceEntry("certificate")
                raise self.error(direction)
            return 1
        # after twelve Newton steps a direction shows that rows recede along, if there is one; each
        # asks three questions, and one is left for the limit
        tries = min(12, (allowed - 1) // 3)
        directions, asked = yield from self._recession(x, self._first, tries)
        for direction in directions:
            ways = (*self._ways, direction)
            answers: list[SumAnswer] = yield SumQuestion({"": RowsAlong(np.stack(ways))})
            against, some, receding = np.stack([each.values[""]["rows"][0] for each in answers]).T
            if some.any() and not against.any():
                self.found = True
                self._ways = ways
                self._receding = tuple(round(each) for each in receding.tolist())
                break
        return asked

    def _recession(self, x: Array, first: Array, tries: int) -> Dialogue[tuple[list[Array], int]]:
        """Directions along which the sum of the costs seems to fall for ever, if any is seen.

        Along such a direction some rows' losses fall to their infimum and the others' stay the
        same. Newton's steps go along it, each about one unit of the linear predictor, and long
        multiples of them do as well: where the losses fall for ever, the longest is the best. At
        last the curvature vanishes to rounding in all directions of this kind.
        """
        lengths = 2.0 ** np.arange(7)
        last = 0.0
        d, k = self._kernel.shape
        Z = np.eye(d)  # an orthonormal basis of what is orthogonal to the kernel
        if k:
            Z = np.linalg.qr(np.hstack([self._kernel, Z]))[0][:, k:]
        asked = 0
        for _ in range(tries):
            g = Z.T @ (yield Everyone(Gradient(x))).rows.sum(axis=0)
            H = Z.T @ (yield Everyone(Information(x))).rows.sum(axis=0) @ Z
            asked += 2
            if not (np.isfinite(g).all() and np.isfinite(H).all()):
                break
            spectrum, Q = np.linalg.eigh(H)
            self._curvature = max(self._curvature, spectrum[-1])
            # x may have gone so far before that the curvature had vanished already
            moved = Z.T @ (x - first)
            away = [_along(Q[:, :k], moved) for k in self._vanished(spectrum)]
            if away:
                return [Z @ each for each in away if each is not None], asked
            step = -Z @ (Q @ ((Q.T @ g) / spectrum))
            values = (yield Everyone(Line(x, step, lengths))).rows.sum(axis=0)
            asked += 1
            best = lengths[int(np.argmin(np.where(np.isnan(values), np.inf, values)))]
            length = float(np.linalg.norm(step))
            shrinks = length <= 1e-3 * last or spectrum[0] > 1e-3 * spectrum[-1]
            if best <= lengths[1] and shrinks:
                break  # as next to a minimum, or curvature is far from vanishing
            last = length
            x = x + best * step
        return [], asked

    def _vanished(self, spectrum: Array) -> list[int]:
        """How many of some rising curvatures are those of rows that have receded, if any.

        Rows recede at a different speed along several directions: those whose curvatures are next
        to one that has vanished may be part of the same recession, which comes first.
        """
        level = self.flat * self._curvature
        few = many = int(np.searchsorted(spectrum, level, side="right"))
        while 0 < many < len(spectrum) and spectrum[many] <= 1e3 * max(level, spectrum[many - 1]):
            many += 1
        return list(dict.fromkeys((many, few))) if few else []

    def _faded(self, x: Array, first: Array) -> Dialogue[Array | None]:
        """A direction along which the curvature at x all but vanishes, (d,); None without one.

        Where x keeps moving along it, the losses of some rows may fall for ever.
        """
        H = (yield Everyone(Information(x))).rows.sum(axis=0)
        if not np.isfinite(H).all():
            return None
        spectrum, Q = np.linalg.eigh(H)
        # rules refuse points that are so far that it would be flat
        return _along(Q[:, spectrum <= 1e-4 * spectrum[-1]], x - first)

    def limit(self, x: Array, left: int) -> Dialogue[Limit]:
        """The limit along the direction that was found, from x.

        Raises Unbounded if it is not to be reported, neither budget nor clients allow it, or
        no row is left in it.
        """
        self.found = False
        way = self._ways[-1]
        counts = zip(self.problem.rows.moments, self._receding, strict=True)
        margin = (yield Everyone(Margin(way))).rows.min()  # nan without classes
        if margin > 0 or all(each.n == rows for each, rows in counts):
            yield TraceEntry("certificate")
            raise self.error(way, proved=True)
        # the rounds in the limit bring matrices
        reported = self.problem.settings.separation == "report"
        if not (reported and self.problem.rows.matrices) or left < 1:
            raise self.error(way)
        # What recedes along earlier directions has to recede faster than it may come back.
        for k, earlier in enumerate(reversed(self._ways[:-1]), start=1):
            way = way + 8.0**k * earlier
        far = 2.0 ** np.arange(21)  # in deviations of the columns
        values = (yield Everyone(Line(x, way, far))).rows.sum(axis=0)
        # No further than it takes: what rounding has left of other directions grows with the way.
        # Where that hides whether losses still fall, they do so least where they have vanished.
        changes = np.abs(np.diff(values))
        level = changes <= np.maximum(1e-12 * np.abs(values[1:]), changes.min())
        # e to the minus 27 has vanished beside 1, and to the power of 32 it is below the least
        # float64: so far out a loss that is e to the minus its margin is 0, and not only small. In
        # units in which every curvature is 1, nothing would tell it from another
        x = x + 32.0 * far[int(np.argmax(level))] * way
        H = (yield Everyone(Information(x))).rows.sum(axis=0)
        yield TraceEntry("certificate")
        spectrum, Q = np.linalg.eigh(H)
        self._kernel = Q[:, spectrum <= self.flat * max(self._curvature, spectrum[-1])]
        limit = Limit(x, self._kernel, self._ways, self._receding)
        if not self._kernel.size or self._size(self._ways[-1]) > 1e-6:
            # that the other rows do not determine it is part of the proof that it is one
            raise Unbounded(
                "the data are quasi-separable, or nearly: add a ridge, or leave a column out"
            )
        return limit

    def error(self, direction: Array, proved: bool = False) -> Unbounded:
        """The error that says which coefficients would grow without bound along a direction."""
        growing = leading(self.problem.basis @ direction, self.problem.names)
        plural = "s" * (len(growing) > 1)
        what = f"the coefficient{plural} of {listed(growing, 4)} would grow without bound"
        remedy = "fit with firth, add a ridge" if self.problem.family.binary else "add a ridge"
        advice = f"{remedy}, or leave a column out"
        if not self.problem.rows.directions and not proved:
            what = what.replace("would grow", "may grow")
            unknown = "the rules of the clients allow no question that would decide it"
            return Unbounded(f"{what}: {unknown}; {advice}")
        kind = "the classes are separable" if proved else "the data are quasi-separable"
        return Unbounded(f"{kind}: {what}; {advice}")


def _along(flat: Array, move: Array) -> Array | None:
    """The direction of a move within the columns of ``flat``, (d, k); None if it has none."""
    away: Array = flat @ (flat.T @ move)
    size = float(np.linalg.norm(away))
    return away / size if size > 0 else None


def leading(direction: Array, columns: Sequence[str]) -> list[str]:
    """The columns along which a direction mostly goes."""
    size = np.abs(direction)
    names = [columns[i] for i in np.argsort(-size) if size[i] > 0.25 * size.max()]
    # Columns are centred, so that the intercept moves with any of them.
    others = [name for name in names if not name.endswith("Intercept")]
    return others or names
