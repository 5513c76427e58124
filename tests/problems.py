"""Random federated problems: one table of losses, and hypothesis strategies over them."""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

import fedsplit as fs
from fedsplit.arrays import Array
from fedsplit.methods.method import Method, State
from fedsplit.rounds.trace import Row

Loss = fs.LeastSquares | fs.Logistic | fs.Multinomial | fs.Poisson | fs.Gamma | fs.Huber
Draw = Callable[[Array, np.random.Generator], Array]


def _gaussian(eta: Array, rng: np.random.Generator) -> Array:
    return eta + rng.standard_normal(eta.shape)


def _binary(eta: Array, rng: np.random.Generator) -> Array:
    return np.where(rng.logistic(size=eta.shape) < eta, 1.0, -1.0)


def _counts(eta: Array, rng: np.random.Generator) -> Array:
    return rng.poisson(np.exp(np.clip(eta, None, 3.0))).astype(float)


def _outliers(eta: Array, rng: np.random.Generator) -> Array:
    return eta + rng.standard_t(1.5, size=eta.shape)


def _amounts(eta: Array, rng: np.random.Generator) -> Array:
    return np.exp(np.clip(eta, -3.0, 3.0)) * rng.gamma(4.0, 0.25, size=eta.shape)


def _classes(eta: Array, rng: np.random.Generator) -> Array:
    noise = rng.gumbel(size=(len(eta), eta.shape[1] + 1))
    labels: Array = np.argmax(noise + np.insert(eta, 0, 0.0, axis=1), axis=1).astype(float)
    return labels


LOSSES: dict[str, tuple[Callable[[int], Loss], Draw]] = {
    "least-squares": (lambda d: fs.LeastSquares(), _gaussian),
    "logistic": (lambda d: fs.Logistic(), _binary),
    "multinomial": (lambda d: fs.Multinomial(3 if d % 2 == 0 else d + 1), _classes),
    "poisson": (lambda d: fs.Poisson(), _counts),
    "gamma": (lambda d: fs.Gamma(), _amounts),
    "huber": (lambda d: fs.Huber(0.7), _outliers),
}
"""A loss for x of dimension d, and how b is drawn. Several classes share d: three, or with an odd d one column."""

Client = tuple[Array, Array, Array]


def loss(name: str, d: int) -> Loss:
    return LOSSES[name][0](d)


def columns(name: str, d: int) -> int:
    """How many columns A has where x has d entries."""
    model = loss(name, d)
    return d // (model.classes - 1) if isinstance(model, fs.Multinomial) else d


def predictor(name: str, A: Array, x: Array) -> Array:
    """a_iᵀx, or a_iᵀx_c for every class c but the reference."""
    return A @ (x.reshape(-1, A.shape[1]).T if name == "multinomial" else x)


def clients(name: str, sizes: list[int], d: int, seed: int = 0, scale: float = 0.5) -> list[Client]:
    """Weighted observations of one loss, clients of the given sizes."""
    rng = np.random.default_rng(seed)
    _, draw = LOSSES[name]
    x = scale * rng.standard_normal(d)
    designs = [rng.standard_normal((n, columns(name, d))) for n in sizes]
    return [
        (A, draw(predictor(name, A, x), rng), rng.uniform(0.5, 2.0, size=len(A))) for A in designs
    ]


def problem(
    name: str,
    sizes: list[int],
    d: int,
    seed: int = 0,
    ridge: float | Array = 0.0,
    scale: float = 0.5,
) -> fs.Problem:
    return fs.Problem(loss(name, d), clients(name, sizes, d, seed, scale), ridge)


def limit(
    p: fs.Problem, method: Method[Any], rounds: int = 30000, still: float = 1e-15
) -> fs.Result:
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
