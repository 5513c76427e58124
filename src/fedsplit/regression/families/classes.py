"""Families whose target is a class: one of two, with any link, or one of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit, logit, softmax

from fedsplit.arrays import Array, Mask
from fedsplit.errors import InputError, listed
from fedsplit.losses.multinomial import Multinomial, all_classes
from fedsplit.losses.scalar import Logistic
from fedsplit.regression.families import response
from fedsplit.regression.families.family import (
    CoefficientBlock,
    Family,
    Link,
    check_two,
    first_move,
    shares,
)

if TYPE_CHECKING:  # a plan has a family, and a family reads the rows of a plan
    import pandas as pd

    from fedsplit.regression.client.plan import BasicPlan


class BinaryFamily(Family):
    """b is 1 with probability μ, and 0 otherwise; a row may stand for several trials."""

    target = "0 or 1"
    call = "cbind"
    classes = "two"

    def check_classes(self, column: str, levels: Sequence[str], named: bool) -> None:
        check_two(column, levels)
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

    def response(self, plan: BasicPlan, frame: pd.DataFrame, where: str) -> dict[str, Array]:
        formula = plan.parsed
        if formula.grouped is not None:
            return response.counts(plan, frame, where)
        if plan.classes:
            return {"target": response.codes(plan, frame)}
        if plan.shares:
            values = response.numbers(plan, frame)
            valid = (values >= 0) & (values <= 1)
            why = "a share is between 0 and 1"
            response.check_rows(valid, frame, values, where, formula.target, why)
            return {"share": values}
        return super().response(plan, frame, where)

    def invalid(self, b: Array) -> Mask:
        wrong: Mask = (b != 0) & (b != 1)
        return wrong

    def labels(self, b: Array) -> Array:
        return np.where(b == 1, 1.0, -1.0)

    def log_likelihood(self, b: Array, eta: Array, w: Array, phi: float) -> Array:
        logs: Array = -w * self.loss().value(eta, self.labels(b))
        return logs

    def variance(self, mu: Array) -> Array:
        return mu * (1.0 - mu)

    def margin(self, b: Array, t: Array) -> Array:
        return np.where(b == 1, t, -t)


@dataclass(frozen=True)
class LogisticFamily(BinaryFamily):
    """b is 1 with probability μ = 1/(1 + e^{-η}), and 0 otherwise."""

    name = "logistic"
    aliases = ("binomial", "Binomial", "logit", "bernoulli")
    link = Link("logit", eta=logit, mean=expit, slope=lambda eta: expit(eta) * expit(-eta))
    information = "hessian"

    def loss(self, classes: int = 0, symmetric: bool = False) -> Logistic:
        return Logistic()


def _probabilities(eta: Array) -> Array:
    """Of all K classes, (n, K), from η of all but the first, (n, K - 1)."""
    probabilities: Array = softmax(all_classes(eta), axis=1)
    return probabilities


@dataclass(frozen=True)
class MultinomialFamily(Family):
    """b is class c with probability e^{η_c}/Σ_k e^{η_k}, where η_0 = 0."""

    name = "multinomial"
    aliases = ("multinom", "mnlogit")
    link = Link(
        "logit",
        eta=lambda mu: np.log(mu[1:] / mu[0]),
        mean=_probabilities,
        slope=lambda eta: _probabilities(eta)[:, 1:] * (1.0 - _probabilities(eta)[:, 1:]),
    )
    target = "a class"
    information = "hessian"
    classes = "several"

    def check_plan(self, plan: BasicPlan) -> None:
        super().check_plan(plan)
        formula = plan.parsed
        if formula.has_offset or plan.offset is not None:
            raise InputError(f"{self.name} takes no offset")
        if formula.target_column is None:
            raise InputError(f"{self.name} needs a column as its target, not {formula.target}")

    def check_classes(self, column: str, levels: Sequence[str], named: bool) -> None:
        check_two(column, levels)

    def response(self, plan: BasicPlan, frame: pd.DataFrame, where: str) -> dict[str, Array]:
        return {"target": response.codes(plan, frame)}

    def loss(self, classes: int = 0, symmetric: bool = False) -> Multinomial:
        return Multinomial(classes, symmetric)

    def blocks(self, labels: Sequence[object]) -> tuple[CoefficientBlock, ...]:
        return tuple(CoefficientBlock(str(label)) for label in labels[1:])

    def reference(self, labels: Sequence[object]) -> object | None:
        return labels[0]

    def mix(self, classes: int, symmetric: bool) -> Array:
        return Multinomial(classes, symmetric).mix

    def margins(self, A: Array, b: Array, directions: Array) -> tuple[Array, Array]:
        # by class, with the reference, whose predictor stays
        each_class = [
            np.vstack([np.zeros((1, A.shape[1])), each.reshape(-1, A.shape[1])])
            for each in directions
        ]
        classes = range(len(each_class[0]))
        least, most = np.full(len(b), np.inf), np.full(len(b), -np.inf)
        for own in classes:
            mine = b == own
            for other in classes:
                if other != own:
                    gain = first_move(
                        shares(A[mine], way[own] - way[other], float(np.linalg.norm(way)))
                        for way in each_class
                    )
                    least[mine] = np.minimum(least[mine], gain)
                    most[mine] = np.maximum(most[mine], gain)
        return least, most

    def predictor(self, A: Array, x: Array, o: Array, unit: float = 1.0) -> Array:
        eta: Array = A @ x.reshape(-1, A.shape[1]).T
        return eta

    def null_predictor(self, mean: float, counts: Array, log_exposure: float) -> Array:
        return self.link.eta(counts)

    def log_likelihood(self, b: Array, eta: Array, w: Array, phi: float) -> Array:
        logs: Array = -w * Multinomial(eta.shape[1] + 1).value(eta, b)
        return logs
