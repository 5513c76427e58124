"""Which rows are whose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_consistent_length

from fedsplit.arrays import Array
from fedsplit.errors import InputError


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
