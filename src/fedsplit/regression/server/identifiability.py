"""Coefficients that the data do not determine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.metered import MeteredClients
from fedsplit.clients.oracle import Clients
from fedsplit.errors import InputError, listed
from fedsplit.methods.method import State

SPAN = 5
"""The moves of this many rounds are examined together, and as often."""


class Separation:
    """Watches for classes that are separable, so that the likelihood has no maximum.

    The margin of a direction δ is min_i b_i a_iᵀδ. Classes are separable where x has a positive
    margin, which is a proof. Where the moves of x have one that is not much below zero, they are
    suspected to be quasi-separable: x may just have far to go, but if no minimiser is proved to be
    near x long after, they are.

    Parameters
    ----------
    clients : Clients

    Attributes
    ----------
    meter : MeteredClients
        Counts the questions for margins.
    proved : bool
    direction : (d,) array
        Along which the classes are separated; 0 while there is no suspicion.
    """

    def __init__(self, clients: Clients) -> None:
        self.meter = MeteredClients(clients)
        self.proved = False
        self.direction: Array = np.zeros(clients.d)

    def look(self, margin: float, number: int, states: Sequence[State]) -> None:
        """Look at a round, and every ``SPAN`` rounds at the moves of the last ones.

        Parameters
        ----------
        margin : float
            That of x.
        number : int
            The number of the round.
        states : sequence of State
            Those after the last ``SPAN`` rounds, and the one before.
        """
        x = states[-1].x
        if margin > 0:
            self.proved = True
            self.direction = x
        elif number % SPAN == 0 and number > 2 * SPAN:
            move = x - states[0].x
            if np.linalg.norm(move) <= 0.01 * np.linalg.norm(x):
                return  # x hardly moves any more
            lowest = self.meter.margin(move).rows.min()
            highest = -self.meter.margin(-move).rows.min()
            if lowest >= -0.01 * highest:
                self.direction = move

    def error(self, columns: Sequence[str], basis: Array) -> InputError:
        """The error that says which coefficients would grow without bound.

        Parameters
        ----------
        columns : sequence of str
        basis : (d, d) array
            Takes x to coefficients of the columns.
        """
        growing = _leading(basis @ self.direction, columns)
        how = "quasi-separable"
        if self.proved:
            how = "separable"
        plural = "s" * (len(growing) > 1)
        return InputError(
            f"the classes are {how}: the coefficient{plural} of {listed(growing, 4)} would grow "
            "without bound; add a ridge, or leave a column out"
        )


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
