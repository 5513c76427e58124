"""Random federated problems of every loss, and hypothesis strategies over them."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

import fedsplit as fs
from fedsplit.arrays import Array
from fedsplit.clients.oracle import Oracle, clients_of
from fedsplit.dialogue import converse
from fedsplit.loop.conversation import Conversation
from fedsplit.loop.trace import Row
from fedsplit.losses import LOSSES as LOSSES
from fedsplit.losses.linear import LinearLoss
from fedsplit.methods.method import Method

Loss = LinearLoss | fs.Multinomial

Client = tuple[Array, Array, Array]


def loss(name: str, d: int) -> Loss:
    """The loss for x of dimension d."""
    if name == "multinomial":  # x has an entry per class and column: three classes, or one column
        return fs.Multinomial(3 if d % 2 == 0 else d + 1)
    if name == "huber":  # so that some residuals are beyond delta
        return fs.Huber(0.7)
    return LOSSES[name]()


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
    model = loss(name, d)
    x = scale * rng.standard_normal(d)
    designs = [rng.standard_normal((n, columns(name, d))) for n in sizes]

    def draw(A: Array) -> Array:
        eta = predictor(name, A, x)
        if name in ("poisson", "gamma"):  # no means that dwarf all the others
            eta = np.clip(eta, -3.0, 3.0)
        return model.sample(eta, rng)

    return [(A, draw(A), rng.uniform(0.5, 2.0, size=len(A))) for A in designs]


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
    """The result of running a method until its iterate moves by at most ``still``, relatively."""

    def done(row: Row, state: Any) -> bool:
        size = float(np.linalg.norm(method.iterate(state)))
        return row.residual <= still * max(1.0, size)

    return fs.solve(p, method, rounds=rounds, tol=0, callbacks=[done])


def begun(method: Method[Any], clients: Oracle, x0: Array) -> Any:
    """The method's first state."""
    known = clients_of(clients)
    return converse(method.start(x0, known.m), Conversation(known))


def updated(method: Method[Any], clients: Oracle, state: Any) -> Any:
    """The method's state after one more round."""
    return converse(method.update(state), Conversation(clients_of(clients)))


names = st.sampled_from(sorted(LOSSES))
seeds = st.integers(0, 10**6)
dimensions = st.integers(1, 6)
sizes = st.lists(st.integers(1, 40), min_size=1, max_size=5)
ridges = st.sampled_from([0.0, 0.3, 10.0])
steps = st.sampled_from([1e-3, 0.05, 1.0, 30.0])
