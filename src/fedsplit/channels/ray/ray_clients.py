"""The clients of a problem, or of ``.npz`` files, on a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedsplit.arrays import Array
from fedsplit.channels.channel import Cohort, Request
from fedsplit.channels.clients import RemoteClients
from fedsplit.channels.cohort import Fingerprint, ProblemCohort
from fedsplit.channels.members import Members
from fedsplit.channels.patience import Patience
from fedsplit.channels.ray.cluster import connect
from fedsplit.channels.ray.workers import RayChannel, shares
from fedsplit.checks import count, instance
from fedsplit.errors import InputError, TooFewClients, listed
from fedsplit.files import check_archive
from fedsplit.losses.terms import Loss
from fedsplit.problem import Problem

ARRAYS = ("A", "b", "weights", "offset")
"""The arrays that a client's file may hold; the first two are required."""


class RayClients(RemoteClients):
    """The clients of a problem on a Ray cluster, one cohort per worker.

    ``solve`` takes them like a problem. A worker answers for its cohort with the in-process
    clients, so the results are the same to the bit. A worker that dies is created again from its
    source. ``close()``, or the end of a ``with`` block, ends the workers.

    Parameters
    ----------
    source : Problem, or sequence of paths
        A problem, whose arrays travel to the workers once; or one ``.npz`` file per client, with
        ``A`` and ``b``, and optionally ``weights`` and ``offset``, at paths that the workers can
        read: only the paths travel.
    loss : Loss
        With paths.
    ridge : float or (d,) array
        With paths, as in ``Problem``.
    cohorts : int, optional
        How many workers; one for each core of Ray's where None. Never more than clients.
    address : str, optional
        Of a running cluster, such as ``"host:6379"``, ``"ray://host:10001"`` or ``"auto"``. None
        starts Ray on this machine, until the process ends. An existing connection is used.
    memory : int, optional
        The most bytes that a worker may use for its share (Linux).
    patience : Patience, optional
        How long to wait for workers.
    measured : bool
        Whether to ask for the objective after every round, for the trace.
    """

    def __init__(
        self,
        source: Problem | Sequence[str | os.PathLike[str]],
        *,
        loss: Loss | None = None,
        ridge: float | Sequence[float] | Array = 0.0,
        cohorts: int | None = None,
        address: str | None = None,
        memory: int | None = None,
        patience: Patience | None = None,
        measured: bool = False,
    ) -> None:
        if memory is not None:
            count("memory", memory)
        patience = patience or Patience()
        paths: list[str] = []
        made: Iterator[Callable[[], Cohort] | ProblemCohort]
        if isinstance(source, Problem):
            connect(address)
            parts = shares(source.m, cohorts)
            # one at a time: each is a copy of its share
            made = (cohort(part, source.part(part)) for part in parts)
        else:
            paths = check_paths(source, loss)
            connect(address)
            parts = shares(len(paths), cohorts)
            made = (
                partial(read_cohort, part, paths[part.start : part.stop], loss, ridge)
                for part in parts
            )
        self.channel = RayChannel(made, [[str(j) for j in part] for part in parts], memory)
        try:
            # workers may take two minutes to start and to load their share, whatever the patience
            found = self._fingerprints(max(120.0, patience.give_up))
        except BaseException:
            self.close()
            raise
        d = [values.shape[1] - 1 for values in found.values()]
        for at, part in enumerate(parts):
            if d[at] != d[0]:
                self.close()
                raise InputError(
                    f"{paths[part.start]}: x has {d[at]} entries here, and {d[0]} in {paths[0]}"
                )
        members = Members(self.channel, patience)
        preparations = {at: Fingerprint() for at in members.cohorts}
        super().__init__(members, d[0], dict(preparations), dict.fromkeys(members.cohorts, ""))
        self._identified = dict(found)
        self._prepared = set(found)
        self.free = measured
        loss = source.loss if isinstance(source, Problem) else loss
        self.hessians = getattr(loss, "exact_hessian", True)

    def __enter__(self) -> RayClients:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        self.channel.close()

    def _fingerprints(self, timeout: float) -> dict[int, Array]:
        """What identifies each cohort's data: the workers run, and have loaded them."""
        everybody = range(len(self.channel.names))
        replies = self.channel.ask(dict.fromkeys(everybody, Request(Fingerprint())), timeout)
        for at, reply in replies.items():
            if reply.outcome == "refused":
                raise InputError(reply.text)
            if reply.outcome != "answer":
                names = listed(self.channel.names[at])
                raise TooFewClients(f"client {names}: {reply.text}, in {timeout:g} seconds")
        return {at: reply.value for at, reply in replies.items()}


def check_paths(source: Any, loss: Loss | None) -> list[str]:
    """Return the files that a user named as absolute paths; they need a loss beside them."""
    listing = isinstance(source, Sequence) and not isinstance(source, str) and len(source) > 0
    if not listing or not all(isinstance(path, str | os.PathLike) for path in source):
        raise InputError(
            f"RayClients takes a problem or a list of .npz files, not {type(source).__name__}"
        )
    if loss is None:
        raise InputError("RayClients: files need a loss, such as loss=LeastSquares()")
    instance("loss", loss, "a Loss", "stack")
    return [str(Path(path).absolute()) for path in source]


def read_cohort(share: range, paths: Sequence[str], loss: Any, ridge: Any) -> ProblemCohort:
    """Read the files of clients.

    Parameters
    ----------
    share : range
        The numbers of these clients among all.
    paths : sequence of str
        Their files.
    loss, ridge
        As in ``Problem``.
    """
    data = [_read(path) for path in paths]
    try:
        problem = Problem(loss, data, ridge)
    except InputError as error:
        raise InputError(f"{_at_fault(paths, data, loss, ridge)}: {error}") from None
    return cohort(share, problem)


def cohort(share: range, problem: Problem) -> ProblemCohort:
    """Return the clients of a problem as a cohort; they are numbered as in the whole."""
    return ProblemCohort([str(j) for j in share], problem.among)


def _read(path: str) -> tuple[Array | None, ...]:
    """Return the arrays of a client in the order of ``ARRAYS``, None for those it does not have."""
    try:
        check_archive(Path(path))
        with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files if name in ARRAYS}
            names = list(file.files)
    except (InputError, MemoryError):
        raise
    except Exception as error:  # a damaged archive can raise almost anything
        what = " ".join(str(error).split())[:300]
        raise InputError(f"{path}: cannot be read as an .npz file ({what})") from None
    if not set(ARRAYS[:2]) <= set(names) <= set(ARRAYS):
        raise InputError(
            f"{path}: holds {listed(names)}; it must hold A and b, and may hold weights and offset"
        )
    return tuple(found.get(name) for name in ARRAYS)


def _at_fault(paths: Sequence[str], data: Sequence[object], loss: Any, ridge: Any) -> str:
    """Return the first file that is refused on its own, or all of them."""
    for path, client in zip(paths, data, strict=True):
        try:
            Problem(loss, [client], ridge)
        except InputError:
            return path
    return listed(paths)
