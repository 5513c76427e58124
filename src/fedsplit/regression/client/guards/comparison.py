"""What is told of a design beside all that was told of the same rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsplit.arrays import Array
from fedsplit.errors import InputError
from fedsplit.regression.client.design import Design
from fedsplit.regression.client.guards.differences import Differences
from fedsplit.regression.client.guards.leverage import Found
from fedsplit.regression.client.guards.rules import Rules
from fedsplit.regression.client.guards.slopes import MOMENTS, Slopes, by_row


class Comparison:
    """Compares vectors over the rows of a design with those that were told before.

    Parameters
    ----------
    design : Design
    told : Slopes
        What was told of the client's rows, whatever the model.
    rules : Rules
    """

    def __init__(self, design: Design, told: Slopes, rules: Rules) -> None:
        self._design = design
        self._told = told
        self._rules = rules
        # both rows of a group are one row of the file, with the same columns
        self._index, self._first, self._places = np.unique(
            design.row_ids, return_index=True, return_inverse=True
        )
        self._own = self._added(_own(design))
        self._differences: Differences | None = None

    def found(self, kind: str, vectors: Sequence[Array]) -> Found | None:
        """Rows of which a difference of a new vector, (n,), and others is told."""
        if not vectors:
            return None
        if self._differences is None:
            A = self._design.restored().A[self._first]
            most = self._rules.most_of_combinations
            self._differences = Differences(A, self._rules.smallest, most)
        earlier = self._told.earlier(self._index)
        for vector in self._added(vectors).T:
            found = self._differences.found(vector, earlier, self._own, kind == "weights")
            if found is not None:
                return found._replace(rows=self._index[found.rows].tolist())
            earlier = np.column_stack([earlier, vector])
        return None

    def admit_moments(self) -> None:
        """Take note of what the moments of the design are sums of.

        Raises InputError if it, with what was told at points, singles out rows.
        """
        w = self._design.w
        every = {"weights": w}
        if self._design.family.quadratic:
            every["slopes"] = w * (self._design.b - self._design.o)
        for kind, vector in every.items():
            moments = {MOMENTS: by_row([vector], self._design.row_ids)}
            # points of these columns are compared with what is known already
            if self._told.points and not self._told.has(moments):
                found = self.found(kind, [vector])
                if found is not None:
                    raise InputError(
                        f"client {self._design.name}: few rows carry the difference of "
                        f"its moments to what was told at points ({len(found.rows)}, with a "
                        f"share of {found.share:.6g})"
                    )
            self._told.add(moments, {})

    def _added(self, vectors: Sequence[Array]) -> Array:
        """Vectors by row of the file, (m, q)."""
        found = np.zeros((len(self._index), len(vectors)))
        np.add.at(found, self._places, np.column_stack(vectors))
        return found


def _own(design: Design) -> list[Array]:
    """What the moments of a design, or those of a gaussian model of it, are sums of, each (n,)."""
    w, b = design.w, design.b
    if design.classes > 2:
        return [w, *(w * (b == each) for each in range(design.classes))]
    return [w, w * b]
