"""What a fit comes to: its estimates, how well it fits, and what is proved."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import chdtrc

from fedsplit.arrays import Array
from fedsplit.regression.client.design import Calibration, Moments, Recession
from fedsplit.regression.server.clustered import ClusteredCovariance


@dataclass(frozen=True, eq=False)
class Estimates:
    """The coefficients and their covariances, in the units of the data.

    Attributes
    ----------
    names : sequence of str
        The d coefficients, in the order of every array.
    values : (d,) array
        nan where a coefficient is aliased or not estimable.
    covariance, robust : (d, d) array or None, ClusteredCovariance or None
        Model-based, and clustered by client.
    errors : (d,) array
        Standard errors by the information matrix, even where a penalty deprives them of their
        meaning.
    aliased : sequence of str
        The coefficients of columns that those before them determine.
    not_estimable : mapping of str to str
        The coefficients that would grow without bound, with "+inf" or "-inf". All other numbers
        are those of the fit without the rows that recede.
    recessions, lost_directions : sequence of Recession, int
        The directions in which they grow, and how many these are with those that the other rows do
        not determine.
    limit : (d,) array or None
        Coefficients of the other rows, for predictions, where some grow without bound.
    """

    names: Sequence[str]
    values: Array
    covariance: Array | None
    robust: ClusteredCovariance | None
    errors: Array
    aliased: Sequence[str] = ()
    not_estimable: Mapping[str, str] = field(default_factory=dict)
    recessions: Sequence[Recession] = ()
    limit: Array | None = None
    lost_directions: int = 0

    def without(self, names: Collection[str]) -> Estimates:
        """The estimates with nan for some coefficients."""
        lost = np.array([name in names for name in self.names])
        covariance = self.covariance
        if covariance is not None:
            covariance = np.where(lost[:, None] | lost, np.nan, covariance)
        return replace(
            self,
            values=np.where(lost, np.nan, self.values),
            covariance=covariance,
            robust=self.robust and self.robust.without(lost),
            errors=np.where(lost, np.nan, self.errors),
        )

    @property
    def rank(self) -> int:
        """How many coefficients are estimated."""
        return int(np.isfinite(self.predicting).sum()) - self.lost_directions

    @property
    def predicting(self) -> Array:
        """The coefficients that predictions are made with, (d,): at the limit, if there is one."""
        return self.values if self.limit is None else self.limit

    def series(self, values: Array, name: str) -> pd.Series:
        """One number per coefficient, (d,), by the names of the coefficients."""
        return pd.Series(values, index=list(self.names), name=name)


class PenalisedLikelihood(NamedTuple):
    """log L + ½ log det of the information, which Firth's regression maximises.

    Attributes
    ----------
    value : float
        At the estimate.
    null : float or None
        The maximum over the intercept alone, with the same columns in the information; None where
        the model has an offset.
    df : int
        How many coefficients there are beside the intercept.
    """

    value: float
    null: float | None
    df: int

    @property
    def ratio(self) -> float | None:
        """The likelihood ratio statistic of all covariates; None without ``null``."""
        return None if self.null is None else 2.0 * (self.value - self.null)

    @property
    def p(self) -> float | None:
        """Its p-value by the χ² distribution."""
        if self.ratio is None or self.df == 0:
            return None
        return float(chdtrc(self.df, self.ratio))


class PooledMoments(NamedTuple):
    """Weighted moments of the p columns of the design, and of the target, over all clients.

    ``scatter`` is Σ w (a - mean)(a - mean)ᵀ, and ``target`` the mean of the target.
    """

    names: Sequence[str]
    weight: float
    mean: Array
    scatter: Array
    target: float


def fingerprint_of(moments: Mapping[str, Moments]) -> str:
    """Hash what the clients have sent of their targets; see ``FitStatistics``."""
    lines = []
    for name, each in sorted(moments.items()):
        deviation = math.sqrt(each.target_scatter / each.weight)
        size = math.hypot(deviation, each.target_mean)
        # To seven digits, as sums over the same rows may differ by rounding from model to model;
        # those of a mean near zero are of the size of the targets.
        mean = round(each.target_mean / (size or 1.0), 6) + 0.0
        lines.append(f"{name}: {each.n} {each.weight:.6e} {size:.6e} {mean:.6f}")
    return hashlib.sha256("\n".join(lines).encode("utf-8", "replace")).hexdigest()


@dataclass(frozen=True, eq=False)
class FitStatistics:
    """How well a model fits, and which rows it was fitted to.

    Attributes
    ----------
    clients : DataFrame
        One row per client: rows used (``n``) and left out for ``missing`` values; ``leverage``, its
        share of the information; ``score``, the length of its gradient; and the ``coefficient``
        that would move most without it, with its ``shift`` in standard errors. With secure sums
        there is one row for all.
    dispersion : float or None
        As R's glm defines it; None with a penalty or a constraint, where n - d does not count the
        degrees of freedom.
    deviance, null_deviance : float, float or None
        As R's glm defines them: the null model has the intercept, if there is one, and the offset.
        None where there is no log-likelihood.
    llf : float or None
        The log-likelihood as R's ``logLik``: with φ = deviance/n for a gaussian, and deviance/Σw
        for a gamma model. None where the family has none, or φ cannot be estimated.
    pearson : float or None
        Pearson's X², of a gamma or Poisson model and of groups of trials.
    calibration : Calibration or None
        Predicted and observed events of a binary model.
    penalised : PenalisedLikelihood or None
        With ``firth``, the penalised log-likelihood, that of the intercept alone, and their ratio.
    moments : PooledMoments or None
        Of the design, for analyses that come after.
    fingerprint : str
        A hash of the clients' numbers of rows and weights, and of the mean and variance of their
        targets, which they have sent anyway. Two models of one target with the same fingerprint
        were fitted to the same rows.
    missing_values : mapping of str to int
        How many values each column lacks, over all clients.
    spread : float or None
        The robust deviation of the residuals, in the unit of the target, that parameters of the
        family such as Huber's δ are in units of; None of another family.
    """

    clients: pd.DataFrame
    dispersion: float | None
    deviance: float
    null_deviance: float | None = None
    llf: float | None = None
    pearson: float | None = None
    calibration: Calibration | None = None
    penalised: PenalisedLikelihood | None = None
    moments: PooledMoments | None = None
    fingerprint: str = ""
    missing_values: Mapping[str, int] = field(default_factory=dict)
    spread: float | None = None


@dataclass(frozen=True)
class FitCertificate:
    """What is proved about the distance of a fit from the fit of the pooled data.

    Attributes
    ----------
    gap : float or None
        Upper bound on the objective above its minimum; None where nothing can be proved.
    standard_errors : float or None
        Upper bound on |coefficient - pooled coefficient| in standard errors, for all coefficients.
        With a penalty they are those that the information matrix alone would give. A model that
        explains all but 1e-6 of the target's variance counts as if it left that share.
    reason : str
        The argument of the proof, or why there is none.
    arithmetic : float or None
        Both bounds above are about the numbers that the clients hold in float64. This bounds how
        far rounding, in forming columns and sums, can have moved any coefficient from the fit of
        the data in exact arithmetic, in standard errors. None if that is not known.
    inflation : float
        How many times those of the table these standard errors are: 1 unless the fit is nearly
        perfect.
    stationary : float or None
        With ``firth`` there is no gap: the penalised likelihood need not be concave. Upper bound on
        the length of the modified score in the norm of the inverse information. The next step would
        move no coefficient by more standard errors than this.
    """

    gap: float | None
    standard_errors: float | None
    reason: str
    arithmetic: float | None = None
    inflation: float = 1.0
    stationary: float | None = None

    @property
    def bound(self) -> float | None:
        """What the tolerance is about: ``standard_errors``, or ``stationary`` with ``firth``."""
        return self.standard_errors if self.stationary is None else self.stationary

    def within(self, limit: float) -> bool:
        """Whether rounding moved no coefficient by more than this, in standard errors."""
        return self.arithmetic is not None and self.arithmetic <= limit

    def __str__(self) -> str:
        if self.stationary is not None:
            return self._stationary_point(self.stationary)
        if self.gap is None or self.standard_errors is None:
            return f"nothing is proved: {self.reason}"
        text = (
            f"within {self.gap:.1g} of the pooled optimum; every coefficient within "
            f"{self.standard_errors:.1g} standard errors of the pooled fit (by {self.reason})"
        )
        if self.arithmetic is not None:
            text += f"; moved by rounding by at most {self.arithmetic:.1g} standard errors"
        if self.inflation > 1.0:
            text += (
                f". These standard errors are {self.inflation:.1g} times those of the table: "
                "the fit is nearly perfect"
            )
        return text

    def _stationary_point(self, bound: float) -> str:
        text = (
            "a stationary point of the penalised likelihood: the modified score is within "
            f"{bound:.1g} standard errors of zero"
        )
        if self.arithmetic is not None:
            text += f", and rounding moves it by at most {self.arithmetic:.1g}"
        return (
            f"{text}. That it is the maximum is not proved: "
            "the penalised likelihood need not be concave"
        )


class NoiseReport(NamedTuple):
    """What is known of the noise in an estimate.

    Attributes
    ----------
    clients : sequence of str
        Who took part.
    rows, rows_error : float
        The number of rows, with noise, and the standard deviation of that noise.
    dispersion : float
        φ, with noise, or an upper bound; nan where the noise hides it.
    noise_se : sequence of float
        The part of the noise in each standard error.
    multiplier : float
        The standard deviation of the noise over the sensitivity of all answers together.
    score, weight : float
        The bounds of a row.
    """

    clients: Sequence[str]
    rows: float
    rows_error: float
    dispersion: float
    noise_se: Sequence[float]
    multiplier: float
    score: float
    weight: float
