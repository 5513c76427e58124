"""The columns that a client has answered about, and whether they single out a few of its rows.

One rule covers all questions. Let U be the columns over all rows of a client whose sums it has
told, each of them zero outside of the rows that it was told of. No combination of them may live on
fewer than k rows (see ``leverage``). So two models of nearly the same rows, two values in the place
of a missing one, conditions, rows that recede, intervals with other ends, and a column beside one
that is nearly the same are all the same thing: a difference. The entries of a Gram matrix are sums
of products of two columns, so that these products obey the same rule, with a higher limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedsplit import files
from fedsplit.arrays import Array
from fedsplit.data.pooled.column_statistics import Statistic
from fedsplit.errors import InputError, StateError
from fedsplit.regression.client.design import Recession, Scaling
from fedsplit.regression.client.guards.blocks import Block
from fedsplit.regression.client.guards.leverage import Found, Span
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.regression.client.plan import Plan
from fedsplit.remote import codec


@dataclass(frozen=True)
class Asked:
    """What was asked for, from which its columns can be computed again.

    Attributes
    ----------
    plan : Plan
        By which rows are read, and coded unless there is a survey or there are statistics.
    survey : bool
        Whether the complete rows of each level were counted.
    statistics : mapping of str to Statistic
        Of functions such as ``poly``.
    recessions : tuple of Recession
        Only rows at rest along these are coded.
    scaling : Scaling or None
    directions : (p, r) array or None
        Combinations of the scaled columns.
    precise : bool
        Whether they are computed in twice the working precision.
    snapshot : int
        Which of the client's snapshots they are columns of.
    point : (p,) array or None
        Where predictions are counted.
    """

    plan: Plan
    survey: bool = False
    statistics: Mapping[str, Statistic] | None = None
    recessions: tuple[Recession, ...] = ()
    scaling: Scaling | None = None
    directions: Array | None = None
    precise: bool = False
    snapshot: int = 0
    point: Array | None = None

    @property
    def complete(self) -> frozenset[str]:
        """The columns that rows must have to be used."""
        derived = (set(column.plan.types) for column in self.plan.derived.values())
        return frozenset(self.plan.types).union(*derived)

    @property
    def same_rows(self) -> tuple[list[str], int]:
        """What says which rows are used."""
        return sorted(self.complete), self.snapshot

    @property
    def digest(self) -> str:
        """A name for it."""
        return sha256(codec.encode(self)).hexdigest()


class SinglesOut(InputError):
    """What is asked for would single out rows.

    Attributes
    ----------
    rows : list of int
        Those rows.
    """

    def __init__(self, message: str, rows: list[int]) -> None:
        super().__init__(message)
        self.rows = rows


class Told(NamedTuple):
    """All that a client has told.

    Attributes
    ----------
    columns : Span
        Of columns whose sums were told.
    products : Span
        The same with products of two columns.
    """

    columns: Span
    products: Span

    def grown(self, block: Block) -> Iterator[Told]:
        """With the columns of a block, and then with more and more of its products."""
        columns = self.columns.extended(block.columns, block.rows)
        products = self.products.extended(block.columns, block.rows)
        yield Told(columns, products)
        for some in block.products(block.pairs()):
            products = products.extended(some, block.rows)
            yield Told(columns, products)


NOTHING = Told(Span(), Span())


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
        self._told: Told | None = None
        self._known: set[str] = set()
        self._complete: set[frozenset[str]] = set()

    def admit(self, asked: Asked, block: Block, rules: Rules) -> None:
        """Take note of columns that are about to be told of.

        Raises
        ------
        SinglesOut
            If they, together with all others, single out fewer rows than the rules allow.
        """
        if not rules.refuse:
            return
        told = self._recalled()
        asked = self.of_now(asked)
        digest = asked.digest
        if digest in self._known:
            return
        told = self._grown(told, block, rules)
        # what cannot be written is not remembered either: it is not disclosed, and asked for again
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.write_private(self._folder / digest, codec.encode(asked))
        self._told = told
        self._known.add(digest)
        self._complete.add(asked.complete)

    def of_now(self, asked: Asked) -> Asked:
        """What is asked of the snapshot that is in use."""
        return replace(asked, snapshot=self._snapshot)

    def check(self, blocks: Iterable[Block], rules: Rules) -> None:
        """Raise InputError if columns would single out rows, told beside all others."""
        told = self._recalled()
        for block in blocks:
            told = self._grown(told, block, rules)

    def tells_more(self, block: Block) -> bool:
        """Whether some of the columns are not combinations of those that have been told."""
        told = self._recalled().columns
        return told.extended(block.columns, block.rows).rank > told.rank

    @property
    def rank(self) -> int:
        """How many different columns and products have been told of."""
        return self._recalled().products.rank

    def _grown(self, told: Told, block: Block, rules: Rules) -> Told:
        """What has been told, with a block; raises InputError if it singles out rows."""
        for wider in told.grown(block):
            self._check(told, wider, block, rules)
            told = wider
        return told

    def sometimes(self, asked: Asked) -> set[str]:
        """The columns that rows had to have for some answers, with this one, and not for others."""
        every = {*self._complete, asked.complete}
        return set(frozenset.union(*every) - frozenset.intersection(*every))

    def _check(self, before: Told, after: Told, block: Block, rules: Rules) -> None:
        """Raise SinglesOut if what has grown singles out rows."""
        n = int(np.count_nonzero(after.columns.leverages))
        if after.columns.rank > before.columns.rank:
            found = after.columns.concentrated(rules.smallest, rules.most_leverage(n))
            if found is not None:
                self._refuse("what is asked for", found, rules)
        if after.products.rank > before.products.rank:
            found = after.products.concentrated(rules.smallest, rules.most_of_products(n))
            if found is not None:
                self._refuse(f"a product of two columns{block.naming(found.rows)}", found, rules)

    def _refuse(self, what: str, found: Found, rules: Rules) -> None:
        """Raise the reason as the owner sees it."""
        rows = "row"
        if len(found.rows) > 1:
            rows = "rows"
        *others, last = (str(row + 1) for row in sorted(found.rows))
        numbers = " and ".join([", ".join(others), last][not others :])
        raise SinglesOut(
            f"client {self._client}: {what}, with all that was answered before, singles out {rows} "
            f"{numbers} (leverage {found.share:.6g}, fewer than {rules.smallest} rows; rules "
            "largest_leverage, smallest_group)",
            found.rows,
        )

    def _recalled(self) -> Told:
        """All that has been told, after a restart from what was asked for.

        It is complete, or an error: with a part of it, differences to the rest would be disclosed.
        """
        if self._told is None:
            told = NOTHING
            asked = self.records()
            if self._again is not None:
                for each in asked.values():
                    *_, told = told.grown(self._again(each))
            self._known = set(asked)
            self._complete = {each.complete for each in asked.values()}
            self._told = told
        return self._told

    def records(self) -> dict[str, Asked]:
        """All that was asked for, by its digest, from the files that keep it.

        What was asked for while there were no snapshots is no part of what is known of these: its
        rows may have been others.
        """
        if self._folder is None or not self._folder.is_dir():
            return {}
        found = {path.name: _read(path) for path in sorted(self._folder.glob("[0-9a-f]" * 64))}
        frozen = self._snapshot > 0
        return {name: asked for name, asked in found.items() if (asked.snapshot > 0) == frozen}


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
