"""The rules under which a client answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fedsplit.arrays import Array
from fedsplit.data.pooled.column_statistics import Withheld
from fedsplit.errors import InputError
from fedsplit.regression.client.design import SMALLEST_CELL

NO_DIRECTIONS = "its rules allow no question about a direction of the server's choice"


@dataclass(frozen=True)
class Rules:
    """What a client tells of its rows, and what it does not.

    Without rules of its owner a client has the default ones, which only warn.
    """

    # Whether an answer that breaks a rule is refused, rather than sent with a warning. Only then
    # sums are rounded, and what is disclosed is recorded.
    refuse: bool = False
    smallest: int = SMALLEST_CELL  # k: no answer may describe fewer rows than this by themselves
    rows: int = 10  # the least number of rows that are described at all
    parameters: float = 1 / 3  # the greatest number of parameters per row
    # the greatest leverage h that a row may have in all that was disclosed (see ``leverage``); None
    # reports it to the owner, and refuses nothing
    leverage: float | None = None
    # A column that says whose row each is: the leverage is then that of all rows of a person
    person: str | None = None
    # the greatest |a_iᵀx + o_i| of a row at a point that is asked about, unless the loss is
    # quadratic; in units of the target where it has units
    predictor: float = 40.0
    points: int = 1_000  # how many different questions about the same rows are answered
    matrices: bool = True  # whether matrices are told in every round, and not for proofs only

    @classmethod
    def strict(cls) -> Rules:
        """The rules of ``--strict``."""
        return cls(refuse=True)

    def asked(self, strict: bool) -> Rules:
        """The rules for a request: a server may ask for refusals, and not for warnings only."""
        # asked of every client of a cohort: nothing is copied where nothing changes
        return self if self.refuse or not strict else replace(self, refuse=True)

    def check_size(self, client: str, eta: Array) -> None:
        """Raise InputError for predictors of a client's rows that are too far out."""
        size = float(np.abs(eta).max(initial=0.0))
        if not size <= self.predictor:
            raise InputError(
                f"client {client}: at a point that was asked about, |a_iᵀx + o_i| is {size:.3g}, "
                f"above {self.predictor:g}"
            )

    @property
    def withheld(self) -> Withheld:
        """Which counts of a histogram are not told."""
        return Withheld(self.smallest, self.refuse)

    def most_parameters(self, n: int) -> int:
        """The greatest number of parameters of a model of n rows."""
        return math.floor(self.parameters * n + 1e-9)

    @property
    def share(self) -> str:
        """``parameters`` in words."""
        in_words = {1 / 3: "a third", 0.1: "a tenth"}
        return in_words.get(self.parameters, f"{self.parameters:g}")


WARN = Rules()
"""Those of a client whose owner has given none."""
