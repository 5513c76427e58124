"""What a client's answers could tell of single rows: found at the client, before it answers.

Each finding is a warning, or, where the user is strict, an error in the place of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedsplit.data.categories import Level
from fedsplit.errors import InputError, listed
from fedsplit.regression.client.design import SMALLEST_CELL, Design

FEWEST_ROWS, ROWS_A_PARAMETER = 10, 3
"""Below so many rows at a client, or so many for each parameter, its answers could tell of single rows."""

ALONE = 0.99
"""A row that has more than this share of what a column differs from its median by is alone in it."""

MOST_RARE_LEVELS = 50
"""A category with more levels than this in fewer than SMALLEST_CELL rows each is no category but names."""


def check_names(client: str, column: str, counts: Mapping[Level, int]) -> None:
    """Refuse, strict or not, to tell names."""
    rare = sum(n < SMALLEST_CELL for n in counts.values())
    if rare > MOST_RARE_LEVELS:
        raise InputError(
            f"client {client}: column {column} has {rare} values in fewer than {SMALLEST_CELL} rows each: "
            "that is no category; leave it out, or group its values"
        )


def of_columns(
    client: str,
    kept: int,
    levels: Mapping[str, Mapping[Level, int]],
    sums: Mapping[str, tuple[int, float]],
) -> list[str]:
    """Before a client describes its columns: too few rows, rare levels, means of one or two values."""
    found = (
        [f"client {client} has {kept} rows, fewer than {FEWEST_ROWS}"]
        if 0 < kept < FEWEST_ROWS
        else []
    )
    cells = [
        (f"{column} = {level}", n)
        for column, counts in levels.items()
        for level, n in counts.items()
    ]
    cells += [(f"a value of {column}", n) for column, (n, _) in sums.items() if n < kept]
    return found + _small(client, cells)


def of_rows(rows: Design, target: str | None) -> list[str]:
    """Before a client tells moments: too many parameters, one row that outweighs the rest, columns of one or two rows.

    A column of the design in which all rows but one or two are alike, such as a condition or an interaction, has their
    values in its cross products. ``target`` is the text of a target that is a condition.
    """
    n, parameters = len(rows.b), rows.A.shape[1] * max(1, rows.classes - 1)
    found = []
    if n >= FEWEST_ROWS and parameters > n / ROWS_A_PARAMETER:
        found.append(
            f"client {rows.name} has {n} rows for {parameters} parameters, more than a third"
        )
    effective = rows.w.sum() ** 2 / np.square(rows.w).sum()
    if effective < FEWEST_ROWS <= n:
        found.append(
            f"client {rows.name} has weights that leave the say to {effective:.1f} rows, fewer than 10"
        )
    away = np.abs(rows.A - np.median(rows.A, axis=0))
    alone = (away.max(axis=0) > ALONE * away.sum(axis=0)) & away.any(axis=0)
    others = np.where(alone, 1, np.count_nonzero(away, axis=0))
    counted = bool((rows.w == 1).all())  # levels are, unless rows of weight zero have gone since
    levels = [counted and name.endswith("]") and ":" not in name for name in rows.columns]
    cells = [
        (name, int(k))
        for name, k, level in zip(rows.columns, others, levels, strict=True)
        if not level
    ]
    if target is not None and rows.family.classifies:
        cells += [
            (f"{target} = {value}", int(k))
            for value, k in enumerate(np.bincount(rows.b.astype(np.intp)))
        ]
    return found + _small(rows.name, cells)


def refuse(found: Sequence[str], strict: bool) -> None:
    """Stop at the first finding, where the user is strict."""
    if strict and found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise InputError(f"{found[0]}{more}: leave the client out, or do not be strict")


def _small(client: str, cells: Sequence[tuple[str, int]]) -> list[str]:
    small = [f"{cell} in {n}" for cell, n in cells if 0 < n < SMALLEST_CELL]
    return (
        [f"client {client} has fewer than {SMALLEST_CELL} rows of a kind: {listed(small, 3)}"]
        if small
        else []
    )
