"""Files in the format of LIBSVM, by scikit-learn's reader."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from fedsplit.arrays import Array
from fedsplit.errors import InputError


def read_libsvm(path: str | Path) -> tuple[Any, Array]:
    """The rows of a LIBSVM file, (n, d) in a csr_array, and their targets, (n,), all finite."""
    from sklearn.datasets import load_svmlight_file  # slow to import

    try:
        A, b = load_svmlight_file(str(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read, as the archive is damaged ({error})") from None
    except (ValueError, OverflowError) as error:
        what = " ".join(str(error).split())[:120]  # a line may be as long as a binary file
        raise InputError(f"{path}: not a LIBSVM file of one target per row ({what})") from None
    A = csr_array(A)
    if not len(b):
        raise InputError(f"{path}: no rows")
    # with more of them x alone would take more than a gigabyte
    most = 2**27
    if A.shape[1] > most:
        raise InputError(
            f"{path}: {A.shape[1]} columns are too many, {most} at most: renumber the "
            "indices, or hash them to fewer"
        )
    for row in np.flatnonzero(~np.isfinite(b)):
        raise InputError(f"{path}: the target of row {row + 1} is {b[row]:g}: drop the row")
    for entry in np.flatnonzero(~np.isfinite(A.data)):
        row = np.searchsorted(A.indptr, entry, side="right")  # counted from 1
        value = A.data[entry]
        raise InputError(f"{path}: row {row} has an entry that is {value:g}: drop or fill it first")
    return A, np.asarray(b, dtype=np.float64)
