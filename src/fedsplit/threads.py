"""Parallelism over clients, and BLAS on one thread: the same bits whatever the machine's load."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import copy_context
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

Work = TypeVar("Work")


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[object]:
    """A context in which BLAS uses one thread. Enter it once a run: entering costs about as much as a small round."""
    context: AbstractContextManager[object] = _controller().limit(limits=1, user_api="blas")
    return context


WORKERS = os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(WORKERS, thread_name_prefix="fedsplit")


os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked child has none of its parent's threads


def each(do: Callable[[Work], None], pieces: Sequence[Work]) -> None:
    """``do(piece)`` for every piece, in this thread and on the other cores, where each has at least two to do."""
    waiting = iter(pieces)

    def work() -> None:
        for piece in waiting:
            do(piece)

    helpers = min(WORKERS, len(pieces) // 2) - 1
    futures = [_pool().submit(copy_context().run, work) for _ in range(helpers)]
    work()
    for future in futures:
        future.result()
