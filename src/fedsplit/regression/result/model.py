"""A fitted model: the table, its proof, predictions, and a way to keep it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.stats import norm

from fedsplit import files
from fedsplit.arrays import Array
from fedsplit.checks import number, one_of
from fedsplit.clients.oracle import Incident
from fedsplit.data.categories import as_text
from fedsplit.data.formula import Formula
from fedsplit.data.sources import sources
from fedsplit.errors import InputError
from fedsplit.regression.client.dataset import Plan
from fedsplit.regression.client.design import Calibration
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.families.family import Family
from fedsplit.regression.options import Settings
from fedsplit.regression.result import io as storage
from fedsplit.regression.result.table import Summary, summary
from fedsplit.regression.server.bias import Bias, bias
from fedsplit.regression.server.inference import CLIENT_COLUMNS
from fedsplit.regression.server.task import Task
from fedsplit.rounds.trace import Row, Trace

COLUMNS = tuple(column for column in Row._fields if column != "latency")
"""Of a trace, but for the latencies, which are by client."""


@dataclass(frozen=True)
class FitCertificate:
    """What is proved about a fit, beside the fit of the pooled data.

    gap : the objective is at most this above its minimum; None where nothing can be proved.
    standard_errors : |coefficient - pooled coefficient| is at most this many of its standard errors, for all of them.
        With a penalty, whose estimates have none, of those that the information matrix alone would give. Where the
        model explains all but 1e-6 of the target's variance, of those that it would have at that share.
    reason : by what argument, or why there is none.
    """

    gap: float | None
    standard_errors: float | None
    reason: str

    def __str__(self) -> str:
        if self.gap is None or self.standard_errors is None:
            return f"nothing is proved: {self.reason}"
        return (
            f"within {self.gap:.1g} of the pooled optimum; every coefficient within {self.standard_errors:.1g} "
            f"standard errors of the pooled fit (by {self.reason})"
        )


@dataclass(frozen=True, eq=False)
class Model:
    """A regression over clients that never pooled their data, with the numbers that pooling would have given.

    Attributes
    ----------
    coef_ : Series
        The coefficients by name.
    se, zvalues, pvalues : Series or None
        Standard errors, coef/se, and two-sided p-values of the normal distribution; None with ``se_reason``.
    covariance_, robust_ : (d, d) arrays or None
        Model-based; and the sandwich in which the clients are the clusters.
    log_likelihood, deviance, aic, dispersion : float
        As statsmodels' GLM defines them; None where the family has no likelihood.
    n, n_by_client, clients
        Rows used; by client; and all that is known by client: rows, rows left out for missing values, share of the
        information, length of the score, and the coefficient that would move most without the client, with its move in
        standard errors.
    certificate : FitCertificate
        What is proved.
    rounds, floats, converged : int, int, bool
        Questions to every client, floats sent both ways, and whether the tolerance is proved to be met.
    trace : Trace
        One row a round.
    warnings : sequence of str
        What could disclose single rows, and what was left out.
    removed : mapping
        The clients that were given up, each with the reason: the model is that of the others.
    incidents : sequence of Incident
        What went wrong with answers of clients elsewhere.
    errors : (d,) array
        The standard errors that the information matrix gives, also where they mean nothing because of a penalty.
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
    task: Task | None = field(default=None, repr=False)
    x: Array | None = field(default=None, repr=False)

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
        return None if self.covariance_ is None else self._errors(robust=False)

    @property
    def se_reason(self) -> str | None:
        """Why there are no standard errors."""
        if self.covariance_ is not None:
            return None
        if (what := self.settings.biased) is not None:
            return f"with {what} the estimate is biased, and a standard error would mislead"
        return f"{self.family.name}'s loss is no likelihood: use the robust ones, by client"

    @property
    def zvalues(self) -> pd.Series | None:
        return None if self.se is None else self.coef_ / self.se

    @property
    def pvalues(self) -> pd.Series | None:
        return (
            None
            if self.zvalues is None
            else 2 * pd.Series(norm.sf(self.zvalues.abs()), index=list(self.names))
        )

    @property
    def n(self) -> int:
        return int(self.clients["n"].sum())

    @property
    def n_by_client(self) -> pd.Series:
        return self.clients["n"]

    @property
    def rounds(self) -> int:
        return len(self.trace)

    @property
    def aic(self) -> float | None:
        return (
            None
            if self.log_likelihood is None
            else self.family.aic(self.log_likelihood, len(self.names))
        )

    @property
    def attendance(self) -> pd.DataFrame:
        """By client, where they are elsewhere: rounds answered, median and longest seconds to an answer, incidents."""
        told = {
            name: (
                int(np.isfinite(seconds).sum()),
                float(np.nanmedian(seconds)),
                float(np.nanmax(seconds)),
            )
            for name, seconds in self.trace.latency.items()
        }
        troubles = Counter(incident.client for incident in self.incidents)
        names = [*told, *(name for name in self.removed if name not in told)]
        rows = [
            (*told.get(name, (0, np.nan, np.nan)), troubles[name], name in self.removed)
            for name in names
        ]
        columns = ["answered", "median", "longest", "incidents", "removed"]
        return pd.DataFrame(rows, columns=columns, index=pd.Index(names, name="client"))

    def covariance(self, robust: bool = False) -> pd.DataFrame:
        """The covariance of the coefficients: model-based, or robust, where rows of one client may be alike."""
        matrix = self.robust_ if robust else self.covariance_
        if matrix is None:
            raise InputError(
                self._no_robust() if robust else f"there is no covariance: {self.se_reason}"
            )
        return pd.DataFrame(matrix, index=list(self.names), columns=list(self.names))

    def conf_int(self, level: float = 0.95, robust: bool = False) -> pd.DataFrame:
        """Confidence intervals of the normal distribution: a row a coefficient, columns lower and upper."""
        if not 0 < number("level", level) < 1:
            raise InputError(f"level must be between 0 and 1, not {level!r}")
        half = norm.ppf(0.5 + level / 2) * self._errors(robust)
        return pd.DataFrame({"lower": self.coef_ - half, "upper": self.coef_ + half})

    def summary(self) -> Summary:
        """The table, as text: ``print(model.summary())``."""
        return summary(self)

    def predict(
        self, frame: object, kind: Literal["mean", "link", "class"] = "mean"
    ) -> pd.Series | pd.DataFrame:
        """Predictions for the rows of a frame, or of a file.

        ``mean`` is the expected target, or the probability of the second class, or a frame of all the classes'
        probabilities for multinomial; ``link`` the linear predictor; ``class`` the most probable class. A row with a
        missing value has no prediction.
        """
        one_of("kind", kind, ("mean", "link", "class"))
        if kind == "class" and not self.family.classifies:
            raise InputError(f"{self.family.name} has no classes: use kind='mean'")
        found = sources(frame)
        if len(found) != 1:
            raise InputError(f"predict takes one frame or file, these are {len(found)}")
        source = found[0]
        extra = [name for name in (self.plan.offset, self.plan.exposure) if name is not None]
        columns = [
            column for column in self._formula.columns if column not in self._formula.target_columns
        ] + extra
        rows = source.read(columns or list(source.columns())[:1]).reset_index(drop=True)
        for column in columns:
            if (
                column not in self.plan.levels
                and rows[column].dtype == object
                and rows[column].notna().any()
            ):
                raise InputError(
                    f"{source.name}: column {column} holds text, and numbers in the fit"
                )
        needed = rows[columns].drop(columns=list(self.plan.fills))
        complete = ~needed.isna().any(axis=1).to_numpy()
        _, A, o = self.plan.design(rows[complete], source.name)
        eta = self.family.predictor(A, self.coef, o)
        values = self._predicted(eta, kind)
        everywhere = np.full((len(rows), *values.shape[1:]), np.nan, dtype=values.dtype)
        everywhere[complete] = values
        index = frame.index if isinstance(frame, pd.DataFrame) else rows.index
        if values.ndim == 1:
            return pd.Series(everywhere, index=index, name=self._formula.target)
        labels = self._labels if kind == "mean" else self._labels[1:]
        return pd.DataFrame(everywhere, index=index, columns=labels)

    def bias_of(self, method: str, **settings: Any) -> Bias:
        """How far "fedavg" (``local_steps=10``, ``step=``) or "fedprox" (``step=``) would land from this fit.

        Both run on the same centred and scaled columns, from this solution, to their own fixed point.
        """
        if self.task is None or self.x is None:
            raise InputError("this model has no clients at hand to run on: fit it in one process")
        if self.settings.l1 or self.settings.nonnegative:
            raise InputError(
                "averaging methods take no l1 and no constraints: there is nothing to compare"
            )
        clients, x, back = self.task.in_scaled_columns(self.x)
        return bias(clients, x, back, self.errors, self.names, method, **settings)

    def save(self, path: str | Path) -> None:
        """Write ``model.json`` and ``model.npz`` into a folder, for ``fedsplit.load``."""
        record, arrays = self._stored()
        storage.save(Path(path), record, arrays)

    def report(self, path: str | Path) -> None:
        """Write one page that needs nothing else: table, intervals, convergence, clients, calibration, settings."""
        from fedsplit.regression.result import (
            page,
        )  # figures take as long to import as all the rest

        page.write(self, Path(path))

    def write(self, path: str | Path) -> None:
        """The model, its trace as CSV, and its page, ``report.html``, into a folder."""
        folder = Path(path)
        self.report(
            folder / "report.html"
        )  # what takes longest, and is most likely to be interrupted, first
        rows = (
            pd.DataFrame(self.trace.rows)
            .assign(round=range(1, len(self.trace) + 1))
            .set_index("round")
        )
        by_client = {f"seconds of {name}": seconds for name, seconds in self.trace.latency.items()}
        rows = rows.drop(columns="latency").assign(**by_client)
        files.write(folder / "trace.csv", rows.to_csv())
        self.save(folder)

    def to_dict(self) -> dict[str, Any]:
        """All numbers of the summary, as JSON can hold them."""

        def by_name(values: pd.Series | None) -> dict[str, float | None] | None:
            return (
                None
                if values is None
                else {str(name): storage.finite(float(v)) for name, v in values.items()}
            )

        interval = None if self.se is None else self.conf_int()
        return {
            "formula": self.formula,
            "family": self.family.name,
            "coef": by_name(self.coef_),
            "se": by_name(self.se),
            "se_reason": self.se_reason,
            "z": by_name(self.zvalues),
            "p": by_name(self.pvalues),
            "lower": None if interval is None else by_name(interval["lower"]),
            "upper": None if interval is None else by_name(interval["upper"]),
            "robust_se": by_name(self._errors(robust=True)) if self.robust_ is not None else None,
            "n": self.n,
            "clients": [
                {
                    "client": str(name),
                    **{
                        key: storage.finite(v) if isinstance(v, float) else v
                        for key, v in row.items()
                    },
                }
                for name, row in zip(
                    self.clients.index, self.clients.to_dict("records"), strict=True
                )
            ],
            "log_likelihood": storage.finite(self.log_likelihood),
            "deviance": storage.finite(self.deviance),
            "aic": storage.finite(self.aic),
            "dispersion": storage.finite(self.dispersion),
            "rounds": self.rounds,
            "floats": self.floats,
            "converged": self.converged,
            "certificate": dataclasses.asdict(self.certificate),
            "removed": dict(self.removed),
            "incidents": [each._asdict() for each in self.incidents],
            "warnings": list(self.warnings),
        }

    @property
    def _formula(self) -> Formula:
        return Formula(self.plan.formula)

    @property
    def _labels(self) -> list[str]:
        return [as_text(level) for level in self.plan.classes]

    def _predicted(self, eta: Array, kind: str) -> Array:
        if kind == "link":
            return eta
        mean = self.family.link.mean(eta)
        if kind == "mean":
            return mean
        winner = np.argmax(mean, axis=1) if mean.ndim == 2 else (mean > 0.5).astype(np.intp)
        classes: Array = np.array(list(self.plan.classes) or [0, 1], dtype=object)[winner]
        return classes

    def _check_shapes(self) -> None:
        """Refuse parts that do not belong together, as those of a damaged file."""
        d = len(self.names)
        square = [matrix for matrix in (self.covariance_, self.robust_) if matrix is not None]
        if (
            self.coef.shape != (d,)
            or self.errors.shape != (d,)
            or any(matrix.shape != (d, d) for matrix in square)
        ):
            raise ValueError(f"its arrays are not of {d} coefficients")
        if any(values.dtype.kind != "f" for values in (self.coef, self.errors, *square)):
            raise ValueError("its arrays are not numbers")
        _ = self._formula, self.summary()  # a formula that would be refused, numbers that are none

    def _errors(self, robust: bool) -> pd.Series:
        matrix = self.covariance(robust).to_numpy()
        return pd.Series(np.sqrt(np.diag(matrix)), index=list(self.names), name="se")

    def _no_robust(self) -> str:
        if self.settings.biased is not None:
            return f"there is no robust covariance: {self.se_reason}"
        return "there is no robust covariance: it needs two clients or more, and more rows than coefficients"

    def _stored(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The model in two parts: what JSON holds, and arrays."""
        arrays = {"coef": self.coef, "errors": self.errors}
        arrays |= {
            name: values
            for name, values in (("covariance_", self.covariance_), ("robust_", self.robust_))
            if values is not None
        }
        if self.calibration is not None:
            arrays["calibration"] = np.stack(self.calibration)
        for column in COLUMNS:
            values = [getattr(row, column) for row in self.trace.rows]
            arrays[f"trace_{column}"] = np.array(values)
        arrays["latency"] = np.array(list(self.trace.latency.values()))
        record = {
            "latency": list(self.trace.latency),
            "version": self.version,
            "plan": dataclasses.asdict(self.plan),
            "settings": dataclasses.asdict(self.settings),
            "names": list(self.names),
            "proofs": [[round_, gap] for round_, gap in self.proofs],
            "start": storage.finite(self.trace.start),
            **self.to_dict(),
        }
        return record, arrays


def load(path: str | Path) -> Model:
    """A model that ``Model.save`` wrote. Nothing in the files is executed."""
    folder = Path(path)
    record, arrays = storage.load(folder)
    try:
        clients = pd.DataFrame(record["clients"]).set_index("client")[list(CLIENT_COLUMNS)]
        # Models of earlier versions lack the columns that were not counted then.
        columns = [column for column in COLUMNS if f"trace_{column}" in arrays]
        values = zip(*(arrays[f"trace_{column}"].tolist() for column in columns), strict=True)
        rows = [Row(**dict(zip(columns, row, strict=True))) for row in values]
        if names := record["latency"]:
            told = [
                {
                    name: value
                    for name, value in zip(names, values, strict=True)
                    if not np.isnan(value)
                }
                for values in arrays["latency"].T.tolist()
            ]
            rows = [row._replace(latency=seconds) for row, seconds in zip(rows, told, strict=True)]
        model = Model(
            plan=Plan(**record["plan"]),
            settings=Settings(**record["settings"]),
            names=record["names"],
            coef=arrays["coef"],
            covariance_=arrays.get("covariance_"),
            robust_=arrays.get("robust_"),
            dispersion=record["dispersion"],
            log_likelihood=record["log_likelihood"],
            deviance=record["deviance"],
            certificate=FitCertificate(**record["certificate"]),
            clients=clients,
            calibration=Calibration(*arrays["calibration"]) if "calibration" in arrays else None,
            trace=Trace(np.nan if record["start"] is None else record["start"], rows),
            proofs=[(round_, gap) for round_, gap in record["proofs"]],
            errors=arrays["errors"],
            floats=record["floats"],
            converged=record["converged"],
            warnings=record["warnings"],
            version=record["version"],
            removed=dict(record["removed"]),
            incidents=[Incident(**each) for each in record["incidents"]],
        )
        model._check_shapes()
        return model
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise InputError(
            f"{folder}: this is no saved model, or a damaged one ({type(error).__name__}: {error})"
        ) from None
