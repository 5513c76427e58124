"""Estimators on sparse rows: the same objective, as a ``Problem`` that keeps them sparse."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack
from scipy.sparse.linalg import LinearOperator, lsmr

from fedsplit.arrays import Array
from fedsplit.errors import NotConverged
from fedsplit.loop.solve import solve
from fedsplit.losses import LOSSES
from fedsplit.losses.huber import Huber
from fedsplit.losses.multinomial import Multinomial
from fedsplit.penalties.penalty import Penalty
from fedsplit.problem import Problem
from fedsplit.regression.result.certificate import FitCertificate

DEPENDENT = 1e-10
"""Coefficients that are longer than the shortest by a larger share are not determined."""

TIGHTEST = 1e-14
"""Of the gap, relative to F: what is below is rounding."""


class Regression(NamedTuple):
    """What is fitted.

    Attributes
    ----------
    family : str
        A key of ``FAMILIES``.
    X : csr_array
        (n, p).
    y, w : (n,) arrays
        Targets and weights.
    shares : sequence of arrays of int
        The rows of each client.
    classes : int
        Of a classifier; 0 of a regression.
    intercept : bool
    ridge : float
        On every coefficient but the intercepts.
    delta : float
        Of Huber's loss.
    """

    family: str
    X: csr_array
    y: Array
    w: Array
    shares: Sequence[NDArray[np.intp]]
    classes: int
    intercept: bool
    ridge: float = 0.0
    delta: float = 1.345

    @property
    def penalised(self) -> Array:
        """1 for every column of a predictor but the constant, (p + intercept,)."""
        return np.concatenate([np.zeros(int(self.intercept)), np.ones(self.X.shape[1])])

    @property
    def predictors(self) -> int:
        """The number of linear predictors."""
        return max(1, self.classes - 1)


class Fitted(NamedTuple):
    """The coefficients, (predictors, p + intercept), and how they were found."""

    coef: Array
    certificate: FitCertificate
    rounds: int
    converged: bool


def fit_sparse(
    fitted: Regression, penalty: Callable[[Array], Penalty | None], tol: float, rounds: int
) -> Fitted:
    """Fit over clients.

    Parameters
    ----------
    fitted : Regression
    penalty : callable
        From ``fitted.penalised``, what the server adds beside the ridge.
    tol : float
        In standard errors, as far as they can be proved: ‖x - x*‖ in the norm of ∇²F bounds what
        every coefficient is off in standard errors.
    rounds : int
    """
    A = fitted.X
    if fitted.intercept:
        A = csr_array(hstack([np.ones((A.shape[0], 1)), A], format="csr"))
    added = penalty(fitted.penalised)
    loss = _loss(fitted, symmetric=added is None)
    clients = [(A[at], fitted.y[at], fitted.w[at]) for at in fitted.shares]
    ridge = fitted.ridge * np.tile(fitted.penalised, fitted.predictors)
    problem = Problem(loss, clients, ridge)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConverged)  # the estimator warns in its own words
        found = solve(problem, rounds=rounds, tol=max(tol * tol, TIGHTEST), penalty=added)
    coef = found.x.reshape(fitted.predictors, -1)
    if isinstance(loss, Multinomial):
        coef = loss.mix @ coef
    if added is None and not fitted.ridge:
        coef = np.stack([_shortest(fitted, each) for each in coef])
    proof = found.certificate
    near = proof.radius is not None and proof.radius <= tol
    certificate = FitCertificate(proof.gap, proof.radius, proof.reason)
    return Fitted(coef, certificate, found.rounds, found.converged or near)


def _shortest(fitted: Regression, coef: Array) -> Array:
    """The shortest coefficients that predict what these do, on rows with weight.

    Without a penalty, columns that depend on one another leave a choice. Of the predictors η less
    their mean, LSMR finds the shortest β with X̃β = η, where X̃ are the rows less their mean. It
    takes the place of the coefficients only if it is shorter by more than rounding.
    """
    X = fitted.X[np.concatenate(list(fitted.shares))]
    constant = int(fitted.intercept)
    beta = coef[constant:]
    mean = constant * np.asarray(X.mean(axis=0)).reshape(-1)
    centred = LinearOperator(
        X.shape,
        matvec=lambda v: X @ v - mean @ v,
        rmatvec=lambda r: X.T @ r - mean * np.sum(r),
        dtype=np.float64,
    )
    eta = centred @ beta
    most = 10 * min(X.shape) + 100
    shortest = lsmr(centred, eta, atol=1e-15, btol=1e-15, conlim=0.0, maxiter=most)[0]
    longer = np.linalg.norm(beta) > (1.0 + DEPENDENT) * np.linalg.norm(shortest)
    same = np.linalg.norm(centred @ shortest - eta) <= DEPENDENT * np.linalg.norm(eta)
    if not (longer and same):
        return coef
    return np.concatenate([coef[:constant] + mean @ (beta - shortest), shortest])


def _loss(fitted: Regression, symmetric: bool) -> Any:
    """The loss of a family; with a penalty on classes of its own, x is relative to the first."""
    if fitted.family == "multinomial":
        return Multinomial(fitted.classes, symmetric=symmetric)
    if fitted.family == "huber":
        return Huber(fitted.delta)
    return LOSSES[OTHER_NAMES.get(fitted.family, fitted.family)]()


OTHER_NAMES: Mapping[str, str] = {"gaussian": "least-squares"}
"""The losses of families by name, where the names differ."""
