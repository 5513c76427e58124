"""The clients' side of a fit: silos that describe and code their rows, and answer the questions of the rounds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fedsplit.arrays import Array
from fedsplit.clients.oracle import Answer
from fedsplit.clients.stacked import QUIET, StackedClients
from fedsplit.errors import InputError
from fedsplit.losses.multinomial import Multinomial
from fedsplit.losses.observations import Observations
from fedsplit.problem import Problem
from fedsplit.regression.client.dataset import Dataset, Description, Plan, Request
from fedsplit.regression.client.design import Calibration, Design, Moments, Scaling
from fedsplit.regression.families import FAMILIES
from fedsplit.remote import codec
from fedsplit.remote.channel import Question, Unprepared
from fedsplit.remote.cohort import ROUND_QUESTIONS
from fedsplit.threads import one_blas_thread


@dataclass(frozen=True)
class Coding:
    """How rows are to be coded, whether the guards are strict, and which clients' rows."""

    plan: Plan
    strict: bool
    names: tuple[str, ...]


@dataclass(frozen=True)
class Frame:
    """The coordinates of the rounds, and what a client's cost is in them.

    scaling : of the columns and the target.
    whiten : what the scaled columns are multiplied by, (p, p), so that they are orthonormal over all clients.
    delta : of Huber's loss, in the target's unit.
    symmetric : whether the coefficients are those of all classes, centred.
    ridge : of the whole objective, (d,).
    """

    scaling: Scaling
    whiten: Array | None
    delta: float
    symmetric: bool
    ridge: Array

    def without_ridge(self) -> Frame:
        """All but the ridge: what the data are in."""
        return replace(self, ridge=np.zeros(0))


class Coded(NamedTuple):
    """What a client tells of its coded rows, and what that could disclose."""

    moments: Moments
    warnings: Sequence[str]


class Fitted(NamedTuple):
    """How well a model fits a client's rows."""

    log_likelihood: float
    calibration: Calibration | None


def key_of(coding: Coding, frame: Frame) -> str:
    """The name of what is settled, by its content."""
    return hashlib.sha256(codec.encode((coding, frame))).hexdigest()


class SiloCohort:
    """Clients whose rows are here.

    Rows are read when they are first asked for. What is settled last is kept; a question about anything else is
    ``Unprepared``, and ``settle`` codes the rows again. With ``strict`` the guards are, whatever a question says.
    """

    kinds: Mapping[str, Any] = dict.fromkeys(ROUND_QUESTIONS, Answer) | {
        "columns": list[dict[str, str]],
        "describe": list[Description],
        "code": list[Coded],
        "settle": list[Moments],
        "fitted": list[Fitted],
        "pearson": list[float],
    }

    def __init__(self, silos: Sequence[Dataset], strict: bool = False) -> None:
        self._strict = strict
        self.names = [silo.name for silo in silos]
        self.rows: list[Design] = []
        self._silos = dict(zip(self.names, silos, strict=True))
        self._coding: Coding | None = None
        self._told: list[Moments] = []
        self._base: tuple[str, Problem] | None = None
        self._settled: dict[str, tuple[Frame, Problem]] = {}
        self._of: tuple[str, int, StackedClients] | None = None

    @classmethod
    def of_rows(cls, coding: Coding, rows: list[Design], moments: list[Moments]) -> SiloCohort:
        """Clients whose rows are coded already."""
        cohort = cls([])
        cohort.names, cohort.rows = list(coding.names), rows
        cohort._coding, cohort._told = coding, moments
        return cohort

    def answer(self, question: Question) -> Any:
        with one_blas_thread(), np.errstate(**QUIET):
            if question.name in HANDSHAKE:
                return getattr(self, question.name)(*question.args)
            key, *args = question.args
            if key not in self._settled:
                raise Unprepared
            if question.name in AFTERWARDS:
                return getattr(self, question.name)(self._scaled(self._settled[key][0]), *args)
            if question.name in ROUND_QUESTIONS:
                m, *args = args
                return getattr(self._clients(key, m), question.name)(*args)
        raise InputError(f"there is no question {question.name!r}")

    def columns(self) -> list[dict[str, str]]:
        """The names and kinds of all columns."""
        return [silo.columns() for silo in self._silos.values()]

    def describe(self, request: Request) -> list[Description]:
        """What is in the columns."""
        return [silo.describe(request) for silo in self._silos.values()]

    def code(self, coding: Coding) -> list[Coded]:
        """Code the rows, and tell their moments."""
        self._forget()
        coded = [
            self._silos[name].code(coding.plan, coding.strict or self._strict)
            for name in coding.names
        ]
        self._coding, self.rows = coding, [rows for rows, _ in coded]
        self._told = [rows.moments() for rows in self.rows]
        return [
            Coded(moments, warnings)
            for moments, (_, warnings) in zip(self._told, coded, strict=True)
        ]

    def settle(self, coding: Coding, frame: Frame) -> list[Moments]:
        """Make the costs of the rounds, and tell the moments of the rows that they are made of."""
        if coding != self._coding or not all(_fits(rows, frame.scaling) for rows in self.rows):
            self.code(coding)
        key, without = key_of(coding, frame), key_of(coding, frame.without_ridge())
        if self._base is None or self._base[0] != without:
            self._base = without, self._problem(coding, frame)
        self._settled = dict([*self._settled.items()][-1:]) | {
            key: (frame, self._base[1].with_ridge(frame.ridge))
        }
        return self._told

    def fitted(self, rows: Sequence[Design], x: Array, dispersion: float) -> list[Fitted]:
        """Log-likelihoods at a point of the scaled columns, and the calibration of a binary classifier."""
        return [
            Fitted(
                each.log_likelihood(x, dispersion),
                each.calibration(x)
                if each.family.classifies and not each.family.per_class
                else None,
            )
            for each in rows
        ]

    def pearson(self, rows: Sequence[Design], x: Array) -> list[float]:
        """Pearson's X² at a point of the scaled columns."""
        return [each.pearson(x) for each in rows]

    def _problem(self, coding: Coding, frame: Frame) -> Problem:
        loss = FAMILIES[coding.plan.family].loss(frame.delta, len(coding.plan.classes))
        if isinstance(loss, Multinomial):
            loss = replace(loss, symmetric=frame.symmetric)
        return Problem(loss, self._data(coding, frame), frame.ridge)

    def _data(self, coding: Coding, frame: Frame) -> list[Observations]:
        """The observations of the rounds."""
        data = [rows.observations for rows in self._scaled(frame)]
        return (
            data
            if frame.whiten is None
            else [each._replace(A=each.A @ frame.whiten) for each in data]
        )

    def _scaled(self, frame: Frame) -> list[Design]:
        """The coded rows, scaled in place."""
        for rows in self.rows:
            if rows.scaling is None:
                rows.scale(frame.scaling)
        return self.rows

    def _forget(self) -> None:
        """All that was made of rows as they were coded."""
        self._settled, self._base, self._of = {}, None, None

    def _clients(self, key: str, m: int) -> StackedClients:
        """The clients of the rounds, where there are m in all."""
        if self._of is None or self._of[:2] != (key, m):
            self._of = key, m, self._settled[key][1].among(m)
        return self._of[2]


HANDSHAKE = frozenset({"columns", "describe", "code", "settle"})
"""What may be asked before the rounds."""

AFTERWARDS = frozenset({"fitted", "pearson"})
"""What may be asked beside them, about what is settled."""


def _fits(rows: Design, scaling: Scaling) -> bool:
    """Whether rows are as they were coded, or scaled like this."""
    return rows.scaling is None or all(
        np.all(a == b) for a, b in zip(rows.scaling, scaling, strict=True)
    )
