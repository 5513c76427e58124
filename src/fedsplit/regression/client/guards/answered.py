"""The columns that a client has answered about, and whether they single out a few of its rows.

One rule covers all questions. Let U be the columns over all rows of a client whose sums or products
it has told, each of them zero outside of the rows that it was told of. No combination of them may
live on fewer than k rows (see ``leverage``). So two models of nearly the same rows, two values in
the place of a missing one, conditions, rows that recede, intervals with other ends, and a column
beside one that is nearly the same are all the same thing: a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsplit import files
from fedsplit.arrays import Array
from fedsplit.data.pooled.column_statistics import Statistic
from fedsplit.errors import InputError, StateError, listed
from fedsplit.regression.client.description import ColumnRequest
from fedsplit.regression.client.design import Design, Moments, Recession, Scaling
from fedsplit.regression.client.guards.leverage import Span
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.regression.client.plan import Plan
from fedsplit.remote import codec

FARTHEST = 1e3
"""Times the size of a column: a centre beyond this may take digits of it."""

SMALLEST = 1e-300

LEFT = 1e-3
"""A combination that is shorter than this share of its parts has lost digits."""


@dataclass(frozen=True)
class Asked:
    """What was asked for, from which its columns can be computed again.

    Attributes
    ----------
    request : ColumnRequest or None
        Columns that are described.
    formula : str
        Of which ``statistics`` are, if it is not that of the plan.
    statistics : mapping of str to Statistic
        Of functions such as ``poly``.
    plan : Plan or None
        Of coded rows.
    recessions : tuple of Recession
        Only rows at rest along these are coded.
    scaling : Scaling or None
    directions : (p, r) array or None
        Combinations of the scaled columns.
    precise : bool
        Whether they are computed in twice the working precision.
    snapshot : int
        Which of the client's snapshots they are columns of.
    """

    request: ColumnRequest | None = None
    formula: str = ""
    statistics: Mapping[str, Statistic] | None = None
    plan: Plan | None = None
    recessions: tuple[Recession, ...] = ()
    scaling: Scaling | None = None
    directions: Array | None = None
    precise: bool = False
    snapshot: int = 0

    @property
    def digest(self) -> str:
        """A name for it."""
        return sha256(codec.encode(self)).hexdigest()


class Block(NamedTuple):
    """Columns that are told of.

    Attributes
    ----------
    columns : (m, q) array
    rows : (m,) array of int
        Which rows of the client they are on, each one once.
    """

    columns: Array
    rows: NDArray[np.intp]


class Answered:
    """The columns that a client has told of.

    Parameters
    ----------
    client : str
        Its name.
    folder : Path, optional
        Where it is kept what was asked for, so that it outlives the process.
    again : callable, optional
        Given what was asked for, computes its columns again.
    snapshot : int
        Which snapshot is asked about.
    """

    def __init__(
        self,
        client: str,
        folder: Path | None = None,
        again: Callable[[Asked], Block] | None = None,
        snapshot: int = 0,
    ) -> None:
        self._client = client
        self._folder = folder
        self._again = again
        self._snapshot = snapshot
        self._span: Span | None = None
        self._known: set[str] = set()

    def admit(self, asked: Asked, block: Block, rules: Rules) -> None:
        """Take note of columns that are about to be told of.

        Raises
        ------
        InputError
            If they, together with all others, single out fewer rows than the rules allow.
        """
        if not rules.refuse:
            return
        span = self._recalled()
        asked = replace(asked, snapshot=self._snapshot)
        digest = asked.digest
        if digest in self._known:
            return
        wider = span.extended(block.columns, block.rows)
        if wider.Q.shape[1] > span.Q.shape[1]:
            n = int(np.count_nonzero(wider.leverages))
            found = wider.concentrated(rules.smallest, rules.most_leverage(n))
            if found is not None:
                rows = listed([row + 1 for row in sorted(found.rows)])
                raise InputError(
                    f"client {self._client}: what is asked for, with all that was answered "
                    f"before, singles out row {rows} (leverage {found.share:.6g}, fewer than "
                    f"{rules.smallest} rows; rules largest_leverage, smallest_group)"
                )
        # what cannot be written is not remembered either: it is not disclosed, and asked for again
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.write_private(self._folder / digest, codec.encode(asked))
        self._span = wider
        self._known.add(digest)

    def _recalled(self) -> Span:
        """The span of all that has been told, after a restart from what was asked for.

        It is complete, or an error: with a part of it, differences to the rest would be disclosed.
        """
        if self._span is None:
            span = Span()
            asked = self.all()
            if self._again is not None:
                for each in asked.values():
                    block = self._again(each)
                    span = span.extended(block.columns, block.rows)
            self._known = set(asked)
            self._span = span
        return self._span

    def all(self) -> dict[str, Asked]:
        """All that was asked for, by its digest, from the files that keep it."""
        if self._folder is None or not self._folder.is_dir():
            return {}
        return {path.name: _read(path) for path in sorted(self._folder.glob("[0-9a-f]" * 64))}


def _read(path: Path) -> Asked:
    """What a file says was asked for; its name is the digest of that."""
    content = path.read_bytes()
    if sha256(content).hexdigest() != path.name:
        raise StateError(
            f"{path}: this record of what was disclosed is damaged, so that nothing is answered: "
            "restore it from a backup"
        )
    try:
        asked: Asked = codec.decode(Asked, content)
    except ValueError:
        raise StateError(
            f"{path}: this record of what was disclosed was written by another version of "
            "fedsplit, so that nothing is answered: use that version"
        ) from None
    return asked


def of_description(kept: pd.DataFrame, request: ColumnRequest) -> Block:
    """Which rows are complete, those of each level, and the values of columns to be filled."""
    columns = [np.ones(len(kept))]
    for name in request.types:
        if name in request.coded:
            codes = kept[name].cat.codes.to_numpy()
            columns += [(codes == code).astype(np.float64) for code in np.unique(codes)]
        elif name in request.filled:
            values = kept[name].to_numpy(dtype=np.float64)
            there = np.isfinite(values)
            columns += [there.astype(np.float64), np.where(there, values, 0.0)]
    return Block(np.column_stack(columns), kept.index.to_numpy(dtype=np.intp))


def of_design(design: Design) -> Block:
    """The rows that are used, the columns of their design, their target, weights and offsets."""
    w, A, o = design.w, design.A, design.o
    targets = design.b[:, None]
    if design.classes > 2:
        targets = (targets == np.arange(design.classes)).astype(np.float64)
    columns = [np.ones((len(w), 1)), targets, A]
    if o.any():
        # an offset beside others, and its part of the sum of exposures
        columns += [o[:, None], np.exp(0.5 * (o - o.max()))[:, None]]
    if (w == 1).all():
        return _by_row(np.hstack(columns), design.index)
    weighted = np.sqrt(w)[:, None] * np.hstack(columns)
    return _by_row(np.hstack([weighted, np.ones((len(w), 1))]), design.index)


def of_combinations(design: Design, asked: Asked) -> Block:
    """Combinations of scaled columns, as they are computed: rounding has no place to hide in."""
    assert asked.scaling is not None
    A = design.A
    if asked.precise and asked.directions is not None and design.scaling is None:
        A = design.combine(asked.scaling, asked.directions)
        return _by_row(np.sqrt(design.w)[:, None] * A, design.index)
    if design.scaling is None:
        A = (A - asked.scaling.centre) / asked.scaling.scale
    if asked.directions is not None:
        A = A @ asked.directions
    return _by_row(np.sqrt(design.w)[:, None] * A, design.index)


@np.errstate(over="ignore", invalid="ignore")
def nothing_cancels(moments: Moments, scaling: Scaling, directions: Array | None) -> bool:
    """Whether combinations of scaled columns are in the columns' span with many digits.

    What their moments say is enough for that: no centre is so large that digits of a column are
    lost, and no combination is much shorter than its parts. Those that are not are looked at as
    they are computed.
    """
    sizes = np.sqrt(np.diag(moments.scatter) / moments.weight + np.square(moments.mean))
    if not (np.abs(scaling.centre) <= FARTHEST * np.maximum(sizes, SMALLEST)).all():
        return False
    if directions is None:
        return True
    mean = (moments.mean - scaling.centre) / scaling.scale
    gram = moments.scatter / np.outer(scaling.scale, scaling.scale)
    gram = gram + moments.weight * np.outer(mean, mean)
    squares = np.einsum("ij,ik,kj->j", directions, gram, directions)
    parts = np.sqrt(np.maximum(np.diag(gram), 0.0)) @ np.abs(directions)
    return bool((squares >= np.square(LEFT * parts)).all())


def _by_row(columns: Array, index: NDArray[np.intp]) -> Block:
    """Columns of the rows of a file: both rows of a group are one."""
    if (index[:-1] < index[1:]).all():
        return Block(columns, index)
    rows, first, inverse = np.unique(index, return_index=True, return_inverse=True)
    if len(rows) == len(index):
        return Block(columns, index)
    squares = np.zeros((len(rows), columns.shape[1]))
    np.add.at(squares, inverse, np.square(columns))
    signs = np.sign(columns[first])
    return Block(signs * np.sqrt(squares), rows)
