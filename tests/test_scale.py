"""Many clients at once."""

import numpy as np
import pytest

import fedsplit as fs


@pytest.mark.slow
def test_ten_thousand_small_logistic_clients_of_unequal_sizes_are_solved() -> None:
    rng = np.random.default_rng(1)
    d = 20
    x_true = 0.5 * rng.standard_normal(d)
    sizes = rng.integers(5, 36, size=10_000)  # 20 on average
    designs = [rng.standard_normal((n, d)) for n in sizes]
    problem = fs.Problem(
        fs.Logistic(), [(A, rng.logistic(size=len(A)) < A @ x_true) for A in designs]
    )
    best = problem.objective(problem.solution())
    result = fs.solve(
        problem,
        rounds=300,
        tol=0,
        callbacks=[lambda row, state: bool(row.objective - best <= 1e-6)],
    )
    assert result.stopped_by == "callback"
    assert (result.trace.answered == 10_000).all()
