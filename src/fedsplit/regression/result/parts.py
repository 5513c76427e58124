"""The three parts of a result: what was estimated, how well it fits, how it was computed."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Incident
from fedsplit.loop.trace import Row, Trace
from fedsplit.regression.client.design import Calibration, Moments, Recession
from fedsplit.regression.result.certificate import FitCertificate
from fedsplit.regression.server.clustered import ClusteredCovariance
from fedsplit.regression.server.inference import PenalisedLikelihood


@dataclass(frozen=True, eq=False)
class Estimates:
    """The coefficients and their covariances, in the units of the data.

    Attributes
    ----------
    names : sequence of str
        The d coefficients, in the order of every array.
    values : (d,) array
        nan where a coefficient is aliased or not estimable.
    covariance : (d, d) array or None
        Model-based.
    robust : ClusteredCovariance or None
        Clustered by client, with the degrees of freedom of each coefficient.
    errors : (d,) array
        Standard errors by the information matrix, even where a penalty deprives them of their
        meaning.
    aliased : sequence of str
        The coefficients of columns that those before them determine.
    not_estimable : mapping of str to str
        The coefficients that would grow without bound, with "+inf" or "-inf". All other numbers
        are those of the fit without the rows that recede.
    recessions : sequence of Recession
        The directions in which they grow.
    limit : (d,) array or None
        Coefficients of the other rows, for predictions, where some grow without bound.
    lost_directions : int
        In how many directions they grow, or are not determined by the other rows.
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


class PooledMoments(NamedTuple):
    """Moments of the design over the rows of all clients, weighted.

    Attributes
    ----------
    names : sequence of str
        The p columns.
    weight : float
        The sum of the weights.
    mean : (p,) array
    scatter : (p, p) array
        Σ w (a - mean)(a - mean)ᵀ.
    target : float
        The mean of the target.
    """

    names: Sequence[str]
    weight: float
    mean: Array
    scatter: Array
    target: float


def fingerprint_of(moments: Mapping[str, Moments]) -> str:
    """Hash what the clients have sent of their targets; see ``FitStatistics``."""
    # To seven digits, as sums over the same rows may differ by rounding from model to model.
    lines = [
        f"{name}: {each.n} {each.weight:.6e} {each.target_mean:.6e} {each.target_scatter:.6e}"
        for name, each in sorted(moments.items())
    ]
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
    deviance : float
        As R's glm defines it.
    null_deviance : float or None
        That of the model with the intercept and the offset alone; without an intercept, of the
        offset alone. None where there is no log-likelihood.
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


@dataclass(frozen=True, eq=False)
class Computation:
    """How a model was computed, and what is proved about it.

    Attributes
    ----------
    certificate : FitCertificate
    converged : bool
        Whether the tolerance is proved.
    trace : Trace
        One row per exchange with the clients, from their files to the table.
    first_round, rounds : int
        Which row of the trace is the method's first, and how many there are of it, set-up and
        proofs included.
    proofs : sequence of (int, float or None)
        The round of each proof, and the gap that it proves.
    warnings : sequence of str
        What could disclose single rows, and what was left out.
    version : str
        Of fedsplit.
    removed : mapping of str to str
        The clients that were removed during the run, with the reason: the model is that of the
        others.
    incidents : sequence of Incident
        Answers of remote clients that failed or were refused.
    logs : mapping of str to str
        Between organisations, the number and the hash of the last line of each client's log when
        the run ended, as in ``12:3f2a…``: with ``fedsplit audit`` its owner can show that the log
        was not cut short since.
    summed : sequence of str
        With ``secure``, the clients whose answers were added up.
    """

    certificate: FitCertificate
    converged: bool
    trace: Trace
    first_round: int
    rounds: int
    proofs: Sequence[tuple[int, float | None]]
    warnings: Sequence[str]
    version: str
    removed: Mapping[str, str] = field(default_factory=dict)
    incidents: Sequence[Incident] = ()
    logs: Mapping[str, str] = field(default_factory=dict)
    summed: Sequence[str] = ()

    def among(self, others: Sequence[Row]) -> Computation:
        """Return the run with the exchanges before and after its rounds.

        Those of a run that lost a client have set-ups of their own, and come before.
        """
        early = [at for at, row in enumerate(others, 1) if row.kind in ("handshake", "setup")]
        first = max(early, default=0)
        rows = [*others[:first], *self.trace.rows, *others[first:]]
        return replace(self, trace=Trace(self.trace.start, rows), first_round=first)

    @property
    def exchanges(self) -> int:
        """The number of exchanges with every client."""
        return sum(row.questions for row in self.trace.rows)

    @property
    def floats(self) -> int:
        """Numbers sent, both ways, over all clients."""
        return sum(row.floats_up + row.floats_down for row in self.trace.rows)

    @property
    def of_rounds(self) -> Trace:
        """The rows of the method's rounds alone."""
        last = self.first_round + self.rounds
        return Trace(self.trace.start, self.trace.rows[self.first_round : last])

    @property
    def attendance(self) -> pd.DataFrame:
        """How remote clients answered, one row per client.

        Columns: rounds ``answered``, ``median`` and ``longest`` seconds to an answer, the number
        of ``incidents``, and whether the client was ``removed``.
        """
        incidents = Counter(incident.client for incident in self.incidents)
        latency = self.of_rounds.latency
        names = list(dict.fromkeys([*latency, *self.removed]))
        rows = []
        for name in names:
            seconds = latency.get(name, np.zeros(0))
            answers = seconds[np.isfinite(seconds)]
            median = longest = np.nan
            if answers.size:
                median = float(np.median(answers))
                longest = float(np.max(answers))
            rows.append((answers.size, median, longest, incidents[name], name in self.removed))
        columns = ["answered", "median", "longest", "incidents", "removed"]
        return pd.DataFrame(rows, columns=columns, index=pd.Index(names, name="client"))
