"""Parallelism over clients, and BLAS on one thread: the same bits whatever the machine's load."""

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


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


class _OneBlasThread:
    """BLAS held to one thread from the first entry to the last exit, whichever threads they are in."""

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0
        self._limit: AbstractContextManager[object] = nullcontext()

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limit = _controller().limit(limits=1, user_api="blas")
                self._limit.__enter__()
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.__exit__(None, None, None)


_one_blas_thread = _OneBlasThread()


def one_blas_thread() -> AbstractContextManager[None]:
    """A context in which BLAS uses one thread. Enter it once a run: entering costs about as much as a small round."""
    return _one_blas_thread


WORKERS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(WORKERS, thread_name_prefix="fedsplit")


if hasattr(os, "register_at_fork"):  # a forked child has none of its parent's threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


def each(do: Callable[[Piece], None], pieces: Sequence[Piece]) -> None:
    """``do(piece)`` for every piece, in this thread and on the other cores, where each has at least two to do."""
    waiting = iter(pieces)

    def work() -> None:
        for piece in waiting:
            do(piece)

    others = min(WORKERS, len(pieces) // 2) - 1
    futures = [_pool().submit(copy_context().run, work) for _ in range(others)]
    work()
    for future in futures:
        future.result()
