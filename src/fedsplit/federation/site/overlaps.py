"""Studies whose sums, taken together, are about a site or two.

A sum over some sites, and the same sum over one site more, give that site's part: no mask can hide
it. Whoever has several sums can form every linear combination of them. A member of an open study is
a sum of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from typing import TypeAlias

import numpy as np

from fedsplit.arrays import Array
from fedsplit.channels.summed import FEWEST
from fedsplit.federation.study import Study

Group: TypeAlias = frozenset[str]
"""Some sites, by name."""


def exposed(new: Study, earlier: Sequence[Study]) -> dict[tuple[str, ...], tuple[str, ...]]:
    """The sites of which a study exposes what they sent, each with the earlier studies' hashes.

    Fewer sites than may be added, whose sum follows from this study and earlier ones together, but
    not from the earlier ones alone.
    """
    found: dict[tuple[str, ...], tuple[str, ...]] = {}
    for column in new.analysis.columns:
        related = [each for each in earlier if column in each.analysis.columns]
        groups = [group for each in related for group in _sums(each)]
        for sites in followed([*groups, *_sums(new)]) - followed(groups) - set(_sums(new)):
            alone = [each for each in related if sites in followed([*_sums(each), *_sums(new)])]
            hashes = tuple(each.hash for each in alone[:1] or related)
            found.setdefault(tuple(sorted(sites)), hashes)
    return dict(sorted(found.items()))


def followed(groups: Sequence[Group]) -> set[Group]:
    """The groups of fewer sites than may be added whose sum follows from sums over groups.

    A sum of some sites c with coefficients follows if it is a combination of the rows of the matrix
    that says who is in which group: without the columns c its rank is smaller.
    """
    found = {group for group in groups if len(group) == 1}
    known = frozenset().union(*found)
    rest = [group - known for group in groups if not group <= known]
    alike: dict[tuple[bool, ...], list[str]] = defaultdict(list)
    for name in sorted(
        frozenset().union(*rest)
    ):  # sites that are in the same groups are one column
        alike[tuple(name in group for group in rest)].append(name)
    matrix = np.array(list(alike), dtype=np.float64)
    few = [(at, names) for at, names in enumerate(alike.values()) if len(names) < FEWEST]
    for chosen in [*combinations(few, 1), *combinations(few, 2)]:
        sites = frozenset(name for _, names in chosen for name in names)
        if len(sites) >= FEWEST or any(each <= sites for each in found):
            continue
        if _rank(matrix) > _rank(np.delete(matrix, [at for at, _ in chosen], axis=0)):
            found.add(sites)
    return found


def _sums(study: Study) -> list[Group]:
    """The sites over which answers of a study are added up."""
    if study.secure:
        return [frozenset(study.members)]
    return [frozenset([name]) for name in study.members]


def _rank(matrix: Array) -> int:
    return int(np.linalg.matrix_rank(matrix)) if matrix.size else 0
