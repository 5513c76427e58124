"""What all estimators share: the fit over clients, and the linear predictor."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, issparse
from scipy.sparse.linalg import LinearOperator, lsmr
from sklearn.base import BaseEstimator, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from fedsplit.arrays import Array, Mask
from fedsplit.checks import count
from fedsplit.data.frames import in_pandas
from fedsplit.errors import InputError, NoMinimiser, NotConverged
from fedsplit.loop.certificate import certify
from fedsplit.loop.solve import solve
from fedsplit.penalties.coordinatewise import L1
from fedsplit.penalties.penalty import Penalty
from fedsplit.problem import Problem
from fedsplit.regression.families.family import Family
from fedsplit.regression.options import Settings
from fedsplit.regression.server.report import FitCertificate

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


@dataclass(eq=False, repr=False, kw_only=True)
class Federated(BaseEstimator):  # type: ignore[misc]  # untyped base
    """The base of all estimators, whose parameters are fields of a dataclass.

    Parameters
    ----------
    fit_intercept, tol, max_rounds
        As in ``FedLinearRegression``.
    """

    _remedy: ClassVar[str] = "add a ridge"  # against coefficients that would grow without bound

    fit_intercept: bool = True
    tol: float = 1e-9
    max_rounds: int = 500

    @by_name
    def fit(self, X: Any, y: Any, *, groups: Any = None, sample_weight: Any = None) -> Self:
        """Fit over clients.

        Parameters
        ----------
        X : (n, p) array, DataFrame or sparse array
            A sparse one is never made dense.
        y : (n,) array
            The target, or the class, of each row.
        groups : (n,) or (n, 1) array, optional
            The client of each row, by any label; without it there is one client.
        sample_weight : (n,) array, optional
        """
        numeric = is_regressor(self)
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=numeric, accept_sparse="csr")
        w = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        self._fit(X, y, w, groups)
        if not self.converged_:
            warnings.warn(
                f"{type(self).__name__} did not converge in {self.n_iter_} rounds: raise "
                "max_rounds or tol, or scale the columns",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def _fit(self, X: Any, y: Array, w: Array, groups: Any) -> None:
        """Set ``coef_`` and ``intercept_``, from what was checked."""
        raise NotImplementedError

    def _solve(
        self,
        family: str,
        X: Array,
        y: Array,
        w: Array,
        groups: Any,
        classes: int = 0,
        **penalty: Any,
    ) -> tuple[Array, Array]:
        """Fit, and set the attributes that all estimators have but the coefficients.

        ``family`` is a key of ``FAMILIES``, and the penalty options of ``Settings``; X may be
        sparse. Returns intercepts, (k,), and coefficients, (k, p), of k = 1 predictor, or of one
        for each class but the first.
        """
        settings = Settings(
            family=family,
            intercept=self.fit_intercept,
            tol=self.tol,
            rounds=count("max_rounds", self.max_rounds, least=10),
            **penalty,
        )
        X = csr_array(X) if issparse(X) else X
        self.clients_, rows = rows_of(X, y, w, groups, self.fit_intercept)
        try:
            found = fit_rows(rows, settings, classes, partial(self._net, settings.l1))
        except NoMinimiser as error:
            what, _, _ = str(error).partition(",")
            raise InputError(
                f"{what}: coefficients would grow without bound; {self._remedy}, or leave a column "
                "out"
            ) from None
        intercepts, coef, self.certificate_, self.n_iter_, self.converged_ = found
        return intercepts, coef

    def _net(self, l1: float, first: Array, second: Array) -> Penalty | None:
        """What the server adds to the clients' costs, which have the ridge; see ``fit_rows``."""
        return L1(l1 * first) if l1 else None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _predictor(self, X: object) -> Array:
        """The linear predictor, (n,) or (n, K)."""
        check_is_fitted(self)
        rows = validate_data(self, in_pandas(X), dtype=np.float64, reset=False, accept_sparse="csr")
        eta: Array = rows @ self.coef_.T + self.intercept_
        return eta


DEPENDENT = 1e-10
"""Coefficients that are longer than the shortest by a larger share are not determined."""

CONSTANT = 1e-13
"""A column, or a target, whose deviation is a smaller share of its mean is constant."""


class Rows(NamedTuple):
    """The rows of all clients."""

    X: Any  # (n, p) array or csr_array
    y: Array  # (n,): the targets
    w: Array  # (n,): their weights, all positive
    shares: Sequence[NDArray[np.intp]]  # the rows of each client
    intercept: bool


class Scaled(NamedTuple):
    """The columns of the solver, (a - centre)/scale, and its target, (y - origin)/unit."""

    centre: Array  # (p,)
    scale: Array  # (p,)
    # (p,): which columns the solver has: a constant beside an intercept explains nothing
    varies: Mask
    origin: float
    unit: float


def rows_of(X: Any, y: Array, w: Array, groups: Any, intercept: bool) -> tuple[Array, Rows]:
    """The labels of the clients, in the order of their first rows, and the rows with weight."""
    labels = _labels(groups, X.shape[0])
    check_consistent_length(X, labels)
    if labels.isna().any():
        raise InputError(f"groups: row {int(np.argmax(labels.isna()))} has no label")
    used = w > 0
    if not used.any():
        raise InputError("every sample_weight is zero: there is nothing to fit")
    if not used.all():
        X, y, w, labels = X[used], y[used], w[used], labels[used]
    codes, clients = pd.factorize(labels)
    ends = np.cumsum(np.bincount(codes))[:-1]
    shares = np.split(np.argsort(codes, kind="stable"), ends)
    return clients.to_numpy(), Rows(X, y, w, shares, intercept)


def _labels(groups: Any, n: int) -> pd.Series:
    """The label of each row: 0 for all without groups; a column, (n, 1), is as good as (n,)."""
    if groups is None:
        return pd.Series([0] * n, dtype=object)
    shape = np.shape(groups) if hasattr(groups, "shape") else (n,)
    if len(shape) > 1:
        if shape[1:] != (1,):
            raise InputError(f"groups must have one label per row, its shape is {shape}")
        groups = np.asarray(groups)[:, 0]
    if isinstance(groups, np.ndarray) and groups.dtype.kind in "biu":
        return pd.Series(groups)  # whole numbers need no objects to be told apart
    return pd.Series(list(groups), dtype=object)


def fit_rows(
    rows: Rows,
    settings: Settings,
    classes: int,
    penalty: Callable[[Array, Array], Penalty | None],
) -> tuple[Array, Array, FitCertificate, int, bool]:
    """Fit over clients: intercepts, coefficients, what is proved, rounds, and whether it converged.

    Of the settings the family, the ridge, tolerance and rounds are used. The tolerance is in
    standard errors, as far as they can be proved: ‖x - x*‖ in the norm of ∇²F bounds what every
    coefficient is off. From what a weight of 1 on |β| and on β² is for the solver's coefficients,
    (q,) each, ``penalty`` makes what the server adds beside the ridge of the clients, if anything.
    """
    family = settings.chosen_family
    to, A = _scaled(rows, family.has_units)
    constant = int(rows.intercept)
    copies = max(1, classes - 1)
    coef: Array = np.zeros((copies, len(to.varies)))
    same = np.ptp(rows.y) <= CONSTANT * rows.y[0]
    one_amount = same and family.dispersed and not family.has_units
    if not to.unit or not (to.varies.any() or constant) or one_amount:
        mean = family.link.eta(rows.y[:1]) if constant else np.zeros(1)
        certificate = FitCertificate(0.0, 0.0, "no column can explain the target")
        return mean, coef, certificate, 0, True
    scale = to.scale[to.varies]
    first = np.concatenate([np.zeros(constant), 1.0 / (scale * to.unit)])
    second = np.concatenate([np.zeros(constant), 1.0 / np.square(scale)])
    added = penalty(first, second)
    loss = family.in_units(to.unit).loss(classes, added is None)
    y = (rows.y - to.origin) / to.unit
    clients = [(A[at], y[at], rows.w[at]) for at in rows.shares]
    problem = Problem(loss, clients, settings.ridge * np.tile(second, copies))
    tol = settings.tol
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConverged)  # the estimator warns in its own words
        found = solve(problem, rounds=settings.rounds, tol=tol * tol, penalty=added)
        radius = found.certificate.radius
        if found.converged and added is None and radius is not None and radius > tol:
            # F shows half the digits of x: a round that F no longer shows has the others
            further = solve(problem, state=found.state, rounds=1, tol=0.0)
            proof = certify(problem.clients, further.x)
            found = replace(found, x=further.x, rounds=found.rounds + 1, certificate=proof)
    x = family.mix(classes, added is None) @ found.x.reshape(copies, -1)
    coef[:, to.varies] = to.unit * x[:, constant:] / scale
    intercepts = to.origin + to.unit * x[:, 0] - coef @ to.centre if constant else np.zeros(copies)
    if added is None and not settings.ridge and not _independent(A):
        for k, each in enumerate(coef):
            coef[k], moved = _shortest(rows, to, each)
            intercepts[k] += moved
    reached = found.certificate
    errors = None
    if reached.radius is not None:
        errors = reached.radius / math.sqrt(_dispersion(rows, family, intercepts, coef))
    converged = found.converged or (errors is not None and errors <= tol)
    certificate = FitCertificate(reached.gap, errors, reached.reason)
    return intercepts, coef, certificate, found.rounds, converged


def _scaled(rows: Rows, has_units: bool) -> tuple[Scaled, Any]:
    """The coordinates of the solver, and its columns, (n, q), that of the intercept first.

    Columns have unit deviation, and are centred beside an intercept; sparse ones stay as they are.
    So does the target unless it has units: unless y/2 has half the coefficients of y.
    """
    X, y, w = rows.X, rows.y, rows.w / rows.w.sum()
    n, p = X.shape
    ones = np.ones((n, int(rows.intercept)))
    centre, scale, varies = np.zeros(p), np.ones(p), np.ones(p, dtype=bool)
    if issparse(X):
        A = csr_array(hstack([ones, X], format="csr"))
    else:
        if rows.intercept:
            centre = w @ X
        A = X - centre
        deviation = np.sqrt(np.einsum("n,np,np->p", w, A, A))
        varies = deviation > CONSTANT * np.abs(centre)
        scale = np.where(varies, deviation, 1.0)
        A /= scale
        A = np.column_stack([ones, A if varies.all() else A[:, varies]])
    if not has_units:
        return Scaled(centre, scale, varies, 0.0, 1.0), A
    origin = float(w @ y) if rows.intercept else 0.0
    unit = float(np.sqrt(w @ np.square(y - origin)))
    return Scaled(centre, scale, varies, origin, unit * (unit > CONSTANT * abs(origin))), A


def _dispersion(rows: Rows, family: Family, intercepts: Array, coef: Array) -> float:
    """φ in the units of the solver's objective, for a proof in standard errors."""
    if not family.dispersed:
        return 1.0
    X, y, w = rows.X, rows.y, rows.w
    eta = X @ coef[0] + intercepts[0]
    freedom = max(1, len(y) - len(coef[0]) - rows.intercept)
    if family.has_pearson:
        return float(w @ family.pearson(y, family.link.mean(eta))) / freedom
    loss = family.loss()
    squares = 2.0 * float(w @ loss.value(eta, y)) / freedom
    spread = float(w @ np.square(y - (w @ y) / w.sum() * rows.intercept)) / w.sum()
    # a smaller share of the target's variance is rounding, and would make standard errors of it
    return max(float(squares / spread), 1e-6)


def _shortest(rows: Rows, to: Scaled, beta: Array) -> tuple[Array, float]:
    """The shortest coefficients that predict what these do, and what the intercept gains.

    Without a penalty, columns that depend on one another leave a choice. Of the predictors η less
    their mean, LSMR finds the shortest β with X̃β = η, where X̃ are the rows less their mean. It
    takes the place of the coefficients only if it is shorter by more than rounding.
    """
    X = rows.X[:, to.varies]
    kept = beta[to.varies]
    mean = int(rows.intercept) * np.asarray(X.mean(axis=0)).reshape(-1)
    centred = LinearOperator(
        X.shape,
        matvec=lambda v: X @ v - mean @ v,
        rmatvec=lambda r: X.T @ r - mean * np.sum(r),
        dtype=np.float64,
    )
    eta = centred @ kept
    most = 10 * min(X.shape) + 100
    shortest = lsmr(centred, eta, atol=1e-15, btol=1e-15, conlim=0.0, maxiter=most)[0]
    longer = np.linalg.norm(kept) > (1.0 + DEPENDENT) * np.linalg.norm(shortest)
    same = np.linalg.norm(centred @ shortest - eta) <= DEPENDENT * np.linalg.norm(eta)
    if not (longer and same):
        return beta, 0.0
    found = beta.copy()
    found[to.varies] = shortest
    return found, float(mean @ (kept - shortest))


def _independent(A: Any) -> bool:
    """Whether columns of unit deviation are far from depending on one another; False of many."""
    if issparse(A):
        return False
    spectrum = np.linalg.eigvalsh(A.T @ A)
    return bool(spectrum[0] > DEPENDENT * spectrum[-1])
