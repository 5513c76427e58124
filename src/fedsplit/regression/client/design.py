"""A client's coded rows: their moments before the rounds, the observations of the rounds, and how well a model fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from fedsplit.arrays import Array
from fedsplit.losses.observations import Observations
from fedsplit.regression.families.family import Family

BINS = np.array(
    [0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 1.0]
)
"""Predicted probabilities between which a classifier's calibration is counted."""

SMALLEST_CELL = 3
"""A count below this, but not zero, could point to a person."""


class Moments(NamedTuple):
    """What a client tells of its coded rows before the first round, every sum weighted.

    names : of the columns.
    n, weight : rows, and the sum of their weights.
    mean, scatter : (p,), and Σ w (a - mean)(a - mean)ᵀ, (p, p).
    target_mean, target_scatter : the same of the target, two numbers.
    log_exposed : log Σ w e^offset, what a target with a log link is compared with.
    classes : rows of each class of a classifier.
    """

    names: Sequence[str]
    n: int
    weight: float
    mean: Array
    scatter: Array
    target_mean: float
    target_scatter: float
    log_exposed: float
    classes: tuple[int, ...] = ()


class Scaling(NamedTuple):
    """Where the rounds compute: columns (a - centre)/scale, (p,) each, and a target in its ``unit``."""

    centre: Array
    scale: Array
    unit: float


class Calibration(NamedTuple):
    """Rows, predicted and observed events between the BINS, (16,) each; cells too small to tell are left out."""

    rows: Array
    predicted: Array
    observed: Array


@dataclass
class Design:
    """A (n, p), target b (n,), weights w > 0 and offset o of one client, in the units of its file until ``scale``.

    ``classes`` is how many classes a classifier has; b has their numbers, from 0.
    """

    name: str
    family: Family
    columns: Sequence[str]
    A: Array
    b: Array
    w: Array
    o: Array
    classes: int = 0
    scaling: Scaling | None = None

    def moments(self) -> Moments:
        with np.errstate(
            over="ignore", invalid="ignore"
        ):  # squares beyond float64 are found in the pool
            return self._moments()

    def _moments(self) -> Moments:
        total = float(self.w.sum())
        mean, target = self.w @ self.A / total, float(self.w @ self.b / total)
        centred = self.A - mean
        counts = (
            np.bincount(self.b.astype(np.intp), minlength=self.classes)
            if self.family.classifies
            else ()
        )
        return Moments(
            self.columns,
            len(self.b),
            total,
            mean,
            centred.T @ (self.w[:, None] * centred),
            target,
            float(self.w @ np.square(self.b - target)),
            float(logsumexp(self.o, b=self.w)),
            tuple(int(count) for count in counts),
        )

    def scale(self, scaling: Scaling) -> None:
        """Scale the columns in place."""
        self.A -= scaling.centre
        self.A /= scaling.scale
        self.scaling = scaling

    @property
    def observations(self) -> Observations:
        """The rows as they are, scaled or not."""
        unit = 1.0 if self.scaling is None else self.scaling.unit
        return Observations(self.A, self.b / unit, self.w, self.o / unit)

    def restored(self) -> Design:
        """A copy in the units of the file."""
        centre, scale, _ = self.scaling or Scaling(np.zeros(1), np.ones(1), 1.0)
        return replace(self, A=self.A * scale + centre, scaling=None)

    def log_likelihood(self, x: Array, dispersion: float) -> float:
        return float(
            np.sum(self.family.log_likelihood(self.b, self.predictor(x), self.w, dispersion))
        )

    def pearson(self, x: Array) -> float:
        """Pearson's X², Σ w (b - μ)²/V(μ)."""
        mu = self.family.link.mean(self.predictor(x))
        return float(np.sum(self.w * self.family.pearson(self.b, mu)))

    def expected_information(self, x: Array) -> Array:
        """Σ_i w_i (dμ_i/dη_i)²/V(μ_i) a_i a_iᵀ, (p, p), of a family with one predictor."""
        weights = self.w * self.family.expected_weights(self.predictor(x))
        information: Array = self.A.T @ (weights[:, None] * self.A)
        return information

    def calibration(self, x: Array) -> Calibration:
        """Of a binary classifier."""
        p = self.family.link.mean(self.predictor(x))
        at = np.clip(np.searchsorted(BINS, p, side="right") - 1, 0, len(BINS) - 2)
        rows, predicted, observed = (
            np.bincount(at, values, len(BINS) - 1) for values in (np.ones_like(p), p, self.b)
        )
        told = np.all(
            [(n == 0) | (n >= SMALLEST_CELL) for n in (observed, rows - observed)], axis=0
        )
        return Calibration(*(np.where(told, values, 0.0) for values in (rows, predicted, observed)))

    def predictor(self, x: Array) -> Array:
        """η, (n,), or (n, K - 1) for K classes, at a point of the rounds."""
        unit = 1.0 if self.scaling is None else self.scaling.unit
        return self.family.predictor(self.A, x, self.o, unit)
