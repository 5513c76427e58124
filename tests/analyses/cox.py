"""Proportional hazards with a baseline hazard for every client: Cox, stratified by client.

The partial likelihood of a client compares each event with the rows at risk then, of that client.
So its pooled value, gradient and Hessian are sums over clients, but not sums over rows: what one
row adds depends on the others. The costs of the rounds are all that is asked for, and a client
under strict rules refuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from fedsplit.arrays import EPS, Array, Mask
from fedsplit.dialogue import Dialogue
from fedsplit.federation.dialogues import DialogueAnalysis
from fedsplit.losses.observations import read
from fedsplit.losses.systems import Latest
from fedsplit.losses.terms import Block, Terms
from fedsplit.regression.client.plan import Plan
from fedsplit.regression.client.statistics import FitRows
from fedsplit.regression.families import response
from fedsplit.regression.families.family import LOG, Family, first_move, shares
from fedsplit.regression.options import Settings
from fedsplit.regression.server.agreement import agree
from fedsplit.regression.server.federation import sums_of
from fedsplit.regression.server.glm import glm
from fedsplit.statistic import RowSum, Shape, Statistic, StatisticPart, Sums

if TYPE_CHECKING:
    from fedsplit.regression.client.plan import BasicPlan

CONCORDANCE = 2.0
"""|third cumulant| of aᵀδ ≤ 2 max|aᵀδ| times its variance."""


@dataclass(frozen=True)
class PartialLikelihood:
    """f_j = Σ log S₀(t_i) - η_i over the events i of client j, by Breslow; b is ±t, + at events."""

    def stack(self, clients: Sequence[object], ridge: Array) -> tuple[int, list[Block]]:
        data = read(clients)
        return data[0].A.shape[1], [
            Block([j], CoxTerms.of(each.A, each.b, each.o)) for j, each in enumerate(data)
        ]


@dataclass(frozen=True, eq=False)
class CoxTerms(Terms):
    """The partial likelihood of one client, whose rows stand in the order of falling times.

    Attributes
    ----------
    A : (1, n, d) array
    event, o : (1, n) arrays
    first, last : (1, n) arrays
        The first and the last row of the same time as each row.
    """

    A: Array
    event: Array
    o: Array
    first: NDArray[np.intp]
    last: NDArray[np.intp]

    @classmethod
    def of(cls, A: Array, b: Array, o: Array) -> CoxTerms:
        # latest times first: a cumulative sum over rows is then a sum over those at risk
        order = np.argsort(-np.abs(b), kind="stable")
        t = -np.abs(b)[order]
        # tied events share the risk set that ends with the last of the tied rows
        first, last = np.searchsorted(t, t), np.searchsorted(t, t, side="right") - 1
        event = (b[order] > 0).astype(np.float64)
        return cls(A[order][None], event[None], o[order][None], first[None], last[None])

    @property
    def k(self) -> int:
        return 1

    @property
    def d(self) -> int:
        return int(self.A.shape[2])

    def eta(self, X: Array) -> Array:
        eta: Array = self.A[0] @ X[0] + self.o[0]
        return eta[None]

    def _risks(self, eta: Array) -> Array:
        """log S₀ at each row's time, (n,): S₀ itself may be beyond float64."""
        risks: Array = np.logaddexp.accumulate(eta[0])[self.last[0]]
        return risks

    def _hazard(self, eta: Array) -> Array:
        """e^η Λ, (n,), with Breslow's cumulative hazard Λ_l = Σ_{i: t_i ≤ t_l} 1/S₀(t_i)."""
        jumps = np.where(self.event[0] > 0, -self._risks(eta), -np.inf)
        hazard: Array = np.exp(eta[0] + np.logaddexp.accumulate(jumps[::-1])[::-1][self.first[0]])
        return hazard

    def value(self, eta: Array) -> Array:
        return np.array([self.event[0] @ (self._risks(eta) - eta[0])])

    def gradient(self, eta: Array) -> Array:
        # the martingale residuals take the place of slopes
        gradient: Array = (self._hazard(eta) - self.event[0]) @ self.A[0]
        return gradient[None]

    def hessian(self, eta: Array) -> Array:
        A = self.A[0]
        # the mean of those at risk as each row joins them, by the share that it has of their risk
        means = np.empty_like(A)
        mean = np.zeros(self.d)
        for i, share in enumerate(np.exp(eta[0] - np.logaddexp.accumulate(eta[0]))):
            mean = mean + share * (A[i] - mean)
            means[i] = mean
        mean = means[self.last[0]]
        first = (A * self._hazard(eta)[:, None]).T @ A
        hessian: Array = first - (mean * self.event[0][:, None]).T @ mean
        return hessian[None]

    def concordance(self, W: Array | None) -> tuple[Array, Array]:
        A = self.A[0]
        longest = np.linalg.norm(A, axis=1).max(initial=0.0)
        scaled = np.inf if W is None else np.linalg.norm(A @ W[0], axis=1).max(initial=0.0)
        return np.array([CONCORDANCE * longest]), np.array([CONCORDANCE * scaled])

    def spread(self, H: Array) -> Array:
        spread: Array = CONCORDANCE * np.abs(H @ self.A[0].T).max(axis=1, initial=0.0)
        return spread

    def floor(self) -> Array:
        return np.zeros(1)  # the log of a sum that has e^η among its terms, less η

    def underdetermined(self) -> Mask:
        return np.array([self.A.shape[1] < self.d])

    def gradient_error(self, X: Array, eta: Array, latest: Latest) -> Array:
        sizes = (self._hazard(eta) + self.event[0]) * np.linalg.norm(self.A[0], axis=1)
        return np.array([(self.A.shape[1] + self.d + 16) * EPS * sizes.sum()])


@dataclass(frozen=True)
class CoxFamily(Family):
    """Times until an event, ``Surv(time, event) ~ ...``, with hazard λ_j(t)·e^η at client j."""

    name = "cox"
    link = LOG
    target = "a time above zero with an event of 0 or 1, as in Surv(time, event)"
    call = "Surv"
    absorbs = "a constant of each client"  # it cancels against the baseline hazard
    information = "hessian"

    def response(self, plan: BasicPlan, frame: pd.DataFrame, where: str) -> dict[str, Array]:
        time, event = plan.parsed.pair(frame, plan.schema)
        why = f"for {self.name} it must be {self.target}"
        valid = np.isfinite(time) & (time > 0) & ((event == 0) | (event == 1))
        response.check_rows(valid, frame, time, where, plan.parsed.target, why)
        return {"target": np.where(event == 1, time, -time)}

    def loss(self, classes: int = 0, symmetric: bool = False) -> PartialLikelihood:
        return PartialLikelihood()

    def margins(self, A: Array, b: Array, directions: Array) -> tuple[Array, Array]:
        # the likelihood is monotone if no row at risk moves ahead of that of the event
        least, most = np.zeros(len(b)), np.zeros(len(b))
        for i in np.flatnonzero(b > 0).tolist():
            others = np.abs(b) >= b[i]
            others[i] = False
            if others.any():
                gains = first_move(shares(A[i] - A[others], each) for each in directions)
                least[i], most[i] = gains.min(), gains.max()
        return least, most


@dataclass(frozen=True)
class Events(Statistic):
    """The number of events, which is a sum over rows: ``events``."""

    def shapes(self, plan: Plan) -> Mapping[str, Shape]:
        return {"events": Sums(nonnegative=True)}

    def sums(self, rows: FitRows) -> Mapping[str, StatisticPart]:
        event = (rows.design.b > 0).astype(np.float64)[:, None]
        return {"events": RowSum(event, np.ones_like(event))}


def cox(formula: str) -> Any:
    """Hazard ratios with their errors and intervals, and the number of events.

    Where the likelihood is monotone, ``not_estimable`` among the ``attrs`` of the table has the
    coefficients that would grow without bound, with their signs.
    """

    def dialogue(settings: Settings) -> Dialogue[pd.DataFrame]:
        agreement = yield from agree(formula, replace(settings, family=CoxFamily()))
        report = yield from glm(agreement)
        events = (yield from sums_of(agreement.rows, {"": Events()}))[""]["events"]
        fit = report.estimates
        half = ndtri(0.975) * fit.errors
        columns = {
            "coef": fit.values,
            "se": fit.errors,
            "hazard ratio": np.exp(fit.values),
            "lower": np.exp(fit.values - half),
            "upper": np.exp(fit.values + half),
        }
        table = pd.DataFrame(columns, index=list(fit.names))
        table.attrs = {
            "rows": sum(each.n for each in agreement.moments),
            "events": float(events[0, 0]),
            "aliased": list(fit.aliased),
            "not_estimable": dict(fit.not_estimable),
        }
        return table

    return dialogue


def printed(table: pd.DataFrame) -> str:
    """The table of ``cox`` as text."""
    about = table.attrs
    lines = [f"{about['rows']:,} rows, {about['events']:,.0f} events", table.to_string(na_rep="–")]
    lines += [f"not estimable: {name} ({sign})" for name, sign in about["not_estimable"].items()]
    lines += [f"the same in all rows of a client: {name}" for name in about["aliased"]]
    return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class Cox(DialogueAnalysis):
    """Hazard ratios as a study."""

    name: ClassVar[str] = "cox"

    formula: str

    @property
    def models(self) -> Mapping[str, str]:
        return {self.formula: CoxFamily.name}

    def dialogue(self) -> Any:
        return cox(self.formula)
