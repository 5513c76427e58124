"""Clients on a Ray cluster: workers that answer for cohorts, each on its own share of the data."""

from __future__ import annotations

import os
import pickle
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from fedsplit import threads
from fedsplit.arrays import Array
from fedsplit.checks import count
from fedsplit.clients.questions import CostQuestion
from fedsplit.errors import InputError, TooFewClients, listed
from fedsplit.losses.terms import Loss
from fedsplit.problem import Problem
from fedsplit.remote.channel import SILENT, Cohort, Reply, Request, Unprepared
from fedsplit.remote.clients import RemoteClients
from fedsplit.remote.cohort import Fingerprint, ProblemCohort
from fedsplit.remote.members import Members, Patience
from fedsplit.remote.ray.arrays import check_paths, cohort, of_files
from fedsplit.remote.ray.cluster import (
    ActorDiedError,
    RayError,
    RayTaskError,
    cloudpickle,
    connect,
    one_line,
    ray,
)
from fedsplit.threads import one_blas_thread

RESTARTS = 20
"""How often a worker that died is made again from its source, and a question that it left open repeated."""

START = 120.0
"""Seconds that workers may take to start and to load their share, or longer where the patience is."""

SLICE = 60.0
"""The longest wait in one piece, in seconds."""


class Worker:
    """A cohort in a process of its own; ``make`` builds it from its source, again where the process has died.

    Without one, the cohort comes with the question that settles it. ``memory`` is how many bytes the worker may take
    beside what the process has at its start.
    """

    def __init__(self, make: Callable[[], Cohort] | None, memory: int | None) -> None:
        one_blas_thread().__enter__()  # for as long as the process lives
        threads.WORKERS = 1  # the other cores have workers of their own
        if memory is not None:
            _limit(memory)
        self._make, self._memory = make, memory
        self._cohort: Cohort | None = None

    def answer(self, request: Request, cohort: Cohort | None = None) -> Reply:
        """The reply; what a user can mend is told, anything else is the caller's to see."""
        try:
            return Reply("answer", self._ready(request, cohort).answer(request))
        except Unprepared:
            return Reply("unprepared")
        except InputError as error:
            return Reply("refused", text=str(error))
        except MemoryError:
            return Reply("refused", text=_too_small(self._memory))

    def pid(self) -> int:
        """The process."""
        return os.getpid()

    def _ready(self, request: Request, cohort: Cohort | None) -> Cohort:
        """The cohort. One that was lost has to be settled before its rounds go on: its source may have changed."""
        if cohort is not None:
            self._cohort = cohort
        in_rounds = isinstance(request.question, CostQuestion)
        if self._cohort is None and (self._make is None or in_rounds):
            raise Unprepared
        if self._cohort is None:
            assert self._make is not None
            self._cohort = self._make()
        return self._cohort


class RayChannel:
    """Workers, one for each share of the clients, asked all at once.

    A share is how a worker makes its cohort, or the cohort itself, which then travels to it. Workers reserve no core
    while they run, so that there may be more of them than cores, and the user's own tasks beside them.
    """

    free = False
    recorded = True

    def __init__(
        self,
        shares: Iterable[Callable[[], Cohort] | ProblemCohort],
        names: Sequence[Sequence[str]],
        memory: int | None = None,
    ) -> None:
        self.names = names
        self.workers: list[Any] = []
        self._memory = memory
        actor = ray.remote(
            max_restarts=RESTARTS, max_task_retries=RESTARTS, scheduling_strategy="SPREAD"
        )(Worker)
        self._cohorts: list[Any] = []
        self._open = True
        try:
            for share in shares:
                travels = isinstance(share, ProblemCohort)
                if memory is not None and _size(share) > memory:
                    raise InputError(_too_small(memory))
                self._cohorts.append(ray.put(share) if travels else None)
                self.workers.append(actor.remote(None if travels else share, memory))
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            self.close()
            raise InputError(
                f"Ray cannot send the clients to a worker: {one_line(error)}"
            ) from None
        except BaseException:
            self.close()
            raise

    def ask(self, requests: Mapping[int, Request], timeout: float) -> dict[int, Reply]:
        if not self._open or not ray.is_initialized():
            raise InputError("the workers on Ray are closed: make the clients anew")
        began = time.perf_counter()
        waiting: dict[Any, int] = {}
        replies: dict[int, Reply] = {}
        try:
            for at, request in requests.items():
                cohort = self._cohorts[at] if request.question.prepares else None
                waiting[self.workers[at].answer.remote(request, cohort)] = at
            while waiting and (left := timeout - (time.perf_counter() - began)) > 0:
                ready, _ = ray.wait(list(waiting), timeout=min(left, SLICE))
                for reference in ready:
                    at = waiting.pop(reference)
                    replies[at] = self._fetched(reference, at)._replace(
                        seconds=time.perf_counter() - began
                    )
        except ConnectionError as error:
            raise InputError(f"the connection to Ray is lost: {one_line(error)}") from None
        finally:
            for reference in (
                waiting if ray.is_initialized() else ()
            ):  # what has not begun is not to hold up the next
                with suppress(RayError, ValueError, TypeError):
                    ray.cancel(reference)
        return dict.fromkeys(requests, SILENT) | replies

    def _fetched(self, reference: Any, at: int) -> Reply:
        """A worker's reply that has come, or why there is none."""
        try:
            reply: Reply = ray.get(reference, timeout=SLICE)
        except (
            RayTaskError
        ) as error:  # the same question has the same answer: asking again is no use
            if isinstance(error.cause, np.linalg.LinAlgError | ArithmeticError):
                raise error.cause from None  # as in this process, where the run diverges
            what = f"{type(error.cause).__name__}: {one_line(error.cause)}"
            return Reply("refused", text=f"client {listed(self.names[at])}: {what}")
        except ActorDiedError as error:
            if error.actor_init_failed:
                return Reply("refused", text=f"a worker cannot start: {one_line(error)}")
            return Reply(
                "failed", text=f"its worker keeps dying: {_limited(self._memory)} may be too small"
            )
        except RayError as error:
            return Reply("failed", text=f"{type(error).__name__}: {one_line(error)}")
        return reply

    def now(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def pids(self) -> list[int]:
        """The workers' processes."""
        return cast(list[int], ray.get([each.pid.remote() for each in self.workers], timeout=SLICE))

    def close(self) -> None:
        """End the workers. Ray itself stays, for others and for the next ones, until the process ends."""
        if self._open and ray.is_initialized():
            for each in self.workers:
                with suppress(RayError, ValueError):
                    ray.kill(each)
        self._open, self._cohorts = False, []


class RayClients(RemoteClients):
    """The clients of a problem on a Ray cluster, in cohorts, one a worker; ``solve`` takes them as it takes a problem.

    A worker answers for its cohort with the in-process clients, so that every bit is the same. One that dies is made
    again from its source. ``close()``, or the end of a ``with`` block, ends the workers.

    Parameters
    ----------
    source : Problem, or sequence of paths
        A problem, whose arrays travel to the workers once; or one ``.npz`` file a client, with ``A`` and ``b``, and
        ``weights`` and ``offset`` where there are any, at paths that the workers can read: only the paths travel.
    loss : Loss
        With paths.
    ridge : float or (d,) array
        With paths, as in ``Problem``.
    cohorts : int, optional
        How many workers; None is one for each core that Ray has. There are never more than clients.
    address : str, optional
        Of a running cluster, such as ``"host:6379"``, ``"ray://host:10001"`` or ``"auto"``; None starts Ray on this
        machine, until the process ends. Where Ray is connected already, that is used.
    memory : int, optional
        The most bytes that a worker may take for its share (Linux).
    patience : Patience, optional
        How long to wait for whom.
    measured : bool
        Whether the objective is asked for after every round, for the trace.
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
        patience = Patience() if patience is None else patience
        paths = [] if isinstance(source, Problem) else check_paths(source, loss)
        connect(address)
        parts = shares(source.m if isinstance(source, Problem) else len(paths), cohorts)
        made: Iterator[
            Callable[[], Cohort] | ProblemCohort
        ] = (  # one at a time: a share of a problem is a copy
            cohort(part, source.part(part))
            if isinstance(source, Problem)
            else partial(of_files, part, paths[part.start : part.stop], loss, ridge)
            for part in parts
        )
        self.channel = RayChannel(made, [[str(j) for j in part] for part in parts], memory)
        try:
            told = self._first_told(max(START, patience.give_up))
        except BaseException:
            self.close()
            raise
        d = [value.shape[1] - 1 for value in told.values()]
        for at, part in enumerate(parts):
            if d[at] != d[0]:
                self.close()
                raise InputError(
                    f"{paths[part.start]}: x has {d[at]} entries here, and {d[0]} in {paths[0]}"
                )
        members = Members(self.channel, patience)
        preparations = dict.fromkeys(members.cohorts, Fingerprint())
        super().__init__(members, d[0], dict(preparations), dict.fromkeys(members.cohorts, ""))
        self._identified = told
        self._prepared = set(told)
        self.free = measured

    def __enter__(self) -> RayClients:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        self.channel.close()

    def _first_told(self, timeout: float) -> dict[int, Array]:
        """What every cohort says when it is settled: the workers are there, and have their data."""
        everybody = range(len(self.channel.names))
        requests = dict.fromkeys(everybody, Request(Fingerprint()))
        replies = self.channel.ask(requests, timeout)
        for at, reply in replies.items():
            if reply.outcome == "refused":
                raise InputError(reply.text)
            if reply.outcome != "answer":
                raise TooFewClients(
                    f"client {listed(self.channel.names[at])}: {reply.text}, in {timeout:g} seconds"
                )
        return {at: reply.value for at, reply in replies.items()}


def shares(m: int, cohorts: int | None) -> list[range]:
    """m clients in so many cohorts of neighbours; one for each core that Ray has, where None."""
    wanted = (
        int(ray.cluster_resources().get("CPU", 1)) if cohorts is None else count("cohorts", cohorts)
    )
    return [
        range(part[0], part[-1] + 1)
        for part in np.array_split(np.arange(m), max(1, min(m, wanted)))
    ]


def _size(share: object) -> int:
    """The bytes of the arrays that travel."""
    buffers: list[pickle.PickleBuffer] = []
    cloudpickle.dumps(share, protocol=5, buffer_callback=buffers.append)
    return sum(buffer.raw().nbytes for buffer in buffers)


def _limit(memory: int) -> None:
    """Refuse this process more than so many bytes beside those it has."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    [held] = [
        int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData")
    ]
    resource.setrlimit(resource.RLIMIT_DATA, (held + memory, held + memory))


def _too_small(memory: int | None) -> str:
    return f"{_limited(memory)} is too small for its share: use more workers"


def _limited(memory: int | None) -> str:
    return "a worker's memory" + ("" if memory is None else f" of {memory / 2**20:.0f} MiB")
