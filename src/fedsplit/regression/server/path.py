"""``path``: a regression for every λ of a grid, each from where the last one ended, and the λ for new clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsplit.arrays import Array, Mask
from fedsplit.checks import number
from fedsplit.clients.questions import ProofScalars
from fedsplit.data.categories import as_text
from fedsplit.data.formula import Formula
from fedsplit.data.sources import sources
from fedsplit.errors import InputError, listed
from fedsplit.methods.fedsplit import FedSplit, FedSplitState
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.options import PathOptions, Settings, with_options
from fedsplit.regression.result.model import FitCertificate, Model
from fedsplit.regression.result.table import Summary, aligned
from fedsplit.regression.server.federation import FederatedRows, Federation, rows_here
from fedsplit.regression.server.fit import certified, finish, make_task, prepare
from fedsplit.regression.server.handshake import Agreement
from fedsplit.regression.server.pool import Pool
from fedsplit.regression.server.search import Estimate
from fedsplit.regression.server.task import Task
from fedsplit.remote.channel import LocalChannel
from fedsplit.remote.members import Members

EVERYTHING = 1e100
"""An l1 above every gradient: no penalised coefficient leaves zero."""

RIDGE_ONLY = 1e-3
"""Without l1 no λ makes coefficients zero, and the grid starts where it would with this l1_ratio, as glmnet's does."""

Pair: TypeAlias = tuple[float, float]
"""l1 and ridge."""


class Fold(NamedTuple):
    """Clients that are held out, and the others: numbers in the order of all."""

    out: list[int]
    inside: list[int]

    def without(self, agreement: Agreement) -> str:
        """How a line about this fold begins."""
        return f"folds: without {listed([agreement.rows.names[j] for j in self.out], 3)}, "


@dataclass(frozen=True, eq=False)
class RegularisationPath:
    """Models for falling λ, where l1 = λ·l1_ratio and ridge = λ·(1 - l1_ratio) are those of ``fit``.

    Attributes
    ----------
    lambdas : (k,) array
        Falling.
    coef_ : DataFrame
        A row a λ, in the units of the files.
    active : (k,) array
        How many coefficients are not zero, the intercept not counted.
    rounds : (k,) array
        Questions to every client, those of the proof included; at λ_max also those that found it.
    certificates, converged : list of FitCertificate, (k,) array
        What is proved at each λ, and whether that is the tolerance.
    cv : DataFrame or None
        A row a λ: the deviance of a row at a client that was held out, its mean, and the mean's standard error over
        folds, each fold counting by its rows (weights).
    warnings : list of str
        What could disclose single rows, and what is not proved.
    """

    lambdas: Array
    coef_: pd.DataFrame
    active: NDArray[np.intp]
    rounds: NDArray[np.intp]
    certificates: Sequence[FitCertificate]
    converged: Mask
    cv: pd.DataFrame | None
    warnings: Sequence[str]
    l1_ratio: float
    task: Task = field(repr=False)
    agreement: Agreement = field(repr=False)

    @property
    def distance(self) -> Array:
        """The proved bound on |coefficient - pooled|/SE at each λ, not a number where nothing is proved."""
        return np.array([each.standard_errors for each in self.certificates], dtype=np.float64)

    @property
    def best(self) -> float:
        """The λ whose models predict new clients best."""
        return float(self._folded["mean"].idxmin())

    @property
    def best_1se(self) -> float:
        """The largest λ that predicts as well, but for one standard error."""
        cv, best = self._folded, self.best
        return float(cv.index[cv["mean"] <= cv["mean"][best] + cv["se"][best]].max())

    @property
    def _folded(self) -> pd.DataFrame:
        if self.cv is None:
            raise InputError("no λ is the best without cross-validation: use folds='clients'")
        return self.cv

    def model(self, lam: float) -> Model:
        """The model at a λ, on the path or not: that of ``fit`` with this l1 and ridge, at its price and tolerance."""
        l1, ridge = _penalties(number("lam", lam), self.l1_ratio)
        return finish(
            self.task.at(l1, ridge, min(self.task.settings.tol, Settings.tol)), self.agreement
        )

    def summary(self) -> Summary:
        """A line a λ, as text: ``print(path.summary())``."""
        head = [
            "lambda",
            "active",
            "rounds",
            "proved SE",
            *(() if self.cv is None else ("deviance", "std err", "")),
        ]
        table = [head, *(self._line(i) for i in range(len(self.lambdas)))]
        settings, rows, clients = self.task.settings, self.task.pool.n, self.task.clients.m
        return Summary(
            "\n".join(
                [
                    f"{settings.family} path over {clients} clients, l1_ratio {self.l1_ratio:g}",
                    self.agreement.plan.formula,
                    f"n {rows:,}   parameters {self.task.d}   rounds {self.rounds.sum():,}",
                    "",
                    *aligned(table, left=(6,)),
                    *(f"warning: {text}" for text in self.warnings),
                ]
            )
        )

    def _line(self, i: int) -> list[str]:
        lam, distance = float(self.lambdas[i]), self.distance[i]
        proved = (
            f"{distance:.0e}{'' if self.converged[i] else ' NO'}" if np.isfinite(distance) else "–"
        )
        cells = [f"{lam:.5g}", str(self.active[i]), str(self.rounds[i]), proved]
        if self.cv is None:
            return cells
        marks = [name for name in ("best", "best_1se") if lam == getattr(self, name)]
        return [*cells, *(f"{self.cv[name][lam]:.5g}" for name in ("mean", "se")), ", ".join(marks)]


@with_options(PathOptions)
def path(options: PathOptions) -> RegularisationPath:
    """Fit a regression with an elastic net for many λ, and choose among them by held-out clients.

    The penalty is λ(l1_ratio‖coef‖₁ + (1 - l1_ratio)/2 ‖coef‖²), added to the sum of the losses; the
    intercept is not penalised. Each λ starts from the last one: the server knows the clients'
    curvature by then, and asks for a few rounds only.

    <parameters>

    Returns
    -------
    RegularisationPath
        The coefficients at every λ, with their proofs and the cross-validated deviance.
    """
    grid, l1_ratio = _grid(options.lambdas), options.l1_ratio
    settings = options.settings
    cohort = DatasetCohort([Dataset(source) for source in sources(options.data, options.group)])
    federation = Federation(Members(LocalChannel(cohort)))
    agreement, formula_ = prepare(federation, options)
    parts = _folds(agreement, options.folds, settings.seed, formula_)
    task = _free_of_ridge(make_task(agreement, formula_, settings))
    null: Estimate | None = None
    if grid is None:
        null = task.run(task.penalty(EVERYTHING))
        grid = lambda_max(task, null, l1_ratio) * np.geomspace(
            1.0, options.ratio, options.n_lambdas
        )
    penalties = [_penalties(lam, l1_ratio) for lam in grid]
    if (
        null is not None and l1_ratio > 0
    ):  # at λ_max itself rounding would decide which coefficient is zero
        found = list(_follow(task, [(EVERYTHING, penalties[0][1]), *penalties[1:]], null))
    else:
        found = list(_follow(task, penalties, null))
    x = np.stack([each.x for each in found])
    coef = pd.DataFrame(
        x @ task.back.T, index=pd.Index(grid, name="lambda"), columns=list(task.names)
    )
    asked = np.array([len(each.trace) for each in found])
    asked[0] += 0 if null is None else len(null.trace)
    unproved = [
        f"lambda {lam:.5g}: the tolerance is not proved ({each.proof.certificate.reason})"
        for lam, each in zip(grid, found, strict=True)
        if not each.converged
    ]
    return RegularisationPath(
        grid,
        coef,
        np.count_nonzero(x[:, task.penalised(2) > 0], axis=1),
        asked,
        [certified(task, each) for each in found],
        np.array([each.converged for each in found]),
        _cross_validate(task, agreement, formula_, parts, penalties).set_index(coef.index)
        if parts
        else None,
        [*agreement.warnings, *unproved],
        l1_ratio,
        task,
        agreement,
    )


def lambda_max(task: Task, null: Estimate, l1_ratio: float) -> float:
    """The smallest λ for which all penalised coefficients are zero: max_i |g_i|/(w_i·l1_ratio).

    g is the gradient at the model without them and w_i what multiplies l1 in the coordinates of the rounds. A
    coefficient that must not be negative is zero also where its gradient is positive.
    """
    g, w = null.proof.gradients.sum(axis=0), task.penalised(1)
    penalty = task.penalty(1.0)
    steepness = (
        np.abs(g)
        if penalty is None
        else np.where(penalty.nonnegative, np.maximum(-g, 0.0), np.abs(g))
    )
    highest = float(np.max(steepness[w > 0] / w[w > 0], initial=0.0)) / (l1_ratio or RIDGE_ONLY)
    if highest == 0.0:
        raise InputError(
            "no column tells anything of the target, so there is no largest lambda: give lambdas"
        )
    return highest


def _penalties(lam: float, l1_ratio: float) -> Pair:
    return lam * l1_ratio, lam * (1.0 - l1_ratio)


def _free_of_ridge(task: Task) -> Task:
    """The task with the ridge in the penalty alone, so that the clients' costs are the same for every λ."""
    return task.with_ridge(np.zeros(task.d))


def _follow(
    task: Task, penalties: Sequence[Pair], last: Estimate | None = None
) -> Iterator[Estimate]:
    """The rounds for one penalty after the other, each from the state, gradients and Hessians of the last one."""
    for l1, ridge in penalties:
        penalty, state = task.penalty(l1, ridge), None
        if last is not None:
            before, told = cast(FedSplitState, last.state), last.proof
            state = FedSplit(penalty=penalty).resume(before, told.gradients, told.information)
        last = task.run(penalty, state=state)
        yield last


def _grid(lambdas: Any) -> Array | None:
    """The λ that the user gave, falling; None where there are none."""
    if lambdas is None:
        return None
    try:
        grid = np.unique(np.array(lambdas, dtype=np.float64))[::-1]
    except (TypeError, ValueError):
        grid = np.empty(0)
    if grid.size == 0 or np.ndim(lambdas) != 1 or not (np.isfinite(grid) & (grid > 0)).all():
        raise InputError(f"lambdas must be one or more finite numbers above 0, not {lambdas!r}")
    return grid


def _folds(
    agreement: Agreement, folds: int | str | None, seed: int, formula: Formula
) -> list[Fold]:
    """Which clients are held out at a time; refused where the others could not fit the same model."""
    if folds is None:
        return []
    m = len(agreement.rows.names)
    groups = m if folds == "clients" else int(folds)
    if m < 2 or groups > m:
        raise InputError(
            f"folds: {max(2, groups)} groups of clients need as many clients, there are {m}"
        )
    drawn = (
        np.arange(m) if folds == "clients" else np.random.default_rng(seed).permutation(m) % groups
    )
    found = [
        Fold(np.flatnonzero(drawn == k).tolist(), np.flatnonzero(drawn != k).tolist())
        for k in range(groups)
    ]
    classes = agreement.plan.classes or (0, 1)
    for fold in found:
        intercept = 0 if formula.intercept else None
        pool = Pool([agreement.moments[j] for j in fold.inside], intercept)
        constant = pool.constant & (formula.intercept | (pool.mean == 0))
        constant[:1] &= not formula.intercept
        lack = [
            f"column {name} does not vary: leave it out" for name in np.array(pool.names)[constant]
        ]
        lack += [
            f"no row is of class {as_text(classes[int(c)])}"
            for c in np.flatnonzero(pool.classes == 0)
        ]
        if lack:
            raise InputError(f"{fold.without(agreement)}{lack[0]}, or use other folds")
    return found


def _cross_validate(
    task: Task,
    agreement: Agreement,
    formula: Formula,
    folds: Sequence[Fold],
    penalties: Sequence[Pair],
) -> pd.DataFrame:
    """The deviance of a row at clients held out, by λ: D̄ = Σ n_k D_k/Σ n_k, and √(Σ n_k(D_k - D̄)²/Σ n_k/(K - 1))."""
    told = [_held_out(task, agreement, formula, fold, penalties) for fold in folds]
    shares = np.array([weight for _, weight in told]) / sum(weight for _, weight in told)
    deviance = np.stack([each for each, _ in told])
    mean = shares @ deviance
    se = np.sqrt(shares @ np.square(deviance - mean) / (len(folds) - 1))
    return pd.DataFrame({"mean": mean, "se": se})


def _held_out(
    task: Task, agreement: Agreement, formula: Formula, fold: Fold, penalties: Sequence[Pair]
) -> tuple[Array, float]:
    """The mean deviance of a fold's rows at the models of the others, by λ, and the rows' weight."""
    plan, strict = agreement.plan, task.settings.strict
    rows, moments = [each.restored() for each in rows_here(agreement.rows)], agreement.moments

    def share(members: list[int]) -> FederatedRows:
        return FederatedRows.here(
            plan, strict, [rows[j] for j in members], [moments[j] for j in members]
        )

    training = replace(
        agreement, rows=share(fold.inside), moments=[moments[j] for j in fold.inside]
    )
    try:
        others = _free_of_ridge(make_task(training, formula, task.settings))
    except InputError as error:
        raise InputError(f"{fold.without(agreement)}{error}") from None
    out = share(fold.out)
    out.settle(
        replace(others.frame, ridge=np.ones(task.d))
    )  # with a ridge a column may be zero everywhere
    held = out.settle(others.frame)
    weight = sum(moments[j].weight for j in fold.out)
    start = np.zeros(task.d)
    floor = ProofScalars(**held.decrement(start, start).parts).floor.sum()
    values = np.array([held.value(each.x).rows.sum() for each in _follow(others, penalties)])
    return 2.0 * (values - floor) * others.scaling.unit**2 / weight, weight
