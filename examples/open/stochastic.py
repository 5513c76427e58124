"""Stochastic proxes: minibatch steps on h_j, plain with averaging, or with reduced variance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

import fedsplit as fs
from fedsplit.local import Batch, Costs, Proximal, Start, Streams, bounded, independent

Estimator = Literal["svrg", "saga", "sgd"]
"""How the gradient of a batch becomes an estimate of ∇f_j."""


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
        The number of rows, drawn anew, from which the error of the answer is estimated. None takes
        one more pass over all rows, which proves it.
    confidence : float
        The share of cases in which an estimated error is at least the true one, by Chebyshev's
        inequality with the variance among groups of the rows. That is an estimate too: where a
        few rows dominate, and none of them is drawn, the error is too small.
    groups : int
        How many groups the rows of ``check`` are divided into: ten means tell a variance well
        enough for Chebyshev's inequality, which is far from sharp.
    """

    steps: int = 20
    batch: int = 32
    estimator: Estimator = "svrg"
    step: float | None = None
    start: Start = "broadcast"
    check: int | None = None
    confidence: float = 0.95
    groups: int = 10

    draws: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0.0 < self.confidence < 1.0:
            raise fs.InputError(f"confidence must be between 0 and 1, not {self.confidence!r}")

    def solve(
        self,
        costs: Costs,
        V: NDArray[Any],
        s: float,
        start: NDArray[Any],
        streams: Streams | None = None,
    ) -> Proximal:
        """Approximate the prox of k clients, each with the rows that its stream draws."""
        U = np.array(np.broadcast_to(start, V.shape))
        if streams is None:
            streams = np.zeros(len(V), dtype=np.int64)
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
        return self._estimated(self.check, costs, V, s, U, streams ^ 1)

    def _alpha(self, t: int, mu: NDArray[Any], smooth: NDArray[Any]) -> NDArray[Any] | float:
        """α_j in step t, (k, 1) or a number."""
        if self.step is not None:
            return self.step
        if self.estimator == "sgd":
            falling: NDArray[Any] = 2.0 / (mu * t + 4.0 * smooth)
            return falling
        third: NDArray[Any] = 1.0 / (3.0 * smooth)
        return third

    def _estimated(
        self,
        rows: int,
        costs: Costs,
        V: NDArray[Any],
        s: float,
        U: NDArray[Any],
        streams: Streams,
    ) -> Proximal:
        """The answer U with an error that is estimated from some rows."""
        groups = self.groups
        batches = independent(streams, costs.stacked, max(1, rows // groups), groups)
        r = np.stack([s * costs.batch(batch).gradient(U) + U - V for batch in batches])
        mean = r.mean(axis=0)
        variance = np.sum(np.square(r - mean), axis=(0, 2)) / (groups * (groups - 1))
        norm = np.sqrt(np.sum(mean * mean, axis=1)) + np.sqrt(variance / (1.0 - self.confidence))
        ell, _ = costs.bounds
        return Proximal(U, norm / (1.0 + s * ell))


def _constants(
    costs: Costs, s: float, batch: int, U: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """μ_j = 1 + sℓ_j and 1 + sℒ_j, each (k, 1).

    ℒ_j is that at the start where no bound holds everywhere.
    """
    ell, _ = costs.bounds
    smooth = costs.batch_smoothness(batch)
    if not np.isfinite(smooth).all():
        smooth = np.where(np.isfinite(smooth), smooth, costs.batch_smoothness(batch, U))
    return (1.0 + s * ell)[:, None], (1.0 + s * smooth)[:, None]


def _descended(
    costs: Costs,
    V: NDArray[Any],
    s: float,
    start: NDArray[Any],
    U: NDArray[Any],
) -> NDArray[Any]:
    """U, or the start at clients whose steps had no bound on L_j, and have led uphill."""
    known = np.isfinite(costs.bounds[1])
    if known.all():
        return U

    def merit(X: NDArray[Any]) -> NDArray[Any]:
        h: NDArray[Any] = costs.value(X) + 0.5 * np.sum(np.square(X - V) / s, axis=1)
        return h

    X = np.broadcast_to(start, V.shape)
    downhill = merit(U) <= merit(X)  # not where a merit is no number
    return np.where((known | downhill)[:, None], U, X)


class Estimate(Protocol):
    """Estimates of gradients."""

    def gradient(self, batch: Batch, U: NDArray[Any]) -> NDArray[Any]:
        """An estimate of ∇f_j(u_j) from the rows of a batch, (k, d)."""


class _Sgd:
    """The gradients of batches."""

    def __init__(self, costs: Costs, start: NDArray[Any]) -> None:
        self.costs = costs

    def gradient(self, batch: Batch, U: NDArray[Any]) -> NDArray[Any]:
        return self.costs.batch(batch).gradient(U)


class _Svrg:
    """Stochastic variance reduced gradients (Johnson and Zhang, 2013)."""

    def __init__(self, costs: Costs, start: NDArray[Any]) -> None:
        self.costs = costs
        self.start = start
        self.full = costs.gradient(start)
        self.drawn = 0

    def gradient(self, batch: Batch, U: NDArray[Any]) -> NDArray[Any]:
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

    def __init__(self, costs: Costs, start: NDArray[Any]) -> None:
        self.costs = costs
        # losses of a linear predictor and multinomial ones, whose terms have slopes and an adjoint
        self.terms = cast(Any, costs.terms)
        costs.work.gradients += 1
        self.slopes = self.terms.slopes(self.terms.eta(start))
        self.total = self.terms.adjoint(self.slopes)

    def gradient(self, batch: Batch, U: NDArray[Any]) -> NDArray[Any]:
        costs = self.costs
        costs.work.gradients += batch.rows.shape[1] / costs.stacked.length
        sampled = self.terms.subsample(batch.rows, np.ones(batch.rows.shape))
        places = batch.rows
        if self.slopes.ndim == 3:  # one slope per class
            shape = (len(U), self.slopes.shape[1], batch.rows.shape[1])
            places = np.broadcast_to(batch.rows[:, None, :], shape)
        before = np.take_along_axis(self.slopes, places, axis=-1)
        now = sampled.slopes(sampled.eta(U))
        change = sampled.adjoint(now - before)
        estimate: NDArray[Any] = batch.scale[:, :1] * change + self.total + costs.ridge * U
        np.put_along_axis(self.slopes, places, now, axis=-1)
        self.total = self.total + change
        return estimate


ESTIMATES: Mapping[Estimator, Callable[[Costs, NDArray[Any]], Estimate]] = {
    "svrg": _Svrg,
    "saga": _Saga,
    "sgd": _Sgd,
}
"""Made from the costs and the start."""
