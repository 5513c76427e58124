"""From X, y, weights and groups to the designs of the clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_consistent_length

from fedsplit.arrays import Array
from fedsplit.errors import InputError
from fedsplit.regression.client.design import Design, Moments
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.options import Settings
from fedsplit.regression.server.pool import Pool


def by_client(
    settings: Settings,
    X: Array,
    y: Array,
    w: Array,
    groups: Any,
    names: Sequence[str],
    classes: int,
) -> tuple[Array, list[Design]]:
    """The labels of the clients, in the order of their first rows, and the design of each.

    Rows without weight are left out.
    """
    clients, shares = shares_of(groups, X, w)
    constant = int(settings.intercept)
    designs = []
    for client, at in zip(clients, shares, strict=True):
        design = Design(
            name=str(client),
            family=FAMILIES[settings.family],
            columns=["Intercept"] * constant + list(names),
            A=np.column_stack([np.ones((len(at), constant)), X[at]]),
            b=y[at],
            w=w[at],
            o=np.zeros(len(at)),
            classes=classes,
        )
        designs.append(design)
    return clients, designs


def shares_of(groups: Any, X: Any, w: Array) -> tuple[Array, list[NDArray[np.intp]]]:
    """The labels of the clients, in the order of their first rows, and the rows of each.

    Rows without weight are left out.
    """
    labels = _labels(groups, X.shape[0])
    check_consistent_length(X, labels)
    if labels.isna().any():
        raise InputError(f"groups: row {int(np.argmax(labels.isna()))} has no label")
    used = np.flatnonzero(w > 0)
    codes, clients = pd.factorize(labels[used])
    ends = np.cumsum(np.bincount(codes))[:-1]
    return clients.to_numpy(), np.split(used[np.argsort(codes, kind="stable")], ends)


def _labels(groups: Any, n: int) -> pd.Series:
    """The label of each row: 0 for all without groups; a column, (n, 1), is as good as (n,)."""
    if groups is None:
        return pd.Series([0] * n, dtype=object)
    shape = np.shape(groups) if hasattr(groups, "shape") else (n,)
    if len(shape) > 1:
        if shape[1:] != (1,):
            raise InputError(f"groups must have one label per row, its shape is {shape}")
        groups = np.asarray(groups)[:, 0]
    if isinstance(groups, np.ndarray) and groups.dtype.kind in "biu":
        return pd.Series(groups)  # whole numbers need no objects to be told apart
    return pd.Series(list(groups), dtype=object)


def independent(
    designs: list[Design], intercept: int | None, penalised: bool
) -> tuple[list[Design], list[Moments], Array]:
    """Leave out columns that explain nothing: constants and, without a penalty, combinations.

    Returns
    -------
    designs : list of Design
        With r of the p columns.
    moments : list of Moments
        Theirs.
    spread : (p, r) array
        Takes coefficients of these columns to those of all. If the columns are B M, apart from
        constants, where B are those kept, β = M⁺b is the shortest that predicts what b does.
    """
    moments = [design.moments() for design in designs]
    pool = Pool(moments, intercept)
    p = len(pool.names)
    left_out = {
        i: weights for i, weights in pool.dependent().items() if not (penalised and weights.any())
    }
    if not left_out:
        return designs, moments, np.eye(p)
    kept = [i for i in range(p) if i not in left_out]
    M = np.eye(p)[kept]
    for i, weights in left_out.items():
        M[:, i] = weights[kept]
    spread: Array = np.linalg.pinv(M)
    if intercept is not None:
        # The constants that were left out, and the means of combinations, go into the intercept.
        spread[intercept] += pool.mean[kept] - pool.mean @ spread
    columns = [pool.names[i] for i in kept]
    designs = [replace(each, columns=columns, A=each.A[:, kept]) for each in designs]
    return designs, [design.moments() for design in designs], spread
