"""``path``: a regression for every λ of a grid, each from where the last one ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedsplit import html as pages
from fedsplit.arrays import Array, Mask
from fedsplit.channels.channel import LocalChannel
from fedsplit.checks import number
from fedsplit.data.sources import sources
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError, shown
from fedsplit.regression.client.guards.rules import Finding, in_lines
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.cross_validation import Fold, cross_validation, make_folds
from fedsplit.regression.engines import cohort_of
from fedsplit.regression.fields import with_options
from fedsplit.regression.fit import make_model, prepare
from fedsplit.regression.options import PathOptions, Settings
from fedsplit.regression.result.model import Model
from fedsplit.regression.result.table import TableText, aligned, shortened
from fedsplit.regression.server.agreement import Agreement
from fedsplit.regression.server.bias import ClientsAtHand
from fedsplit.regression.server.federation import FitDriver, about, members_of
from fedsplit.regression.server.glm import fit_problem, follow, in_robust_units
from fedsplit.regression.server.inference import ask_fit
from fedsplit.regression.server.minimise import Minimum
from fedsplit.regression.server.problem import FitProblem, set_up
from fedsplit.regression.server.report import FitCertificate


@dataclass(frozen=True, eq=False, repr=False)
class RegularisationPath:
    """Models for decreasing λ, where l1 = λ·l1_ratio and ridge = λ·(1 - l1_ratio).

    Attributes
    ----------
    lambdas : (k,) array
        Decreasing.
    params : DataFrame
        One row per λ, in the units of the files.
    active : (k,) array
        How many coefficients are not zero, the intercept not counted.
    rounds : (k,) array
        Questions to every client, including those of the proof, and at λ_max those that found it.
    certificates : sequence of FitCertificate
        What is proved at each λ.
    converged : (k,) array
        Whether that is the tolerance.
    cv : DataFrame or None
        One row per λ: the mean deviance per row at held-out clients, and its standard error over
        folds, in which each fold counts by the weight of its rows.
    warnings : sequence of str
        What could disclose single rows, and what is not proved.
    l1_ratio : float
    plan : Plan
        The formula and the categories that the clients agreed on.
    nobs, n_clients : int
        Rows and clients.
    at_hand, agreement : ClientsAtHand, Agreement or None
        The regression, for other λ; None if the path was pickled.
    """

    lambdas: Array
    params: pd.DataFrame
    active: NDArray[np.intp]
    rounds: NDArray[np.intp]
    certificates: Sequence[FitCertificate]
    converged: Mask
    cv: pd.DataFrame | None
    warnings: Sequence[str]
    l1_ratio: float
    plan: Plan
    nobs: int
    n_clients: int
    at_hand: ClientsAtHand | None = None
    agreement: Agreement | None = None

    def __repr__(self) -> str:
        return (
            f"<RegularisationPath {self.plan.family}, {shortened(self.plan.formula)}: "
            f"{len(self.lambdas):,} values of lambda from {self.lambdas[0]:.5g} to "
            f"{self.lambdas[-1]:.5g}, {self.nobs:,} rows of {self.n_clients:,} clients>"
        )

    def _repr_html_(self) -> str:
        header, *lines = self._table()
        return pages.render(
            "notebook.html",
            head=self._head(),
            header=header,
            named=False,
            rows=lines,
            foot=self._foot(),
        )

    def __getstate__(self) -> dict[str, Any]:
        """Results alone: what is pickled holds no row, and no way to one."""
        return {**vars(self), "at_hand": None, "agreement": None}

    @property
    def distance(self) -> Array:
        """The proved bound on |coefficient - pooled|/SE at each λ, (k,); nan if there is none."""
        return np.array([each.standard_errors for each in self.certificates], dtype=np.float64)

    @property
    def best(self) -> float:
        """The λ whose models predict new clients best."""
        return float(self._validated["mean"].idxmin())

    @property
    def best_1se(self) -> float:
        """The largest λ whose deviance is within one standard error of the best."""
        cv = self._validated
        limit = cv["mean"][self.best] + cv["se"][self.best]
        return float(cv.index[cv["mean"] <= limit].max())

    @property
    def _validated(self) -> pd.DataFrame:
        if self.cv is None:
            raise InputError("no λ is the best without cross-validation: use folds='clients'")
        return self.cv

    def model(self, lam: float) -> Model:
        """The model at a λ, whether on the path or not.

        It is that of ``fit`` with l1 and ridge of this λ, with as many rounds and its tolerance.
        """
        lam = number("lam", lam)
        if self.at_hand is None or self.agreement is None:
            raise InputError("this path has no clients at hand to run on: fit it in one process")
        problem = self.at_hand.problem
        tol = min(problem.settings.tol, Settings.tol)
        problem = problem.with_penalties(lam * self.l1_ratio, lam * (1.0 - self.l1_ratio), tol)
        driver = FitDriver(self.at_hand.members, problem.settings.rounds)
        made = driver.run(fit_problem(problem, self.agreement, {}))
        return make_model(driver, self.agreement, made)

    def summary(self) -> TableText:
        """One line per λ, as text: ``print(path.summary())``."""
        left = () if self.cv is None else (6,)
        lines = [*self._head(), "", *aligned(self._table(), left), *self._foot()]
        return TableText("\n".join(lines))

    def _head(self) -> list[str]:
        return [
            f"{self.plan.family} path over {self.n_clients} clients, l1_ratio {self.l1_ratio:g}",
            self.plan.formula,
            *(f"{text}: {agreed}" for text, agreed in self.plan.agreed.items()),
            f"n {self.nobs:,}   parameters {self.params.shape[1]}   rounds {self.rounds.sum():,}",
        ]

    def _table(self) -> list[list[str]]:
        """The cells of the heading, and of the line of each λ."""
        head = ["lambda", "active", "rounds", "proved SE"]
        if self.cv is not None:
            head += ["deviance", "std err", ""]
        table = [head]
        for i, lam in enumerate(self.lambdas.tolist()):
            proved = f"{self.distance[i]:.0e}{' NO' * (not self.converged[i])}"
            if not np.isfinite(self.distance[i]):
                proved = "–"
            cells = [f"{lam:.5g}", str(self.active[i]), str(self.rounds[i]), proved]
            if self.cv is not None:
                marks = [name for name in ("best", "best_1se") if lam == getattr(self, name)]
                cells += [f"{self.cv[name][lam]:.5g}" for name in ("mean", "se")]
                cells.append(", ".join(marks))
            table.append(cells)
        return table

    def _foot(self) -> list[str]:
        return [f"warning: {text}" for text in self.warnings]


@with_options(PathOptions)
def path(options: PathOptions) -> RegularisationPath:
    """Fit a regression with an elastic net for many λ, and choose among them by held-out clients.

    The penalty is λ(l1_ratio‖coef‖₁ + (1 - l1_ratio)/2 ‖coef‖²), added to the sum of the losses;
    the intercept is not penalised. λ multiplies a penalty on the sum, as in folds: scikit-learn's
    alpha is λ over the number of rows. Each λ starts from the models of the last one, and takes one
    question for least squares, a few for other families.

    <parameters>

    Returns
    -------
    RegularisationPath
        The coefficients at every λ, with their proofs and the cross-validated deviance.
    """
    lambdas = _decreasing(options.lambdas)
    own = sources(options.data, options.group, options.reading, options.missing)
    channel = LocalChannel(cohort_of(own))
    members = members_of(channel, None, options.secure)
    agreement = prepare(members, options, before=channel)
    folds = make_folds(agreement, options.folds, options.seed)
    problem, found = FitDriver(members).run(regularisation(agreement, options, lambdas, folds))
    at_hand = ClientsAtHand(members, problem)
    n_clients = len(members.summed) or problem.m
    return replace(found, n_clients=n_clients, at_hand=at_hand, agreement=agreement)


def regularisation(
    agreement: Agreement,
    options: PathOptions,
    lambdas: Array | None = None,
    folds: Sequence[Fold] = (),
) -> Dialogue[tuple[FitProblem, RegularisationPath]]:
    """A regression for one λ after the other; without any, from the largest that matters."""
    settings, l1_ratio = agreement.settings, options.l1_ratio
    problem = yield from set_up(agreement.rows, settings)
    problem = yield from in_robust_units(problem)
    # the ridge is part of the server's penalty, so that the clients' costs are the same for every λ
    problem = problem.with_ridge(0.0)
    null: Minimum | None = None
    if lambdas is None:
        # an l1 above every gradient: no penalised coefficient leaves zero
        everything = 1e100
        [null] = yield from follow(problem, [(everything, 0.0)])
        shares = np.geomspace(1.0, options.ratio, options.n_lambdas)
        lambdas = _lambda_max(problem, null, l1_ratio) * shares
    penalties = [(lam * l1_ratio, lam * (1.0 - l1_ratio)) for lam in lambdas]
    steps = list(penalties)
    if null is not None and l1_ratio > 0:
        # at λ_max itself rounding would decide which coefficient is zero
        steps[0] = (everything, penalties[0][1])
    minima = yield from follow(problem, steps, null)

    certificates, unproved = [], []
    for lam, each in zip(lambdas, minima, strict=True):
        point = yield from about(problem, ask_fit(each.point, last=False))
        certificates.append(point.certificate)
        if not each.converged:
            what = f"the tolerance is not proved ({each.point.proved.reason})"
            several = f"values of lambda, {what}"
            unproved.append(Finding(f"{lam}", f"lambda {lam:.5g}: {what}", several, f"{lam:.5g}"))

    index = pd.Index(lambdas, name="lambda")
    cv = None
    if folds:
        cv = yield from cross_validation(settings, folds, penalties)
        cv = cv.set_index(index)
    x = np.stack([each.point.x for each in minima])
    params = problem.coefficients(x)
    return problem, RegularisationPath(
        lambdas=lambdas,
        params=pd.DataFrame(params, index=index, columns=problem.names),
        active=np.count_nonzero(x[:, problem.penalised(2) > 0], axis=1),
        # at λ_max those that found it are counted
        rounds=np.diff([0, *(each.rounds for each in minima)]),
        certificates=certificates,
        converged=np.array([each.converged for each in minima]),
        cv=cv,
        warnings=[*agreement.warnings, *in_lines(unproved)],
        l1_ratio=l1_ratio,
        plan=agreement.plan,
        nobs=problem.pool.n,
        n_clients=problem.m,
    )


def _lambda_max(problem: FitProblem, null: Minimum, l1_ratio: float) -> float:
    """The smallest λ at which all penalised coefficients are zero: max_i |g_i|/(w_i·l1_ratio).

    g is the gradient at ``null``, the model without them, and w_i the factor of l1 in the
    coordinates of the rounds.
    """
    g = null.point.gradients.sum(axis=0)
    w = problem.penalised(1)
    # a constraint keeps a coefficient at zero if its gradient is positive, however large
    steepness = np.where(problem.nonnegative, np.maximum(-g, 0.0), np.abs(g))
    # as in glmnet, 1e-3 for a ridge, which makes no coefficient zero
    highest = float(np.max(steepness[w > 0] / w[w > 0], initial=0.0)) / (l1_ratio or 1e-3)
    if highest == 0.0:
        raise InputError(
            "no column explains anything of the target, so that there is no largest lambda: "
            "give lambdas"
        )
    return highest


def _decreasing(lambdas: Any) -> Array | None:
    """The λ that the user gave, without repetitions, if any."""
    if lambdas is None:
        return None
    try:
        found = np.unique(np.array(lambdas, dtype=np.float64))[::-1]
    except (TypeError, ValueError, OverflowError):
        found = np.empty(0)
    if found.size == 0 or np.ndim(lambdas) != 1 or not (np.isfinite(found) & (found > 0)).all():
        raise InputError(
            f"lambdas must be one or more finite numbers above 0, not {shown(lambdas)}"
        )
    return found
