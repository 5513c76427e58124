"""Coefficients that grow without bound: directions along which the likelihood rises for ever.

Along such a direction of recession the losses of some rows fall to their infimum, and no loss
rises. In the limit these rows say nothing, and the fit is that of the others. What those do not
determine has no estimate. The limit is reached far out on the direction, where the losses have no
digit left to fall: there the information is singular along all that has no estimate, its kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.effects import TraceEntry
from fedsplit.clients.questions import Gradient, Information, Line, Margin
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError, listed
from fedsplit.regression.client.findings import Finding
from fedsplit.regression.client.questions.along import Recede, Receding
from fedsplit.regression.server.federation import Everyone
from fedsplit.regression.server.problem import FitProblem

SPAN = 5
"""The moves of this many rounds are examined together, and as often."""

SPAN_OF_MATRICES = 2
"""The same for a method whose steps are as long as Newton's."""

LENGTHS = 2.0 ** np.arange(7)
"""Of Newton's step: where the losses fall for ever, the longest of these is the best."""

TRIES = 12
"""The Newton steps after which a direction shows that rows recede along, if there is one."""

FLAT = 1e-11
"""A curvature below this share of the largest is that of rows that have receded."""

FADED = 1e-4
"""The same where it cannot be verified, while the rows are not so far that rules refuse."""

FAR = 2.0 ** np.arange(21)
"""How far the limit is looked for, in deviations of the columns."""

VANISHED = 1e-12
"""A smaller share of all losses is all that receding rows have left of theirs."""

BEYOND = 32.0
"""e to the minus 27, which has vanished beside 1, to this power is below the least float64."""

PART = 1e-6
"""A smaller part of a direction is rounding."""

FEW = 3
"""Fewer receding rows of a client, which the limit is without, are warned of."""


class Unbounded(InputError):
    """The likelihood has no maximum."""


class Limit(NamedTuple):
    """Where a fit goes whose coefficients grow without bound.

    Attributes
    ----------
    x : (d,) array
        So far out that the losses of receding rows have vanished.
    kernel : (d, k) array
        An orthonormal basis of what the other rows do not determine.
    ways : tuple of (d,) arrays
        The directions of recession, of length 1; the first one goes furthest.
    receding : tuple of int
        How many rows of each client recede along them.
    """

    x: Array
    kernel: Array
    ways: tuple[Array, ...]
    receding: tuple[int, ...]

    def not_estimable(self, problem: FitProblem) -> Mapping[str, str]:
        """The coefficients that have no estimate, with "+inf" or "-inf"."""
        sizes = problem.coordinates.for_each(problem.pool.sizes, 1.0)
        # in units in which columns have about the same size
        parts = np.abs(problem.back @ self.kernel) * sizes[:, None]
        reach = (parts / parts.max(axis=0)).max(axis=1)
        ways = [(problem.back @ way) * sizes for way in self.ways]
        signs = {}
        for j in np.flatnonzero(reach > PART).tolist():
            moves = [float(way[j]) for way in ways]
            sign = next((move for move in moves if abs(move) > PART), sum(moves))
            signs[problem.names[j]] = "-inf" if sign < 0 else "+inf"
        return signs

    def findings(self, names: Sequence[str]) -> list[Finding]:
        """What the limit could disclose of the rows that it is without."""
        few = zip(names, self.receding, strict=True)
        return [
            Finding(
                name,
                f"client {name} has {n} rows that recede, fewer than {FEW}",
                f"clients have fewer than {FEW} rows that recede",
                f"{name} ({n})",
                "smallest_group",
            )
            for name, n in few
            if 0 < n < FEW
        ]


@dataclass
class SeparationSearch:
    """Watches for a likelihood that has no maximum, since it rises for ever along a direction.

    Where x keeps moving, Newton's method shows whether there is a direction along which the
    curvature vanishes, and the clients whether rows recede along it.

    Parameters
    ----------
    problem : FitProblem
    quick : bool
        Whether the steps of the method are as long as Newton's.

    Attributes
    ----------
    found : bool
        Whether rows recede along a direction whose limit has not been looked for yet.
    """

    problem: FitProblem
    quick: bool

    def __post_init__(self) -> None:
        self.found = False
        self._span = SPAN_OF_MATRICES if self.quick else SPAN
        self._points: list[Array] = []  # x after the last rounds
        self._first: Array | None = None  # x after the first round
        self._rest = 0  # the round until which there is no other search
        self._ways: tuple[Array, ...] = ()
        self._receding: tuple[int, ...] = ()
        # what is not determined in the limit so far, (d, k)
        self._kernel: Array = np.zeros((len(self.problem.frame.ridge), 0))

    def look(self, state: Any, number: int, allowed: int) -> Dialogue[None]:
        """Look at a round, and every few rounds at the moves of the last ones.

        Parameters
        ----------
        state : Any
            After the round.
        number : int
            Of the round.
        allowed : int
            How many questions may be asked.
        """
        x = state.x
        if self._first is None:
            self._first = x
        self._points = [*self._points[-SPAN:], x]
        due = number % self._span == 0 and number > max(2 * self._span, self._rest)
        if not due or len(self._points) <= self._span:
            return
        move = self._outside(x - self._points[-1 - self._span])
        moves = np.linalg.norm(move) > 0.01 * np.linalg.norm(self._outside(x))
        if moves and not self._settles(state):
            asked = yield from self.search(x, allowed)
            if self.problem.rows.directions:
                # Nearly separable data keep moving too: a search in vain is not soon repeated.
                self._rest = 2 * (number + asked)

    def _settles(self, state: Any) -> bool:
        """Whether the next step, if it is known, is much shorter than the last, as near a minimum.

        Along a direction of recession each is about as long as the one before.
        """
        x, before = self._points[-1], self._points[-2]
        step = float(np.linalg.norm(self._outside(getattr(state, "ahead", x) - x)))
        return 0.0 < step < 0.25 * float(np.linalg.norm(self._outside(x - before)))

    def _outside(self, move: Array) -> Array:
        """A move without its part in the kernel."""
        return move - self._kernel @ (self._kernel.T @ move)

    def search(self, x: Array, allowed: int) -> Dialogue[int]:
        """Search for a direction of recession from x; the number of questions about costs."""
        if self._first is None or allowed < 1:
            return 0
        if not self.problem.rows.directions:
            direction = yield from self._faded(x, self._first)
            if direction.any():
                yield TraceEntry("certificate")
                raise self.error(direction)
            return 1
        # a step asks three questions, and one is left for the limit
        tries = min(TRIES, (allowed - 1) // 3)
        direction, asked = yield from self._recession(x, self._first, tries)
        if direction.any():
            ways = (*self._ways, direction)
            answers: list[Receding] = yield Recede(np.stack(ways))
            if any(each.some for each in answers) and not any(each.against for each in answers):
                self.found = True
                self._ways = ways
                self._receding = tuple(each.rows for each in answers)
        return asked

    def _recession(self, x: Array, first: Array, tries: int) -> Dialogue[tuple[Array, int]]:
        """A direction along which the sum of the costs seems to fall for ever; 0 if none is seen.

        Along such a direction some rows' losses fall to their infimum and the others' stay the
        same. Newton's steps go along it, each about one unit of the linear predictor, and long
        multiples of them do as well. At last the curvature vanishes to rounding in all directions
        of this kind.
        """
        start = x
        last = 0.0
        Z = _complement(self._kernel)
        asked = 0
        for _ in range(tries):
            g = Z.T @ (yield Everyone(Gradient(x))).rows.sum(axis=0)
            H = Z.T @ (yield Everyone(Information(x))).rows.sum(axis=0) @ Z
            asked += 2
            if not (np.isfinite(g).all() and np.isfinite(H).all()):
                break
            spectrum, Q = np.linalg.eigh(H)
            flat = spectrum <= FLAT * spectrum[-1]
            if flat.any():
                # x may have gone so far before that the curvature had vanished already
                away = Z @ (Q[:, flat] @ (Q[:, flat].T @ (Z.T @ (x - first))))
                return _unit(away), asked
            step = -Z @ (Q @ ((Q.T @ g) / spectrum))
            values = (yield Everyone(Line(x, step, LENGTHS))).rows.sum(axis=0)
            asked += 1
            best = LENGTHS[int(np.argmin(np.where(np.isnan(values), np.inf, values)))]
            length = float(np.linalg.norm(step))
            shrinks = length <= 1e-3 * last or spectrum[0] > 1e-3 * spectrum[-1]
            if best <= LENGTHS[1] and shrinks:
                break  # as next to a minimum, or curvature is far from vanishing
            last = length
            x = x + best * step
        return np.zeros_like(start), asked

    def _faded(self, x: Array, first: Array) -> Dialogue[Array]:
        """A direction along which the curvature at x all but vanishes, (d,); 0 if there is none.

        Where x keeps moving along it, the losses of some rows may fall for ever.
        """
        H = (yield Everyone(Information(x))).rows.sum(axis=0)
        if not np.isfinite(H).all():
            return np.zeros_like(x)
        spectrum, Q = np.linalg.eigh(H)
        flat = Q[:, spectrum <= FADED * spectrum[-1]]
        return _unit(flat @ (flat.T @ (x - first)))

    def limit(self, x: Array, left: int) -> Dialogue[Limit]:
        """The limit along the direction that was found, from x.

        Raises
        ------
        Unbounded
            If it is not to be reported, the budget does not allow it, or no row is left in it.
        """
        self.found = False
        way = self._ways[-1]
        counts = zip(self.problem.moments, self._receding, strict=True)
        margin = (yield Everyone(Margin(way))).rows.min()  # nan without classes
        if margin > 0 or all(each.n == rows for each, rows in counts):
            yield TraceEntry("certificate")
            raise self.error(way, proved=True)
        if not self.problem.reports_separation or left < 1:
            raise self.error(way)
        # What recedes along earlier directions has to recede faster than it may come back.
        for k, earlier in enumerate(reversed(self._ways[:-1]), start=1):
            way = way + 8.0**k * earlier
        values = (yield Everyone(Line(x, way, FAR))).rows.sum(axis=0)
        # No further than it takes: what rounding has left of other directions grows with the way.
        level = np.abs(np.diff(values)) <= VANISHED * np.abs(values[1:])
        # BEYOND times as far, a loss that is e to the minus its margin is 0, and not only small:
        # in units in which every curvature is 1, nothing would tell it from another
        x = x + BEYOND * FAR[int(np.argmax(level))] * way
        H = (yield Everyone(Information(x))).rows.sum(axis=0)
        yield TraceEntry("certificate")
        spectrum, Q = np.linalg.eigh(H)
        self._kernel = Q[:, spectrum <= FLAT * spectrum[-1]]
        if not self._kernel.size or np.linalg.norm(self._outside(self._ways[-1])) > PART:
            # that the other rows do not determine it is part of the proof that it is one
            raise Unbounded(
                "the data are quasi-separable, or nearly: add a ridge, or leave a column out"
            )
        return Limit(x, self._kernel, self._ways, self._receding)

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


def _complement(kernel: Array) -> Array:
    """An orthonormal basis of what is orthogonal to the columns of a kernel, (d, d - k)."""
    d, k = kernel.shape
    return np.linalg.qr(np.hstack([kernel, np.eye(d)]))[0][:, k:] if k else np.eye(d)


def _unit(direction: Array) -> Array:
    """A direction of length 1; 0 if it is 0."""
    return direction / max(float(np.linalg.norm(direction)), np.finfo(np.float64).tiny)


def leading(direction: Array, columns: Sequence[str]) -> list[str]:
    """The columns along which a direction mostly goes."""
    size = np.abs(direction)
    names = [columns[i] for i in np.argsort(-size) if size[i] > 0.25 * size.max()]
    # Columns are centred, so that the intercept moves with any of them.
    others = [name for name in names if not name.endswith("Intercept")]
    return others or names
