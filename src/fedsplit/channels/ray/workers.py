"""Workers on a Ray cluster, each of which answers for a share of the clients."""

from __future__ import annotations

import os
import pickle
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import numpy as np

from fedsplit import threads
from fedsplit.channels.channel import SILENT, Cohort, Reply, Request, Unprepared
from fedsplit.channels.cohort import ProblemCohort
from fedsplit.channels.ray.cluster import (
    ActorDiedError,
    RayError,
    RayTaskError,
    cloudpickle,
    ray,
)
from fedsplit.checks import count
from fedsplit.clients.question import CostQuestion
from fedsplit.errors import InputError, listed
from fedsplit.texts import one_line
from fedsplit.threads import one_blas_thread

RESTARTS = 20
"""How often a worker that died is created again, and the question that it left open repeated."""

SLICE = 60.0
"""The longest single wait, in seconds."""


class Worker:
    """A cohort in a process of its own.

    Parameters
    ----------
    make : callable or None
        Builds the cohort from its source, again after the process died. With None the cohort
        arrives with the question that prepares it.
    memory : int or None
        The most bytes that the worker may use beyond what its process has at the start.
    """

    def __init__(self, make: Callable[[], Cohort] | None, memory: int | None) -> None:
        one_blas_thread().__enter__()  # for as long as the process lives
        threads.WORKERS = 1  # the other cores have workers of their own
        if memory is not None:
            limit_memory(memory)
        self._make = make
        self._memory = memory
        self._cohort: Cohort | None = None

    def answer(self, request: Request, cohort: Cohort | None = None) -> Reply:
        """The reply; errors that a user cannot mend are raised at the caller."""
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
        """The cohort.

        One that was lost must be prepared before its rounds go on: its source may have changed.
        """
        if cohort is not None:
            self._cohort = cohort
        if self._cohort is None:
            in_rounds = isinstance(request.question, CostQuestion)
            if self._make is None or (in_rounds and request.preparation is None):
                raise Unprepared
            self._cohort = self._make()
        return self._cohort


class RayChannel:
    """One worker for each share of the clients, asked all at once.

    Workers reserve no core while they run, so that there can be more workers than cores, and the
    user's own tasks beside them.

    Parameters
    ----------
    shares : iterable
        For each worker, the callable that makes its cohort, or the cohort itself, which then
        travels to it.
    names : sequence of sequences of str
        The clients of each worker.
    memory : int, optional
        The most bytes that a worker may use for its share.
    """

    free = False
    recorded = True
    now = staticmethod(time.monotonic)
    wait = staticmethod(time.sleep)

    def __init__(
        self,
        shares: Iterable[Callable[[], Cohort] | ProblemCohort],
        names: Sequence[Sequence[str]],
        memory: int | None = None,
    ) -> None:
        self.names = names
        self.workers: list[Any] = []
        self._memory = memory
        self._cohorts: list[Any] = []
        # By reference, the cohort that a question was posted to, and when.
        self._posted: dict[Any, tuple[int, float]] = {}
        self._open = True
        actor = ray.remote(
            max_restarts=RESTARTS, max_task_retries=RESTARTS, scheduling_strategy="SPREAD"
        )(Worker)
        try:
            for share in shares:
                if memory is not None and _size(share) > memory:
                    raise InputError(_too_small(memory))
                if isinstance(share, ProblemCohort):
                    # Ray warns of arrays in what makes a worker that can be made again
                    self._cohorts.append(ray.put(share))
                    self.workers.append(actor.remote(None, memory))
                else:
                    self._cohorts.append(None)
                    self.workers.append(actor.remote(share, memory))
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            self.close()
            raise InputError(
                f"Ray cannot send the clients to a worker: {one_line(str(error))}"
            ) from None
        except BaseException:
            self.close()
            raise

    def ask(self, requests: Mapping[int, Request], timeout: float) -> dict[int, Reply]:
        began = time.perf_counter()
        waiting: dict[Any, int] = {}
        replies: dict[int, Reply] = {}
        try:
            with self._connected():
                for at, request in requests.items():
                    waiting[self._sent(at, request)] = at
                while waiting and (left := timeout - (time.perf_counter() - began)) > 0:
                    ready, _ = ray.wait(list(waiting), timeout=min(left, SLICE))
                    for reference in ready:
                        at = waiting.pop(reference)
                        reply = self._fetched(reference, at)
                        replies[at] = reply._replace(seconds=time.perf_counter() - began)
        finally:
            _cancel(waiting)
        return dict.fromkeys(requests, SILENT) | replies

    def post(self, requests: Mapping[int, Request]) -> None:
        _cancel([each for each, (at, _) in self._posted.items() if at in requests])
        self._posted = {each: to for each, to in self._posted.items() if to[0] not in requests}
        with self._connected():
            for at, request in requests.items():
                self._posted[self._sent(at, request)] = at, time.perf_counter()

    def collect(self, timeout: float) -> dict[int, Reply]:
        replies = {}
        with self._connected():
            ready, _ = ray.wait(list(self._posted), timeout=timeout)
            for reference in ready:
                at, began = self._posted.pop(reference)
                reply = self._fetched(reference, at)
                replies[at] = reply._replace(seconds=time.perf_counter() - began)
        return replies

    @contextmanager
    def _connected(self) -> Iterator[None]:
        if not self._open or not ray.is_initialized():
            raise InputError("the workers on Ray are closed: create the clients again")
        try:
            yield
        except ConnectionError as error:
            raise InputError(f"the connection to Ray is lost: {one_line(str(error))}") from None

    def _sent(self, at: int, request: Request) -> Any:
        """The reference of the reply to a request that was sent to a worker."""
        cohort = self._cohorts[at] if request.question.prepares else None
        return self.workers[at].answer.remote(request, cohort)

    def _fetched(self, reference: Any, at: int) -> Reply:
        """A worker's reply that has arrived, or why there is none."""
        try:
            reply: Reply = ray.get(reference, timeout=SLICE)
        except RayTaskError as error:
            # The same question would fail again, so it is not repeated.
            if isinstance(error.cause, np.linalg.LinAlgError | ArithmeticError):
                raise error.cause from None  # the run diverges, as it would in this process
            what = f"{type(error.cause).__name__}: {one_line(str(error.cause))}"
            return Reply("refused", text=f"client {listed(self.names[at])}: {what}")
        except ActorDiedError as error:
            if error.actor_init_failed:
                return Reply("refused", text=f"a worker cannot start: {one_line(str(error))}")
            limit = _limited(self._memory)
            return Reply("failed", text=f"its worker keeps dying: {limit} may be too small")
        except RayError as error:
            return Reply("failed", text=f"{type(error).__name__}: {one_line(str(error))}")
        return reply

    def pids(self) -> list[int]:
        """The workers' processes."""
        found = ray.get([worker.pid.remote() for worker in self.workers], timeout=SLICE)
        return cast(list[int], found)

    def close(self) -> None:
        """End the workers. Ray itself stays, for other uses, until the process ends."""
        if self._open and ray.is_initialized():
            for worker in self.workers:
                with suppress(RayError, ValueError):
                    ray.kill(worker)
        self._open = False
        self._cohorts = []
        self._posted = {}


def _cancel(references: Iterable[Any]) -> None:
    """Drop questions: one that has not begun must not delay the next."""
    if ray.is_initialized():
        for reference in references:
            with suppress(RayError, ValueError, TypeError):
                ray.cancel(reference)


def shares(m: int, cohorts: int | None) -> list[range]:
    """m clients in ``cohorts`` runs of neighbours; one for each core of Ray's where None."""
    if cohorts is None:
        wanted = int(ray.cluster_resources().get("CPU", 1))
    else:
        wanted = count("cohorts", cohorts)
    parts = np.array_split(np.arange(m), max(1, min(m, wanted)))
    return [range(part[0], part[-1] + 1) for part in parts]


def _size(share: object) -> int:
    """The bytes of the arrays that travel."""
    buffers: list[pickle.PickleBuffer] = []
    cloudpickle.dumps(share, protocol=5, buffer_callback=buffers.append)
    return sum(buffer.raw().nbytes for buffer in buffers)


def limit_memory(memory: int) -> None:
    """Limit this process to so many bytes beyond those that it has now (Linux)."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmData"))
    held = int(line.split()[1]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (held + memory, held + memory))


def _too_small(memory: int | None) -> str:
    return f"{_limited(memory)} is too small for its share: use more workers"


def _limited(memory: int | None) -> str:
    if memory is None:
        return "a worker's memory"
    return f"a worker's memory of {memory / 2**20:.0f} MiB"
