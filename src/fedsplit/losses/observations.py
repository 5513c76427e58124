"""A client's observations (A, b, weights, offset), read, checked, and stacked into blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, issparse

from fedsplit.arrays import Array, Mask
from fedsplit.errors import InputError
from fedsplit.losses.designs import DenseDesign, Design, SparseDesign
from fedsplit.losses.terms import Block, Terms

EXPECTED = "(A, b), (A, b, weights) or (A, b, weights, offset)"


class Observations(NamedTuple):
    """One client's data: float64 and finite."""

    # (n, d): one observation per row
    A: Any  # an array, or a csr_array, which has no type that a checker knows
    b: Array  # (n,): targets
    w: Array  # (n,): weights, positive
    o: Array  # (n,): offsets: the predictor is η = Ax + o


def read(clients: Sequence[object]) -> list[Observations]:
    """Check every client's data, see ``EXPECTED``, and drop observations of weight zero."""
    try:
        clients = list(clients)
    except TypeError:
        raise InputError(
            f"clients must be a list with one (A, b) per client, not {type(clients).__name__}"
        ) from None
    if not clients:
        raise InputError(f"there is no client: pass a list with one {EXPECTED} per client")
    data = [_read_one(j, client) for j, client in enumerate(clients)]
    d = data[0].A.shape[1]
    for j, (A, *_) in enumerate(data):
        if A.shape[1] != d:
            raise InputError(
                f"client {j}: A has {A.shape[1]} columns, but client 0 has {d}: "
                "all clients need the same columns"
            )
    return data


def check_columns(data: Sequence[Observations], ridge: Array, copies: int = 1) -> None:
    """Raise InputError if some coefficient is not determined, or the ridge has the wrong length.

    A column that is zero at every client needs a ridge, one for all or one for each of its
    ``copies`` coefficients. x holds all those of one copy, then the next.
    """
    d = copies * data[0].A.shape[1]
    if ridge.shape not in ((), (d,)):
        raise InputError(f"ridge must be a number or have {d} entries, its shape is {ridge.shape}")
    undetermined = np.broadcast_to(ridge == 0, (d,)).reshape(copies, -1).any(axis=0)
    for A, *_ in data:
        if not undetermined.any():
            return
        undetermined &= ~_occupied(A)
    if undetermined.any():
        columns = ", ".join(str(i) for i in np.flatnonzero(undetermined)[:5])
        raise InputError(f"column {columns} is zero at every client: drop it, or add a ridge")


def check_targets(
    data: Sequence[Observations], wrong: Callable[[Array], Mask], allowed: str
) -> None:
    """Raise InputError for the first b that is ``wrong``, saying what is ``allowed``."""
    for j, (_, b, *_) in enumerate(data):
        for row in np.flatnonzero(wrong(b))[:1]:
            raise InputError(f"client {j}, row {row}: b is {b[row]:g}, it must be {allowed}")


def as_labels(data: Sequence[Observations]) -> list[Observations]:
    """Labels as -1 and 1, whichever of the two codings all the clients use."""
    negative = next((j for j, (_, b, *_) in enumerate(data) if (b == -1).any()), None)
    low = 0 if negative is None else -1
    for j, (_, b, *_) in enumerate(data):
        for row in np.flatnonzero((b != low) & (b != 1))[:1]:
            other = f" (client {negative} uses -1 and 1)" * bool(b[row] == 0)
            raise InputError(
                f"client {j}, row {row}: label {b[row]:g}; labels must be {{-1, 1}}, or "
                f"{{0, 1}}, or bool, the same at every client{other}"
            )
    return [Observations(A, np.where(b == 1, 1.0, -1.0), w, o) for A, b, w, o in data]


def _read_one(j: int, client: object) -> Observations:
    """Client j's data: weights default to one, offsets to zero."""
    if isinstance(client, Observations):  # checked where its rows were read
        # which may be mapped to a file
        return client if issparse(client.A) else Observations(*map(np.asarray, client))
    if not isinstance(client, Sequence) or len(client) not in (2, 3, 4):
        raise InputError(f"client {j}: expected {EXPECTED}, got {type(client).__name__}")
    A = _rows(j, client[0])
    n = A.shape[0]
    if n == 0:
        raise InputError(f"client {j} is empty: leave it out")
    if A.shape[1] == 0:
        raise InputError(f"client {j}: A has no columns")
    weights, offset = (*client[2:], None, None)[:2]
    given = {
        "b": client[1],
        "weights": np.ones(n) if weights is None else weights,
        "offset": np.zeros(n) if offset is None else offset,
    }
    b, w, o = (_numbers(j, name, values, ndim=1) for name, values in given.items())
    for name, vector in zip(given, (b, w, o), strict=True):
        if len(vector) != n:
            raise InputError(f"client {j}: {name} has {len(vector)} entries, but A has {n} rows")
    for row in np.flatnonzero(w < 0)[:1]:
        raise InputError(f"client {j}, row {row}: weight {w[row]:g} is below zero")
    kept = w > 0
    if kept.all():  # the usual case, without a copy
        return Observations(A, b, w, o)
    if not kept.any():
        raise InputError(f"client {j} is empty: every weight is zero, leave it out")
    return Observations(A[kept], b[kept], w[kept], o[kept])


def _occupied(A: Any) -> Mask:
    """Which columns have an entry that is not zero, (d,)."""
    if issparse(A):
        A = np.bincount(A.indices[A.data != 0], minlength=A.shape[1])[None]
    result: Mask = A.any(axis=0)
    return result


def _rows(j: int, values: object) -> Any:
    """Client j's rows: finite float64, in an array or a csr_array; not copied if they are that."""
    if not issparse(values):
        return _numbers(j, "A", values, ndim=2)
    A = csr_array(values)
    try:
        A.check_format(full_check=True)
    except ValueError as error:  # an index beyond the columns would be read from other memory
        raise InputError(f"client {j}: A is not a valid sparse matrix ({error})") from None
    if A.ndim != 2 or A.dtype.kind not in "biuf":
        raise InputError(f"client {j}: A is not a matrix of real numbers ({A.dtype}, {A.shape})")
    A = A.astype(np.float64, copy=False)
    if not A.has_canonical_format:
        A = A.copy()  # the user's own is left as it is
        A.sum_duplicates()
    for at in np.flatnonzero(~np.isfinite(A.data))[:1]:
        row = int(np.searchsorted(A.indptr, at, side="right")) - 1
        raise InputError(
            f"client {j}, row {row}, column {A.indices[at]}: A is {A.data[at]:g}; "
            "drop or fill it first"
        )
    return A


def _numbers(j: int, name: str, values: object, ndim: int) -> Array:
    """``values`` as finite float64 with ``ndim`` dimensions; float64 input is not copied."""
    if issparse(values):
        raise InputError(f"client {j}: {name} is sparse, pass {name}.toarray()")
    try:
        raw = np.asarray(values)
        if raw.dtype.kind not in "biufO":
            raise TypeError(raw.dtype)
        array: Array = raw.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"client {j}: {name} is not an array of real numbers ({error})") from None
    if array.ndim != ndim:
        raise InputError(
            f"client {j}: {name} must have {ndim} dimension(s), its shape is {array.shape}"
        )
    if not np.isfinite(array).all():
        where = tuple(np.argwhere(~np.isfinite(array))[0])
        place = ", column ".join(map(str, where))
        raise InputError(
            f"client {j}, row {place}: {name} is {array[where]:g}; drop or fill it first"
        )
    return array


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
        if issparse(A):
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

    blocks = [block([j]) for j in members if issparse(data[j].A)]
    dense = (j for j in sorted(members) if not issparse(data[j].A))
    for n, group in groupby(sorted(dense, key=length), key=length):
        blocks += [block(chunk) for chunk in chunks(list(group), 8 * n * d)]
    return blocks


def chunks(members: Sequence[int], client_bytes: int) -> Iterator[Sequence[int]]:
    """Clients in runs of about ``BLOCK_BYTES``."""
    size = max(1, BLOCK_BYTES // client_bytes)
    for i in range(0, len(members), size):
        yield members[i : i + size]
