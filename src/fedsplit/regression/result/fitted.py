"""What all fitted models have in common: coefficients, their standard errors, predictions."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from fedsplit.arrays import Array, Mask
from fedsplit.checks import one_of, share
from fedsplit.clients.oracle import Incident
from fedsplit.data.frames import as_pandas
from fedsplit.data.sources import sources
from fedsplit.data.types import as_value
from fedsplit.errors import InputError, listed
from fedsplit.loop.trace import Row, Trace
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.families.family import Family
from fedsplit.regression.options import Settings
from fedsplit.regression.result import table
from fedsplit.regression.server.report import Estimates, FitCertificate

Kind: TypeAlias = Literal["mean", "link", "class"]
Unseen: TypeAlias = Literal["error", "nan"]


@dataclass(frozen=True, eq=False, repr=False)
class FittedModel(ABC):
    """What a pooled fit and one with noise have in common: coefficients, errors, predictions.

    Properties have the names of statsmodels' results.

    Attributes
    ----------
    plan : Plan
        The formula and the categories that the clients agreed on.
    settings : Settings
        The options of the fit.
    run : Computation
        How it was computed, and what is proved.
    estimates : Estimates
        The coefficients and their covariances.
    """

    plan: Plan
    settings: Settings
    run: Computation
    estimates: Estimates

    def _described(self, noise: str, about: str, state: str) -> str:
        """One line for a prompt; a model with noise says so in two places."""
        formula = table.shortened(self.formula)
        return (
            f"<{type(self).__name__} {self.family.name}, {formula}: {self.estimates.rank:,} "
            f"coefficients{noise}, {about}{self.nobs:,} rows of {self.n_clients:,} "
            f"client{'s' * (self.n_clients != 1)}{state}>"
        )

    def _repr_html_(self) -> str:
        return table.fragment(self)

    @property
    @abstractmethod
    def nobs(self) -> int:
        """The number of rows that were used."""

    @property
    @abstractmethod
    def n_clients(self) -> int:
        """How many clients there are, those without a complete row included."""

    @property
    @abstractmethod
    def dispersion(self) -> float | None:
        """φ."""

    @property
    @abstractmethod
    def settled(self) -> bool:
        """Whether the numbers are those of a fit that has come to its end."""

    @property
    @abstractmethod
    def complete(self) -> bool:
        """Whether the fit is what was asked for, with the rows of every client."""

    @property
    @abstractmethod
    def statistic(self) -> Literal["t", "z"]:
        """What a coefficient over its standard error is called."""

    @property
    @abstractmethod
    def se_reason(self) -> str | None:
        """Why there are no standard errors."""

    @abstractmethod
    def head(self) -> Iterable[str]:
        """The lines of the summary above the coefficients."""

    @abstractmethod
    def foot(self) -> Iterable[str]:
        """The lines of the summary below the coefficients."""

    def about_clients(self) -> Iterable[str]:
        """The parts of the summary about single clients, if anything is known of them."""
        return []

    @property
    def _df_reference(self) -> float:
        """Degrees of freedom of a coefficient over its standard error; infinite for a normal."""
        return math.inf

    @property
    def missing_values(self) -> Mapping[str, int]:
        """How many values each column lacks, over all clients, as far as it is known."""
        return {}

    @property
    def rows_left_out(self) -> int:
        """The rows that were not used, as far as it is known."""
        return 0

    @property
    def spread(self) -> float | None:
        """The robust deviation of the residuals that Huber's δ is in units of, if it is in any."""
        return None

    @property
    def warnings(self) -> Sequence[str]:
        """What could disclose single rows, what was left out, and what to look at."""
        return self.run.warnings

    @property
    def family(self) -> Family:
        return self.settings.chosen_family

    @property
    def formula(self) -> str:
        return self.plan.formula

    @property
    def terms(self) -> dict[str, list[str]]:
        """The columns of each term of the formula, by the text of the term."""
        columns = self.plan.design_columns
        names = iter(columns.names)
        by_term = {"Intercept": [next(names)]} if columns.intercept else {}
        for blocks in columns.terms:
            text = ":".join(columns.factors[block.place].text for block in blocks)
            width = math.prod(len(block.endings) for block in blocks)
            by_term[text] = list(itertools.islice(names, width))
        return by_term

    @property
    def params(self) -> pd.Series:
        """The coefficients, in the units of the data; nan where one is not estimated."""
        return self.estimates.series(self.estimates.values, "coef")

    @property
    def bse(self) -> pd.Series | None:
        """Model-based standard errors; None with ``se_reason``."""
        if self.estimates.covariance is None:
            return None
        return self.estimates.series(np.sqrt(np.diag(self.estimates.covariance)), "se")

    @property
    def tvalues(self) -> pd.Series | None:
        """Coefficients over their standard errors: t for gaussian and gamma, z elsewhere."""
        return None if self.bse is None else self.params / self.bse

    @property
    def pvalues(self) -> pd.Series | None:
        """Two-sided p-values by Student's t or the normal distribution, as R's ``summary``.

        None without standard errors, and for a fit that did not converge.
        """
        if self.tvalues is None or not self.settled:
            return None
        # scipy.stats has both tails too, but takes longer to import than a small fit takes
        z, df = -self.tvalues.abs(), self._df_reference
        return 2 * (ndtr(z) if math.isinf(df) else stdtr(df, z))

    @property
    def robust_bse(self) -> pd.Series | None:
        """Standard errors clustered by client; None where there are none.

        By CR2, with the degrees of freedom in ``robust_df``; nan for a coefficient that a single
        client determines.
        """
        if self.estimates.robust is None:
            return None
        return self.estimates.series(np.sqrt(np.diag(self.estimates.robust.matrix)), "se")

    @property
    def robust_df(self) -> pd.Series | None:
        """Satterthwaite's degrees of freedom of each coefficient, clustered by client."""
        if self.estimates.robust is None:
            return None
        return self.estimates.series(self.estimates.robust.df, "df")

    @property
    def removed(self) -> dict[str, str]:
        """The clients that were removed during the run, with the reason."""
        return dict(self.run.removed)

    @property
    def exchanges(self) -> int:
        """Number of exchanges with every client in all, from its file to the table."""
        return self.run.exchanges

    @property
    def trace(self) -> Trace:
        """One row per exchange: to agree on the model, of the method, and about the fit."""
        return self.run.trace

    @property
    def delta(self) -> float | None:
        """Huber's δ in the unit of the target; None of another family."""
        if not self.family.robust:
            return None
        return self.settings.delta * (self.spread or 1.0)

    @property
    def modelled(self) -> str | None:
        """The class, or what is counted, whose probability a model of two classes is about."""
        if not self.family.binary:
            return None
        formula = self.plan.parsed
        if formula.grouped is not None:
            return formula.grouped[0]
        if formula.target_column is None or not self.plan.classes:
            return formula.target
        label = str(self.plan.classes[1])
        return f"{formula.target} = {label}" if label in ("1", "True") else label

    @abstractmethod
    def _lacks(self, robust: bool) -> str | None:
        """Why there is no covariance."""

    def cov_params(self, robust: bool = False) -> pd.DataFrame:
        """The covariance of the coefficients, (d, d).

        Parameters
        ----------
        robust : bool
            Clustered by client, for rows of one client that are alike, rather than model-based.
        """
        matrix = self.estimates.covariance
        if robust:
            matrix = None if self.estimates.robust is None else self.estimates.robust.matrix
        if matrix is None:
            raise InputError(f"there is no {'robust ' * robust}covariance: {self._lacks(robust)}")
        names = list(self.estimates.names)
        return pd.DataFrame(matrix, index=names, columns=names)

    def conf_int(self, alpha: float = 0.05, robust: bool = False) -> pd.DataFrame:
        """Confidence intervals, by Student's t for gaussian and gamma, else by the normal law.

        Parameters
        ----------
        alpha : float
            One minus the level: 0.05 for intervals of 95 %.
        robust : bool
            Clustered by client, by Student's t with ``robust_df`` degrees of freedom.

        Returns
        -------
        DataFrame
            One row per coefficient, with the columns ``lower`` and ``upper``.
        """
        alpha = share("alpha", alpha, one=False)
        errors = np.sqrt(np.diag(self.cov_params(robust)))
        df: float | Array = self._df_reference
        if robust and self.estimates.robust is not None:
            df = self.estimates.robust.df
        q = 1 - alpha / 2
        half = np.where(np.isinf(df), ndtri(q), stdtrit(df, q)) * errors
        return pd.DataFrame({"lower": self.params - half, "upper": self.params + half})

    def summary(self) -> table.TableText:
        """The table as text: ``print(model.summary())``."""
        return table.summary(self)

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
        one_of("kind", kind, get_args(Kind))
        one_of("unseen", unseen, get_args(Unseen))
        plan, family = self.plan, self.family
        if kind == "class" and not family.classifies:
            raise InputError(f"{family.name} has no classes: use kind='mean'")
        table = as_pandas(frame)
        data = frame if table is None else {"the frame": table}
        files = sources(data, reading=self.settings.reading)
        if len(files) != 1:
            raise InputError(f"predict takes one frame or file, got {len(files)}")
        where = files[0].name
        rows = plan.read_covariates(files[0], where)
        strange = _unseen(plan, rows, where, unseen)
        complete = ~rows.isna().any(axis=1).to_numpy() & ~strange
        complete[complete] = plan.has_values(rows[complete])
        A, o = plan.design(rows[complete], where)
        # a coefficient that is not estimated contributes nothing, as in R
        eta = family.predictor(A, np.nan_to_num(self.estimates.predicting), o)
        for recession in reversed(self.estimates.recessions):  # the first one goes furthest
            moves = recession.moves(A)
            eta = np.where(moves == 0, eta, np.copysign(np.inf, moves))
        predicted = _from_predictor(plan, family, eta, kind)
        values = np.full((len(rows), *predicted.shape[1:]), np.nan, dtype=predicted.dtype)
        values[complete] = predicted
        index = rows.index if table is None else table.index
        if values.ndim == 1:
            return pd.Series(values, index=index, name=plan.parsed.target)
        # the linear predictor of the reference class is zero, and is left out
        return pd.DataFrame(values, index=index, columns=list(plan.classes)[-values.shape[1] :])

    def to_dict(self) -> dict[str, Any]:
        """All numbers of the summary, as JSON can hold them."""
        return table.to_dict(self)

    # What writes models imports this module, and the page imports matplotlib, which takes longer
    # than all the rest.

    def save(self, path: str | Path) -> None:
        """Write ``model.json`` into a folder, for ``fedsplit.load``."""
        from fedsplit.regression.result import io

        io.save(self, Path(path))

    def report(self, path: str | Path) -> None:
        """Write a self-contained page: table, intervals, settings.

        That of a pooled fit has its convergence and its clients too.
        """
        from fedsplit.regression.result import page

        page.write(self, Path(path))

    @staticmethod
    def check_folder(path: str | Path) -> None:
        """Raise InputError if ``write`` would replace a file that fedsplit did not write."""
        from fedsplit.regression.result import io

        io.check_folder(Path(path))

    def write(self, path: str | Path) -> None:
        """Write the model, its trace as CSV and its page ``report.html`` into a folder.

        Raises
        ------
        InputError
            If the folder has a file of such a name that fedsplit did not write.
        """
        from fedsplit.regression.result import io

        folder = Path(path)
        io.check_folder(folder)
        # The page takes longest and is most likely to be interrupted, so it comes first.
        self.report(folder / io.PAGE)
        io.write_trace(self, folder / io.TRACE)
        self.save(folder)


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
            sizes = (np.median(answers), np.max(answers)) if answers.size else (np.nan, np.nan)
            rows.append((answers.size, *map(float, sizes), incidents[name], name in self.removed))
        columns = ["answered", "median", "longest", "incidents", "removed"]
        return pd.DataFrame(rows, columns=columns, index=pd.Index(names, name="client"))


def _unseen(plan: Plan, rows: pd.DataFrame, where: str, unseen: Unseen) -> Mask:
    """Which rows, (n,), have a level that no client had; an error unless it is to be NaN."""
    strange = np.zeros(len(rows), dtype=bool)
    for column, levels in plan.levels.items():
        if column not in rows:
            continue
        values = rows[column]
        found = (values.notna() & ~values.isin(levels)).to_numpy()
        if found.any() and unseen == "error":
            first = int(np.argmax(found))
            raise InputError(
                f"{where}: column {column}, row {first + 1}: {values.iloc[first]} is none of its "
                f"levels {listed(levels)}; unseen='nan' gives such rows no prediction"
            )
        strange |= found
    return strange


def _from_predictor(plan: Plan, family: Family, eta: Array, kind: Kind) -> Array:
    """The prediction of every row from its linear predictor."""
    if kind == "link":
        return eta
    mean = family.link.mean(eta)
    if kind == "mean":
        return mean
    winner = np.argmax(mean, axis=1) if mean.ndim == 2 else (mean > 0.5).astype(np.intp)
    labels: list[object] = [0, 1]
    if plan.classes:
        held = plan.types[str(plan.parsed.target_column)]
        labels = [as_value(level, held) for level in plan.classes]
    classes: Array = np.array(labels, dtype=object)[winner]
    return classes
