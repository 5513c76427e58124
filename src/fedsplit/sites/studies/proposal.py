"""The questions about a study as a whole: whether a client takes part, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fedsplit.clients.question import Question
from fedsplit.remote.messages import Hello, Signature
from fedsplit.sites.secure.protocol import KeyLetter, Standing
from fedsplit.sites.studies.store import State


class Decision(NamedTuple):
    """What a client's owner has decided about a study.

    Attributes
    ----------
    study : str
        The hash of the study.
    state : State
        Pending until the owner has said yes or no.
    reason : str
        Why it is declined, where there is more to say.
    left : int or None
        How many more questions the owner allows, if that is limited.
    letter : KeyLetter or None
        The client's key for an approved study with secure sums.
    """

    study: str
    state: State
    reason: str = ""
    left: int | None = None
    letter: KeyLetter | None = None


@dataclass(frozen=True)
class Propose(Question):
    """Ask whether a client takes part in a study.

    Attributes
    ----------
    study : str
        In its canonical form.
    signature : Signature
        Of the coordinator.
    """

    study: str
    signature: Signature

    answer_type = Decision


@dataclass(frozen=True)
class ShareKeys(Question):
    """Bring a client the keys of all clients of a study with secure sums.

    The answer is how far it is in the study.
    """

    letters: Sequence[KeyLetter]

    answer_type = Standing


@dataclass(frozen=True)
class Finish(Question):
    """Tell a client that a study has ended, and its result; the answer is whether it was read.

    Attributes
    ----------
    converged : bool
        Whether the tolerance is proved.
    summary : str
        The table, or why there is none.
    """

    converged: bool
    summary: str

    answer_type = bool


ABOUT_STUDIES: tuple[type[Question], ...] = (Hello, Propose, ShareKeys, Finish)
"""The questions that are answered without the data."""
