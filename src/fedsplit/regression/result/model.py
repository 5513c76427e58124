"""A fitted model: coefficients, their standard errors, and what is proved about them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import fdtrc

from fedsplit.arrays import Array
from fedsplit.errors import InputError
from fedsplit.regression.result import table
from fedsplit.regression.result.fitted import FittedModel
from fedsplit.regression.server.bias import Bias, ClientsAtHand
from fedsplit.regression.server.minimise import PROOF
from fedsplit.regression.server.report import FitCertificate, FitStatistics


class FTest(NamedTuple):
    """The test that no covariate has an effect: F, its degrees of freedom, and the p-value."""

    value: float
    df_model: int
    df_resid: int
    p: float


@dataclass(frozen=True, eq=False, repr=False)
class Model(FittedModel):
    """A regression over clients that keep their rows, with the numbers of the pooled fit.

    Attributes
    ----------
    fit : FitStatistics
        How well the model fits, and to which rows.
    at_hand, x : ClientsAtHand or None, (r,) array or None
        The regression and its solution in the coordinates of the rounds, where the clients are at
        hand. No rows are held: they are read and coded again when they are needed.
    disclosed_by : callable or None
        Computes the table of ``disclosure``, where the files are one's own.
    """

    fit: FitStatistics
    at_hand: ClientsAtHand | None = field(default=None, repr=False)
    x: Array | None = field(default=None, repr=False)
    disclosed_by: Callable[[str | None], pd.DataFrame] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        state = "converged" if self.converged else "NOT converged"
        return self._described("", "", f", {state}")

    def __getstate__(self) -> dict[str, Any]:
        """Results alone: what is pickled holds no row, and no way to one."""
        return {**vars(self), "at_hand": None, "x": None, "disclosed_by": None}

    @property
    def se_reason(self) -> str | None:
        if self.estimates.covariance is not None:
            return None
        if self.settings.biased is not None:
            return (
                f"with {self.settings.biased} the estimate is biased, and a standard error would "
                "mislead"
            )
        if self.family.has_likelihood:
            return "with as many coefficients as rows no dispersion can be estimated"
        return f"{self.family.name} has no likelihood: use robust standard errors"

    @property
    def settled(self) -> bool:
        """Whether the fit converged, as far as the arithmetic allows and a table shows.

        Rounding may end a fit before its tolerance; a hundredth of a standard error moves no
        printed digit. A fit whose rounds are spent did not converge.
        """
        if self.converged:
            return True
        bound = self.certificate.bound
        spent = self.rounds + PROOF > self.settings.rounds
        return not spent and bound is not None and bound <= 0.01

    @property
    def complete(self) -> bool:
        """Whether the tolerance is proved for all coefficients, with rows of every client."""
        whole = not self.removed and not self.not_estimable
        return whole and self.converged and bool((self.clients["n"] > 0).all())

    @property
    def _df_reference(self) -> float:
        return self.df_resid if self.statistic == "t" else math.inf

    @property
    def statistic(self) -> Literal["t", "z"]:
        return self.family.statistic

    @property
    def nobs(self) -> int:
        return int(self.clients["n"].sum())

    @property
    def n_clients(self) -> int:
        return len(self.run.summed or self.clients)

    @property
    def clients(self) -> pd.DataFrame:
        """One row per client: its rows, and what it contributes (see ``FitStatistics``)."""
        return self.fit.clients

    @property
    def certificate(self) -> FitCertificate:
        """What is proved about the distance from the pooled fit."""
        return self.run.certificate

    @property
    def converged(self) -> bool:
        """Whether the tolerance is proved."""
        return self.run.converged

    @property
    def warnings(self) -> Sequence[str]:
        """What could disclose single rows, what was left out, and what to look at."""
        ratio = self.overdispersion
        # above 1.5 errors are too small by a fifth; elsewhere than at the estimate X² says nothing
        if ratio is None or ratio <= 1.5 or not self.converged:
            return self.run.warnings
        return [
            *self.run.warnings,
            f"the rows vary {ratio:.2g} times as much as {self.family.name} regression allows "
            f"(Pearson's X²/df): standard errors that count it are {math.sqrt(ratio):.2g} times "
            "as large",
        ]

    @property
    def aliased(self) -> Sequence[str]:
        """The coefficients of columns that those before them determine."""
        return self.estimates.aliased

    @property
    def not_estimable(self) -> dict[str, str]:
        """The coefficients that would grow without bound, with "+inf" or "-inf"."""
        return dict(self.estimates.not_estimable)

    @property
    def rounds(self) -> int:
        """Number of exchanges by the method, set-up and proofs included."""
        return self.run.rounds

    @property
    def deviance(self) -> float:
        """As R's glm defines it."""
        return self.fit.deviance

    @property
    def null_deviance(self) -> float | None:
        """That of the intercept and the offset alone; None where there is no likelihood."""
        return self.fit.null_deviance

    @property
    def dispersion(self) -> float | None:
        """φ as R's glm estimates it; None with a penalty or a constraint."""
        return self.fit.dispersion

    @property
    def missing_values(self) -> Mapping[str, int]:
        return self.fit.missing_values

    @property
    def rows_left_out(self) -> int:
        return int(self.clients["missing"].sum())

    @property
    def spread(self) -> float | None:
        return self.fit.spread

    @property
    def llf(self) -> float | None:
        """The log-likelihood, as R's ``logLik``; None where there is none."""
        return self.fit.llf

    @property
    def aic(self) -> float | None:
        """-2 log L + 2k, where k counts the coefficients and φ, as in R."""
        return self._criterion(2.0)

    @property
    def bic(self) -> float | None:
        """-2 log L + k log n, where k counts the coefficients and φ, as in R."""
        return self._criterion(float(np.log(self.nobs)))

    def _criterion(self, price: float) -> float | None:
        """-2 log L + ``price`` per parameter; None if the estimate does not maximise L."""
        if self.llf is None or self.settings.biased is not None or self.settings.firth:
            return None
        return -2 * self.llf + price * (self.estimates.rank + self.family.dispersed)

    @property
    def df_model(self) -> int:
        """How many coefficients are estimated, intercepts not counted."""
        return self.df_null - self.df_resid

    @property
    def df_resid(self) -> int:
        """Residual degrees of freedom: n - rank, with K classes (K - 1)n - rank."""
        return self._predictors * self.nobs - self.estimates.rank

    @property
    def df_null(self) -> int:
        """Degrees of freedom of the null deviance."""
        own = sum(len(block.own) for block in self.family.blocks(self.plan.classes))
        return self._predictors * (self.nobs - self.plan.design_columns.intercept) - own

    @property
    def _predictors(self) -> int:
        """How many linear predictors a row has."""
        return sum([block.of_columns for block in self.family.blocks(self.plan.classes)])

    @property
    def grouped(self) -> bool:
        """Whether a row stands for several trials: successes and failures, or a share of trials."""
        return self.plan.shares or self.plan.parsed.grouped is not None

    @property
    def r_squared(self) -> float | None:
        """The share of the target that the covariates explain.

        R² of a gaussian model, 1 - D/D₀ of a gamma model, McFadden's 1 - log L/log L₀ of others.
        None with a penalty or a constraint, and where there is no likelihood.
        """
        if self.null_deviance is None or self.llf is None:
            return None
        if self.settings.biased is not None or self.settings.firth:
            return None
        share = self.family.explained(self.llf, self.deviance, self.null_deviance)
        return max(share, 0.0)  # the model of the constant alone may fall short by rounding

    @property
    def overdispersion(self) -> float | None:
        """Pearson's X²/df of counts and of groups of trials: about 1 if the model holds.

        Where it is larger the rows vary more than the family allows, and model-based standard
        errors are too small by its square root. None for other families, and with a penalty.
        """
        if self.fit.pearson is None or self.family.dispersed or self.settings.biased is not None:
            return None
        return self.fit.pearson / self.df_resid if self.df_resid > 0 else None

    @property
    def f_test(self) -> FTest | None:
        """The test of all covariates together, of a gaussian model with any."""
        if not self.family.quadratic or self.r_squared is None or self.null_deviance is None:
            return None
        if self.df_model == 0 or self.df_resid <= 0 or self.deviance == 0:
            return None
        explained = (self.null_deviance - self.deviance) / self.df_model
        value = explained * self.df_resid / self.deviance
        p = float(fdtrc(self.df_model, self.df_resid, value))
        return FTest(value, self.df_model, self.df_resid, p)

    def _lacks(self, robust: bool) -> str | None:
        if self.settings.firth:
            return "firth has the standard errors of R's logistf alone"
        if not robust or self.settings.biased is not None:
            return self.se_reason
        least = "ten clients or more with secure sums" if self.run.summed else "two clients or more"
        return f"it needs {least}, and more rows than coefficients"

    def head(self) -> Iterable[str]:
        return table.head(self)

    def foot(self) -> Iterable[str]:
        return table.foot(self)

    def about_clients(self) -> Iterable[str]:
        return table.clients_table(self.clients)

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | table.pooled_numbers(self)

    def disclosure(self, person: str | None = None) -> pd.DataFrame:
        """How much of what the clients answered can rest on one row: computed by fitting again.

        Whoever keeps all answers of a client knows sums of vectors over its rows, and of every
        combination of them. A row has at most the share h of the square of such a combination; at
        1 there is one that is a number of this row alone.

        Parameters
        ----------
        person : str, optional
            A column that says whose row each is: h is then that of all rows of a person, at most.

        Returns
        -------
        DataFrame
            By client, ``largest_h``, how many rows (or persons) are ``above`` 0.9, ``of`` how many,
            and how many questions left ``unstated`` what they disclose, so that h is without them.
        """
        if self.disclosed_by is None:
            raise InputError(
                "this model has no rows at hand: fit it in one process and ask it there; of rows "
                "elsewhere the owners see the leverages"
            )
        return self.disclosed_by(person)

    def bias_of(self, method: str, **settings: Any) -> Bias:
        """How far the fixed point of an averaging method is from this fit.

        The method runs on the same centred and scaled columns, from this solution.

        Parameters
        ----------
        method : str
            "fedgd", FedAvg with full gradients, with ``local_steps`` (10 by default), or "fedprox".
            Both take ``step``; without it, it is 2/(ℓ* + L*) of the clients' curvatures. The bias
            shrinks with the step, and so does the speed.
        """
        if self.run.summed:
            raise InputError("averaging needs the answers of single clients: fit without secure")
        if self.at_hand is None or self.x is None:
            raise InputError("this model has no clients at hand to run on: fit it in one process")
        if self.estimates.limit is not None:
            raise InputError("some coefficients grow without bound: there is nothing to compare")
        if self.settings.firth:
            raise InputError("averaging methods have no Firth correction: nothing to compare")
        if self.settings.l1 or self.settings.nonnegative:
            raise InputError(
                "averaging methods take no l1 and no constraints: there is nothing to compare"
            )
        known = np.isfinite(self.estimates.values)
        errors = self.estimates.errors[known]
        return self.at_hand.bias(self.x, self.params[known], errors, method, **settings)
