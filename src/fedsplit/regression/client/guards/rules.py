"""The rules under which a client answers, and what breaks them.

The client looks before it answers. Each finding is a warning, or an error if its rules, or the
request, ask for that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsplit.arrays import Array, Mask
from fedsplit.data.pooled.column_statistics import Withheld
from fedsplit.data.texts import Level
from fedsplit.errors import InputError, listed
from fedsplit.regression.client.design import (
    ROWS_AT_A_TIME,
    SMALLEST_CELL,
    Design,
    pieces,
)

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

LEAST, MOST = 1e-100, 1e100
"""A product that is rounded to 0 or to infinity is a condition on a row, and a server that may
choose the other factor chooses the condition. With all factors in this range that cannot happen to
a product of three of them."""


def in_range(sizes: Array) -> Mask:
    """Which of some sizes are 0, or can be multiplied."""
    found: Mask = (sizes == 0) | ((sizes >= LEAST) & (sizes <= MOST))
    return found


class Finding(NamedTuple):
    """Something about one client, or one of several fits."""

    name: str  # of what it is about
    one: str  # the whole sentence, where it is the only one of its kind
    many: str  # what follows the number of those that it is said of, where there are several
    detail: str  # how it is named among several
    rule: str = ""  # the key of a policy that it breaks, if it breaks one

    @classmethod
    def of_client(
        cls, name: str, what: str, many: str = "", detail: str = "", rule: str = ""
    ) -> Finding:
        """That a client has something, and what several have, with the detail of one."""
        one, many = f"client {name} has {what}", f"clients have {many or what}"
        return cls(name, one, many, f"{name} {detail}".strip(), rule)


def in_lines(findings: Iterable[Finding]) -> list[str]:
    """One line for each kind, with a count and the first few names, in the order of the first."""
    kinds: dict[str, list[Finding]] = {}
    for each in dict.fromkeys(findings):  # a rare level is found twice
        kinds.setdefault(each.many, []).append(each)
    lines = []
    for many, alike in kinds.items():
        details: dict[str, str] = {}
        for each in alike:
            details.setdefault(each.name, each.detail)  # the count is that of names
        if len(details) == 1:
            lines += [each.one for each in alike]
        else:
            lines.append(f"{len(details):,} {many}: {listed(details.values(), 3)}")
    # levels can have line breaks, and clients of other organisations send what they like
    return [" ".join(line.split())[:1000] for line in lines]


ALONE = 0.99
"""A row dominates a column if it has more than this share of the deviations from its median."""


def check_levels(client: str, column: str, counts: Mapping[Level, int]) -> None:
    """Raise InputError, strict or not, if the levels of a category, with their rows, are names."""
    rare = sum(n < SMALLEST_CELL for n in counts.values())
    if rare > 50:
        raise InputError(
            f"client {client}: column {column} has {rare} values in fewer than {SMALLEST_CELL} "
            "rows each: that is no category; leave it out, or group its values"
        )


def check_digits(client: str, names: Sequence[str], columns: Array) -> None:
    """Raise InputError if columns, (n, q), cannot be multiplied, or hold little but rounding.

    The rounding of a column whose mean is far from 0 can be chosen by a server, by the state of a
    function such as ``poly``, and tells more than the column.
    """
    check_range(client, names, columns)
    most = 1e6
    far = np.abs(columns.mean(axis=0)) > most * columns.std(axis=0)
    far &= np.ptp(columns, axis=0) > 0
    if far.any():
        name = names[int(np.argmax(far))]
        raise InputError(
            f"client {client}: the mean of {name} is more than {most:,.0f} standard deviations "
            "from 0, so that it holds little but rounding: subtract a constant from it"
        )


def check_range(client: str, names: Sequence[str], columns: Array) -> None:
    """Raise InputError if products of columns, (n, q), could be beyond float64."""
    unfit = ~in_range(np.abs(columns).max(axis=0, initial=0.0))
    if unfit.any():
        name = names[int(np.argmax(unfit))]
        raise InputError(
            f"client {client}: the largest value of {name} is not between {LEAST:g} and {MOST:g}: "
            "multiply it by a constant"
        )


def in_columns(
    client: str, n: int, levels: Mapping[str, Mapping[Level, int]], rules: Rules
) -> list[Finding]:
    """What a description of n rows could disclose: few rows, rare levels of categories."""
    found: list[Finding] = []
    if 0 < n < rules.rows:
        found.append(_few_rows(client, n, rules))
    cells = [
        (f"{column} = {level}", count)
        for column, counts in levels.items()
        for level, count in counts.items()
    ]
    return found + _small(client, cells, rules)


def in_rows(rows: Design, target: str | None, rules: Rules) -> list[Finding]:
    """What moments could disclose: many parameters, dominant weights, columns of one or two rows.

    A column of the design in which all rows but one or two are alike, such as a condition or an
    interaction, has their values in its cross products. ``target`` is the text of a target that is
    a condition, whose classes nobody has counted.
    """
    n = rows.rows
    parameters = rows.A.shape[1] * max(1, rows.classes - 1)
    found: list[Finding] = []
    if n >= rules.rows and parameters > rules.most_parameters(n):
        what = f"{n} rows for {parameters} parameters, more than {rules.share}"
        many = f"more parameters than {rules.share} of their rows"
        detail = f"has {n} rows for {parameters}"
        found.append(Finding.of_client(rows.name, what, many, detail, "parameters_per_row"))
    effective = rows.w.sum() ** 2 / np.square(rows.w).sum()
    # the weights of a grouped target are trials: a large group is no single row
    if rows.groups is None and effective < rules.rows <= n:
        weights = "weights that concentrate on"
        what = f"{weights} {effective:.1f} effective rows (minimum {rules.rows})"
        many = f"{weights} fewer than {rules.rows} rows"
        found.append(Finding.of_client(rows.name, what, many, f"on {effective:.1f}", "least_rows"))
    others = _unlike_others(rows.A)
    # rows of weight zero have gone since
    counted = bool((rows.w == 1).all())
    cells = []
    for column, count in zip(rows.plan.names, others, strict=True):
        is_level = column.endswith("]") and ":" not in column
        if not (counted and is_level):
            cells.append((column, int(count)))
    if target is not None and rows.family.classifies:
        for value, count in enumerate(np.bincount(rows.b.astype(np.intp), rows.times)):
            cells.append((f"{target} = {value}", int(count)))
    return found + _small(rows.name, cells, rules)


def in_sums(
    client: str, columns: Mapping[str, Array], sums: Mapping[str, int], rules: Rules
) -> list[Finding]:
    """What sums over rows could disclose: k sums of powers of n values are solved for n <= k.

    ``columns`` has the values that are summed, (n,), by the function that they are for, ``sums``,
    by column of the file, how many sums of functions of it there are in all.
    """
    found: list[Finding] = []
    cells = []
    for text, values in columns.items():
        n = len(values)
        if n == 0:
            continue
        if n < rules.rows:
            found.append(_few_rows(client, n, rules))
        else:
            found += [
                Finding.of_client(
                    client,
                    f"{n} rows for {count} sums of column {column}, more than {rules.share}",
                    f"more sums of column {column} than {rules.share} of their rows",
                    f"has {n} rows for {count}",
                    "parameters_per_row",
                )
                for column, count in sums.items()
                if count > rules.most_parameters(n)
            ]
        cells.append((text, int(_unlike_others(values[:, None])[0])))
    return list(dict.fromkeys(found)) + _small(client, cells, rules)


def _unlike_others(A: Array) -> NDArray[np.intp]:
    """In how many rows each column differs from its median; 1 if a single row dominates it.

    A count of at least ``SMALLEST_CELL`` may be too large.
    """
    if len(A) > ROWS_AT_A_TIME:
        found = np.full(A.shape[1], len(A))
        suspects = _may_be_alike(A)
        found[suspects] = _counted_unlike(A[:, suspects])
        return found
    return _counted_unlike(A)


def _counted_unlike(A: Array) -> NDArray[np.intp]:
    """The same, exactly."""
    away = np.abs(A - _median(A))
    dominated = (away.max(axis=0) > ALONE * away.sum(axis=0)) & away.any(axis=0)
    return np.where(dominated, 1, np.count_nonzero(away, axis=0))


def _median(A: Array) -> Array:
    """The medians of columns, (p,); for few rows this is several times as fast as NumPy's."""
    ordered = np.sort(A, axis=0)
    n = len(A)
    found: Array = 0.5 * (ordered[(n - 1) // 2] + ordered[n // 2])
    return found


def _may_be_alike(A: Array) -> Mask:
    """Which columns a few rows may stand out of, (p,): of the others no median is needed.

    If all rows but a few have the median, then so has the median of the first ones. The sum of all
    distances from the median m is at least half of their sum S from the mean, and |m - mean| ≤ S/n.
    """
    usual = _median(A[: 2 * SMALLEST_CELL + 1])
    mean = A.mean(axis=0)
    unlike = np.zeros(A.shape[1])
    total = np.zeros(A.shape[1])
    largest = np.zeros(A.shape[1])
    for some in map(A.__getitem__, pieces(len(A))):
        away = np.abs(some - mean)
        unlike += np.count_nonzero(some != usual, axis=0)
        total += away.sum(axis=0)
        largest = np.maximum(largest, away.max(axis=0))
    calm = largest + total / len(A) <= 0.5 * ALONE * total
    suspects: Mask = (unlike < SMALLEST_CELL) | ~calm
    return suspects


ADVICE = "leave the client out, or relax this rule"
"""What can be done in a fit about a rule that is broken."""


def refuse(found: Sequence[Finding], rules: Rules) -> None:
    """Raise the first finding as InputError, if the rules say so."""
    if rules.refuse and found:
        more = ""
        if len(found) > 1:
            more = f" (and {len(found) - 1} more)"
        rule = f" (rule {found[0].rule})" * bool(found[0].rule)
        raise InputError(f"{found[0].one}{more}{rule}: {ADVICE}")


def _few_rows(client: str, n: int, rules: Rules) -> Finding:
    """The finding that a client has this many rows."""
    many = f"fewer than {rules.rows} rows"
    return Finding.of_client(client, f"{n} rows, {many}", many, f"has {n}", "least_rows")


def _small(client: str, cells: Sequence[tuple[str, int]], rules: Rules) -> list[Finding]:
    """The finding, if there is one, that some of these cells have too few rows."""
    small = [f"{cell} in {n}" for cell, n in cells if 0 < n < rules.smallest]
    if not small:
        return []
    many, cases = f"fewer than {rules.smallest} rows of a kind", listed(small, 3)
    what = f"{many}: {cases}"
    return [Finding.of_client(client, what, many, f"({cases})", "smallest_group")]
