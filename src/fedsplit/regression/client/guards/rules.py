"""The rules under which a client answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fedsplit.arrays import Array
from fedsplit.data.pooled.column_statistics import Withheld
from fedsplit.errors import InputError
from fedsplit.regression.client.design import SMALLEST_CELL

FEWEST_ROWS = 10
"""Answers of a client with fewer rows could disclose single ones."""

SHARE = 1 / 3
"""Answers of a client with more parameters per row could disclose single rows."""

SHARES = {1 / 3: "a third", 0.1: "a tenth"}
"""In words."""


NO_PROMISE = (
    "No rule can promise that nothing is learnt of a person. Sums over several rows are told, and "
    "they narrow down what each of these rows can be, the more so with every study. Who knows the "
    "other rows of a sum, or other columns of a row, can work out the rest. That something was "
    "refused, and how long an answer took, says a little too."
)
"""In the same words in the help and the terms of a client, and in docs/guards.md."""


@dataclass(frozen=True)
class Rules:
    """What a client tells of its rows, and what it does not.

    Without rules of its owner a client has the default ones, which only warn.

    Attributes
    ----------
    refuse : bool
        Whether an answer that breaks a rule is refused, rather than sent with a warning. Only
        then sums are rounded, and what is disclosed is recorded.
    smallest : int
        k: no answer may describe fewer rows than this by themselves.
    rows : int
        The least number of rows that are described at all.
    parameters : float
        The greatest number of parameters per row.
    leverage : float or None
        The greatest leverage h that a row may have in all that was disclosed (see ``leverage``);
        None reports it to the owner, and refuses nothing.
    person : str or None
        A column that says whose row each is: the leverage is then that of all rows of a person.
    predictor : float
        The greatest |a_iᵀx + o_i| of a row at a point that is asked about, unless the loss is
        quadratic; in units of the target where it has units.
    points : int
        How many different questions about the same rows are answered.
    refusals : int
        After so many refusals that depend on the data nothing is answered until the owner has
        looked.
    matrices : bool
        Whether matrices are told in every round, and not for proofs only.
    families : tuple of str or None
        The families of models that are taken part in; None for all.
    allowed : tuple of str or None
        Patterns of the columns that a study may use, as in ``lab_*``; None for all.
    denied : tuple of str
        Patterns of those that it may not.
    sites : int
        The fewest clients of a study, also after removals.
    secure : bool
        Whether a study must let the server learn nothing but sums over clients.
    partners : tuple of pairs of str or None
        With secure sums, the clients that a study may have beside this one, with the fingerprints
        of their keys; None for those that the owner approves with a study.
    removal : bool
        With secure sums, whether a study may go on without this client: the server can then tell
        its answers from the difference of two sums.
    private : bool
        Whether a study must have noise, for differential privacy.
    epsilon : float or None
        The most ε of all studies with noise together.
    delta : float
        The most δ of them, where noise is required or ε limited.
    studies, questions : int or None
        The most studies of which a first question is answered, and the most questions that are
        answered, on one day (UTC).
    """

    refuse: bool = False
    smallest: int = SMALLEST_CELL
    rows: int = FEWEST_ROWS
    parameters: float = SHARE
    leverage: float | None = None
    person: str | None = None
    predictor: float = 40.0
    points: int = 1_000
    refusals: int = 3
    matrices: bool = True
    families: tuple[str, ...] | None = None
    allowed: tuple[str, ...] | None = None
    denied: tuple[str, ...] = ()
    sites: int = 1
    secure: bool = False
    partners: tuple[tuple[str, str], ...] | None = None
    removal: bool = False
    private: bool = False
    epsilon: float | None = None
    delta: float = 1e-3
    studies: int | None = None
    questions: int | None = None

    @classmethod
    def strict(cls) -> Rules:
        """The rules of ``--strict``."""
        return cls(refuse=True)

    def asked(self, strict: bool) -> Rules:
        """The rules for a request: a server may ask for refusals, and not for warnings only."""
        # asked of every client of a cohort: nothing is copied where nothing changes
        return self if self.refuse or not strict else replace(self, refuse=True)

    @property
    def limits_noise(self) -> bool:
        """Whether the owner relies on what noise promises."""
        return self.private or self.epsilon is not None

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
        return SHARES.get(self.parameters, f"{self.parameters:g}")


WARN = Rules()
"""Those of a client whose owner has given none."""
