"""Random federated problems: one table of losses, and hypothesis strategies over them."""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

import fedsplit as fs
from fedsplit.arrays import Array
from fedsplit.methods.method import Method, State
from fedsplit.trace import Row

Draw = Callable[[Array, np.random.Generator], Array]


def _gaussian(eta: Array, rng: np.random.Generator) -> Array:
    return eta + rng.standard_normal(eta.shape)


def _binary(eta: Array, rng: np.random.Generator) -> Array:
    return np.where(rng.logistic(size=eta.shape) < eta, 1.0, -1.0)


def _counts(eta: Array, rng: np.random.Generator) -> Array:
    return rng.poisson(np.exp(np.clip(eta, None, 3.0))).astype(float)


def _outliers(eta: Array, rng: np.random.Generator) -> Array:
    return eta + rng.standard_t(1.5, size=eta.shape)


LOSSES: dict[str, tuple[fs.LeastSquares | fs.Logistic | fs.Poisson | fs.Huber, Draw]] = {
    "least-squares": (fs.LeastSquares(), _gaussian),
    "logistic": (fs.Logistic(), _binary),
    "poisson": (fs.Poisson(), _counts),
    "huber": (fs.Huber(0.7), _outliers),
}

Client = tuple[Array, Array, Array]


def clients(name: str, sizes: list[int], d: int, seed: int = 0, scale: float = 0.5) -> list[Client]:
    """Weighted observations of one loss, clients of the given sizes."""
    rng = np.random.default_rng(seed)
    _, draw = LOSSES[name]
    x = scale * rng.standard_normal(d)
    designs = [rng.standard_normal((n, d)) for n in sizes]
    return [(A, draw(A @ x, rng), rng.uniform(0.5, 2.0, size=len(A))) for A in designs]


def problem(
    name: str, sizes: list[int], d: int, seed: int = 0, ridge: float | Array = 0.0, scale: float = 0.5
) -> fs.Problem:
    return fs.Problem(LOSSES[name][0], clients(name, sizes, d, seed, scale), ridge)


def limit(p: fs.Problem, method: Method[Any], rounds: int = 30000, still: float = 1e-15) -> fs.Result:
    """Where a method ends: run until its iterate moves by at most ``still``, relative to its size."""

    def done(row: Row, state: State) -> bool:
        return row.residual <= still * max(1.0, float(np.linalg.norm(state.iterate)))

    return fs.solve(p, method, rounds=rounds, tol=0, callbacks=[done])


names = st.sampled_from(sorted(LOSSES))
seeds = st.integers(0, 10**6)
dimensions = st.integers(1, 6)
sizes = st.lists(st.integers(1, 40), min_size=1, max_size=5)
ridges = st.sampled_from([0.0, 0.3, 10.0])
steps = st.sampled_from([1e-3, 0.05, 1.0, 30.0])
