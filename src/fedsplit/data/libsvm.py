"""Files in the format of LIBSVM, by scikit-learn's reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from fedsplit.arrays import Array
from fedsplit.errors import InputError


def read_libsvm(path: str | Path) -> tuple[Any, Array]:
    """The rows of a LIBSVM file, (n, d) in a csr_array, and their targets, (n,)."""
    from sklearn.datasets import load_svmlight_file  # slow to import

    try:
        A, b = load_svmlight_file(str(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (OverflowError, ValueError) as error:
        what = " ".join(str(error).split())
        raise InputError(f"{path}: not a LIBSVM file of one target per row ({what})") from None
    if not len(b):
        raise InputError(f"{path}: no rows")
    return csr_array(A), np.asarray(b, dtype=np.float64)
