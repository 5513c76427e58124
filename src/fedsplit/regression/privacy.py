"""What a user chooses and declares of a fit with noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, fields
from typing import Any

from fedsplit.checks import count, number
from fedsplit.errors import InputError, listed, nearest, shown


@dataclass(frozen=True)
class Privacy:
    """An (ε, δ) guarantee for a fit, and the bounds that it needs.

    Everything that leaves a client is a sum over its rows plus Gaussian noise; nothing else does.
    Whatever points the server asks about, the answers with one row more or less are told apart
    with (ε, δ) at most. All bounds are the user's to declare: none is looked up in the data.

    Parameters
    ----------
    epsilon, delta : float
        ε and δ, for all questions together; δ is below 1.
    clip : float
        R: a row of the design, in its declared units, that is longer is scaled down to it.
    rounds : int
        T: how many questions are asked, each for a gradient and a Hessian.
    score, weight : float, optional
        Bounds on |φ'(η_i)| and φ''(η_i) of a row, times its weight: larger ones are cut off. A
        logistic loss is below 1 and 1/4, Huber's below δ and 1, and least squares have a weight of
        1; others have to be declared.
    ranges : mapping of str to pair of floats, optional
        By the name of a coefficient, the least and the largest value of its column. The column is
        moved and scaled to [-1, 1] for the fit, and values outside are moved to the nearest end.
        Other columns are taken as they are. The coefficients are in the units of the data.
    site_rows : int, optional
        Protect a whole client, all its rows together, in the place of one row. Clients with more
        rows than this count as if they had so many.
    colluding : int
        With secure sums every client adds a share of the noise. The sum has all that is needed even
        if so many clients tell the server theirs.
    seed : int, optional
        Of simulated noise, which gives no privacy. Otherwise the noise comes from the operating
        system's cryptographic generator.
    """

    epsilon: float
    delta: float
    clip: float
    rounds: int
    _: KW_ONLY
    score: float | None = None
    weight: float | None = None
    ranges: Mapping[str, Sequence[float]] | None = None
    site_rows: int | None = None
    colluding: int = 0
    seed: int | None = None

    def __post_init__(self) -> None:
        largest = 1e9
        if number("dp epsilon", self.epsilon) > largest:
            raise InputError(f"dp epsilon must be at most {largest:g}")
        if not 1e-300 < number("dp delta", self.delta) < 1:
            raise InputError(f"dp delta must be above 0 and below 1, not {self.delta!r}")
        count("dp rounds", self.rounds)
        if self.site_rows is not None:
            count("dp site rows", self.site_rows)
        for name in ("clip", "score", "weight", "site_rows"):
            value = getattr(self, name)
            if value is not None:
                _bound(f"dp {name.replace('_', ' ')}", value)
        count("dp colluding", self.colluding, least=0)
        if self.seed is not None:
            count("dp seed", self.seed, least=0)
        object.__setattr__(self, "ranges", _pairs(self.ranges))

    @property
    def protects(self) -> str:
        """What may be added or removed, in words."""
        if self.site_rows is None:
            return "one row"
        return f"one client of up to {self.site_rows:,} rows"

    def shares(self, number: int, dispersed: bool) -> tuple[float, float, float]:
        """The shares of the budget of gradient, Hessian and scalars in question ``number``.

        Parameters
        ----------
        number : int
            From 1 to ``rounds``.
        dispersed : bool
            Whether the family has a dispersion that is estimated.
        """
        share = 1.0
        if self.rounds > 1:
            # of the budget: the noise of the last question is that of the estimate
            last = 0.75
            share = last if number == self.rounds else (1.0 - last) / (self.rounds - 1)
        scalars = 0.0
        if number == self.rounds:
            # for counts, and for the squares of which a dispersion is estimated
            scalars = {False: 0.05, True: 0.25}[dispersed] * share
        # the Hessian has the rest
        gradient = (2.0 / 3.0) * (share - scalars)
        return gradient, share - scalars - gradient, scalars


def _bound(name: str, value: Any) -> None:
    """Raise InputError unless a bound is of a size that can be computed with."""
    # products of four bounds, or of their inverses, stay finite
    largest = 1e50
    if not 1.0 / largest <= number(name, value) <= largest:
        raise InputError(
            f"{name} must be from {1.0 / largest:g} to {largest:g}, not {shown(value)}"
        )


def _pairs(ranges: Any) -> dict[str, tuple[float, float]]:
    """The ranges, checked."""
    found = {}
    if ranges is not None and not isinstance(ranges, Mapping):
        raise InputError(f"dp ranges must be a dict of pairs, not {shown(ranges)}")
    for name, pair in (ranges or {}).items():
        try:
            low, high = (float(end) for end in pair)
        except (TypeError, ValueError):
            raise InputError(f"dp ranges: {name} needs two numbers, not {shown(pair)}") from None
        if not -math.inf < low < high < math.inf:
            raise InputError(f"dp ranges: {name} must be from a smaller to a larger number")
        _bound(f"dp ranges: the width of {name}", high - low)
        _bound(f"dp ranges: the larger end of {name}", max(abs(low), abs(high)))
        found[str(name)] = (low, high)
    return found


def privacy_of(value: Any) -> Privacy | None:
    """A ``Privacy``, also from its fields as JSON has them; None for None."""
    if value is None or isinstance(value, Privacy):
        return value
    if not isinstance(value, Mapping):
        raise InputError(
            f"dp must be a Privacy, as in fs.Privacy(1, 1e-6, 2, 5), not {shown(value)}"
        )
    known = [each.name for each in fields(Privacy)]
    if others := [each for each in value if each not in known]:
        raise InputError(f"dp has no {shown(others[0])}: {nearest(others[0], known, len(known))}")
    needed = [each.name for each in fields(Privacy) if each.default is MISSING]
    if missing := [each for each in needed if each not in value]:
        raise InputError(f"dp needs {listed(missing)}")
    return Privacy(**value)
