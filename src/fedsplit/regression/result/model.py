"""A fitted model: coefficients, their standard errors, and what is proved about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import fdtrc

from fedsplit.arrays import Array
from fedsplit.checks import number
from fedsplit.clients.oracle import Incident
from fedsplit.data.formula.formula import Formula
from fedsplit.errors import InputError
from fedsplit.loop.trace import Row, Trace
from fedsplit.regression.client.design import Calibration, Recession
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.families.family import Family
from fedsplit.regression.options import Settings
from fedsplit.regression.result.distributions import Normal, StudentT
from fedsplit.regression.result.prediction import Kind, Unseen, predict
from fedsplit.regression.result.private import Noised
from fedsplit.regression.result.table import Summary, fragment, shortened, summary
from fedsplit.regression.server.bias import Bias, ClientsAtHand, bias
from fedsplit.regression.server.inference import PenalisedLikelihood
from fedsplit.regression.server.minimise import PROOF

BEFORE = ("handshake", "setup")
"""The kinds of exchanges before the rounds."""


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
        if self.stationary is not None:
            return self.stationary
        return self.standard_errors

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


class FTest(NamedTuple):
    """The test that no covariate has an effect.

    Attributes
    ----------
    value : float
        F.
    df_model, df_residual : int
        Its degrees of freedom.
    p : float
    """

    value: float
    df_model: int
    df_residual: int
    p: float


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A regression over clients that keep their rows, with the numbers of the pooled fit.

    Attributes
    ----------
    plan : Plan
        The formula and the categories that the clients agreed on.
    settings : Settings
        The options of the fit.
    names : sequence of str
        The d coefficients, in the order of every array.
    coef : (d,) array
        The coefficients, in the units of the data; ``coef_`` has them by name.
    covariance_ : (d, d) array or None
        Model-based; None with ``se_reason``.
    robust_ : (d, d) array or None
        The sandwich in which clients are the clusters.
    errors : (d,) array
        The standard errors by the information matrix, even where a penalty deprives them of
        their meaning.
    dispersion, deviance : float
        As R's glm defines them.
    log_likelihood : float or None
        As R's ``logLik``: with φ = deviance/n for a gaussian, and deviance/Σw for a gamma model.
        None where the family has none.
    certificate : FitCertificate
        What is proved.
    clients : DataFrame
        One row per client: rows used (``n``) and left out for ``missing`` values; ``leverage``, its
        share of the information; ``score``, the length of its gradient; and the ``coefficient``
        that would move most without it, with its ``shift`` in standard errors.
    calibration : Calibration or None
        Predicted and observed events of a binary model.
    trace : Trace
        One row per round; ``rounds`` is their number.
    beside : sequence of Row
        What was asked of every client before and after the rounds: in the handshake, and at the
        end how well the model fits. ``questions`` counts these and the rounds.
    proofs : sequence of (int, float or None)
        The round of each proof, and the gap that it proves.
    floats : int
        Numbers sent, both ways, over all clients: those of the rounds, of the handshake and of the
        end, and the coordinates of the rounds.
    converged : bool
        Whether the tolerance is proved.
    warnings : sequence of str
        What could disclose single rows, and what was left out.
    version : str
        The version of fedsplit that fitted the model.
    removed : mapping of str to str
        The clients that were removed during the run, with the reason: the model is that of the
        others.
    incidents : sequence of Incident
        Answers of remote clients that failed or were refused.
    logs : mapping of str to str
        Between organisations, the number and the hash of the last line of each client's log when
        the run ended, as in ``12:3f2a…``: with ``fedsplit audit`` its owner can show that the log
        was not cut short since.
    aliased : sequence of str
        The coefficients of columns that those before them determine: nan in every array, and 0 in
        predictions.
    not_estimable : mapping of str to str
        The coefficients that would grow without bound, with "+inf" or "-inf": nan in every array.
        All other numbers are those of the fit without the rows that recede.
    recessions, limit : sequence of Recession, (d,) array or None
        The directions in which they grow, and coefficients of the other rows, for predictions.
    lost_directions : int
        In how many directions the coefficients grow, or are not determined by the other rows.
    at_hand, x : ClientsAtHand or None, (r,) array or None
        The regression and its solution in scaled coordinates, where the clients are at hand. No
        rows are kept: they are read and coded again when they are asked for.
    null_deviance : float or None
        Of the model with the intercept and the offset alone, as R's glm defines it: without an
        intercept, of the offset alone. None where there is no log-likelihood, and for models that
        an older version saved.
    penalised : PenalisedLikelihood or None
        With ``firth``, the penalised log-likelihood, that of the intercept alone, and their ratio.
    summed : sequence of str
        With ``secure``, the clients whose answers were added up: ``clients`` has one row for all.
    noised : Noised or None
        With ``dp``, what is told of the noise. The model is no pooled fit then, ``clients`` has one
        row for all, with a number of rows that has noise too, and nothing is proved.
    """

    plan: Plan
    settings: Settings
    names: Sequence[str]
    coef: Array
    covariance_: Array | None
    robust_: Array | None
    dispersion: float
    log_likelihood: float | None
    deviance: float
    certificate: FitCertificate
    clients: pd.DataFrame
    calibration: Calibration | None
    trace: Trace
    proofs: Sequence[tuple[int, float | None]]
    errors: Array
    floats: int
    converged: bool
    warnings: Sequence[str]
    version: str
    removed: Mapping[str, str] = field(default_factory=dict)
    incidents: Sequence[Incident] = ()
    logs: Mapping[str, str] = field(default_factory=dict)
    aliased: Sequence[str] = ()
    not_estimable: Mapping[str, str] = field(default_factory=dict)
    recessions: Sequence[Recession] = ()
    limit: Array | None = None
    lost_directions: int = 0
    at_hand: ClientsAtHand | None = field(default=None, repr=False)
    x: Array | None = field(default=None, repr=False)
    null_deviance: float | None = None
    penalised: PenalisedLikelihood | None = None
    beside: Sequence[Row] = ()
    summed: Sequence[str] = ()
    noised: Noised | None = None

    def __repr__(self) -> str:
        clients = f"{self.n_clients:,} client{'s' * (self.n_clients != 1)}"
        if self.noised is not None:
            return (
                f"<Model {self.family.name}, {shortened(self.formula)}: {self.rank:,} coefficients "
                f"with noise, about {self.n:,} rows of {clients}>"
            )
        return (
            f"<Model {self.family.name}, {shortened(self.formula)}: {self.rank:,} coefficients, "
            f"{self.n:,} rows of {clients}, {'converged' if self.converged else 'NOT converged'}>"
        )

    def _repr_html_(self) -> str:
        return fragment(self)

    def __getstate__(self) -> dict[str, Any]:
        """Results alone: what is pickled holds no row, and no way to one."""
        return {**vars(self), "at_hand": None, "x": None}

    @property
    def family(self) -> Family:
        return FAMILIES[self.settings.family]

    @property
    def formula(self) -> str:
        return self.plan.formula

    @property
    def coef_(self) -> pd.Series:
        return pd.Series(self.coef, index=list(self.names), name="coef")

    @property
    def se(self) -> pd.Series | None:
        """Model-based standard errors; None with ``se_reason``."""
        if self.covariance_ is None:
            return None
        return pd.Series(np.sqrt(np.diag(self.covariance_)), index=list(self.names), name="se")

    @property
    def robust_se(self) -> pd.Series | None:
        """Standard errors clustered by client; None where there are none."""
        if self.robust_ is None:
            return None
        return pd.Series(np.sqrt(np.diag(self.robust_)), index=list(self.names), name="se")

    @property
    def se_reason(self) -> str | None:
        """Why there are no standard errors."""
        if self.covariance_ is not None:
            return None
        if self.settings.biased is not None:
            return (
                f"with {self.settings.biased} the estimate is biased, and a standard error would "
                "mislead"
            )
        if self.noised is not None:
            return "the noise hides the dispersion, or some coefficients: raise epsilon"
        if self.log_likelihood is not None:
            return "with as many coefficients as rows no dispersion can be estimated"
        return f"{self.family.name} has no likelihood: use robust standard errors"

    @property
    def zvalues(self) -> pd.Series | None:
        """Coefficients over their standard errors: t for gaussian and gamma, z elsewhere."""
        if self.se is None:
            return None
        return self.coef_ / self.se

    @property
    def settled(self) -> bool:
        """Whether the fit converged, as far as the arithmetic allows and a table shows.

        Rounding may end a fit before its tolerance; a hundredth of a standard error moves no
        printed digit. A fit whose rounds are spent did not converge.
        """
        if self.converged or self.noised is not None:
            return True
        bound = self.certificate.bound
        spent = self.rounds + PROOF > self.settings.rounds
        return not spent and bound is not None and bound <= 0.01

    @property
    def pvalues(self) -> pd.Series | None:
        """Two-sided p-values by Student's t or the normal distribution, as R's ``summary``.

        None without standard errors, and for a fit that did not converge.
        """
        if self.zvalues is None or not self.settled:
            return None
        return 2 * self._reference.sf(self.zvalues.abs())

    @property
    def _reference(self) -> StudentT | Normal:
        """The distribution of a coefficient over its standard error, model-based or robust."""
        if self.statistic == "t":
            return StudentT(self.df_residual)
        return Normal()

    @property
    def statistic(self) -> Literal["t", "z"]:
        """What a coefficient over its standard error is called; z with noise, which is normal."""
        if self.noised is not None:
            return "z"
        return self.family.statistic

    @property
    def n(self) -> int:
        return int(self.clients["n"].sum())

    @property
    def n_clients(self) -> int:
        """How many clients there are, those without a complete row included."""
        if self.noised is not None:
            return len(self.noised.clients)
        return len(self.summed or self.clients)

    @property
    def n_by_client(self) -> pd.Series:
        return self.clients["n"]

    @property
    def rounds(self) -> int:
        """Number of questions to every client by the method, set-up and proofs included."""
        return len(self.trace)

    @property
    def questions(self) -> int:
        """Number of exchanges with every client in all, from its file to the table."""
        return sum(row.questions for row in self.exchanges)

    @property
    def exchanges(self) -> list[Row]:
        """All that was asked: the handshake, the rounds and the end."""
        return [*self.beside[: self.before], *self.trace.rows, *self.beside[self.before :]]

    @property
    def before(self) -> int:
        """How many of ``beside`` came before the rounds; those of a run that lost a client too."""
        kinds = [row.kind in BEFORE for row in self.beside]
        return len(kinds) - kinds[::-1].index(True) if any(kinds) else 0

    @property
    def aic(self) -> float | None:
        # Firth's estimate does not maximise the likelihood
        if self.log_likelihood is None or self.settings.firth:
            return None
        return self.family.aic(self.log_likelihood, self.rank)

    @property
    def rank(self) -> int:
        """How many coefficients are estimated."""
        if self.limit is not None:
            return int(np.isfinite(self.limit).sum()) - self.lost_directions
        return int(np.isfinite(self.coef).sum())

    @property
    def df_residual(self) -> int:
        """Residual degrees of freedom: n - rank, with K classes (K - 1)n - rank."""
        return self._predictors * self.n - self.rank

    @property
    def df_null(self) -> int:
        """Degrees of freedom of the null deviance."""
        return self._predictors * (self.n - Formula(self.formula).intercept)

    @property
    def _predictors(self) -> int:
        """How many linear predictors a row has."""
        if self.family.has_reference:
            return len(self.plan.classes) - 1
        return 1

    @property
    def grouped(self) -> bool:
        """Whether a row stands for several trials: successes and failures, or a share of trials."""
        return self.plan.shares or Formula(self.formula).grouped is not None

    @property
    def modelled(self) -> str | None:
        """The class, or what is counted, whose probability a model of two classes is about."""
        if not self.family.binary:
            return None
        formula = Formula(self.formula)
        if formula.grouped is not None:
            return formula.grouped[0]
        if formula.target_column is None or not self.plan.classes:
            return formula.target
        label = str(self.plan.classes[1])
        if label in ("1", "True"):
            return f"{formula.target} = {label}"
        return label

    @property
    def r_squared(self) -> float | None:
        """The share of the target that the covariates explain.

        R² of a gaussian model, 1 - D/D₀ of a gamma model, McFadden's 1 - log L/log L₀ of others.
        None with a penalty or a constraint, and where there is no likelihood.
        """
        if self.null_deviance is None or self.log_likelihood is None:
            return None
        if self.settings.biased is not None or self.settings.firth:
            return None
        share = self.family.explained(self.log_likelihood, self.deviance, self.null_deviance)
        return max(share, 0.0)  # the model of the constant alone may fall short by rounding

    @property
    def f_test(self) -> FTest | None:
        """The test of all covariates together, of a gaussian model with any."""
        between = self.df_null - self.df_residual
        if not self.family.overall_f or self.r_squared is None or self.null_deviance is None:
            return None
        if between == 0 or self.df_residual <= 0 or self.deviance == 0:
            return None
        explained = (self.null_deviance - self.deviance) / between
        value = explained * self.df_residual / self.deviance
        p = float(fdtrc(between, self.df_residual, value))
        return FTest(value, between, self.df_residual, p)

    @property
    def attendance(self) -> pd.DataFrame:
        """How remote clients answered, one row per client.

        Columns: rounds ``answered``, ``median`` and ``longest`` seconds to an answer, the number
        of ``incidents``, and whether the client was ``removed``.
        """
        incidents = Counter(incident.client for incident in self.incidents)
        latency = self.trace.latency
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

    def covariance(self, robust: bool = False) -> pd.DataFrame:
        """The covariance of the coefficients, (d, d).

        Parameters
        ----------
        robust : bool
            Clustered by client, for rows of one client that are alike, rather than model-based.
        """
        matrix = self.robust_ if robust else self.covariance_
        if matrix is None:
            reason = self.se_reason
            if self.settings.firth:
                reason = "firth has the standard errors of R's logistf alone"
            elif self.noised is not None:
                reason = self.se_reason or "with dp there is the model-based one alone"
            elif robust and self.settings.biased is None:
                least = "two clients or more"
                if self.summed:
                    least = "ten clients or more with secure sums"
                reason = f"it needs {least}, and more rows than coefficients"
            raise InputError(f"there is no {'robust ' * robust}covariance: {reason}")
        return pd.DataFrame(matrix, index=list(self.names), columns=list(self.names))

    def conf_int(self, level: float = 0.95, robust: bool = False) -> pd.DataFrame:
        """Confidence intervals, by Student's t for gaussian and gamma, else by the normal law.

        Parameters
        ----------
        level : float
        robust : bool
            With the standard errors that are clustered by client, and the same distribution.

        Returns
        -------
        DataFrame
            One row per coefficient, with the columns ``lower`` and ``upper``.
        """
        if not 0 < number("level", level) < 1:
            raise InputError(f"level must be between 0 and 1, not {level!r}")
        half = self._reference.ppf(0.5 + level / 2) * np.sqrt(np.diag(self.covariance(robust)))
        return pd.DataFrame({"lower": self.coef_ - half, "upper": self.coef_ + half})

    def summary(self) -> Summary:
        """The table as text: ``print(model.summary())``."""
        return summary(self)

    def predict(
        self, frame: object, kind: Kind = "mean", *, unseen: Unseen = "error"
    ) -> pd.Series | pd.DataFrame:
        """Predictions for the rows of a frame, or of a file.

        Parameters
        ----------
        frame : DataFrame or path
            Needs the columns of the formula's right-hand side. A row with a missing value has no
            prediction. Where coefficients grow without
            bound, a row that recedes has the limit of its prediction.
        kind : str
            "mean" is the expected target, for two classes the probability of the second, and for
            more the probability of each; "link" is the linear predictor; "class" is the most
            probable class.
        unseen : str
            "nan" gives rows with a level that no client had no prediction; "error" refuses them.
        """
        coef = self.coef
        if self.limit is not None:
            coef = self.limit
        fitted = np.nan_to_num(coef)
        reading = self.settings.reading
        return predict(
            self.plan, self.family, fitted, frame, kind, unseen, self.recessions, reading
        )

    def bias_of(self, method: str, **settings: Any) -> Bias:
        """How far the fixed point of an averaging method is from this fit.

        The method runs on the same centred and scaled columns, from this solution.

        Parameters
        ----------
        method : str
            "fedavg", with ``local_steps`` (10 by default) and ``step``, or "fedprox", with
            ``step``.
        """
        if self.noised is not None:
            raise InputError("with dp no more questions are asked: there is nothing to compare")
        if self.summed:
            raise InputError("averaging needs the answers of single clients: fit without secure")
        if self.at_hand is None or self.x is None:
            raise InputError("this model has no clients at hand to run on: fit it in one process")
        if self.limit is not None:
            raise InputError("some coefficients grow without bound: there is nothing to compare")
        if self.settings.firth:
            raise InputError("averaging methods have no Firth correction: nothing to compare")
        if self.settings.l1 or self.settings.nonnegative:
            raise InputError(
                "averaging methods take no l1 and no constraints: there is nothing to compare"
            )
        clients, x, back = self.at_hand.in_scaled_columns(self.x)
        known = np.isfinite(self.coef)
        fitted = self.coef_[known]
        return bias(clients, x, back, self.errors[known], fitted, method, **settings)

    # What writes models imports this module, and the page imports matplotlib, which takes longer
    # than all the rest.

    def to_dict(self) -> dict[str, Any]:
        """All numbers of the summary, as JSON can hold them."""
        from fedsplit.regression.result import io

        return io.to_dict(self)

    def save(self, path: str | Path) -> None:
        """Write ``model.json`` and ``model.npz`` into a folder, for ``fedsplit.load``."""
        from fedsplit.regression.result import io

        io.save(self, Path(path))

    def report(self, path: str | Path) -> None:
        """Write a self-contained page: table, intervals, convergence, clients, settings."""
        from fedsplit.regression.result import page

        page.write(self, Path(path))

    def write(self, path: str | Path) -> None:
        """Write the model, its trace as CSV and its page ``report.html`` into a folder."""
        from fedsplit.regression.result import io

        folder = Path(path)
        # The page takes longest and is most likely to be interrupted, so it comes first.
        self.report(folder / "report.html")
        io.write_trace(self, folder / "trace.csv")
        self.save(folder)
