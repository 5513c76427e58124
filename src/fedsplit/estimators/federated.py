"""What all estimators share: the fit over clients, and the linear predictor."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fedsplit.arrays import Array
from fedsplit.checks import count
from fedsplit.data.frames import in_pandas
from fedsplit.errors import InputError, NoMinimiser
from fedsplit.estimators.fitting import fit_rows, rows_of
from fedsplit.penalties.coordinatewise import L1
from fedsplit.penalties.penalty import Penalty
from fedsplit.regression.options import Settings

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

        Parameters
        ----------
        family : str
            A key of ``FAMILIES``.
        X, y, w : (n, p), (n,) and (n,) arrays
            Rows, which may be sparse, targets and weights.
        groups : sequence or None
            The client of each row.
        classes : int
            Of a classifier.
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
            **penalty,
        )
        if issparse(X):
            X = csr_array(X)
        self.clients_, rows = rows_of(X, y, w, groups, self.fit_intercept)
        net = partial(self._net, settings.l1)
        try:
            found = fit_rows(rows, settings.chosen_family, settings, classes, net)
        except NoMinimiser as error:
            what, _, _ = str(error).partition(",")
            raise InputError(
                f"{what}: coefficients would grow without bound; {self._remedy}, or leave a column "
                "out"
            ) from None
        self.certificate_ = found.certificate
        self.n_iter_ = found.rounds
        self.converged_ = found.converged
        return found.intercepts, found.coef

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
