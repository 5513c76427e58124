"""Stochastic proxes: minibatch steps on h_j, plain with averaging, or with reduced variance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, cast, get_args

import numpy as np

from fedsplit.arrays import Array, dots
from fedsplit.checks import count, number, one_of
from fedsplit.errors import InputError
from fedsplit.local.line_search import Merit
from fedsplit.local.solver import Proximal, Start, bounded
from fedsplit.losses.batches import Batch, Streams, independent, unseeded
from fedsplit.losses.costs import Costs
from fedsplit.losses.linear import LinearTerms

Estimator = Literal["svrg", "saga", "sgd"]
"""How the gradient of a batch becomes an estimate of ∇f_j."""

GROUPS = 10
"""Of the rows that an error is estimated from: their means tell its variance."""


@dataclass(frozen=True)
class StochasticProx:
    """Steps u ← u - α[sĝ_j(u) + u - v_j] with estimates ĝ_j of ∇f_j from B rows each.

    The estimates are unbiased, from batches that are drawn anew in each step. With reduced
    variance they become exact where u and the start agree, so that started at the server's x,
    FedSplit's fixed point is exact, as with ``GradientProx``. Plain SGD leaves an error at the
    fixed point too, which is a floor of the whole run.

    Parameters
    ----------
    steps : int
    batch : int
        B.
    estimator : {"svrg", "saga", "sgd"}
        "svrg": ĝ(u) - ĝ(start) + ∇f(start), which takes one pass over the rows, and two batches a
        step; when as many rows have been drawn as there are, u is the new start. "saga": as if
        each row's gradient were known from when it was last drawn; one pass over the rows, and one
        batch a step. "sgd": the gradient of the batch, with falling steps;
        the answer is the average of the u, later ones weighing more.
    step : float, optional
        α. None is 1/(3(1 + sℒ_j)) with the expected smoothness ℒ_j of the batches, and for "sgd"
        2/(μ(t + a)) in step t = 0, 1, …, with μ = 1 + sℓ_j and a = 4(1 + sℒ_j)/μ.
    start : {"broadcast", "iterate", "argument"}
        As in ``GradientProx``.
    check : int, optional
        So many rows, drawn anew, give the error of the answer as an estimate. None takes one more
        pass over all rows, which proves it.
    confidence : float
        The share of cases in which an estimated error is at least the true one, by Chebyshev's
        inequality with the variance among ten groups of the rows. That is an estimate too: where a
        few rows dominate, and none of them is drawn, the error is too small.
    """

    steps: int = 20
    batch: int = 32
    estimator: Estimator = "svrg"
    step: float | None = None
    start: Start = "broadcast"
    check: int | None = None
    confidence: float = 0.95

    draws: ClassVar[bool] = True

    def __post_init__(self) -> None:
        count("StochasticProx: steps", self.steps)
        count("StochasticProx: batch", self.batch)
        one_of("StochasticProx: estimator", self.estimator, get_args(Estimator))
        one_of("StochasticProx: start", self.start, get_args(Start))
        if self.step is not None:
            number("StochasticProx: step", self.step)
        if self.check is not None:
            count("StochasticProx: check", self.check, least=GROUPS)
        if number("StochasticProx: confidence", self.confidence) >= 1.0:
            raise InputError(
                f"StochasticProx: confidence must be between 0 and 1, not {self.confidence!r}"
            )

    def solve(
        self,
        costs: Costs,
        V: Array,
        s: float | Array,
        start: Array,
        streams: Streams | None = None,
    ) -> Proximal:
        U = np.array(np.broadcast_to(start, V.shape))
        if streams is None:
            streams = unseeded(len(V))
        mu, smooth = _constants(costs, s, self.batch, U)
        estimate = ESTIMATES[self.estimator](costs, U)
        total = np.zeros_like(U)
        weight = 0.0
        for t, batch in enumerate(independent(streams, costs.stacked, self.batch, self.steps)):
            alpha = self._alpha(t, mu, smooth)
            U = U - alpha * (s * estimate.gradient(batch, U) + U - V)
            total = total + (t + 1.0) * U
            weight += t + 1.0
        if self.estimator == "sgd":
            U = total / weight
        U = _descended(costs, V, s, start, U)
        if self.check is None:
            return bounded(V, s, costs.at(U))
        # another stream than that of the steps
        return self._estimated(costs, V, s, U, streams ^ 1)

    def _alpha(self, t: int, mu: Array, smooth: Array) -> Array | float:
        """α_j in step t, (k, 1) or a number."""
        if self.step is not None:
            return self.step
        if self.estimator == "sgd":
            alpha: Array = 2.0 / (mu * t + 4.0 * smooth)
            return alpha
        third: Array = 1.0 / (3.0 * smooth)
        return third

    def _estimated(
        self, costs: Costs, V: Array, s: float | Array, U: Array, streams: Streams
    ) -> Proximal:
        """The answer U with an error that is estimated from ``check`` rows."""
        each = max(1, (self.check or GROUPS) // GROUPS)
        batches = independent(streams, costs.stacked, each, GROUPS)
        r = np.stack([s * costs.batch(batch).gradient(U) + U - V for batch in batches])
        mean = r.mean(axis=0)
        away = r - mean
        variance = np.sum([dots(row, row / s) for row in away], axis=0) / (GROUPS * (GROUPS - 1))
        norm = np.sqrt(dots(mean, mean / s)) + np.sqrt(variance / (1.0 - self.confidence))
        ell, _ = costs.bounds
        return Proximal(U, np.sqrt(np.max(s)) * norm / (1.0 + np.min(s) * ell))


def _constants(costs: Costs, s: float | Array, batch: int, U: Array) -> tuple[Array, Array]:
    """μ_j = 1 + sℓ_j and 1 + sℒ_j, each (k, 1).

    ℒ_j is that at the start where no bound holds everywhere.
    """
    ell, _ = costs.bounds
    smooth = costs.batch_smoothness(batch)
    if not np.isfinite(smooth).all():
        smooth = np.where(np.isfinite(smooth), smooth, costs.batch_smoothness(batch, U))
    return (1.0 + np.min(s) * ell)[:, None], (1.0 + np.max(s) * smooth)[:, None]


def _descended(costs: Costs, V: Array, s: float | Array, start: Array, U: Array) -> Array:
    """U, or the start at clients whose steps had no bound on L_j, and have led uphill."""
    known = np.isfinite(costs.bounds[1])
    if known.all():
        return U
    merit = Merit(V, 1.0 / s)
    X = np.broadcast_to(start, V.shape)
    worse = ~known & ~(merit.value(costs.at(U)) <= merit.value(costs.at(X)))
    return np.where(worse[:, None], X, U)


class Estimate(Protocol):
    """Estimates of gradients."""

    def gradient(self, batch: Batch, U: Array) -> Array:
        """An estimate of ∇f_j(u_j) from the rows of a batch, (k, d)."""


class _Sgd:
    """The gradients of batches."""

    def __init__(self, costs: Costs, start: Array) -> None:
        self.costs = costs

    def gradient(self, batch: Batch, U: Array) -> Array:
        return self.costs.batch(batch).gradient(U)


class _Svrg:
    """Stochastic variance reduced gradients (Johnson and Zhang, 2013)."""

    def __init__(self, costs: Costs, start: Array) -> None:
        self.costs = costs
        self.start = start
        self.full = costs.gradient(start)
        self.drawn = 0

    def gradient(self, batch: Batch, U: Array) -> Array:
        if self.drawn >= self.costs.stacked.length:
            self.start = U
            self.full = self.costs.gradient(U)
            self.drawn = 0
        self.drawn += batch.rows.shape[1]
        sampled = self.costs.batch(batch)
        return sampled.gradient(U) - sampled.gradient(self.start) + self.full


class _Saga:
    """SAGA (Defazio, Bach and Lacoste-Julien, 2014).

    A row's gradient is a slope times the row, so the table has the slopes alone.
    """

    def __init__(self, costs: Costs, start: Array) -> None:
        self.costs = costs
        # both linear losses and multinomial ones are functions of predictors
        terms = cast(LinearTerms, costs.terms)
        costs.work.gradients += 1
        self.slopes = terms.slopes(terms.eta(start))
        self.total = terms.adjoint(self.slopes)

    def gradient(self, batch: Batch, U: Array) -> Array:
        costs = self.costs
        costs.work.gradients += batch.rows.shape[1] / costs.stacked.length
        once = np.ones(batch.rows.shape)
        sampled = cast(LinearTerms, costs.terms.subsample(batch.rows, once))
        places = batch.rows
        if self.slopes.ndim == 3:  # one slope per class
            shape = (len(U), self.slopes.shape[1], batch.rows.shape[1])
            places = np.broadcast_to(batch.rows[:, None, :], shape)
        before = np.take_along_axis(self.slopes, places, axis=-1)
        now = sampled.slopes(sampled.eta(U))
        change = sampled.adjoint(now - before)
        estimate = batch.scale[:, :1] * change + self.total + costs.ridge * U
        np.put_along_axis(self.slopes, places, now, axis=-1)
        self.total = self.total + change
        return estimate


ESTIMATES: Mapping[Estimator, Callable[[Costs, Array], Estimate]] = {
    "svrg": _Svrg,
    "saga": _Saga,
    "sgd": _Sgd,
}
"""Made from the costs and the start."""
