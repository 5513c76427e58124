"""Cohorts whose clients are ``.npz`` files, one file per client."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsplit.arrays import Array
from fedsplit.channels.cohort import ProblemCohort
from fedsplit.checks import instance
from fedsplit.errors import InputError, listed
from fedsplit.files import check_archive
from fedsplit.losses.terms import Loss
from fedsplit.problem import Problem

ARRAYS = ("A", "b", "weights", "offset")
"""The arrays that a client's file may hold; the first two are required."""


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
