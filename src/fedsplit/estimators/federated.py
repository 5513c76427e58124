"""What all estimators share: the fit over clients, and the linear predictor."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from fedsplit.arrays import Array
from fedsplit.checks import count
from fedsplit.data.frames import in_pandas
from fedsplit.errors import InputError
from fedsplit.estimators.rows import by_client, independent, shares_of
from fedsplit.estimators.sparse import Regression, fit_sparse
from fedsplit.loop.stopping import STANDSTILL
from fedsplit.penalties.coordinatewise import L1
from fedsplit.penalties.penalty import FitPenalty, Penalty
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.families import FAMILIES
from fedsplit.regression.options import Settings
from fedsplit.regression.result.certificate import FitCertificate
from fedsplit.regression.server.federation import CodedRows, FitDriver, about
from fedsplit.regression.server.glm import Measures, estimate
from fedsplit.regression.server.pool import Pool
from fedsplit.regression.server.problem import FitProblem, set_up
from fedsplit.regression.server.separation import Unbounded

Fit = TypeVar("Fit", bound=Callable[..., Any])


def by_name(fit: Fit) -> Fit:
    """A ``fit`` of frames of any library, whose third argument has to be named.

    Weights and groups are both one per row, and could be mistaken for each other.
    """

    @wraps(fit)
    def named(self: Any, X: Any, y: Any, *unnamed: object, **options: Any) -> Any:
        if unnamed:
            raise TypeError(
                f"{type(self).__name__}.fit takes X and y by position, and the rest by name: "
                "groups=..., sample_weight=..."
            )
        given = {name: in_pandas(value) for name, value in options.items()}
        return fit(self, in_pandas(X), in_pandas(y), **given)

    return cast("Fit", named)


class Federated(BaseEstimator):  # type: ignore[misc]  # untyped base
    """The base of all estimators.

    Attributes
    ----------
    fit_intercept, tol, max_rounds
        As in ``FedLinearRegression``.
    """

    fit_intercept: bool
    tol: float
    max_rounds: int

    _remedy: ClassVar[str] = "add a ridge"  # against coefficients that would grow without bound

    def _solve(
        self,
        family: str,
        X: Array,
        y: Array,
        w: Array,
        groups: Any,
        labels: Sequence[str] = (),
        **penalty: Any,
    ) -> tuple[Array, Array]:
        """Fit, and set the attributes that all estimators have but the coefficients.

        Parameters
        ----------
        family : str
            A key of ``FAMILIES``.
        X, y, w : (n, p), (n,) and (n,) arrays
            Rows, which may be sparse, targets and weights.
        groups : sequence or None
            The client of each row.
        labels : sequence of str
            The classes of a classifier.
        **penalty
            Options of ``Settings``.

        Returns
        -------
        intercepts, coefficients : (k,) and (k, p) arrays
            Of k = 1 predictor, or of one for each class but the first.
        """
        settings = Settings(
            family=family,
            intercept=self.fit_intercept,
            tol=self.tol,
            rounds=count("max_rounds", self.max_rounds, least=10),
            separation="refuse",
            **penalty,
        )
        if not (w > 0).any():
            raise InputError("every sample_weight is zero: there is nothing to fit")
        if issparse(X):
            return self._solve_sparse(settings, X, y, w, groups, len(labels))
        names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(X.shape[1])])
        self.clients_, designs = by_client(settings, X, y, w, groups, names, len(labels))
        intercept = None
        if self.fit_intercept:
            intercept = 0
        designs, moments, spread = independent(designs, intercept, settings.biased is not None)
        pool = Pool(moments, intercept)
        predictors = max(1, len(labels) - 1)
        coef: Array = np.zeros((predictors, len(pool.names)))
        stated = FAMILIES[family]
        varies = pool.target_varies or not (stated.has_units or stated.dispersed)
        if pool.names and varies:
            plan = Plan("", family, {}, classes=tuple(labels))
            rows = CodedRows(tuple(each.name for each in designs), plan, strict=False)
            driver = FitDriver.here(rows, designs, moments)
            problem = driver.run(set_up(rows, moments, settings, intercept, labels))
            coef = self._run(driver, problem).reshape(coef.shape)
        else:
            self.certificate_ = FitCertificate(0.0, 0.0, "no column can explain the target")
            self.n_iter_ = 0
            self.converged_ = True
            if self.fit_intercept:
                coef[:, 0] = stated.link.eta(np.array([pool.target]))
        every = coef @ spread.T
        if self.fit_intercept:
            return every[:, 0], every[:, 1:]
        return np.zeros(predictors), every

    def _solve_sparse(
        self, settings: Settings, X: Any, y: Array, w: Array, groups: Any, classes: int
    ) -> tuple[Array, Array]:
        """The same for sparse rows, which stay sparse."""
        self.clients_, shares = shares_of(groups, X, w)
        fitted = Regression(
            settings.family,
            csr_array(X),
            y,
            w,
            shares,
            classes,
            settings.intercept,
            settings.ridge or 0.0,
            settings.delta,
        )
        found = fit_sparse(
            fitted, partial(self._sparse_penalty, settings.l1), settings.tol, settings.rounds
        )
        self.certificate_ = found.certificate
        self.n_iter_ = found.rounds
        self.converged_ = found.converged
        self._warn()
        constant = int(settings.intercept)
        intercepts: Array = np.zeros(fitted.predictors)
        if constant:
            intercepts = found.coef[:, 0]
        return intercepts, found.coef[:, constant:]

    def _sparse_penalty(self, l1: float, penalised: Array) -> Penalty | None:
        """What the server adds to the clients' costs of sparse rows, which have the ridge."""
        if not l1:
            return None
        return L1(l1 * penalised)

    def _warn(self) -> None:
        """Warn if the rounds ended before the tolerance was reached."""
        if not self.converged_:
            warnings.warn(
                f"{type(self).__name__} did not converge in {self.n_iter_} rounds: raise "
                "max_rounds or tol, or scale the columns",
                ConvergenceWarning,
                stacklevel=6,
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _run(self, driver: FitDriver, problem: FitProblem) -> Array:
        """The coefficients after the rounds, in the units of X."""
        settings = problem.settings
        measures = Measures(problem)
        penalty = self._server_penalty(problem)
        try:
            found = driver.run(estimate(problem, penalty, problem.start({}), measures))
        except Unbounded as error:
            what, _, _ = str(error).partition(";")
            raise InputError(f"{what}; {self._remedy}, or leave a column out") from None
        point = driver.run(about(problem, measures.of_proof(found.proof)))
        self.certificate_ = FitCertificate(*point.bounds)
        self.n_iter_ = found.rounds
        smallest = STANDSTILL
        if self.certificate_.standard_errors is None and settings.biased is not None:
            # Fewer rows than columns leave nothing to prove by curvature: a penalised fit has
            # converged when it no longer moves.
            smallest = max(STANDSTILL, settings.tol)
        self.converged_ = found.converged or found.still <= smallest
        self._warn()
        return problem.coordinates.coefficients(found.x)

    def _server_penalty(self, problem: FitProblem) -> FitPenalty | None:
        """What the server adds to the clients' costs, which have the ridge."""
        return problem.penalty(problem.settings.l1)

    def _predictor(self, X: object) -> Array:
        """The linear predictor, (n,) or (n, K)."""
        check_is_fitted(self)
        rows = validate_data(self, in_pandas(X), dtype=np.float64, reset=False, accept_sparse="csr")
        eta: Array = rows @ self.coef_.T + self.intercept_
        return eta
