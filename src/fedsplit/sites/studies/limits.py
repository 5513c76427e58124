"""How many questions of which kinds a study may have: its options imply them."""

from __future__ import annotations

from typing import NamedTuple

from fedsplit.regression.client.privacy import Privacy
from fedsplit.statistic import STATISTICS

HANDSHAKES = 8
"""How often each question before the rounds may be asked, of clients that stay the same."""

SELDOM = 100
"""How often each question is asked that decides special cases."""

IN_HANDSHAKES = ("survey", "settle")
IN_ROUNDS = (
    "local_model",
    "prox",
    "overview",
    "trials",
    "curvature",
    "value",
    "evaluate",
    "gradient",
    "information",
    "decrement",
)
IN_SPECIAL_CASES = ("line", "margin")

NOT_SHOWN = ("settle", "share_keys", "finish")
"""Of no interest to owners who follow the numbers: what brings no answer about their rows."""


class Limits(NamedTuple):
    """The greatest numbers of different questions.

    Attributes
    ----------
    questions : dict of str to int
        Of each kind.
    points : int
        About points x, of all kinds together.
    """

    questions: dict[str, int]
    points: int


def _statistics() -> tuple[list[str], list[str]]:
    """The titles of the statistics that are asked before the rounds, and of all others."""
    before = [each.title() for each in STATISTICS.values() if each.kind == "handshake"]
    return before, [each.title() for each in STATISTICS.values() if each.kind != "handshake"]


def about_no_point() -> set[str]:
    """The titles of the questions that are about no point x."""
    return {*IN_HANDSHAKES, *_statistics()[0], "share_keys", "finish"}


def limits_of(
    rounds: int,
    firth: bool,
    members: int,
    least: int,
    secure: bool = False,
    privacy: Privacy | None = None,
) -> Limits:
    """The limits of a study.

    Parameters
    ----------
    rounds : int
        The most rounds of the fit.
    firth : bool
        Whether it has Firth's penalty.
    members, least : int
        How many clients there are, and with how few of them the run goes on: after each removal
        the others agree anew.
    secure : bool
        Whether the server learns sums alone.
    privacy : Privacy or None
        Of a study with noise, which asks nothing else.
    """
    if privacy is not None:
        asked = {"noisy_sums": privacy.rounds, "finish": SELDOM}
        if secure:
            asked["share_keys"] = SELDOM
        return Limits(asked, privacy.rounds)
    runs = 1 + members - least
    before, others = _statistics()
    questions = dict.fromkeys((*IN_HANDSHAKES, *before), HANDSHAKES * runs)
    questions |= dict.fromkeys(IN_ROUNDS, rounds * runs)
    questions |= dict.fromkeys((*IN_SPECIAL_CASES, *others), SELDOM * runs)
    if firth:
        questions["modified_score"] = rounds * runs
    if secure:
        questions["share_keys"] = SELDOM
    return Limits(questions | {"finish": SELDOM}, (rounds + SELDOM) * runs)
