"""The first question of FedSplit by vectors: how the costs bend at the start, and whether 0 is a
better one."""

from __future__ import annotations

from array_api_compat import array_namespace

from fedsplit.arrays import Array
from fedsplit.clients.question import Answer
from fedsplit.clients.questions import Diagonal
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError
from fedsplit.penalties.penalty import Penalty

MOST_ATTEMPTS = 21
"""How often the first question is asked while no client answers."""

BETTER = "the run starts at 0, where the objective is less than at the x0 that was passed"


def first_look(
    x0: Array, penalty: Penalty | None
) -> Dialogue[tuple[Array, Answer, tuple[str, ...]]]:
    """Where to start, the diagonals of the Hessians there, and what the user should know.

    A start far away, where costs are steep, tells nothing about the step that suits the optimum:
    if the objective is less at 0, the run starts there, for one more question.
    """
    xp = array_namespace(x0)
    answer = yield from _heard(x0, origin=bool(xp.any(x0 != 0.0)))
    notes: tuple[str, ...] = ()
    if "value_at_0" in answer.parts and _prefers_origin(answer, x0, penalty):
        x0 = xp.zeros_like(x0)
        answer = yield from _heard(x0, origin=False)
        notes = (BETTER,)
    for part in ("diagonal", "smallest", "largest"):
        if not xp.all(xp.isfinite(answer.parts[part][answer.present])):
            raise InputError(
                "no step follows from the curvature at the start, which is not finite: "
                "pass another x0"
            )
    return x0, answer, notes


def _prefers_origin(answer: Answer, x0: Array, penalty: Penalty | None) -> bool:
    """Whether the objective of the clients that answered is less at 0 than at x0."""
    xp = array_namespace(x0)
    there = float(xp.sum(answer.parts["value"][answer.present]))
    at_origin = float(xp.sum(answer.parts["value_at_0"][answer.present]))
    if penalty is not None:
        there += penalty.value(x0)
        at_origin += penalty.value(xp.zeros_like(x0))
    return at_origin < there


def _heard(x: Array, origin: bool) -> Dialogue[Answer]:
    """The answer to the first question, repeated while no client answers."""
    for _ in range(MOST_ATTEMPTS):
        answer: Answer = yield Diagonal(x, origin)
        if array_namespace(answer.present).any(answer.present):
            return answer
    raise InputError(f"no client answered the first question, asked {MOST_ATTEMPTS} times")
