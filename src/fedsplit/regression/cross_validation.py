"""Cross-validation over clients: how well a path predicts clients that were held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedsplit.arrays import Array
from fedsplit.clients.questions import Decrement, ProofScalars, Value
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError, listed, shown
from fedsplit.methods.information import FedSplitInformation
from fedsplit.regression.options import Settings
from fedsplit.regression.server.agreement import Agreement
from fedsplit.regression.server.coordinates import Pool
from fedsplit.regression.server.federation import AboutCosts, CodedRows
from fedsplit.regression.server.glm import follow, in_robust_units
from fedsplit.regression.server.problem import INFORMATION, FitProblem, set_up


class Fold(NamedTuple):
    """The rows of clients that are held out, and of those that are left to fit the models.

    A message about the fold begins with its ``title``.
    """

    held_out: CodedRows
    training: CodedRows
    title: str


def make_folds(agreement: Agreement, folds: int | str | None, seed: int) -> list[Fold]:
    """Draw groups of clients with ``seed``, one per client for "clients", or no folds.

    Raises InputError if the training clients of a fold cannot fit the same model.
    """
    if folds is None:
        return []
    rows = agreement.rows
    groups = m = len(rows.names)
    group_of = np.arange(m)
    if folds != "clients":
        groups = int(folds)
        group_of = np.random.default_rng(seed).permutation(m) % min(groups, m)
    if m < 2 or groups > m:
        raise InputError(
            f"folds: {shown(max(2, groups))} groups of clients need as many clients, there are {m}"
        )
    made = []
    for k in range(groups):
        names = dict(zip(rows.names, (group_of == k).tolist(), strict=True))
        held_out = replace(rows, names=tuple(name for name, out in names.items() if out))
        training = replace(rows, names=tuple(name for name, out in names.items() if not out))
        made.append(Fold(held_out, training, f"folds: without {listed(held_out.names, 3)}"))
    for fold in made:
        _check_fold(fold)
    return made


def cross_validation(
    settings: Settings, folds: Sequence[Fold], penalties: Sequence[tuple[float, float]]
) -> Dialogue[pd.DataFrame]:
    """The ``mean`` deviance per row at held-out clients and its ``se``, by pairs of l1 and ridge.

    With D_k that of fold k, and n_k the weight of its rows, the mean is D̄ = Σ n_k D_k / Σ n_k, and
    its standard error √(Σ n_k (D_k - D̄)² / Σ n_k / (K - 1)) for K folds.
    """
    deviances = []
    for fold in folds:
        try:
            deviances.append((yield from _held_out(settings, fold, penalties)))
        except InputError as error:
            raise InputError(f"{fold.title}, {error}") from None
    deviance = np.stack(deviances)
    weights = [sum(each.weight for each in fold.held_out.moments) for fold in folds]
    shares = np.array(weights) / sum(weights)
    mean = shares @ deviance
    se = np.sqrt(shares @ np.square(deviance - mean) / (len(folds) - 1))
    return pd.DataFrame({"mean": mean, "se": se})


def _check_fold(fold: Fold) -> None:
    """Raise InputError if a column does not vary, or a class is empty, at the training clients."""
    rows = fold.training
    pool = Pool(rows.moments, rows.intercept)
    constant = pool.constant
    if rows.intercept is None:
        constant &= pool.mean == 0
    else:
        constant[rows.intercept] = False
    lacks = [f"column {pool.names[i]} does not vary: leave it out" for i in constant.nonzero()[0]]
    classes = rows.plan.classes or ("0", "1")
    for label, count in zip(classes, pool.classes, strict=False):  # a number has no classes
        if count == 0:
            lacks.append(f"no row is of class {label}")
    if lacks:
        raise InputError(f"{fold.title}, {lacks[0]}, or use other folds")


def _held_out(
    settings: Settings, fold: Fold, penalties: Sequence[tuple[float, float]]
) -> Dialogue[Array]:
    """The mean deviance of the held-out rows at the models of the others, by penalty, (k,)."""
    problem = yield from set_up(fold.training, settings)
    problem = yield from in_robust_units(problem)
    problem = problem.with_ridge(0.0)
    points = yield from _points(problem, penalties)
    # the costs of the held-out rows, in the coordinates of the others
    costs = replace(problem, rows=fold.held_out)
    start = np.zeros(problem.d)
    answer = yield AboutCosts(costs, Decrement(start, start))
    floor = ProofScalars(**answer.parts).floor.sum()
    floor += sum(each.floor for each in fold.held_out.moments) / problem.unit
    values = []
    for x in points:
        values.append((yield AboutCosts(costs, Value(x))).rows.sum())
    weight = sum(each.weight for each in fold.held_out.moments)
    deviance: Array = 2.0 * (np.array(values) - floor) * problem.unit / weight
    return deviance


def _points(problem: FitProblem, penalties: Sequence[tuple[float, float]]) -> Dialogue[list[Array]]:
    """x of ``follow``, (d,) each, without proofs where one answer says all about the costs.

    Models of second order are exact for quadratics: the first search has the clients' sums.
    """
    if not (problem.family.quadratic and problem.settings.method == INFORMATION):
        return [each.point.x for each in (yield from follow(problem, penalties))]
    [found] = yield from follow(problem, penalties[:1])
    points = [found.point.x]
    state: Any = found.state  # an InformationState
    for l1, ridge in penalties[1:]:
        state = FedSplitInformation(problem.penalty(l1, ridge)).resume(state)
        state = state._replace(x=state.ahead)
        points.append(state.x)
    return points
