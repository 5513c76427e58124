"""Clients as files of arrays, one ``.npz`` each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsplit.arrays import Array
from fedsplit.checks import instance
from fedsplit.errors import InputError, listed
from fedsplit.losses.terms import Loss
from fedsplit.problem import Problem
from fedsplit.remote.cohort import ProblemCohort

ARRAYS = ("A", "b", "weights", "offset")
"""What a client's .npz file may hold."""


def of_files(share: range, paths: Sequence[str], loss: Any, ridge: Any) -> ProblemCohort:
    """The clients of these files, as a cohort."""
    data = [load(path) for path in paths]
    try:
        return cohort(share, Problem(loss, data, ridge))
    except InputError as error:
        raise InputError(f"{_culprit(paths, data, loss, ridge)}: {error}") from None


def _culprit(paths: Sequence[str], data: Sequence[object], loss: Any, ridge: Any) -> str:
    """The first file that is refused on its own, or all of them."""
    for path, client in zip(paths, data, strict=True):
        try:
            Problem(loss, [client], ridge)
        except InputError:
            return path
    return listed(paths)


def cohort(share: range, problem: Problem) -> ProblemCohort:
    """The clients of a part of a problem, numbered as in the whole."""
    return ProblemCohort([str(j) for j in share], problem.among)


def load(path: str) -> tuple[Array | None, ...]:
    """A client's arrays: A, b, and weights and offset, or None."""
    try:
        with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            names = list(file.files)
            arrays = tuple(file[name] if name in names else None for name in ARRAYS)
    except MemoryError:
        raise
    except Exception as error:  # a damaged archive can raise almost anything
        raise InputError(
            f"{path}: is no .npz file that can be read ({' '.join(str(error).split())[:300]})"
        ) from None
    if not {"A", "b"} <= set(names) <= set(ARRAYS):
        raise InputError(
            f"{path}: it holds {listed(names)}; it should hold A and b, and may hold weights and offset"
        )
    return arrays


def check_paths(source: Any, loss: Loss | None) -> list[str]:
    """The files that a user names, and a loss for them."""
    listing = isinstance(source, Sequence) and not isinstance(source, str) and len(source) > 0
    if not listing or not all(isinstance(path, str | os.PathLike) for path in source):
        raise InputError(
            f"RayClients takes a problem or a list of .npz files, not {type(source).__name__}"
        )
    if loss is None:
        raise InputError("RayClients: files need a loss, such as loss=LeastSquares()")
    instance("loss", loss, "a Loss", "stack")
    return [str(Path(path).absolute()) for path in source]
