"""Attacks that read the rows which three conditions share, by differences of what is told."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from attacks.points import NOTHING, shared
from attacks.server import Attack, Guess, Server
from fedsplit.arrays import Array, packed
from fedsplit.clients.local_models import LocalModel
from fedsplit.clients.questions import Gradient, Information, Prox
from fedsplit.local.gradient import GradientProx
from fedsplit.regression.client.design import Moments
from fedsplit.regression.client.questions.moments import Code

ALONE = "answers depend on points that they name"
SIGNS = ((1, 0, 0), (-1, 1, 0), (-1, 0, 1), (1, 1, 1))
"""Of a mixed difference, and whether each of the first two conditions holds."""


class Cell:
    """A model of three conditions and of an income where the last one holds.

    Attributes
    ----------
    u, v, w : str
        The conditions, as in a formula.
    """

    def __init__(self, server: Server) -> None:
        conditions, rows = shared(server.few)
        self.u, self.v, self.w = (text[2:-1] for text in conditions)
        self._few = server.few
        self._server = server
        self._true = float(server.frame.loc[rows, "income"].sum())

    @property
    def read(self) -> str:
        """The terms that are read."""
        return f"I({self.w}) + I(income*({self.w}))"

    @property
    def every(self) -> str:
        return f"I({self.u}) + I({self.v}) + {self.read}"

    def prepared(self, formula: str, family: str = "poisson") -> tuple[str, Moments]:
        """The key of a model, and its moments."""
        coding = self._server.coding(formula, family)
        told: Moments = self._server.ask(Code(coding)).moments
        return self._server.settle(coding, len(told.names)), told

    def gradient(self, key: str, x: Array) -> Array:
        found: Array = self._server.ask(Gradient(x), key).rows[0]
        return found

    def hessian(self, key: str, x: Array) -> Array:
        found: Array = self._server.ask(Information(x), key).rows[0]
        return found

    def guess(self, income: float, count: float) -> Guess:
        return Guess(income / (count or math.nan) * self._few, self._true)


def gram(told: Moments) -> Array:
    """Σ w a aᵀ."""
    return np.asarray(told.scatter + told.weight * np.outer(told.mean, told.mean))


def cross(told: Moments) -> Array:
    """Σ w y a of a gaussian model."""
    return np.asarray(told.cross + told.weight * told.mean * told.net_mean)


def by_one_matrix(server: Server) -> Guess:
    """A matrix at a condition, less the Gram matrix of the same columns."""
    cell = Cell(server)
    key, told = cell.prepared(f"ill ~ {cell.every}")
    d = cell.hessian(key, np.eye(5)[1]) - gram(told)
    return cell.guess(d[2, 4], d[2, 3])


def by_a_logistic_matrix(server: Server) -> Guess:
    """The same, where the Gram matrix counts a quarter."""
    cell = Cell(server)
    key, told = cell.prepared(f"ill ~ {cell.every}", "logistic")
    d = cell.hessian(key, np.eye(5)[1]) - 0.25 * gram(told)
    return cell.guess(d[2, 4], d[2, 3])


def by_complements(server: Server) -> Guess:
    """Gradients of a condition that is written as its complement, along which they differ."""
    cell = Cell(server)
    terms = f"I({cell.u}) + I({cell.v}) + I(1 - ({cell.w})) + income + I(income*(1 - ({cell.w})))"
    key, _ = cell.prepared(f"ill ~ {terms}")
    total: Array = np.zeros(6)
    for (sign, old, rich), other in zip(SIGNS, (0, 0, 0.5, 1.3), strict=True):
        x = np.array([0.0, old, rich, other, 0.0, 0.0])
        total += sign * cell.gradient(key, x)
    return cell.guess(total[4] - total[5], total[0] - total[3])


def by_gradients_and_matrices(server: Server) -> Guess:
    """Two gradients and the first rows of two matrices, which are sums of the same means."""
    cell = Cell(server)
    key, _ = cell.prepared(f"ill ~ {cell.every}")
    e = np.eye(5)
    d = cell.hessian(key, e[1] + e[2])[0] - cell.hessian(key, e[2])[0]
    d -= cell.gradient(key, e[1]) - cell.gradient(key, 0 * e[0])
    return cell.guess(d[4], d[3])


def by_moments_and_gradients(server: Server) -> Guess:
    """Three gradients; the fourth one is in the moments of a gaussian model."""
    cell = Cell(server)
    _, told = cell.prepared(f"ill ~ {cell.every}", "gaussian")
    key, _ = cell.prepared(f"ill ~ {cell.every}")
    e = np.eye(5)
    d = gram(told)[0] - cross(told)
    for sign, old, rich in SIGNS[1:]:
        d += sign * cell.gradient(key, old * e[1] + rich * e[2])
    return cell.guess(d[4], d[3])


def by_offset(server: Server) -> Guess:
    """One gradient with two conditions as its offset, beside the moments of a gaussian model."""
    cell = Cell(server)
    _, told = cell.prepared(f"ill ~ {cell.read}", "gaussian")
    key, _ = cell.prepared(f"ill ~ {cell.read} + offset(I(({cell.u})*({cell.v})))")
    d = cell.gradient(key, np.zeros(3)) - (gram(told)[0] - cross(told))
    return cell.guess(d[2], d[1])


def _mixed(cell: Cell, told: Callable[[Array], Array]) -> Guess:
    """The income by a mixed difference of something that is told of points."""
    d: Array = np.zeros(5)
    for sign, old, rich in SIGNS:
        d += sign * told(np.array([0.0, old, rich, 0.0, 0.0]))
    return cell.guess(d[4], d[3])


def by_groups(server: Server) -> Guess:
    """Four gradients of a target of successes and failures."""
    cell = Cell(server)
    key, _ = cell.prepared(f"cbind(visits, ill) ~ {cell.every}", "logistic")
    return _mixed(cell, lambda x: cell.gradient(key, x))


def by_starts(server: Server) -> Guess:
    """A solver that stops early, from a start of the server's choice, tells of its start."""
    cell = Cell(server)
    key, _ = cell.prepared(f"ill ~ {cell.every}")
    v, step = np.array([-3.0, 0, 0, 0, 0]), 1e-9

    def told(x: Array) -> Array:
        # one step of length 1 on s·f + ½‖· - v‖² from v + x ends at v - s∇f(v + x)
        early = GradientProx(1, step=1.0)
        moved = server.ask(Prox(v[None], step, v + x, early), key).rows[0]
        return np.asarray((v - moved) / step)

    return _mixed(cell, told)._replace(within=0.05)


def by_chords(server: Server) -> Guess:
    """The second step of a local model tells the gradient at the end of the first."""
    cell = Cell(server)
    key, moments = cell.prepared(f"ill ~ {cell.every}")
    M = 3.0 * gram(moments)
    start = cell.gradient(key, np.zeros(5))

    def told(x: Array) -> Array:
        end = 0.6 * x + np.array([0.3, 0, 0, 0, 0])
        v = 2 * end + np.linalg.solve(M, start)
        model = LocalModel(np.zeros(5), v[None], packed(M[None])[0], 1.0, None)
        p = server.ask(model, key).parts["point"][0]
        return np.asarray(2 * M @ (end - p) - M @ (end - v))

    return _mixed(cell, told)


ATTACKS: Sequence[Attack] = [
    Attack("one matrix beside the moments of its columns", by_one_matrix, NOTHING, (1, 2)),
    Attack("the same of a logistic model", by_a_logistic_matrix, NOTHING, (1, 2)),
    Attack("gradients of a complement", by_complements, NOTHING, (1, 2)),
    Attack("gradients beside matrices", by_gradients_and_matrices, NOTHING, (1, 2)),
    Attack("gradients beside moments", by_moments_and_gradients, NOTHING, (1, 2)),
    Attack("an offset that is a product of conditions", by_offset, NOTHING, (1, 2)),
    Attack("gradients of successes and failures", by_groups, NOTHING, (1, 2)),
    Attack("a prox that starts elsewhere", by_starts, ALONE, (1, 2)),
    Attack("a local model whose steps are chosen", by_chords, ALONE, (1, 2)),
]
