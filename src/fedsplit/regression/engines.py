"""The engines: where the clients of a fit or of a problem can run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from fedsplit.channels.channel import Channel, LocalChannel
from fedsplit.clients.oracle import Clients
from fedsplit.errors import InputError
from fedsplit.problem import Problem

# Imported by the functions that need them: Ray is an extra, and pandas, which cohorts and sources
# need, takes a second that the other commands would pay for.
if TYPE_CHECKING:
    from fedsplit.data.tables import Source
    from fedsplit.regression.client.dataset_cohort import DatasetCohort


class Engine(NamedTuple):
    """How to run clients in one place."""

    # opens a channel to the clients of a fit: of their sources, with a number of workers (None is
    # one per core) at the address of a cluster (None is this machine)
    of_sources: Callable[
        [Sequence[Source], int | None, str | None], AbstractContextManager[Channel]
    ]
    # opens the clients of a problem, with the same two
    of_problem: Callable[[Problem, int | None, str | None], AbstractContextManager[Clients]]


def _local_sources(
    sources: Sequence[Source], workers: int | None, address: str | None
) -> AbstractContextManager[Channel]:
    _refuse_cluster(workers, address)
    return nullcontext(LocalChannel(cohort_of(sources)))


def _local_problem(
    problem: Problem, workers: int | None, address: str | None
) -> AbstractContextManager[Clients]:
    _refuse_cluster(workers, address)
    return nullcontext(problem.clients)


def _refuse_cluster(workers: int | None, address: str | None) -> None:
    if workers is not None or address is not None:
        raise InputError("workers and an address need a cluster: use the engine ray")


@contextmanager
def _ray_sources(
    sources: Sequence[Source], workers: int | None, address: str | None
) -> Iterator[Channel]:
    """Each worker reads the files of its clients: only paths travel, and frames where given."""
    from fedsplit.channels.ray.cluster import connect
    from fedsplit.channels.ray.workers import RayChannel, shares

    connect(address)
    parts = [[sources[j] for j in share] for share in shares(len(sources), workers)]
    names = [[source.name for source in part] for part in parts]
    channel = RayChannel([partial(cohort_of, part) for part in parts], names)
    try:
        yield channel
    finally:
        channel.close()


def _ray_problem(
    problem: Problem, workers: int | None, address: str | None
) -> AbstractContextManager[Clients]:
    from fedsplit.channels.ray.ray_clients import RayClients

    return RayClients(problem, cohorts=workers, address=address, measured=True)


def cohort_of(sources: Sequence[Source]) -> DatasetCohort:
    """The clients of these sources in this process."""
    from fedsplit.regression.client.dataset import Dataset
    from fedsplit.regression.client.dataset_cohort import DatasetCohort

    return DatasetCohort([Dataset(source) for source in sources])


ENGINES = {
    "local": Engine(_local_sources, _local_problem),
    "ray": Engine(_ray_sources, _ray_problem),
}
"""Every engine by the name that ``fit``, the command line and the documentation use."""
