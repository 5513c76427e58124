"""What a family of regressions states about its statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.errors import InputError, listed
from fedsplit.losses.terms import Loss
from fedsplit.regression.families.link import Link


@dataclass(frozen=True, kw_only=True)
class Family:
    """A distribution of the target with its link, and the convex loss that fits it.

    The loss is minus the log-likelihood times φ, up to a constant: its Hessian is the observed
    information, and twice its height above its floor the deviance. ``poisson.py`` is a short
    example.

    Parameters
    ----------
    name : str
        As users write it.
    link : Link
        Between the mean μ and the linear predictor η.
    loss : callable
        The loss from the number of classes, whether coefficients are those of all classes, centred,
        and δ, where Huber's loss turns linear, in the unit of the target.
    log_likelihood : callable or None
        Of every row, with all constants, from b, η, weights, each (n,), and φ. None where the loss
        is no likelihood: there are no model-based standard errors then.
    variance : callable or None
        V(μ): the variance of the target is φV(μ) over its weight.
    target : str
        What a value of the target must be, in words.
    invalid : callable
        Which of the finite values b, (n,), are not of that kind.
    counts : bool
        Whether the target is a count: a value that is not whole is worth a warning.
    canonical : bool
        Whether the Hessian of the loss does not depend on the target, and so is the expected
        information too. Otherwise clients are asked for the latter.
    unit_weights : bool
        Whether every row has an expected weight of 1. The expected information is known from the
        moments then, and no client has to be asked.
    dispersed : bool
        Whether φ is estimated, by the deviance over n - d or by Pearson's X² over n - d.
    pearson : callable or None
        (b - μ)²/V(μ) from b and μ, where Pearson's X² estimates φ or tells of overdispersion.
    likelihood_dispersion : callable
        The φ at which the log-likelihood is taken, from the deviance, the number of rows and the
        sum of their weights: that of R, which need not be the φ of the standard errors.
    fit_measure : str
        What the share of the target that the model explains is called.
    overall_f : bool
        Whether all coefficients together are tested by F.
    has_units : bool
        Whether a target in another unit gives the same model in that unit, so that the target may
        be scaled for the rounds.
    margin : callable or None
        How much moving η by t, (n,), favours each target b, (n,), for ever: the loss of a row never
        rises if this is at least 0, and falls to its infimum if it is positive. None if no loss
        falls for ever, or if that cannot be said of one η.
    quadratic : bool
        Whether the loss is ½(b - η)², so that moments determine the fit, but for rounding.
    takes_offset : bool
        Whether a column may be added to η.
    classifies : bool
        Whether the target is a class: 0 or 1, unless there is a reference.
    has_reference : bool
        Whether there are K classes, 0 to K - 1, of which every one but the first, the reference,
        has coefficients and an η of its own.
    mix : callable
        The matrix from coefficients of the rounds to those of all classes but the first, from the
        first two arguments of ``loss``.
    """

    name: str
    link: Link
    loss: Callable[[int, bool, float], Loss]
    log_likelihood: Callable[[Array, Array, Array, float], Array] | None = None
    variance: Callable[[Array], Array] | None = None
    target: str = "a number"
    invalid: Callable[[Array], Mask] = np.isnan  # of finite values, none
    counts: bool = False
    canonical: bool = False
    unit_weights: bool = False
    dispersed: bool = False
    pearson: Callable[[Array, Array], Array] | None = None
    likelihood_dispersion: Callable[[float, int, float], float] = lambda deviance, n, weight: 1.0
    fit_measure: str = "McFadden's R²"
    overall_f: bool = False
    has_units: bool = False
    quadratic: bool = False
    margin: Callable[[Array, Array], Array] | None = None
    takes_offset: bool = True
    classifies: bool = False
    has_reference: bool = False
    mix: Callable[[int, bool], Array] = lambda classes, symmetric: np.eye(1)

    @property
    def binary(self) -> bool:
        """Whether the target is one of two classes, and μ a probability."""
        return self.classifies and not self.has_reference

    @property
    def expects_other(self) -> bool:
        """Whether clients have to be asked for the expected information."""
        return not (self.canonical or self.unit_weights)

    def count_classes(self, labels: Sequence[object]) -> int:
        """How many classes there are, where a target column has these; 0 without classes."""
        if self.has_reference:
            return len(labels)
        return 2 * self.classifies

    def check_classes(self, column: str, levels: Sequence[str], named: bool) -> None:
        """Raise InputError unless the levels of a target column can be classes.

        Two numbers must be 0 and 1, unless they are ``named``: text, or one of them the reference.
        """
        if len(levels) < 2:
            raise InputError(
                f"column {column} is {listed(levels)} in every row of every client: "
                "there is nothing to fit"
            )
        if not self.binary:
            return
        if len(levels) > 2:
            raise InputError(
                f"column {column} has {len(levels)} values ({listed(levels)}) and {self.name} "
                "needs two: use the family multinomial, or a condition such as {y > 1}"
            )
        if not named and list(levels) not in (["0", "1"], ["False", "True"]):
            raise InputError(
                f"column {column} is {listed(levels)} and {self.name} needs 0 and 1: "
                f"use {{{column} == {levels[1]}}}"
            )

    def coefficient_names(self, terms: Sequence[str], labels: Sequence[str]) -> list[str]:
        """The names of the coefficients of these terms."""
        if self.has_reference:
            return [f"{label}:{term}" for label in labels[1:] for term in terms]
        return list(terms)

    def predictor(self, A: Array, x: Array, o: Array, unit: float = 1.0) -> Array:
        """η of every row, (n,), or (n, K - 1) of the classes but the reference.

        Parameters
        ----------
        A : (n, p) array
        x : (p,) or ((K - 1)·p,) array
            Coefficients of a target in units of ``unit``.
        o : (n,) array
            Offsets.
        unit : float
        """
        if self.has_reference:
            return A @ x.reshape(-1, A.shape[1]).T
        eta: Array = unit * (A @ x) + o
        return eta

    def null_predictor(self, mean: float, counts: Array, log_exposure: float) -> Array:
        """η of the model without covariates, (1,) or (K - 1,).

        Parameters
        ----------
        mean : float
            Of the target.
        counts : (K,) array
            Rows of each class.
        log_exposure : float
            The logarithm of the mean of e^offset.
        """
        if self.has_reference:
            return self.link.eta(counts)
        eta = self.link.eta(np.array([mean]))
        if self.link.multiplicative:
            eta = eta - log_exposure
        return eta

    def expected_weights(self, eta: Array) -> Array:
        """(dμ/dη)²/V(μ), (n,): the expected information is AᵀWA with these on W's diagonal."""
        if self.variance is None:
            raise NotImplementedError(f"{self.name} has no variance function")
        weights: Array = np.square(self.link.slope(eta)) / self.variance(self.link.mean(eta))
        return weights

    @property
    def statistic(self) -> Literal["t", "z"]:
        """What a coefficient over its standard error is called: t where φ is estimated.

        A loss without a likelihood has robust standard errors alone, which are only known to be
        right for many clients: z.
        """
        if self.dispersed and self.log_likelihood is not None:
            return "t"
        return "z"

    def aic(self, log_likelihood: float, rank: int) -> float:
        """-2 log L + 2k, with k the coefficients that are estimated, and φ: as in R."""
        return -2 * log_likelihood + 2 * (rank + self.dispersed)

    def explained(self, log_likelihood: float, deviance: float, null_deviance: float) -> float:
        """The share of the target that a model explains: see ``fit_measure``.

        1 - D/D₀ where φ is estimated, and otherwise McFadden's 1 - log L/log L₀. Log-likelihoods
        of equal φ differ by half the difference of the deviances.
        """
        if self.dispersed:
            return 1.0 - deviance / null_deviance
        return 1.0 - log_likelihood / (log_likelihood - 0.5 * (null_deviance - deviance))
