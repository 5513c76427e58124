"""From a draft to an answer: limits, rounding, and the record of what is disclosed.

This is the one place that denies by default: under rules an answer leaves only after what it
discloses was stated, and is on record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedsplit.channels import codec
from fedsplit.clients.question import Question
from fedsplit.clients.rounding import rounded
from fedsplit.errors import InputError, RequestError
from fedsplit.regression.client.guards.ledger import Disclosed
from fedsplit.regression.client.guards.rules import Rules, check_range
from fedsplit.statistic import Computed, RowSum, Shape, Statistic, Values

if TYPE_CHECKING:
    from fedsplit.regression.client.dataset import Dataset
    from fedsplit.regression.client.questions import SumQuestion

UNSTATED = "unstated"
"""What questions are counted as that do not state what they disclose."""

MATRIX = "matrix"
"""What questions for matrices are counted as."""


class Release:
    """The answer to one question on its way out of a cohort, by its clients' ledgers."""

    def __init__(self, datasets: Mapping[str, Dataset], rules: Rules) -> None:
        self._datasets = datasets
        self._rules = rules
        # the fingerprint of the question and the rows; empty for one that is asked again
        self._key = ""
        self._question: Question | None = None
        # what is disclosed of each client; None where it is not recorded
        self._stated: dict[str, list[Disclosed]] | None = None
        self._unstated: set[str] = set()  # the clients of which something is not known

    @property
    def open(self) -> bool:
        """Whether statements are recorded."""
        return self._stated is not None

    def begin(self, key: str, question: Question, records: bool) -> None:
        """Begin with a question; the same about the same rows counts once.

        ``records`` is whether what is disclosed is recorded under rules that only warn, too. A
        question too many, and a matrix that the owner withholds, raise RequestError.
        """
        if all(key in dataset.ledger for dataset in self._datasets.values()):
            return
        self._key, self._question = key, question
        rules = self._rules
        for name, dataset in self._datasets.items():
            ledger = dataset.ledger
            if not rules.matrices and question.brings_matrices:
                raise RequestError(
                    f"client {name} allows matrices for proofs only: choose the method "
                    "quasi-newton, and leave out firth"
                )
            if rules.refuse and len(ledger) >= rules.points:
                raise RequestError(
                    f"client {name} has answered {len(ledger)} questions about its rows, and its "
                    f"rules allow {rules.points}"
                )
            # where the owner allows matrices for proofs only
            most = 16
            if not rules.matrices and question.matrices and ledger.count(MATRIX) >= most:
                raise RequestError(
                    f"client {name} has disclosed {most} matrices of its rows, and its "
                    "owner allows no more"
                )
        if rules.refuse or records:
            self._stated = {}

    def state(
        self,
        name: str,
        where: NDArray[np.intp] | None = None,
        make: Callable[[], Sequence[RowSum]] = list,
    ) -> None:
        """State what the answer discloses of a client: sums over the rows of these numbers."""
        if self._stated is not None:
            own = self._stated.setdefault(name, [])
            if where is not None:
                own += [Disclosed(where, each) for each in make()]

    def sums(
        self, name: str, where: NDArray[np.intp], question: SumQuestion, rows: Any
    ) -> dict[str, Values]:
        """What a client answers to each statistic of a question."""
        return {
            own: self.of(name, where, each, rows, question.shapes[own])
            for own, each in question.statistics.items()
        }

    def of(
        self,
        name: str,
        where: NDArray[np.intp],
        statistic: Statistic,
        rows: Any,
        shapes: Mapping[str, Shape],
    ) -> Values:
        """What a client answers to a statistic: limits, then the sums, rounded under rules."""
        if self._rules.refuse and not self._within_limits(name, statistic, rows):
            self.state(name)
            return {part: shape.zeros for part, shape in shapes.items()}
        parts = statistic.sums(rows)
        values = {}
        for part, each in parts.items():
            if self._rules.refuse and isinstance(each, RowSum):
                # products could be beyond float64
                root = 1.0 if each.weights is None else np.sqrt(np.abs(each.weights))[:, None]
                for columns in (each.left, each.right):
                    if columns is not None:
                        what = ["a combination of columns"] * columns.shape[1]
                        check_range(name, what, root * columns)
            value = each.value()
            bounds = each.bounds() if self._rules.refuse else None
            values[part] = value if bounds is None else rounded(value, bounds)
            if part not in shapes or value.shape != shapes[part].shape:
                raise TypeError(f"{type(statistic).__name__} states another shape than of {part}")
        if len(values) != len(shapes):
            raise TypeError(f"{type(statistic).__name__} states more parts than it makes")
        if self.open:
            if any(isinstance(each, Computed) and each.sums is None for each in parts.values()):
                self._unstated.add(name)
            sums = [own for each in parts.values() for own in each.disclosed()]
            self.state(name, where, lambda: sums)
        return values

    def _within_limits(self, name: str, statistic: Statistic, rows: Any) -> bool:
        """Whether a client has answered few enough of a kind; it counts this one.

        If it has not, and zeros would be no answer, RequestError is raised.
        """
        limits = statistic.limits(getattr(rows, "plan", None))
        dataset = self._datasets.get(name)
        if not limits or dataset is None:
            return True
        ledger = dataset.ledger
        about = statistic, rows.plan, getattr(rows, "frame", None)
        same = about if limits[0].same is None else limits[0].same
        key = sha256(codec.encode((limits[0].kind, same))).hexdigest()
        if key in ledger:
            return True
        for limit in limits:
            if ledger.count(limit.kind) >= limit.most:
                if limit.refusal:
                    raise RequestError(limit.refusal)
                return False
        ledger.add(key, [], [limit.kind for limit in limits])
        return True

    def record(self, names: Sequence[str]) -> None:
        """Record what the answer discloses of these clients, before it leaves.

        Under rules that refuse, a question that has not stated it raises RequestError, and a
        leverage beyond what the owner allows InputError.
        """
        if self._question is None:
            return
        question, rules = self._question, self._rules
        for name in names:
            ledger = self._datasets[name].ledger
            tags = [MATRIX] * bool(question.matrices)
            if self._stated is None:
                if tags:
                    ledger.add(self._key, [], tags)
                continue
            disclosed = self._stated.get(name, [])
            if name not in self._stated or name in self._unstated:
                if rules.refuse:
                    raise RequestError(
                        f"the question {question.name()} does not state what it discloses, and "
                        "its rules answer no such question"
                    )
                tags.append(UNSTATED)
            if rules.refuse and rules.leverage is not None:
                self._check_leverage(name, disclosed, rules.leverage)
            ledger.add(self._key, disclosed, tags)

    def _check_leverage(self, name: str, disclosed: Sequence[Disclosed], most: float) -> None:
        dataset, person = self._datasets[name], self._rules.person
        persons = None if person is None else dataset.persons(person)
        largest = float(dataset.ledger.leverages(disclosed, persons).max(initial=0.0))
        if largest > most:
            raise InputError(
                f"client {name}: with this answer the leverage of a "
                f"{'row' if person is None else 'person'} would be {largest:.4f} "
                f"(rule largest_leverage: {most:g})"
            )
