"""Questions about asking: what a dialogue wants of whoever asks the clients for it.

A question goes to clients. These go to the driver, ``loop.conversation.Conversation``, which
carries them out.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

from fedsplit.arrays import Array, Mask
from fedsplit.clients.question import Answer, CostQuestion

Kind = Literal["handshake", "setup", "round", "certificate", "end"]
"""What an exchange was for. Handshake and end are those of a fit, before and after the rounds."""


class Arrival(NamedTuple):
    """Answers to a question that was posted earlier.

    Attributes
    ----------
    question : CostQuestion
        What they are about.
    answer : Answer
        ``present`` says whose answers they are.
    idle : (m,) mask
        Who has answered everything that was posted.
    """

    question: CostQuestion
    answer: Answer
    idle: Mask


class Account(NamedTuple):
    """What the driver knows about a run after some exchanges."""

    rounds: int  # all exchanges so far
    error: float  # the largest proved error of an answer in the last exchange
    margin: float  # the least margin of a classifier in the last exchange; nan if it has none
    # (m,): who answered the last question, and who has ever answered one
    present: Mask
    heard: Mask
    # (d,): where a positive margin is about: the last question's point that all clients have in
    # common
    point: Array | None = None
    stop: bool = False  # whether a callback wants the run to end


class Measurement(NamedTuple):
    """Σ_j f_j(x), at no price; None where that would be a question between organisations."""

    x: Array  # (d,)
    # whether it is asked after every round, and may be left out where it takes as long as one
    sometimes: bool = False


class Pooled(NamedTuple):
    """A question to the one client that all are together, which clients on a device offer."""

    question: CostQuestion


class TraceEntry(NamedTuple):
    """Enter the exchanges since the last record into the trace; the answer is an ``Account``.

    Before the first exchange, the objective is that of the start.
    """

    kind: Kind  # what they were for
    objective: float | None = None  # F(x) after them; None if it has not changed
    residual: float = math.nan  # how far the method's own variable has moved
    # the method's state, which callbacks are called with after a round; None outside of one
    state: Any = None


class Post(NamedTuple):
    """Send a question to some clients without waiting for them; the answer is the next ``Arrival``.

    Each client has at most one question at a time, and answers about the x of when it was asked.

    Parameters
    ----------
    question : CostQuestion
    to : (m,) mask
        Who is asked; nobody, where all who could be are still busy.
    """

    question: CostQuestion
    to: Mask
