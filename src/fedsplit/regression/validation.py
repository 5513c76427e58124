"""What another organisation sends, checked for sense before it is used."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fedsplit.arrays import Array
from fedsplit.errors import InputError
from fedsplit.prox.gradient import GradientProx
from fedsplit.regression.client.cohort import Coded, Coding, Fitted, Frame
from fedsplit.regression.client.dataset import Description, Request
from fedsplit.regression.client.design import BINS, Design
from fedsplit.regression.families import FAMILIES
from fedsplit.remote.channel import Question

KINDS = {"number", "boolean", "text", "empty"}

MOST_STEPS, MOST_POINTS = 10_000, 1_000
"""What one question may ask for: gradient steps, and points on a line."""


def description(request: Request) -> Callable[[Description], str]:
    """Of a client's columns."""
    wanted = set(request.columns)

    def wrong(told: Description) -> str:
        named = {c for c in wanted if c in request.categories or told.kinds.get(c) == "text"}
        if (
            set(told.kinds) != wanted
            or set(told.missing) != wanted
            or not set(told.kinds.values()) <= KINDS
        ):
            return "a description of other columns"
        if set(told.levels) != named or any(_mixed(levels) for levels in told.levels.values()):
            return "a description with other levels"
        counts = [
            told.rows - told.kept,
            told.kept,
            *told.missing.values(),
            *(n for n, _ in told.sums.values()),
        ]
        counts += [n for levels in told.levels.values() for n in levels.values()]
        if min(counts) < 0 or not all(math.isfinite(total) for _, total in told.sums.values()):
            return "counts that cannot be"
        return ""

    return wrong


def coded(coding: Coding) -> Callable[[Coded], str]:
    """Of a client's coded rows. Squares beyond float64 may be: they have a message of their own."""
    family = FAMILIES[coding.plan.family]
    classes = (len(coding.plan.classes) or 2) if family.classifies else 0

    def wrong(told: Coded) -> str:
        m, p = told.moments, len(told.moments.names)
        if m.mean.shape != (p,) or m.scatter.shape != (p, p) or len(m.classes) != classes:
            return "moments of the wrong shape"
        if not (m.n > 0 and 0 < m.weight < math.inf) or min(m.classes, default=0) < 0:
            return "counts or weights that cannot be"
        if not (
            np.isfinite(m.mean).all() and math.isfinite(m.target_mean) and m.log_exposed < math.inf
        ):
            return "means that are not finite"
        if (np.diag(m.scatter) < 0).any() or m.target_scatter < 0:
            return "moments that cannot be"
        return ""

    return wrong


def fitted(told: Fitted) -> str:
    """Of how a model fits."""
    if math.isnan(told.log_likelihood) and told.calibration is None:
        return "a log-likelihood that is not a number"
    bins = (len(BINS) - 1,)
    if told.calibration is not None and any(
        part.shape != bins or not np.isfinite(part).all() or (part < 0).any()
        for part in told.calibration
    ):
        return "a calibration that cannot be"
    return ""


def check_frame(frame: Frame, rows: Design) -> None:
    """Refuse coordinates that do not fit the rows."""
    p = rows.A.shape[1]
    d = p * (rows.classes - 1 if rows.family.per_class else 1)
    shapes: list[tuple[Array, tuple[int, ...]]] = [
        (frame.scaling.centre, (p,)),
        (frame.scaling.scale, (p,)),
        (frame.ridge, (d,)),
    ]
    shapes += [] if frame.whiten is None else [(frame.whiten, (p, p))]
    if any(array.shape != shape or not np.isfinite(array).all() for array, shape in shapes):
        raise InputError("it was asked for coordinates that do not fit its columns")
    if (
        not (frame.scaling.scale > 0).all()
        or not 0 < frame.scaling.unit < math.inf
        or (frame.ridge < 0).any()
    ):
        raise InputError("it was asked for a scale, a unit or a ridge that cannot be")


def check_question(question: Question, d: int) -> None:
    """Refuse points of another dimension, and work without end."""
    for value in question.args[1:]:
        if (
            isinstance(value, np.ndarray)
            and question.name != "line"
            and value.shape not in ((d,), (1, d))
        ):
            raise InputError(f"it was asked at a point of shape {value.shape}, in {d} dimensions")
        steps = (
            value.steps
            if isinstance(value, GradientProx)
            else value
            if isinstance(value, int)
            else 0
        )
        if question.name in ("prox", "descend") and steps > MOST_STEPS:
            raise InputError(f"it was asked for {steps} steps, it makes {MOST_STEPS} at most")
    if question.name == "line" and len(question.args[-1]) > MOST_POINTS:
        raise InputError(
            f"it was asked at {len(question.args[-1])} points, it answers {MOST_POINTS} at most"
        )


def _mixed(levels: Any) -> bool:
    """Whether levels are not all text, or all numbers."""
    return len({isinstance(level, str) for level in levels}) > 1
