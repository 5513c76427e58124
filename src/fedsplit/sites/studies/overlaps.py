"""Studies whose sums, taken together, are about a client or two.

A sum over some clients, and the same sum over one client more, give that client's part: no mask can
hide it, and the client itself may not know of the other study. Those who are in both can see it. In
general the server can form every linear combination of the sums that it has seen. A client that
takes part in an open study is a sum of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import combinations
from typing import NamedTuple, TypeAlias

import numpy as np

from fedsplit.arrays import Array
from fedsplit.channels.summed import FEWEST
from fedsplit.sites.studies.study import Study

Group: TypeAlias = frozenset[str]
"""Some clients, by name."""


class Sums(NamedTuple):
    """What the server learns in one study.

    Attributes
    ----------
    study : str
        Its hash.
    columns : collection of str
        What the sums are about.
    groups : tuple of Group
        The clients whose answers are added up, in one sum after another.
    """

    study: str
    columns: Collection[str]
    groups: tuple[Group, ...]


class Exposure(NamedTuple):
    """Fewer clients than may be added whose sum the server can compute.

    Attributes
    ----------
    clients : tuple of str
    studies : tuple of str
        The hashes of the earlier studies by which it can.
    """

    clients: tuple[str, ...]
    studies: tuple[str, ...]


def sums_of(study: Study, sets: Iterable[Iterable[str]] = ()) -> Sums:
    """What the server learns in a study.

    Parameters
    ----------
    study : Study
    sets : iterable of iterable of str
        With secure sums, the clients whose answers were added up; by default all members.
    """
    groups = tuple(frozenset(each) for each in sets) or (frozenset(study.members),)
    if not study.secure:
        groups = tuple(frozenset([name]) for name in study.members)
    return Sums(study.hash, study.columns, groups)


def exposed(new: Sums, earlier: Iterable[Sums]) -> list[Exposure]:
    """The clients that a study exposes, together with earlier ones.

    Parameters
    ----------
    new : Sums
    earlier : iterable of Sums
        Those that this client has taken part in.
    """
    found: dict[Group, Exposure] = {}
    known = list(earlier)
    for column in new.columns:
        related = [each for each in known if column in each.columns]
        groups = [group for each in related for group in each.groups]
        more = told([*groups, *new.groups]) - told(groups) - set(new.groups)
        for clients in more - set(found):
            alone = [each for each in related if clients in told([*each.groups, *new.groups])]
            studies = tuple(each.study for each in alone[:1] or related)
            found[clients] = Exposure(tuple(sorted(clients)), studies)
    return sorted(found.values())


def told(groups: Sequence[Group]) -> set[Group]:
    """The groups of fewer clients than may be added whose sum follows from sums over groups.

    A sum of some clients c with coefficients follows if it is a combination of the rows of the
    matrix that says who is in which group: without the columns c its rank is smaller.
    """
    found = {group for group in groups if len(group) == 1}
    known = frozenset().union(*found)
    rest = [group - known for group in groups if not group <= known]
    # clients that are in the same groups are one column
    alike: dict[tuple[bool, ...], list[str]] = defaultdict(list)
    for name in sorted(frozenset().union(*rest)):
        alike[tuple(name in group for group in rest)].append(name)
    matrix = np.array(list(alike), dtype=np.float64)
    rank = _rank(matrix)
    few = [(at, names) for at, names in enumerate(alike.values()) if len(names) < FEWEST]
    for chosen in [*combinations(few, 1), *combinations(few, 2)]:
        clients = frozenset(name for _, names in chosen for name in names)
        if len(clients) >= FEWEST or any(each <= clients for each in found):
            continue
        if rank > _rank(np.delete(matrix, [at for at, _ in chosen], axis=0)):
            found.add(clients)
    return found


def _rank(matrix: Array) -> int:
    return int(np.linalg.matrix_rank(matrix)) if matrix.size else 0
