"""Multinomial logistic regression: several classes, the first of which is the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import softmax

from fedsplit.arrays import Array
from fedsplit.errors import InputError
from fedsplit.losses.multinomial import Multinomial, all_classes
from fedsplit.regression.families import response
from fedsplit.regression.families.blocks import Block
from fedsplit.regression.families.family import Family, check_two
from fedsplit.regression.families.link import Link

if TYPE_CHECKING:  # a plan has a family, and a family reads the rows of a plan
    import pandas as pd

    from fedsplit.regression.client.plan import BasicPlan


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

    def blocks(self, labels: Sequence[object]) -> tuple[Block, ...]:
        return tuple(Block(str(label)) for label in labels[1:])

    def reference(self, labels: Sequence[object]) -> object | None:
        return labels[0]

    def mix(self, classes: int, symmetric: bool) -> Array:
        return Multinomial(classes, symmetric).mix

    def predictor(self, A: Array, x: Array, o: Array, unit: float = 1.0) -> Array:
        eta: Array = A @ x.reshape(-1, A.shape[1]).T
        return eta

    def null_predictor(self, mean: float, counts: Array, log_exposure: float) -> Array:
        return self.link.eta(counts)

    def log_likelihood(self, b: Array, eta: Array, w: Array, phi: float) -> Array:
        logs: Array = -w * Multinomial(eta.shape[1] + 1).value(eta, b)
        return logs
