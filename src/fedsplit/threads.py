"""Parallelism over clients, with BLAS on one thread: the same bits at any load of the machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from functools import cache
from threading import Lock
from typing import TypeVar

from threadpoolctl import ThreadpoolController

Piece = TypeVar("Piece")

WORKERS = os.cpu_count() or 1
"""The number of cores that this process may use."""

if hasattr(os, "sched_getaffinity"):  # Linux: a container or a job may have fewer cores
    WORKERS = len(os.sched_getaffinity(0))


class _OneBlasThread:
    """Limits BLAS to one thread from the first entry to the last exit, in whichever threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._controller: ThreadpoolController | None = None
        self._limit: AbstractContextManager[object] = nullcontext()

    def __enter__(self) -> None:
        with self._lock:
            if self._controller is None:  # it looks through all loaded libraries: once is enough
                self._controller = ThreadpoolController()
            if self._inside == 0:
                self._limit = self._controller.limit(limits=1, user_api="blas")
                self._limit.__enter__()
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.__exit__(None, None, None)


_one_blas_thread = _OneBlasThread()


def one_blas_thread() -> AbstractContextManager[None]:
    """A context in which BLAS uses one thread: entering it costs about as much as a small round."""
    return _one_blas_thread


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(WORKERS, thread_name_prefix="fedsplit")


if hasattr(os, "register_at_fork"):  # a forked child has none of its parent's threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


def each(do: Callable[[Piece], None], pieces: Sequence[Piece]) -> None:
    """Call ``do(piece)`` for every piece, in this thread and others.

    Another thread is used only for every two pieces, as handing over work costs time too.
    """
    waiting = iter(pieces)

    def work() -> None:
        for piece in waiting:
            do(piece)

    others = min(WORKERS, len(pieces) // 2) - 1
    # threads see this one's context: NumPy keeps its error state there
    futures = [_pool().submit(copy_context().run, work) for _ in range(others)]
    work()
    for future in futures:
        future.result()
