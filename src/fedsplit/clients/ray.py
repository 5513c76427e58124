"""Clients on a Ray cluster: workers that answer for cohorts, each on its own share of the data."""

from __future__ import annotations

import os
import resource
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import ray
from numpy.lib.format import read_array_header_1_0, read_array_header_2_0, read_magic
from ray._private import worker
from ray.exceptions import RayActorError, RayError, RayTaskError

from fedsplit.arrays import Array
from fedsplit.checks import count, instance
from fedsplit.clients.channel import SILENT, Cohort, Question, Reply, Unprepared
from fedsplit.clients.cohort import OracleCohort
from fedsplit.clients.remote import RemoteClients
from fedsplit.clients.roll import Patience, Roll
from fedsplit.errors import InputError
from fedsplit.losses.terms import Loss
from fedsplit.problem import Problem
from fedsplit.threads import one_blas_thread

SILENCE = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Ray calls nobody, and says nothing."""

RESTARTS = 20
"""How often a worker that died is made again from its source, and a question that it left open repeated."""

ARRAYS = {"A", "b", "weights", "offset"}
"""What a client's .npz file may hold."""


class Worker:
    """A cohort in a process of its own; ``make`` builds it from its source, again where the process has died.

    Without one, the cohort comes with the question that settles it. ``memory`` is how many bytes the worker may take
    beside what the process has at its start.
    """

    def __init__(self, make: Callable[[], Cohort] | None, memory: int | None) -> None:
        self._threads = one_blas_thread()
        self._threads.__enter__()
        if memory is not None:
            _limit(memory)
        self._make, self._memory = make, memory
        self._cohort: Cohort | None = None

    def answer(self, question: Question, cohort: Cohort | None = None) -> Reply:
        """The reply; what a user can mend is told, anything else is the caller's to see."""
        try:
            if cohort is not None:
                self._cohort = cohort
            elif self._cohort is None and self._make is not None:
                self._cohort = self._make()
            if self._cohort is None:
                raise Unprepared
            return Reply("answer", self._cohort.answer(question))
        except Unprepared:
            return Reply("unprepared")
        except InputError as error:
            return Reply("refused", text=str(error))
        except MemoryError:
            limit = "" if self._memory is None else f" of {self._memory / 2**20:.0f} MiB"
            return Reply("refused", text=f"a worker's memory{limit} is too small for its share: use more workers")

    def pid(self) -> int:
        """The process."""
        return os.getpid()


class RayChannel:
    """Workers, one for each share of the clients, asked all at once.

    A share is how a worker makes its cohort, or the cohort itself, which then travels to it.
    """

    free = False

    def __init__(
        self,
        shares: Sequence[Callable[[], Cohort] | OracleCohort],
        names: Sequence[Sequence[str]],
        kinds: Mapping[str, Any],
        address: str | None = None,
        memory: int | None = None,
    ) -> None:
        self.names, self.kinds = names, kinds
        _connect(address, len(shares))
        actor = ray.remote(num_cpus=1, max_restarts=RESTARTS, max_task_retries=RESTARTS)(Worker)
        self._cohorts = [ray.put(share) if isinstance(share, OracleCohort) else None for share in shares]
        self.workers = [actor.remote(None if isinstance(share, OracleCohort) else share, memory) for share in shares]

    def ask(self, questions: Mapping[int, Question], timeout: float) -> dict[int, Reply]:
        began = time.perf_counter()
        open_ = {
            self.workers[at].answer.remote(question, self._cohorts[at] if question.name == "settle" else None): at
            for at, question in questions.items()
        }
        replies: dict[int, Reply] = {}
        while open_ and (left := timeout - (time.perf_counter() - began)) > 0:
            ready, _ = ray.wait(list(open_), timeout=None if left == np.inf else left)
            for reference in ready:
                replies[open_.pop(reference)] = _fetched(reference, time.perf_counter() - began)
        return dict.fromkeys(questions, SILENT) | replies

    def now(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def pids(self) -> list[int]:
        """The workers' processes."""
        return cast(list[int], ray.get([each.pid.remote() for each in self.workers]))

    def close(self) -> None:
        """End the workers."""
        for each in self.workers:
            with suppress(RayError, ValueError):
                ray.kill(each)


class RayClients(RemoteClients):
    """The clients of a problem on a Ray cluster, in cohorts, one a worker; ``solve`` takes them as it takes a problem.

    A worker answers for its cohort with the in-process clients, so that every bit is the same. One that dies is made
    again from its source.

    Parameters
    ----------
    source : Problem, or sequence of paths
        A problem, whose arrays travel to the workers once; or one ``.npz`` file a client, with ``A`` and ``b``, and
        ``weights`` and ``offset`` where there are any, at paths that the workers can read: only the paths travel.
    loss : Loss
        With paths.
    ridge : float
        With paths, as in ``Problem``.
    cohorts : int, optional
        How many workers; None is one for each core that Ray has.
    address : str, optional
        Of a running cluster, such as ``"ray://host:10001"`` or ``"auto"``; None starts Ray on this machine.
    memory : int, optional
        The most bytes that a worker may take for its share.
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
        ridge: float = 0.0,
        cohorts: int | None = None,
        address: str | None = None,
        memory: int | None = None,
        patience: Patience | None = None,
        measured: bool = False,
    ) -> None:
        if isinstance(source, Problem):
            m, d = source.m, source.d
        else:
            paths = _paths(source, loss)
            m, d = len(paths), _width(paths[0])
        parts = shares(m, cohorts, address)
        made: list[Callable[[], Cohort] | OracleCohort] = [
            _cohort(part, source.part(part))
            if isinstance(source, Problem)
            else partial(_of_files, part, paths[part.start : part.stop], loss, ridge)
            for part in parts
        ]
        self.channel = RayChannel(made, [[str(j) for j in part] for part in parts], OracleCohort.kinds, address, memory)
        roll = Roll(self.channel, Patience() if patience is None else patience)
        super().__init__(roll, d, dict.fromkeys(roll.cohorts, Question("settle")), dict.fromkeys(roll.cohorts, ""))
        self.free = measured

    def __enter__(self) -> RayClients:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        self.channel.close()


def shares(m: int, cohorts: int | None, address: str | None) -> list[range]:
    """m clients in so many cohorts of neighbours; one for each core that Ray has, where None."""
    _connect(address, cohorts)
    wanted = int(ray.cluster_resources().get("CPU", 1)) if cohorts is None else count("cohorts", cohorts)
    return [range(part[0], part[-1] + 1) for part in np.array_split(np.arange(m), min(m, wanted))]


def _of_files(share: range, paths: Sequence[str], loss: Any, ridge: float) -> OracleCohort:
    return _cohort(share, Problem(loss, [_load(path) for path in paths], ridge))


def _cohort(share: range, problem: Problem) -> OracleCohort:
    return OracleCohort([str(j) for j in share], problem.among)


def _load(path: str) -> tuple[Array | None, ...]:
    """A client's arrays: A, b, and weights and offset, or None."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if not {"A", "b"} <= set(file.files) <= ARRAYS:
                raise InputError(f"{path}: it holds {', '.join(file.files)}, and should A and b, weights and offset")
            return tuple(file[name] if name in file.files else None for name in ("A", "b", "weights", "offset"))
    except InputError:
        raise
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: is no .npz file that can be read ({error})") from None


def _width(path: str) -> int:
    """The number of columns of a client's A, from the head of its file."""
    try:
        with zipfile.ZipFile(path) as packed, packed.open("A.npy") as file:
            read = {(1, 0): read_array_header_1_0, (2, 0): read_array_header_2_0}[read_magic(file)]
            return int(read(file)[0][1])
    except (OSError, KeyError, IndexError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: is no .npz file with a matrix A ({error})") from None


def _paths(source: Any, loss: Loss | None) -> list[str]:
    if isinstance(source, str | os.PathLike) or not isinstance(source, Sequence) or not source:
        raise InputError(f"RayClients takes a problem or a list of .npz files, not {source!r}")
    if loss is None:
        raise InputError("RayClients: files need a loss, such as loss=LeastSquares()")
    instance("loss", loss, "stack")
    return [str(Path(path).absolute()) for path in source]


def _connect(address: str | None, workers: int | None) -> None:
    """Join the cluster at the address, or start Ray on this machine, without its dashboard and its statistics."""
    if ray.is_initialized():
        return
    os.environ |= SILENCE
    worker.print_to_stdstream = _nothing  # where a worker dies Ray prints, also on stdout
    quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    try:
        if address is not None:
            ray.init(address, **quiet)
        else:
            cores = max(len(os.sched_getaffinity(0)), workers or 1)
            ray.init(num_cpus=cores, include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(f"Ray cannot be reached at {address or 'this machine'}: {error}") from None


def _nothing(*args: object, **options: object) -> None:
    """In the place of printing."""


def _fetched(reference: Any, seconds: float) -> Reply:
    try:
        reply: Reply = ray.get(reference)
    except RayActorError:
        return Reply("failed", text=f"its worker died more than {RESTARTS} times", seconds=seconds)
    except RayTaskError as error:
        return Reply("failed", text=str(error.cause), seconds=seconds)
    return reply._replace(seconds=seconds)


def _limit(memory: int) -> None:
    """Refuse this process more than so many bytes beside those it has."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    [held] = [int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData")]
    resource.setrlimit(resource.RLIMIT_DATA, (held + memory, held + memory))
