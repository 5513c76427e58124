"""What every family of regressions answers about its statistics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.data.categories import Level
from fedsplit.errors import InputError, listed
from fedsplit.losses.terms import Loss
from fedsplit.regression.families.link import Link


class Family(ABC):
    """A distribution of the target with its link, and the convex loss that fits it.

    The loss is minus the log-likelihood per unit of 1/φ, up to a constant in x: its Hessian is the
    observed information, and twice its height above its floor is the deviance. The defaults are
    those of a target with a mean of its own and φ = 1; ``poisson.py`` is a short example.

    Attributes
    ----------
    name : str
        As users write it.
    link : Link
        Between the mean μ and the linear predictor η.
    target : str
        What a value of the target must be, in words.
    canonical : bool
        Whether the Hessian of the loss does not depend on the target, and so is the expected
        information too. Otherwise clients are asked for the latter after the rounds.
    unit_weights : bool
        Whether every row has an expected weight of 1, so that the expected information is known
        from the moments and no client has to be asked.
    has_likelihood : bool
        Without one there are no model-based standard errors, no log-likelihood and no AIC.
    dispersed : bool
        Whether φ is estimated.
    has_units : bool
        Whether a target in other units gives the same model in those units, so that the target may
        be scaled for the rounds.
    takes_offset : bool
        Whether a column may be added to η.
    classifies : bool
        Whether the target is a class. Its values are then numbers of classes, from 0.
    needs_column : bool
        Whether the target must be a column, and cannot be a condition.
    has_reference : bool
        Whether every class but the first, the reference, has coefficients of its own.
    calibrates : bool
        Whether μ is one probability, whose calibration can be counted.
    """

    name: ClassVar[str]
    link: ClassVar[Link]
    target: ClassVar[str] = "a number"
    canonical: ClassVar[bool] = False
    unit_weights: ClassVar[bool] = False
    has_likelihood: ClassVar[bool] = True
    dispersed: ClassVar[bool] = False
    has_units: ClassVar[bool] = False
    takes_offset: ClassVar[bool] = True
    classifies: ClassVar[bool] = False
    needs_column: ClassVar[bool] = False
    has_reference: ClassVar[bool] = False
    calibrates: ClassVar[bool] = False

    @abstractmethod
    def loss(self, classes: int, symmetric: bool, delta: float) -> Loss:
        """The loss of the rounds.

        Parameters
        ----------
        classes : int
            As ``count_classes`` has it.
        symmetric : bool
            Whether coefficients are those of all classes, centred, rather than contrasts with the
            reference.
        delta : float
            Where Huber's loss turns linear, in the unit of the target.
        """

    def invalid(self, b: Array) -> Mask:
        """Which finite values cannot be values of the target, (n,)."""
        return np.zeros(b.shape, dtype=bool)

    def count_classes(self, labels: Sequence[object]) -> int:
        """How many classes there are, where a target column has these; 0 without classes."""
        return 0

    def check_classes(self, column: str, levels: Sequence[Level]) -> None:
        """Raise InputError unless the levels of a target column are classes of this family."""
        if len(levels) < 2:
            raise InputError(
                f"column {column} is {listed(levels)} in every row of every client: "
                "there is nothing to fit"
            )

    def coefficient_names(self, terms: Sequence[str], labels: Sequence[str]) -> list[str]:
        """The names of the coefficients of these terms."""
        return list(terms)

    def mix(self, classes: int, symmetric: bool) -> Array:
        """The matrix from coefficients of the rounds to those of the classes but the first."""
        return np.eye(1)

    def predictor(self, A: Array, x: Array, o: Array, unit: float = 1.0) -> Array:
        """η of every row: A is (n, p), x has coefficients of a target in units of ``unit``."""
        eta: Array = unit * (A @ x) + o
        return eta

    def null_predictor(self, mean: float, counts: Array, log_exposure: float) -> Array:
        """η of the model without covariates.

        Parameters
        ----------
        mean : float
            The mean of the target.
        counts : (K,) array
            The rows of each class.
        log_exposure : float
            The logarithm of the mean of e^offset.
        """
        eta = self.link.eta(np.array([mean]))
        if self.link.multiplicative:
            eta = eta - log_exposure
        return eta

    def variance(self, mu: Array) -> Array:
        """V(μ): the variance of the target is φV(μ) over its weight."""
        raise NotImplementedError(f"{self.name} has no variance function")

    def expected_weights(self, eta: Array) -> Array:
        """(dμ/dη)²/V(μ), (n,): the expected information is AᵀWA with these on the diagonal."""
        weights: Array = np.square(self.link.slope(eta)) / self.variance(self.link.mean(eta))
        return weights

    def pearson(self, b: Array, mu: Array) -> Array:
        """(b - μ)²/V(μ), (n,): the terms of Pearson's X²."""
        terms: Array = np.square(b - mu) / self.variance(mu)
        return terms

    def dispersion(self, deviance: float, pearson: Callable[[], float], freedom: int) -> float:
        """φ, from the deviance, Pearson's X², which clients are asked for, and n - d."""
        return 1.0

    def likelihood_dispersion(self, phi: float, unit: float, freedom: int, n: int) -> float:
        """φ in the log-likelihood, where ``phi`` is that of the table in a unit of the target²."""
        return phi * unit

    def log_likelihood(self, b: Array, eta: Array, w: Array, phi: float) -> Array:
        """Of every row, (n,), with all constants."""
        return np.full(b.shape, np.nan)

    def aic(self, log_likelihood: float, d: int) -> float:
        """-2 log L + 2d: d coefficients; an estimated φ is not counted, as in statsmodels."""
        return -2 * log_likelihood + 2 * d
