"""Rows of one table dealt out to clients, for simulations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedsplit.arrays import Array
from fedsplit.checks import one_of
from fedsplit.errors import InputError

Indices: TypeAlias = NDArray[np.integer[Any]]


def split_rows(labels: Array, clients: int, split: str = "iid", seed: int = 0) -> list[Indices]:
    """Return the rows of each client, who has one at least.

    Parameters
    ----------
    labels : (n,) array
        The class of each row, or its target.
    split : {"iid", "label", "dirichlet", "zipf"}
        "iid": random rows, as many for everyone. "label": rows sorted by label, so that most
        clients have one class. "dirichlet": of each class, the clients' shares are drawn from a
        Dirichlet distribution. "zipf": random rows, client j has about 1/j as many as the first.
    """
    one_of("split", split, SPLITS)
    n = len(labels)
    if not 1 <= clients <= n:
        raise InputError(f"clients: {n} rows cannot be split over {clients} clients")
    order = SPLITS[split](labels, clients, np.random.default_rng(seed))
    return [np.sort(rows) for rows in order]


def _iid(labels: Array, m: int, rng: Generator) -> list[Indices]:
    return np.array_split(rng.permutation(len(labels)), m)


def _label(labels: Array, m: int, rng: Generator) -> list[Indices]:
    return np.array_split(np.argsort(labels, kind="stable"), m)


def _zipf(labels: Array, m: int, rng: Generator) -> list[Indices]:
    rows = rng.permutation(len(labels))
    shares = 1.0 / np.arange(1, m + 1)
    # One row for everyone, and the others by shares.
    ends = np.arange(1, m) + np.floor(np.cumsum(shares / shares.sum())[:-1] * (len(rows) - m))
    return np.split(rows, ends.astype(np.intp))


def _dirichlet(labels: Array, m: int, rng: Generator) -> list[Indices]:
    of_labels = []
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        # Most of a client's rows are then of one or two classes.
        ends = np.cumsum(rng.dirichlet(np.full(m, 0.5)))[:-1]
        of_labels.append(np.split(rows, np.floor(ends * len(rows)).astype(np.intp)))
    parts = [np.concatenate(own) for own in zip(*of_labels, strict=True)]
    for j, part in enumerate(parts):
        if not len(part):  # it gets a row of the largest
            largest = max(range(m), key=lambda i: len(parts[i]))
            parts[j], parts[largest] = parts[largest][:1], parts[largest][1:]
    return parts


SPLITS: Mapping[str, Callable[[Array, int, Generator], list[Indices]]] = {
    "iid": _iid,
    "label": _label,
    "dirichlet": _dirichlet,
    "zipf": _zipf,
}
"""Ways to deal out rows, by name."""
