"""Memory stays a small multiple of the data."""

import tracemalloc

import numpy as np
import pytest

import fedsplit as fs


@pytest.mark.parametrize(
    ("loss", "m", "n", "d"),
    [
        (fs.LeastSquares(), 200, 60, 120),
        (fs.LeastSquares(), 100, 400, 100),
        (fs.Logistic(), 400, 100, 100),
        (fs.Logistic(), 40, 1000, 100),
        (fs.Huber(), 400, 100, 100),
    ],
    ids=repr,
)
def test_peak_memory_is_at_most_two_and_a_half_times_the_data(
    loss: fs.LeastSquares, m: int, n: int, d: int
) -> None:
    rng = np.random.default_rng(0)
    data = [
        (rng.standard_normal((n, d)), rng.integers(0, 2, size=n).astype(float)) for _ in range(m)
    ]
    tracemalloc.start()
    fs.solve(fs.Problem(loss, data), fs.FedSplit(step=0.01), rounds=3, tol=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 2.5 * max(8 * m * n * d, 8 * m * d * d)
