"""Questions of another organisation's server, checked before they are answered."""

from __future__ import annotations

import math

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.questions import Question
from fedsplit.errors import InputError
from fedsplit.regression.client.design import Design
from fedsplit.regression.client.fit_questions import Frame

MOST_STEPS = 10_000
"""The most gradient steps that one question may ask for."""

MOST_POINTS = 1_000
"""The most points on a line that one question may ask about."""


def check_frame(frame: Frame, design: Design) -> None:
    """Refuse coordinates that do not fit the rows."""
    p = design.A.shape[1]
    d = p * max(1, design.classes - 1)
    scaling = frame.scaling
    shapes: list[tuple[Array, tuple[int, ...]]] = [
        (scaling.centre, (p,)),
        (scaling.scale, (p,)),
        (frame.ridge, (d,)),
    ]
    if frame.whiten is not None:
        shapes.append((frame.whiten, (p, p)))
    if any(array.shape != shape or not np.isfinite(array).all() for array, shape in shapes):
        raise InputError("the server sent coordinates that do not fit the columns here")
    positive = (scaling.scale > 0).all() and 0 < scaling.unit < math.inf
    if not positive or (frame.ridge < 0).any():
        raise InputError(
            "the server sent a scale or a unit that is not positive, or a ridge below 0"
        )


def check_question(question: Question, d: int) -> None:
    """Refuse points of another dimension, and unbounded work."""
    for point in question.points():
        if point is not None and point.shape not in ((d,), (1, d)):
            raise InputError(f"the server sent a point of shape {point.shape}, expected ({d},)")
    # of a question or of its solver, where they have such a setting
    steps = max(
        getattr(question, "steps", 0), getattr(getattr(question, "solver", None), "steps", 0)
    )
    if steps > MOST_STEPS:
        raise InputError(f"the server asked for {steps} steps, at most {MOST_STEPS} are allowed")
    points = len(getattr(question, "t", ()))
    if points > MOST_POINTS:
        raise InputError(f"the server asked for {points} points, at most {MOST_POINTS} are allowed")
