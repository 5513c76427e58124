"""What a server may ask: plans, coordinates and points that fit the rows, and bounded work."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from fedsplit.arrays import Array, unpacked
from fedsplit.clients.local_models import Trials
from fedsplit.clients.question import Question
from fedsplit.errors import InputError, RequestError
from fedsplit.regression.client.design import Design, Frame, Moments, Scaling
from fedsplit.regression.client.guards.rules import LEAST, MOST, in_range
from fedsplit.regression.client.plan import Coding
from fedsplit.regression.families import FAMILIES, family_of

UNFIT = "the server sent coordinates that do not fit the columns here"


def check_coding(coding: Coding) -> None:
    """Refuse a plan that contradicts itself."""
    for plan in (coding.plan, *(column.plan for column in coding.plan.derived.values())):
        if plan.family not in FAMILIES:
            raise RequestError(f"the server sent the unknown family {plan.family[:40]!r}")
        try:
            family_of(plan.family, plan.parameters)
        except InputError as error:
            raise RequestError(f"the server sent a family that there is not: {error}") from None
        formula = plan.parsed
        # of a dot the columns are not known yet
        known = {*plan.columns, *(plan.types if formula.open else ())}
        if not {*plan.levels, *plan.categories} <= known:
            raise RequestError("the server sent levels of columns that are not used")
        if plan.classes and formula.target_column is None:
            raise RequestError("the server sent classes of a target that is not a column")
        for column in plan.extra:
            if plan.types.get(column) == "text":
                raise RequestError(f"column {column} holds text: weights and offsets are numbers")
        calls = {call.text for call in formula.pooled}
        for text, state in plan.state.items():
            numbers = [each for part in state.values() for each in part]
            if text not in calls or len(numbers) > 200:
                raise RequestError("the server sent a state that no function of the formula has")
            if not all(map(math.isfinite, numbers)):
                raise RequestError(f"the server sent a state of {text} that is not finite")


def check_frame(frame: Frame, design: Design, moments: Moments) -> None:
    """Refuse coordinates that do not fit the rows; ``moments`` have been told."""
    check_scaling(frame.scaling, design)
    # a difference from an origin that is much larger loses the digits that tell rows apart
    size = math.sqrt(moments.target_scatter / moments.weight + moments.target_mean**2)
    if size > 0 and abs(frame.scaling.origin) > 1e6 * size:
        raise RequestError("the server sent an origin that is far from the targets here")
    columns = design.A.shape[1]
    if frame.whiten is not None:
        check_whitening(frame.whiten, design)
        columns = frame.whiten.shape[1]
    if not 0 < frame.spread < math.inf or not (design.family.robust or frame.spread == 1.0):
        raise RequestError("the server sent a deviation of the residuals that cannot be")
    d = design.family.size(columns, design.classes)
    if frame.ridge.shape != (d,) or not np.isfinite(frame.ridge).all():
        raise RequestError(UNFIT)
    if (frame.ridge < 0).any():
        raise RequestError("the server sent a ridge below 0")


def check_scaling(scaling: Scaling, design: Design) -> None:
    """Refuse a scaling of other columns, or by numbers that are not positive."""
    p = design.A.shape[1]
    for array in (scaling.centre, scaling.scale):
        if array.shape != (p,) or not np.isfinite(array).all():
            raise RequestError(UNFIT)
    if not ((scaling.scale > 0).all() and 0 < scaling.unit < math.inf):
        raise RequestError("the server sent a scale or a unit that is not positive")
    if not math.isfinite(scaling.origin):
        raise RequestError("the server sent an origin of the target that is not finite")
    if not design.family.has_units and (scaling.unit, scaling.origin) != (1.0, 0.0):
        raise RequestError(
            f"the server sent a unit of the target, and the family {design.family.name} has none"
        )


def check_whitening(whiten: Array, design: Design) -> None:
    """Refuse combinations of other columns, or more than there are columns."""
    p = design.A.shape[1]
    fits = whiten.ndim == 2 and whiten.shape[0] == p and 0 < whiten.shape[1] <= p
    if not fits or not np.isfinite(whiten).all():
        raise RequestError(UNFIT)


def check_question(question: Question, d: int) -> None:
    """Refuse points of another dimension, and unbounded work."""
    for point in question.points():
        if point is not None and point.shape not in ((d,), (1, d)):
            raise RequestError(f"the server sent a point of shape {point.shape}, expected ({d},)")
    metric = getattr(question, "metric", None)
    if metric is not None:
        if metric.shape != (d * (d + 1) // 2,) or not np.isfinite(metric).all():
            raise RequestError(f"the server sent a metric that is not a finite {d}×{d} matrix")
        spectrum = np.linalg.eigvalsh(unpacked(metric))
        if spectrum[0] < -1e-9 * max(spectrum[-1], 0.0):
            raise RequestError(
                "the server sent a metric that is not positive semidefinite: some client may have "
                "told a matrix that is no Hessian of a convex cost"
            )
    if isinstance(question, Trials):
        added = np.asarray(question.diagonal)
        if added.shape not in ((), (d,)) or not (np.isfinite(added) & (added > 0)).all():
            raise RequestError("the server sent a diagonal that is not positive")
    if not 0.0 <= getattr(question, "reach", 0.0) < math.inf:
        raise RequestError("the server sent a reach that is below 0 or not finite")
    # of a question or of its solver, where they have such a setting
    steps = max(
        getattr(question, "steps", 0), getattr(getattr(question, "solver", None), "steps", 0)
    )
    points = len(getattr(question, "t", ()))
    for number, most, what in ((steps, 10_000, "steps"), (points, 1_000, "points")):
        if number > most:
            raise RequestError(f"the server asked for {number} {what}, at most {most} are allowed")


def check_numbers(questions: Iterable[object]) -> None:
    """Raise RequestError if a number of some questions is not finite, or huge, or tiny."""
    for question in questions:
        for numbers in _numbers_of(question):
            if not in_range(np.abs(numbers)).all():
                raise RequestError(
                    "the server sent a number that is not finite, or neither 0 nor between "
                    f"{LEAST:g} and {MOST:g}"
                )


def _numbers_of(value: Any) -> Iterator[Array]:
    """All floating-point numbers of a question."""
    if isinstance(value, np.ndarray | float):
        yield np.asarray(value, dtype=np.float64)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _numbers_of(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _numbers_of(each)
    elif isinstance(value, tuple | list | frozenset):
        for each in value:
            yield from _numbers_of(each)
