"""Coefficients that the data do not determine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Clients
from fedsplit.clients.questions import Gradient, Information, Line, Margin
from fedsplit.dialogue import Answering
from fedsplit.errors import InputError, listed
from fedsplit.loop.conversation import Conversation
from fedsplit.loop.trace import Row

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


class Unbounded(InputError):
    """The likelihood has no maximum.

    Attributes
    ----------
    direction : (d,) array or None
        Along which it may rise for ever, in the coordinates of the rounds, if some rows seem to
        recede along it, and others to be at rest.
    trace : sequence of Row
        What was asked so far.
    """

    def __init__(self, message: str, direction: Array | None, trace: Sequence[Row]) -> None:
        super().__init__(message)
        self.direction = direction
        self.trace = trace


class Separation:
    """Watches for a likelihood that has no maximum, since it rises for ever along a direction.

    The margin of a direction δ is min_i b_i a_iᵀδ. Classes are separable where x has a positive
    margin, which is a proof. Where x keeps moving, Newton's method shows whether there is a
    direction along which the curvature vanishes.

    Parameters
    ----------
    clients : Clients
    verify : callable or None
        Given a direction, (d,), asks the clients whether rows recede along it. None if directions
        are not looked for.
    directions : bool
        Whether the clients tell what a direction does to their rows. If not, a direction along
        which the curvature all but vanishes can only be suspected.

    Attributes
    ----------
    span : int
        How many rounds are examined together.
    meter : Conversation
        Counts the questions.
    proved : bool
        Whether classes are separable.
    direction : (d,) array
        Along which rows recede; 0 while there is no suspicion.
    """

    def __init__(
        self,
        clients: Clients,
        verify: Callable[[Array], bool] | None,
        directions: bool = True,
    ) -> None:
        self.span = SPAN
        self._verify = verify
        self._directions = directions
        self.meter = Conversation(clients.insistent())
        self.proved = False
        self.direction: Array = np.zeros(clients.d)
        self._first: Array | None = None  # x after the first round
        self._rest = 0  # the round until which there is no other search

    def look(self, margin: float, number: int, states: Sequence[Any], allowed: int) -> None:
        """Look at a round, and every ``span`` rounds at the moves of the last ones.

        Parameters
        ----------
        margin : float
            That of x.
        number : int
            The number of the round.
        states : sequence
            Those after the last rounds.
        allowed : int
            How many questions may be asked.
        """
        x = states[-1].x
        if self._first is None:
            self._first = x
        if margin > 0:
            self.proved = True
            self.direction = x
        elif number % self.span == 0 and number > max(2 * self.span, self._rest):
            move = x - states[-1 - self.span].x
            if np.linalg.norm(move) > 0.01 * np.linalg.norm(x) and not _settles(states):
                self.search(x, allowed)
                if self._directions:
                    # Nearly separable data keep moving too: a search in vain is not soon repeated.
                    self._rest = 2 * (number + self.meter.waiting)

    def search(self, x: Array, allowed: int) -> None:
        """Look for a direction of recession from x, and have the clients verify it."""
        if self._verify is None or self._first is None or allowed < 1:
            return
        if not self._directions:
            self.direction = faded(self.meter, x, self._first)
            return
        # a step asks three questions, and the margin of the direction is one more
        direction = recession(self.meter, x, self._first, min(TRIES, (allowed - 1) // 3))
        if direction.any() and self._verify(direction):
            self.direction = direction
            self.proved = bool(self.meter.ask(Margin(direction)).rows.min() > 0)

    def error(
        self, columns: Sequence[str], basis: Array, trace: Sequence[Row], remedy: str
    ) -> Unbounded:
        """The error that says which coefficients would grow without bound.

        Parameters
        ----------
        columns : sequence of str
        basis : (d, d) array
            Takes x to coefficients of the columns.
        trace : sequence of Row
            What was asked so far.
        remedy : str
            What gives the coefficients finite estimates.
        """
        growing = _leading(basis @ self.direction, columns)
        plural = "s" * (len(growing) > 1)
        what = f"the coefficient{plural} of {listed(growing, 4)} would grow without bound"
        advice = f"{remedy}, or leave a column out"
        if not self._directions:
            what = what.replace("would grow", "may grow")
            unknown = "the rules of the clients allow no question that would decide it"
            return Unbounded(f"{what}: {unknown}; {advice}", None, trace)
        if self.proved:
            return Unbounded(f"the classes are separable: {what}; {advice}", None, trace)
        return Unbounded(f"the data are quasi-separable: {what}; {advice}", self.direction, trace)


def _settles(states: Sequence[Any]) -> bool:
    """Whether the next step, if it is known, is much shorter than the last, as near a minimum.

    Along a direction of recession each is about as long as the one before.
    """
    x = states[-1].x
    ahead = getattr(states[-1], "ahead", x)
    step = float(np.linalg.norm(ahead - x))
    return 0.0 < step < 0.25 * float(np.linalg.norm(x - states[-2].x))


def recession(clients: Answering, x: Array, first: Array, tries: int = TRIES) -> Array:
    """A direction along which the sum of the costs seems to fall for ever, (d,); 0 if none is seen.

    Parameters
    ----------
    clients : Clients
    x : (d,) array
        Where the rounds are.
    first : (d,) array
        Where they came from: x may have gone so far that the curvature has vanished already.
    tries : int
        The most steps.

    Notes
    -----

    Along such a direction some rows' losses fall to their infimum and the others' stay the same.
    Newton's steps go along it, each about one unit of the linear predictor, and long multiples of
    them do as well. At last the curvature vanishes to rounding in all directions of this kind.
    """
    last = 0.0
    for _ in range(tries):
        g = clients.ask(Gradient(x)).rows.sum(axis=0)
        H = clients.ask(Information(x)).rows.sum(axis=0)
        if not (np.isfinite(g).all() and np.isfinite(H).all()):
            break
        spectrum, Q = np.linalg.eigh(H)
        flat = spectrum <= FLAT * spectrum[-1]
        if flat.any():
            away: Array = Q[:, flat] @ (Q[:, flat].T @ (x - first))
            return away / max(float(np.linalg.norm(away)), np.finfo(np.float64).tiny)
        along = Q.T @ g
        step = -Q @ (along / spectrum)
        values = clients.ask(Line(x, step, LENGTHS)).rows.sum(axis=0)
        best = LENGTHS[int(np.argmin(np.where(np.isnan(values), np.inf, values)))]
        length = float(np.linalg.norm(step))
        if best <= LENGTHS[1] and (length <= 1e-3 * last or spectrum[0] > 1e-3 * spectrum[-1]):
            break  # steps shrink as they do next to a minimum, or curvature is far from vanishing
        last = length
        x = x + best * step
    return np.zeros_like(x)


def faded(clients: Answering, x: Array, first: Array) -> Array:
    """A direction along which the curvature at x all but vanishes, (d,); 0 if there is none.

    Where x keeps moving along it, the losses of some rows may fall for ever.
    """
    H = clients.ask(Information(x)).rows.sum(axis=0)
    if not np.isfinite(H).all():
        return np.zeros_like(x)
    spectrum, Q = np.linalg.eigh(H)
    flat = spectrum <= FADED * spectrum[-1]
    away: Array = Q[:, flat] @ (Q[:, flat].T @ (x - first))
    return away / max(float(np.linalg.norm(away)), np.finfo(np.float64).tiny)


def undetermined(H: Array, columns: Sequence[str], basis: Array) -> list[str]:
    """The columns along which the information H, (d, d), is nearly zero."""
    if not np.isfinite(H).all():
        return []
    spectrum, Q = np.linalg.eigh(H)
    if spectrum[0] <= 1e-6 * spectrum[-1]:
        return _leading(basis @ Q[:, 0], columns)
    return []


def _leading(direction: Array, columns: Sequence[str]) -> list[str]:
    """The columns along which a direction mostly goes."""
    size = np.abs(direction)
    names = [columns[i] for i in np.argsort(-size) if size[i] > 0.25 * size.max()]
    # Columns are centred, so that the intercept moves with any of them.
    others = [name for name in names if not name.endswith("Intercept")]
    return others or names
