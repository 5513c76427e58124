"""Predictions of a fitted model for new rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from fedsplit.arrays import Array, Mask
from fedsplit.checks import one_of
from fedsplit.data.formula.formula import Formula
from fedsplit.data.frames import as_pandas
from fedsplit.data.reading import PLAIN, Reading
from fedsplit.data.sources.sources import sources
from fedsplit.data.types import as_value
from fedsplit.errors import InputError, listed
from fedsplit.regression.client.design import Recession
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.families.family import Family

Kind: TypeAlias = Literal["mean", "link", "class"]
Unseen: TypeAlias = Literal["error", "nan"]


def predict(
    plan: Plan,
    family: Family,
    coef: Array,
    frame: object,
    kind: Kind,
    unseen: Unseen,
    recessions: Sequence[Recession] = (),
    reading: Reading = PLAIN,
) -> pd.Series | pd.DataFrame:
    """Predictions for the rows of a frame or a file; see ``Model.predict``."""
    one_of("kind", kind, get_args(Kind))
    one_of("unseen", unseen, get_args(Unseen))
    if kind == "class" and not family.classifies:
        raise InputError(f"{family.name} has no classes: use kind='mean'")
    data = frame
    if (table := as_pandas(frame)) is not None:
        data = {"the frame": table}
    found = sources(data, reading=reading)
    if len(found) != 1:
        raise InputError(f"predict takes one frame or file, got {len(found)}")
    rows = plan.read_covariates(found[0], found[0].name)
    strange = _unseen(plan, rows, found[0].name, unseen)
    complete = ~rows.isna().any(axis=1).to_numpy() & ~strange
    complete[complete] = plan.has_values(rows[complete])
    _, A, o = plan.design(rows[complete], found[0].name)
    eta = family.predictor(A, coef, o)
    for recession in reversed(recessions):  # the first one goes furthest
        moves = recession.moves(A)
        eta = np.where(moves == 0, eta, np.copysign(np.inf, moves))
    predicted = _from_predictor(plan, family, eta, kind)
    values = np.full((len(rows), *predicted.shape[1:]), np.nan, dtype=predicted.dtype)
    values[complete] = predicted
    index = rows.index if table is None else table.index
    if values.ndim == 1:
        return pd.Series(values, index=index, name=Formula(plan.formula).target)
    # The linear predictor of the reference class is zero, and is left out.
    return pd.DataFrame(values, index=index, columns=list(plan.classes)[-values.shape[1] :])


def _unseen(plan: Plan, rows: pd.DataFrame, where: str, unseen: Unseen) -> Mask:
    """Which rows, (n,), have a level that no client had; an error unless it is to be NaN."""
    strange = np.zeros(len(rows), dtype=bool)
    for column, levels in plan.levels.items():
        if column not in rows:
            continue
        values = rows[column]
        found = (values.notna() & ~values.isin(levels)).to_numpy()
        if found.any() and unseen == "error":
            first = int(np.argmax(found))
            raise InputError(
                f"{where}: column {column}, row {first + 1}: {values.iloc[first]} is none of its "
                f"levels {listed(levels)}; unseen='nan' gives such rows no prediction"
            )
        strange |= found
    return strange


def _from_predictor(plan: Plan, family: Family, eta: Array, kind: Kind) -> Array:
    """The prediction of every row from its linear predictor."""
    if kind == "link":
        return eta
    mean = family.link.mean(eta)
    if kind == "mean":
        return mean
    winner = (mean > 0.5).astype(np.intp)
    if mean.ndim == 2:
        winner = np.argmax(mean, axis=1)
    labels: list[object] = [0, 1]
    if plan.classes:
        held = plan.types[str(Formula(plan.formula).target_column)]
        labels = [as_value(level, held) for level in plan.classes]
    classes: Array = np.array(labels, dtype=object)[winner]
    return classes
