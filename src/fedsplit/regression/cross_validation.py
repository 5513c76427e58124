"""Cross-validation over clients: how well a path predicts clients that were held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedsplit.arrays import Array
from fedsplit.clients.questions import Decrement, ProofScalars, Value
from fedsplit.errors import InputError, listed
from fedsplit.regression.fit import make_task
from fedsplit.regression.options import Settings
from fedsplit.regression.server.agreement import Agreement
from fedsplit.regression.server.federation import FederatedRows, rows_here
from fedsplit.regression.server.pool import Pool


class Fold(NamedTuple):
    """Clients that are held out, and those that are left to fit the models.

    Attributes
    ----------
    held_out, training : list of int
        Positions of clients.
    title : str
        The beginning of a message about this fold.
    """

    held_out: list[int]
    training: list[int]
    title: str


def make_folds(agreement: Agreement, folds: int | str | None, seed: int) -> list[Fold]:
    """Draw the folds.

    Parameters
    ----------
    agreement : Agreement
    folds : int, "clients" or None
        How many groups of clients, drawn with ``seed``; one per client; or no folds.
    seed : int

    Raises
    ------
    InputError
        If the training clients of a fold cannot fit the same model.
    """
    if folds is None:
        return []
    names = agreement.rows.members.names
    m = len(names)
    groups = m
    group_of = np.arange(m)
    if folds != "clients":
        groups = int(folds)
        group_of = np.random.default_rng(seed).permutation(m) % groups
    if m < 2 or groups > m:
        raise InputError(
            f"folds: {max(2, groups)} groups of clients need as many clients, there are {m}"
        )
    found = []
    for k in range(groups):
        held_out = np.flatnonzero(group_of == k).tolist()
        training = np.flatnonzero(group_of != k).tolist()
        title = f"folds: without {listed([names[j] for j in held_out], 3)}"
        found.append(Fold(held_out, training, title))
    for fold in found:
        _check_fold(agreement, fold)
    return found


def cross_validate(
    agreement: Agreement,
    settings: Settings,
    folds: Sequence[Fold],
    penalties: Sequence[tuple[float, float]],
) -> pd.DataFrame:
    """The deviance per row at held-out clients.

    With D_k that of fold k, and n_k the weight of its rows, the mean is D̄ = Σ n_k D_k / Σ n_k, and
    its standard error √(Σ n_k (D_k - D̄)² / Σ n_k / (K - 1)).

    Parameters
    ----------
    agreement : Agreement
    settings : Settings
    folds : sequence of Fold
        K of them.
    penalties : sequence of (float, float)
        l1 and ridge of each model.

    Returns
    -------
    DataFrame
        One row per penalty, with columns ``mean`` and ``se``.
    """
    deviance = np.stack([_held_out(agreement, settings, fold, penalties) for fold in folds])
    weights = [sum(agreement.moments[j].weight for j in fold.held_out) for fold in folds]
    shares = np.array(weights) / sum(weights)
    mean = shares @ deviance
    se = np.sqrt(shares @ np.square(deviance - mean) / (len(folds) - 1))
    return pd.DataFrame({"mean": mean, "se": se})


def _check_fold(agreement: Agreement, fold: Fold) -> None:
    """Raise InputError if a column does not vary, or a class is empty, at the training clients."""
    pool = Pool([agreement.moments[j] for j in fold.training], agreement.intercept)
    constant = pool.constant
    if agreement.intercept is None:
        constant &= pool.mean == 0
    else:
        constant[agreement.intercept] = False
    lacks = [f"column {pool.names[i]} does not vary: leave it out" for i in constant.nonzero()[0]]
    classes = agreement.plan.classes or ("0", "1")
    for label, count in zip(classes, pool.classes, strict=False):  # a number has no classes
        if count == 0:
            lacks.append(f"no row is of class {label}")
    if lacks:
        raise InputError(f"{fold.title}, {lacks[0]}, or use other folds")


def _held_out(
    agreement: Agreement,
    settings: Settings,
    fold: Fold,
    penalties: Sequence[tuple[float, float]],
) -> Array:
    """The mean deviance of the held-out rows at the models of the others, by penalty, (k,)."""
    # in the units of the files: the training clients scale rows by their own moments
    rows = [each.restored() for each in rows_here(agreement.rows)]
    moments = agreement.moments
    inside, outside = (
        FederatedRows.here(
            agreement.plan,
            settings.strict,
            [rows[j] for j in clients],
            [moments[j] for j in clients],
        )
        for clients in (fold.training, fold.held_out)
    )
    training = replace(agreement, rows=inside, moments=[moments[j] for j in fold.training])
    try:
        task = make_task(training, settings)
    except InputError as error:
        raise InputError(f"{fold.title}, {error}") from None
    task = task.with_ridge(np.zeros(task.d))
    # A column may be zero at the held-out clients, which only costs with a ridge may have: they are
    # made with one, and then used without.
    outside.settle(replace(task.frame, ridge=np.ones(task.d))).prepare()
    clients = outside.settle(task.frame)
    start = np.zeros(task.d)
    floor = ProofScalars(**clients.ask(Decrement(start, start)).parts).floor.sum()
    values = np.array([clients.ask(Value(x)).rows.sum() for x in task.points(penalties)])
    weight = sum(moments[j].weight for j in fold.held_out)
    floor += sum(moments[j].floor for j in fold.held_out) / task.scaling.unit**2
    deviance: Array = 2.0 * (values - floor) * task.scaling.unit**2 / weight
    return deviance
