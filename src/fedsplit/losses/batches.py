"""Minibatches: which of its rows a client draws, as a function of its random stream alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array

Streams: TypeAlias = NDArray[np.int64]
"""One random seed per client, (k,), which comes with the question."""

Indices: TypeAlias = NDArray[np.integer[Any]]


class Stacked(NamedTuple):
    """How many rows k clients have."""

    # (k,): their numbers n_j of rows. In the stacked arrays these come before the padding
    sizes: Indices
    # the number of stacked rows, padding included, which depends on a client's n_j alone
    length: int


class Batch(NamedTuple):
    """The rows that k clients use in one step."""

    rows: Indices  # (k, B): their places among a client's stacked rows
    # (k, B): by how much each is multiplied to make the sum unbiased, n_j/B; 0 for a place that is
    # not used
    scale: Array


def independent(streams: Streams, stacked: Stacked, batch: int, steps: int) -> Iterator[Batch]:
    """Batches that are drawn anew in each step, without replacement within a step.

    A client with at most ``batch`` rows uses all of them. Floyd's algorithm takes as many random
    numbers as rows are drawn, whatever n_j is. Where n_j < batch, the places after n_j are those of
    padding, of weight 0.
    """
    sizes = stacked.sizes
    drawn = np.minimum(sizes, batch)
    width = min(stacked.length, batch)
    u = np.stack([np.random.default_rng(int(each)).random((steps, width)) for each in streams])
    rows = np.empty(u.shape, dtype=np.intp)
    for i in range(width):
        # one of the first rows up to ``last``, or if it is taken, ``last``, which cannot be
        last = (sizes - drawn + i)[:, None]
        row = (u[:, :, i] * (last + 1)).astype(np.intp)
        taken = (rows[:, :, :i] == row[:, :, None]).any(axis=2) | (i >= drawn)[:, None]
        rows[:, :, i] = np.where(taken, last, row)
    scale = np.broadcast_to((sizes / drawn)[:, None], (len(sizes), width))
    for step in range(steps):
        yield Batch(rows[:, step], scale)


def epochs(streams: Streams, stacked: Stacked, batch: int, passes: int) -> Iterator[Batch]:
    """Batches that go through all rows of a client, in an order drawn anew for every pass.

    The last batch of a pass has the rows that are left. Clients with fewer rows are done earlier:
    their last batches are empty.
    """
    sizes = stacked.sizes
    width = min(stacked.length, batch)
    per_pass = -(-sizes // width)
    most = passes * int(per_pass.max())
    rows = np.zeros((len(sizes), most, width), dtype=np.intp)
    scale = np.zeros(rows.shape)
    for j, (stream, n, count) in enumerate(zip(streams, sizes, per_pass, strict=True)):
        rng = np.random.default_rng(int(stream))
        orders = np.zeros((passes, count * width), dtype=np.intp)
        for order in orders:
            order[:n] = rng.permutation(int(n))
        used = np.arange(count * width).reshape(count, width) < n
        shares = np.where(used, n / used.sum(axis=1, keepdims=True), 0.0)
        # a client's passes follow each other without a gap
        rows[j, : passes * count] = orders.reshape(-1, width)
        scale[j, : passes * count] = np.tile(shares, (passes, 1))
    for step in range(most):
        yield Batch(rows[:, step], scale[:, step])


def unseeded(k: int) -> Streams:
    """One stream for all k clients, where a question comes without any."""
    return np.zeros(k, dtype=np.int64)
