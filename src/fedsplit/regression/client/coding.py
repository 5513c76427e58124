"""How clients code their rows, the coordinates of the rounds, and checks of what a server sends."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace

import numpy as np

from fedsplit.arrays import Array, unpacked
from fedsplit.channels import codec
from fedsplit.clients.local_models import Trials
from fedsplit.clients.question import Question
from fedsplit.data.formula.formula import Formula
from fedsplit.errors import InputError, RequestError
from fedsplit.regression.client.design import Design, Moments, Scaling
from fedsplit.regression.client.plan import BasicPlan, Plan
from fedsplit.regression.families import FAMILIES, family_of


@dataclass(frozen=True)
class Coding:
    """How clients code their rows as numbers."""

    plan: Plan  # what all clients agreed on
    strict: bool  # whether to refuse answers that could disclose single rows
    names: tuple[str, ...]  # the clients of the cohort that take part; empty for all of them


@dataclass(frozen=True)
class Frame:
    """The coordinates of the rounds, and what a client's cost is in them."""

    scaling: Scaling  # of the columns and the target
    # (p, r): what the scaled columns are multiplied by, so that they are orthonormal over all
    # clients, or so that r of them are left
    whiten: Array | None
    # the robust deviation of the residuals that parameters of the family are in units of, in the
    # unit of the files; 1 for parameters in the unit of the target
    spread: float
    symmetric: bool  # whether the coefficients are those of all classes, centred
    ridge: Array  # (d,): of the whole objective
    # whether the products with ``whiten`` are formed in twice the working precision, because large
    # terms nearly cancel in them
    precise: bool = False

    def without_ridge(self) -> Frame:
        """Everything that the data depend on."""
        return replace(self, ridge=np.zeros(0))


def key_of(coding: Coding, frame: Frame) -> str:
    """The name of what clients are prepared with, by its content."""
    return hashlib.sha256(codec.encode((coding, frame))).hexdigest()


UNFIT = "the server sent coordinates that do not fit the columns here"


def check_coding(coding: Coding) -> None:
    """Refuse a plan that contradicts itself."""
    for plan in (coding.plan, *(column.plan for column in coding.plan.derived.values())):
        _check_plan(plan)
        _check_state(plan)


def _check_plan(plan: BasicPlan) -> None:
    if plan.family not in FAMILIES:
        raise RequestError(f"the server sent the unknown family {plan.family[:40]!r}")
    try:
        family_of(plan.family, plan.parameters)
    except InputError as error:
        raise RequestError(f"the server sent a family that there is not: {error}") from None
    known = set(plan.columns)
    if plan.parsed.open:  # of which the columns are not known yet
        known |= set(plan.types)
    if not {*plan.levels, *plan.categories} <= known:
        raise RequestError("the server sent levels of columns that are not used")
    if plan.classes and Formula(plan.formula).target_column is None:
        raise RequestError("the server sent classes of a target that is not a column")
    for column in (plan.weights, plan.offset, plan.exposure):
        if column is not None and plan.types.get(column) == "text":
            raise RequestError(f"column {column} holds text: weights and offsets are numbers")


def _check_state(plan: BasicPlan) -> None:
    """Refuse the state of other functions, and one that no function has."""
    calls = {call.text for call in Formula(plan.formula).pooled}
    for text, state in plan.state.items():
        numbers = [each for part in state.values() for each in part]
        if text not in calls or len(numbers) > 200:
            raise RequestError("the server sent a state that no function of the formula has")
        if not all(map(math.isfinite, numbers)):
            raise RequestError(f"the server sent a state of {text} that is not finite")


def check_frame(frame: Frame, design: Design, moments: Moments) -> None:
    """Refuse coordinates that do not fit the rows; ``moments`` have been told."""
    check_scaling(frame.scaling, design)
    _check_origin(frame.scaling, moments)
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


def _check_origin(scaling: Scaling, moments: Moments) -> None:
    """Refuse an origin of the target that is far away; ``moments`` have been told."""
    # a difference from an origin that is much larger loses the digits that tell rows apart
    size = math.sqrt(moments.target_scatter / moments.weight + moments.target_mean**2)
    if size > 0 and abs(scaling.origin) > 1e6 * size:
        raise RequestError("the server sent an origin that is far from the targets here")


def check_whitening(whiten: Array, design: Design) -> None:
    """Refuse combinations of other columns, or more than there are columns."""
    p = design.A.shape[1]
    fits = whiten.ndim == 2 and whiten.shape[0] == p and 0 < whiten.shape[1] <= p
    if not fits or not np.isfinite(whiten).all():
        raise RequestError(UNFIT)


def _check_metric(metric: Array, d: int) -> None:
    """Refuse the entries of a matrix that is not d×d and positive semidefinite."""
    if metric.shape != (d * (d + 1) // 2,) or not np.isfinite(metric).all():
        raise RequestError(f"the server sent a metric that is not a finite {d}×{d} matrix")
    spectrum = np.linalg.eigvalsh(unpacked(metric))
    if spectrum[0] < -1e-9 * max(spectrum[-1], 0.0):
        raise RequestError(
            "the server sent a metric that is not positive semidefinite: some client may have told "
            "a matrix that is no Hessian of a convex cost"
        )


def check_question(question: Question, d: int) -> None:
    """Refuse points of another dimension, and unbounded work."""
    for point in question.points():
        if point is not None and point.shape not in ((d,), (1, d)):
            raise RequestError(f"the server sent a point of shape {point.shape}, expected ({d},)")
    metric = getattr(question, "metric", None)
    if metric is not None:
        _check_metric(metric, d)
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
