"""What a family of regressions states about itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from fedsplit.arrays import Array, Mask
from fedsplit.errors import InputError, listed
from fedsplit.regression.families import response

if TYPE_CHECKING:  # a plan has a family, and a family reads the rows of a plan
    import pandas as pd

    from fedsplit.regression.client.plan import BasicPlan
    from fedsplit.regression.server.coordinates import Pool


@dataclass(frozen=True)
class Link:
    """η = g(μ), elementwise, where μ is the mean of the target and η the linear predictor."""

    name: str  # as printed
    # g(μ); with several classes, of the probabilities of one row, (K,) -> (K - 1,)
    eta: Callable[[Array], Array]
    # g⁻¹(η); with several classes, of every row, (n, K - 1) -> (n, K)
    mean: Callable[[Array], Array]
    # dμ/dη from η; with several classes, of each one's μ by its own η
    slope: Callable[[Array], Array]
    # whether adding to η multiplies μ, so that an exposure is an offset of its logarithm
    multiplicative: bool = False


IDENTITY = Link("identity", eta=np.positive, mean=np.positive, slope=np.ones_like)
LOG = Link("log", eta=np.log, mean=np.exp, slope=np.exp, multiplicative=True)


@dataclass(frozen=True)
class CoefficientBlock:
    """Coefficients that belong together."""

    # what precedes the names of its coefficients, as the class whose predictor it is; empty where
    # there is one predictor
    name: str = ""
    # the names of coefficients that belong to no column, such as thresholds; empty of a block that
    # has one coefficient for each column
    own: tuple[str, ...] = ()
    # by how much coefficients that belong to no column grow with the predictor of the other block,
    # where a constant is added to it
    follows: float = 0.0

    @property
    def of_columns(self) -> bool:
        """Whether there is one coefficient for each column."""
        return not self.own

    def names(self, columns: Sequence[str]) -> list[str]:
        """The names of its coefficients, where a design has these columns."""
        names = list(self.own or columns)
        return [f"{self.name}:{each}" for each in names] if self.name else names


def shares(A: Array, direction: Array, length: float | None = None) -> Array:
    """A times a direction, (n,), as shares of the terms of the sums; 0 where that is rounding.

    ``length`` is that of a longer direction that this one is a part of.
    """
    terms = A * direction
    if length is None:
        length = float(np.linalg.norm(direction))
    # entries of the direction that would be zero without rounding are no terms
    crumbs = 1e-3 * length * np.linalg.norm(A, axis=1)
    sizes = np.maximum(np.abs(terms).sum(axis=1), crumbs + np.finfo(np.float64).tiny)
    found: Array = terms.sum(axis=1) / sizes
    found[np.abs(found) <= 1e-6] = 0.0  # of a sum that would be zero without rounding
    return found


def first_move(moves: Iterable[Array]) -> Array:
    """Of several moves of each row, (n,), the first that is not 0."""
    first, *others = moves
    for each in others:
        first = np.where(first == 0, each, first)
    return first


@dataclass(frozen=True)
class Family(ABC):
    """A distribution of the target with its link, and the convex loss that fits it.

    A family is a value: its fields are its parameters, such as Huber's δ. They travel in a plan
    by their names. ``PoissonFamily`` is a short example.

    The loss is minus the log-likelihood times φ, up to a constant: its Hessian is the observed
    information, and twice its height above its floor the deviance. A family with a likelihood
    overrides ``log_likelihood`` and ``variance``; one whose loss can fall for ever ``margin``.
    """

    name: ClassVar[str]  # as users write it
    link: ClassVar[Link]  # between the mean μ and the linear predictor η
    aliases: ClassVar[tuple[str, ...]] = ()  # what R and statsmodels call it
    target: ClassVar[str] = "a number"  # what a value of the target must be, in words
    # by what call a target of two columns is written, ``cbind`` or ``Surv``; empty for a target of
    # one column alone
    call: ClassVar[str] = ""
    # what a constant added to every η changes: nothing of a family that needs an intercept, which
    # is one more coefficient; "a constant" where the loss has it already
    absorbs: ClassVar[Literal["nothing", "a constant", "a constant of each client"]] = "nothing"
    # where the expected information comes from: from the Hessian where it does not depend on the
    # target, as of every canonical link; from the moments where every row has an expected weight of
    # 1; or from the rows, by a question of its own
    information: ClassVar[Literal["hessian", "moments", "rows"]] = "rows"
    # whether φ is known to be 1, or estimated by the deviance or by Pearson's X², over n - d
    dispersion: ClassVar[Literal["known", "deviance", "pearson"]] = "known"
    # what the share of the target that the model explains is called
    fit_measure: ClassVar[str] = "McFadden's R²"
    # whether a target in another unit gives the same model in that unit, so that the target may be
    # scaled for the rounds
    has_units: ClassVar[bool] = False
    # whether parameters are in units of a robust deviation of the residuals, which all clients
    # agree on before the fit; in units of the target where nothing may be looked up
    robust: ClassVar[bool] = False
    # whether the loss is ½(b - η)², so that moments determine the fit, but for rounding, and all
    # coefficients together are tested by F
    quadratic: ClassVar[bool] = False
    classes: ClassVar[Literal["none", "two", "several"]] = "none"  # whether the target is a class

    # the response

    def check_plan(self, plan: BasicPlan) -> None:
        """Raise InputError if the target or the offset of a plan cannot be one of the family."""
        call, target = plan.parsed.call, plan.parsed.target
        if call and call != self.call:
            of = {"cbind": "logistic", "Surv": "survival"}[call]
            raise InputError(f"{target}: it is a target of {of}, not of {self.name}")

    def count_classes(self, labels: Sequence[object]) -> int:
        """How many classes there are, where a target column has these; 0 without classes."""
        return {"none": 0, "two": 2, "several": len(labels)}[self.classes]

    def check_classes(self, column: str, levels: Sequence[str], named: bool) -> None:
        """Raise InputError unless the levels of a target column can be classes.

        Two numbers must be 0 and 1, unless they are ``named``: text, or one of them the reference.
        """
        raise InputError(
            f"column {column} holds text: for {self.name} the target must be {self.target}"
        )

    def response(self, plan: BasicPlan, frame: pd.DataFrame, where: str) -> dict[str, Array]:
        """The vectors on the left of the formula, each (n,), by name.

        ``target``, a number or the place of a class; or ``successes`` and ``failures``; or a
        ``share`` of as many trials as the weights say.
        """
        values = response.numbers(plan, frame)
        valid = np.isfinite(values) & ~self.invalid(values)
        why = f"for {self.name} it must be {self.target}"
        response.check_rows(valid, frame, values, where, plan.parsed.target, why)
        return {"target": values}

    def invalid(self, b: Array) -> Mask:
        """Which of the finite values b, (n,), are no target of this family."""
        return np.zeros(b.shape, dtype=bool)

    def remark(self, b: Array, target: str) -> str:
        """What is doubtful about targets b, (n,), that are valid: an empty text if nothing is."""
        return ""

    # the cost

    @abstractmethod
    def loss(self, classes: int = 0, symmetric: bool = False) -> Any:
        """The loss of the rows, of a number of classes, which is 0 unless the target is one.

        With ``symmetric`` coefficients those are of all classes, centred.
        """

    def in_units(self, unit: float) -> Self:
        """The family of a target that is measured in another unit."""
        return self

    def blocks(self, labels: Sequence[object]) -> tuple[CoefficientBlock, ...]:
        """The coefficients by blocks, where the target has these classes.

        Those of columns come first.
        """
        return (CoefficientBlock(),)

    def size(self, columns: int, classes: int) -> int:
        """How many coefficients there are for a number of columns, and of classes."""
        return sum(len(each.own) or columns for each in self.blocks(range(classes)))

    def reference(self, labels: Sequence[object]) -> object | None:
        """The class that the others are compared with; None if there is none."""
        return None

    def mix(self, classes: int, symmetric: bool) -> Array:
        """What takes the coefficients of the rounds to those of the blocks."""
        return np.eye(1)

    def labels(self, b: Array) -> Array:
        """Targets b, (n,), as the loss takes them."""
        return b

    # what the data determine

    def check_pool(self, pool: Pool) -> None:
        """Raise InputError if the targets of all clients leave nothing to fit."""
        what = ""
        if (self.has_units or self.dispersed) and not pool.target_varies:
            what = f"the target is {pool.target:g} in every row of every client"
        elif self.link.multiplicative and pool.target == 0:
            what = "every count of every client is zero"
        elif self.classifies and (pool.classes == 0).any():
            what = "every row of every client is of the same class"
            if len(pool.classes) > 2:
                none = np.flatnonzero(pool.classes == 0) + 1
                what = f"no client has a row of class {listed(none)} of {len(pool.classes)}"
        if what:
            raise InputError(f"{what}: there is nothing to fit")

    @property
    def bounded(self) -> bool:
        """Whether the loss of any data has a minimiser."""
        own = type(self)
        falls = own.margin is not Family.margin or own.margins is not Family.margins
        return not self.classifies and not falls

    def margin(self, b: Array, t: Array) -> Array:
        """How much moving η by t, (n,), favours each target b, (n,), for ever.

        The loss of a row never rises if this is at least 0, and falls to its infimum if it is
        positive.
        """
        raise InputError(f"{self.name} has no such direction of recession")

    def margins(self, A: Array, b: Array, directions: Array) -> tuple[Array, Array]:
        """How much directions, (k, d), favour each target for ever: least and most, (n,).

        They differ where a class is compared with several others. The rows are A, (n, p), and the
        directions in coefficients of its columns, by blocks. The first one goes furthest.
        """
        margin = self.margin(b, first_move(shares(A, each) for each in directions))
        return margin, margin

    # facts about a fit

    def predictor(self, A: Array, x: Array, o: Array, unit: float = 1.0) -> Array:
        """η of every row, (n,), or (n, K - 1) of the classes but the reference.

        x, (p,) or ((K - 1)·p,), are coefficients of a target in units of ``unit``, and o offsets.
        """
        eta: Array = unit * (A @ x) + o
        return eta

    def null_predictor(self, mean: float, counts: Array, log_exposure: float) -> Array:
        """η of the model without covariates, (1,) or (K - 1,).

        It is known from the mean of the target, the rows of each class, (K,), and the logarithm of
        the mean of e^offset.
        """
        eta = self.link.eta(np.array([mean]))
        if self.link.multiplicative:
            eta = eta - log_exposure
        return eta

    def null_own(self, counts: Array) -> Array:
        """The coefficients that belong to no column, in the model without covariates."""
        return np.zeros(0)

    @property
    def has_likelihood(self) -> bool:
        """Whether the loss is that of a likelihood: else there are no model-based errors."""
        return type(self).log_likelihood is not Family.log_likelihood

    def log_likelihood(self, b: Array, eta: Array, w: Array, phi: float) -> Array:
        """The log-likelihood of every row, (n,), with all constants, from b, η, weights and φ."""
        raise NotImplementedError(f"{self.name} has no likelihood")

    def variance(self, mu: Array) -> Array:
        """V(μ), (n,): the variance of the target is φV(μ) over its weight."""
        raise NotImplementedError(f"{self.name} has no variance function")

    @property
    def has_pearson(self) -> bool:
        """Whether Pearson's X² estimates φ, or says how far counts are overdispersed."""
        return type(self).pearson is not Family.pearson

    def pearson(self, b: Array, mu: Array) -> Array:
        """(b - μ)²/V(μ), (n,), from b and μ."""
        raise NotImplementedError(f"{self.name} has no Pearson residuals")

    def expected_weights(self, eta: Array) -> Array:
        """(dμ/dη)²/V(μ), (n,): the expected information is AᵀWA with these on W's diagonal."""
        weights: Array = np.square(self.link.slope(eta)) / self.variance(self.link.mean(eta))
        return weights

    # the report

    @property
    def dispersed(self) -> bool:
        """Whether φ is estimated."""
        return self.dispersion != "known"

    @property
    def classifies(self) -> bool:
        """Whether the target is a class: 0 or 1, or one of several."""
        return self.classes != "none"

    @property
    def binary(self) -> bool:
        """Whether the target is one of two classes, and μ a probability."""
        return self.classes == "two"

    @property
    def statistic(self) -> Literal["t", "z"]:
        """What a coefficient over its standard error is called: t where φ is estimated.

        A loss without a likelihood has robust standard errors alone, which are only known to be
        right for many clients: z.
        """
        return "t" if self.dispersed and self.has_likelihood else "z"

    def likelihood_dispersion(self, deviance: float, n: int, weight: float) -> float:
        """The φ at which the log-likelihood of n rows of a total weight is taken.

        It is R's, which may differ from the errors' φ.
        """
        return 1.0

    def explained(self, log_likelihood: float, deviance: float, null_deviance: float) -> float:
        """The share of the target that a model explains: see ``fit_measure``.

        1 - D/D₀ where φ is estimated, and otherwise McFadden's 1 - log L/log L₀. Log-likelihoods
        of equal φ differ by half the difference of the deviances.
        """
        if self.dispersed:
            return 1.0 - deviance / null_deviance
        return 1.0 - log_likelihood / (log_likelihood - 0.5 * (null_deviance - deviance))


def check_two(column: str, levels: Sequence[str]) -> None:
    """Raise InputError unless a target column has at least two classes."""
    if len(levels) < 2:
        raise InputError(
            f"column {column} is {listed(levels)} in every row of every client: "
            "there is nothing to fit"
        )
