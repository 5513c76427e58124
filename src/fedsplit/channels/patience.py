"""How long a run waits for clients."""

from __future__ import annotations

from dataclasses import dataclass

from fedsplit.checks import count, number


@dataclass(frozen=True)
class Patience:
    """How long a run waits for clients, and how many it needs.

    Parameters
    ----------
    round_timeout : float
        Seconds after which a round closes; later answers are dropped.
    give_up : float
        Seconds after which an absent client is removed.
    min_clients : int, optional
        The fewest clients for which the run may go on. None is all of them: nobody is removed.
    """

    round_timeout: float = 60.0
    give_up: float = 600.0
    min_clients: int | None = None

    def __post_init__(self) -> None:
        number("round_timeout", self.round_timeout)
        number("give_up", self.give_up)
        if self.min_clients is not None:
            count("min_clients", self.min_clients)

    @property
    def longest(self) -> float:
        """Seconds after which a question that the run cannot do without is taken for lost."""
        # half of it, so that a lost question is repeated before the client is given up
        return max(self.round_timeout, 0.5 * self.give_up)

    @property
    def pace(self) -> float:
        """The least seconds between two questions to a client that does not answer."""
        # so that absence is measured in time, not in questions
        return min(10.0, 0.02 * self.give_up)
