"""The clients of a fit on a Ray cluster: each worker reads the files of its share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from fedsplit.data.client_data import Source
from fedsplit.data.sources import sources
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.remote.ray.cluster import connect
from fedsplit.remote.ray.workers import RayChannel, shares


@contextmanager
def workers(
    data: object, group: str | None, cohorts: int | None, address: str | None
) -> Iterator[RayChannel]:
    """Workers for the clients of ``data``, as ``fit`` takes it; paths travel, and frames where there are any."""
    found = sources(data, group)
    connect(address)
    parts = [[found[j] for j in share] for share in shares(len(found), cohorts)]
    names = [[source.name for source in part] for part in parts]
    channel = RayChannel([partial(_cohort, part) for part in parts], names)
    try:
        yield channel
    finally:
        channel.close()


def _cohort(share: Sequence[Source]) -> DatasetCohort:
    return DatasetCohort([Dataset(source) for source in share])
