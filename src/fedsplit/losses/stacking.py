"""Observations stacked into blocks: clients of about the same size, padded to the same length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import numpy as np
from scipy.sparse import csr_array

from fedsplit.arrays import Array
from fedsplit.losses.designs import DenseDesign, Design, SparseDesign
from fedsplit.losses.observations import Observations, is_sparse
from fedsplit.losses.terms import Block, Terms

BLOCK_BYTES = 8 * 2**20
"""The size of a block, about: a few of them fit the cache, and no temporary array is larger."""


def padded(n: int) -> int:
    """The stacked length of a client with n observations: n rounded up to four significant bits.

    It depends on n alone, so a client's arithmetic does not depend on who shares its block. Less
    than 1/8 is added.
    """
    unit = 1 << max(0, n.bit_length() - 4)
    return -(-n // unit) * unit


def stack_rows(
    make: Callable[[Design, Array, Array, Array], Terms],
    data: Sequence[Observations],
    members: Sequence[int],
    d: int,
) -> list[Block]:
    """Stack the observations of some clients into blocks of equal padded length.

    A client with sparse rows is a block by itself: its products are not those of others.
    ``make(design, b, w, o)`` makes terms from rows of k clients and (k, n) arrays. At most d floats
    per observation are worked with: they set how many clients fit in a block.
    """

    def alone(n: int) -> bool:
        return 2 * 8 * n * d > BLOCK_BYTES

    def length(j: int) -> int:
        n = len(data[j].b)
        # a client that never shares a block needs no padding, and no copy of its rows
        return n if alone(n) else padded(n)

    def design(clients: Sequence[int], n: int) -> Design:
        A = data[clients[0]].A
        if is_sparse(A):
            # padded too: batches are drawn as of dense rows
            ends = np.pad(A.indptr, (0, n - A.shape[0]), mode="edge")
            return SparseDesign(csr_array((A.data, A.indices, ends), shape=(n, A.shape[1])))
        if alone(n):
            return DenseDesign(np.ascontiguousarray(A)[None])
        stacked = np.zeros((len(clients), n, A.shape[1]))
        for row, j in enumerate(clients):
            stacked[row, : len(data[j].b)] = data[j].A
        return DenseDesign(stacked)

    def block(clients: Sequence[int]) -> Block:
        n = length(clients[0])
        b, w, o = np.zeros((3, len(clients), n))
        for row, j in enumerate(clients):
            size = len(data[j].b)
            _, b[row, :size], w[row, :size], o[row, :size] = data[j]
            # padding has weight zero, but the loss is evaluated there: a b that it accepts
            b[row, size:] = data[j].b[-1]
        return Block(clients, make(design(clients, n), b, w, o))

    sparse = [j for j in members if is_sparse(data[j].A)]
    blocks = [block([j]) for j in sparse]
    dense = sorted(set(members) - set(sparse), key=length)
    for n, group in groupby(dense, key=length):
        blocks += [block(chunk) for chunk in chunks(list(group), 8 * n * d)]
    return blocks


def chunks(members: Sequence[int], client_bytes: int) -> Iterator[Sequence[int]]:
    """Clients in runs of about ``BLOCK_BYTES``."""
    size = max(1, BLOCK_BYTES // client_bytes)
    for i in range(0, len(members), size):
        yield members[i : i + size]
