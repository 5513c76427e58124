"""The clients of a fit on a Ray cluster: each worker reads the files of its share."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from fedsplit.clients.ray import RayChannel, shares
from fedsplit.regression.cohort import SiloCohort
from fedsplit.regression.silo import Silo
from fedsplit.silos.sources import sources


@contextmanager
def workers(data: object, group: str | None, cohorts: int | None, address: str | None) -> Iterator[RayChannel]:
    """Workers for the clients of ``data``, as ``fit`` takes it; paths travel, and frames where there are any."""
    data = _absolute(data)
    names = [source.name for source in sources(data, group)]
    parts = [[names[j] for j in share] for share in shares(len(names), cohorts, address)]
    makes = [partial(_cohort, data, group, part) for part in parts]
    channel = RayChannel(makes, parts, SiloCohort.kinds, address)
    try:
        yield channel
    finally:
        channel.close()


def _cohort(data: object, group: str | None, names: Sequence[str]) -> SiloCohort:
    return SiloCohort([Silo(source) for source in sources(data, group) if source.name in names])


def _absolute(data: object) -> object:
    """Paths that mean the same in every process."""
    if isinstance(data, str | os.PathLike):
        return str(Path(data).absolute())
    if isinstance(data, Mapping):
        return {name: _absolute(item) for name, item in data.items()}
    return [_absolute(item) for item in data] if isinstance(data, list | tuple) else data
