"""What a question is: a frozen value that any client, anywhere, can answer."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

import numpy as np
from array_api_compat import device
from numpy.typing import NDArray

from fedsplit.arrays import Array, Mask, column_means, namespace, on_host
from fedsplit.losses.batches import Streams
from fedsplit.losses.costs import Costs
from fedsplit.statistic import NOT_FINITE as NOT_FINITE
from fedsplit.sums import Rule, Summands, Total


class Summary(NamedTuple):
    """What is known of the answers of all m clients together, so that nobody goes through them."""

    mean: Array  # (d,): the mean of the first part over the clients
    moved: float  # √Σ_j‖·‖² of the first part less the point that the client was asked about
    # the largest error, and the smallest margin of a classifier
    error: float
    margin: float
    # (int, int, int): gradients, Hessians and factorisations of one client; all have the same
    work: tuple[int, int, int]


class Answer(NamedTuple):
    """The clients' answers to one question; row j of every array belongs to client j.

    Attributes
    ----------
    parts : dict of str to array
        The arrays of the answer by name, each (m, ...); rows of absent clients are nan.
    present : (m,) mask
        Who answered.
    seconds : (m,) array
        The time each client took. Clients that share a process share its time evenly.
    work : (m, 3) array
        How many gradients, Hessians and factorisations each client computed.
    summary : Summary or None
        In the place of ``seconds`` and ``work``, where all clients have answered in one pass.
    """

    parts: dict[str, Array]
    present: Mask
    seconds: Array
    work: Array
    summary: Summary | None = None

    @classmethod
    def of(cls, **parts: Array) -> Answer:
        """The answer of clients that have all answered: its parts by name, each (m, ...)."""
        m = len(next(iter(parts.values())))
        return cls(parts, np.ones(m, dtype=bool), np.zeros(m), np.zeros((m, 3)))

    @property
    def rows(self) -> Array:
        """The first part: the point of a prox, the gradient, the values …"""
        return next(iter(self.parts.values()))

    @property
    def error(self) -> Array:
        """A proved bound on each row's distance from the exact answer, (m,); 0 if it is exact."""
        exact = np.zeros(len(self.present))
        # an absent client's row is not used, so that nothing is wrong with it
        return np.where(self.present, self.parts.get("error", exact), 0.0)

    @property
    def complete(self) -> bool:
        """Whether every client answered."""
        # several times a round, and a third of the time of present.all()
        return bool(np.count_nonzero(self.present) == len(self.present))

    @property
    def margin(self) -> float:
        """The smallest margin of a classifier; nan where there is none, or a client is absent."""
        if self.summary is not None:
            return self.summary.margin
        margin = self.parts.get("margin")
        if margin is None:
            return math.nan
        # np.min calls this, after checks that take as long
        least = np.minimum.reduce if on_host(margin) else namespace(margin).min
        return float(least(margin))

    def largest_error(self) -> float:
        """The largest proved error of an answer."""
        if self.summary is not None:
            return self.summary.error
        error = self.parts.get("error")
        if error is None:
            return 0.0
        # without the nan of who is absent
        if on_host(error):  # in one call, as this is done in every round
            return float(np.fmax.reduce(error, initial=0.0))
        return float(namespace(error).max(namespace(error).where(error > 0, error, 0.0)))

    def total_work(self) -> tuple[int, int, int]:
        """How many gradients, Hessians and factorisations all clients computed."""
        if self.summary is not None:
            gradients, hessians, factorisations = self.summary.work
            m = len(self.present)
            return m * gradients, m * hessians, m * factorisations
        # a minibatch is a fraction of a gradient; who is absent did nothing
        # add.reduce is what sum() calls, without its checks: this is done in every round
        totals = np.add.reduce(self.work, axis=0).tolist()
        gradients, hessians, factorisations = [math.ceil(round(total, 6)) for total in totals]
        return gradients, hessians, factorisations

    def floats(self) -> int:
        """How many numbers each client sent."""
        return sum([math.prod(array.shape[1:]) for array in self.parts.values()])

    def rows_or(self, default: Array) -> Array:
        """The rows, with ``default`` where a client did not answer."""
        if self.complete:  # without a copy
            return self.rows
        mask = self._mask(self.rows)
        result: Array = namespace(self.rows).where(mask[:, None], self.rows, default)
        return result

    def mean_or(self, default: Array) -> Array:
        """The mean of ``rows_or(default)`` over the clients."""
        return column_means(self.rows_or(default)) if self.summary is None else self.summary.mean

    def present_rows(self) -> Array:
        """The rows of the clients that answered."""
        if self.complete:
            return self.rows
        return self.rows[self._mask(self.rows)]

    def _mask(self, array: Array) -> Mask:
        """``present``, where a part is."""
        if on_host(array):
            return self.present
        result: Mask = namespace(array).asarray(self.present, device=device(array))
        return result

    def joined(self, later: Answer) -> Answer:
        """The answers, with those of clients that have answered the same question later only."""
        new = later.present & ~self.present
        parts = {}
        for name, array in self.parts.items():
            rows = new.reshape(-1, *[1] * (array.ndim - 1))
            parts[name] = np.where(rows, later.parts[name], array)
        present = self.present | later.present
        seconds = np.nansum([self.seconds, later.seconds], axis=0)  # nan of who was absent
        return Answer(parts, present, seconds, self.work + later.work)

    def only(self, drawn: Mask) -> Answer:
        """The answers of the clients drawn, as if the others had not answered."""
        # who was drawn may be absent all the same
        only = self._replace(present=self.present & drawn, summary=None)
        parts = {}
        for name, array in self.parts.items():
            xp = namespace(array)
            mask = xp.reshape(only._mask(array), (-1, *[1] * (array.ndim - 1)))
            parts[name] = xp.where(mask, array, np.nan)
        if self.summary is None:
            return only._replace(parts=parts)
        work = np.where(only.present[:, None], np.array(self.summary.work, dtype=float), 0.0)
        return only._replace(parts=parts, work=work, seconds=np.full(len(drawn), np.nan))


class Question(ABC):
    """A frozen dataclass of plain values, which travels as it is."""

    answer_type: ClassVar[Any]  # what comes back from a cohort of clients, for those who decode it
    # whether this question prepares clients for others, and so brings no answer by itself
    prepares: ClassVar[bool] = False
    # whether the answers are useless unless every client gives one
    everyone: ClassVar[bool] = False
    vectors: ClassVar[tuple[str, ...]] = ()  # the fields that are points
    # whether a method asks this in every round, and for matrices of a client's rows
    brings_matrices: ClassVar[bool] = False
    # whether it has the same answer again as long as the data are the same
    repeatable: ClassVar[bool] = True

    @classmethod
    def name(cls) -> str:
        """The question's name in messages and logs, such as ``prox``."""
        return re.sub("(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    @property
    def titles(self) -> tuple[str, ...]:
        """By what names a single question is admitted, counted and logged."""
        return (self.name(),)

    @property
    def matrices(self) -> int:
        """How many matrices of its rows a client tells in its answer."""
        return 0

    def points(self) -> list[Array | None]:
        """The fields named in ``vectors``."""
        return [getattr(self, name) for name in self.vectors]

    def singles(self) -> list[Question]:
        """The questions that it consists of: rules about answers are written for single ones."""
        return [self]

    def narrowed(self, value: Any, columns: Container[str]) -> Any:
        """An answer without the names and types of other columns than these."""
        return value

    @property
    def summable(self) -> bool:
        """Whether clients can answer by numbers that are added up, so that no single one is seen.

        The sum is the answer of one client that has the rows of all.
        """
        return False

    def for_sums(self, m: int) -> Self:
        """The question to one such client, as it goes to the m that it stands for."""
        return self

    def summands(self, value: Any) -> list[Summands]:
        """What each client of a cohort adds to the sums; only if ``summable``."""
        raise NotImplementedError

    def of_total(self, total: Total) -> Any:
        """The answer that the sums over all clients amount to; only if ``summable``."""
        raise NotImplementedError


def _diagonals(triangles: Array) -> Array:
    """The diagonals of matrices by their entries on and below them."""
    i = np.arange(int(np.sqrt(2 * triangles.shape[-1])))
    return triangles[..., i * (i + 3) // 2]


Allowed: TypeAlias = Literal[
    "finite", "not nan", "some not nan", "nonnegative", "distance", "convex", "anything"
]

ALLOWED: Mapping[Allowed, Callable[[Array], Any]] = {
    "finite": lambda array: np.isfinite(array).all(),
    "not nan": lambda array: not np.isnan(array).any(),
    "some not nan": lambda array: not np.isnan(array).all(axis=1).any(),
    "nonnegative": lambda array: (array >= 0).all(),
    "distance": lambda array: (np.isfinite(array) & (array >= 0)).all(),
    # entries of matrices, on and below the diagonal, which may be those of Hessians
    "convex": lambda array: np.isfinite(array).all() and (_diagonals(array) >= 0).all(),
    "anything": lambda array: True,
}
"""Whether the numbers of an array, (k, ...), can be used; ``nonnegative`` allows inf."""


class Part(NamedTuple):
    """One array of an answer: from this follows what is sent, checked and added up."""

    # its shape per client, where ``"d"`` stands for the number of coordinates, ``"triangle"`` for
    # that of the entries of a symmetric d×d matrix on and below its diagonal, and the name of a
    # field of the question for the length of that
    shape: tuple[int | str, ...] = ()
    allowed: Allowed = "finite"  # which numbers can be used
    # how it is added up over clients; None if it is about one client alone
    together: Rule | None = None
    # the field of the question, neither None nor False, without which no answer has this part;
    # empty if every answer has it
    when: str = ""


class CostQuestion(Question):
    """A question about each client's own cost f_j.

    Its points are (d,), the same for all clients, (m, d), one per client, or None.
    """

    answer_type = Answer
    vectors: ClassVar[tuple[str, ...]] = ("x",)
    # the arrays of an answer by name; the first one is ``Answer.rows``
    parts: ClassVar[Mapping[str, Part]] = {}
    # (m,): the clients' random seeds, if they draw for their answers and have been given any. A
    # question that clients draw for has it as its last field
    streams: Streams | None = None

    @property
    def draws(self) -> bool:
        """Whether an answer depends on random numbers, such as those of a local solver."""
        # a protocol takes long to look for
        return bool(getattr(getattr(self, "solver", None), "draws", False))

    def seeded(self, streams: Streams) -> Self:
        """The question with the clients' random seeds, (m,)."""
        return replace(self, streams=streams)  # type: ignore[type-var]  # as in ``share``

    @property
    def common_point(self) -> Array | None:
        """The first point that is the same for all clients, (d,); None if there is none."""
        return next((x for x in self.points() if x is not None and x.ndim == 1), None)

    @abstractmethod
    def answer(self, costs: Costs, *points: Any) -> Mapping[str, Array]:
        """The parts by name, each (k, ...), of the k clients with these costs.

        ``points`` are the fields named in ``vectors``, in their order, each (k, d) or None.
        """

    def answer_parts(self) -> dict[str, Part]:
        """The arrays of an answer to this very question."""
        fields = {"": True, **vars(self)}
        asked = self.parts.items()
        # not by truth: an array has none, and 0 is a value
        return {
            k: part for k, part in asked if not any(fields[part.when] is x for x in (None, False))
        }

    def shapes(self, d: int) -> dict[str, tuple[int, ...]]:
        """The shape of every part per client, for x with d coordinates."""

        known = {"d": d, "triangle": d * (d + 1) // 2}

        def number(length: int | str) -> int:
            if isinstance(length, int):
                return length
            return known[length] if length in known else len(getattr(self, length))

        return {k: tuple(map(number, part.shape)) for k, part in self.answer_parts().items()}

    def unanswered(self, m: int, d: int) -> dict[str, Array]:
        """The parts of m clients before any of them has answered: nan."""
        return {name: np.full((m, *shape), np.nan) for name, shape in self.shapes(d).items()}

    @property
    def matrices(self) -> int:
        shapes = [part.shape for part in self.answer_parts().values()]
        return shapes.count(("d", "d")) + shapes.count(("triangle",))

    @property
    def summable(self) -> bool:
        return all(part.together is not None for part in self.answer_parts().values())

    def summands(self, value: Answer) -> list[Summands]:
        parts = self.to_add(value.parts)
        # each client's is masked by itself before they are added
        contributions = [Summands() for _ in value.present]
        for j, own in enumerate(contributions):
            for name, rule in self.rules().items():
                rule.add(own, np.asarray(parts[name][j]))
        return contributions

    def of_total(self, total: Total) -> Answer:
        shapes = self.shapes(next(x.shape[-1] for x in self.points() if x is not None))
        parts = {}
        for name, rule in self.rules().items():
            shape = shapes.get(name, ())
            # a number is read as one entry
            parts[name] = rule.read(total, shape or (1,)).reshape(1, *shape)
        parts = self.from_added(parts, total.m)
        return Answer.of(**{name: parts[name] for name in shapes})

    def rules(self) -> dict[str, Rule]:
        """How each number that clients add up is added, in this order."""
        parts = self.answer_parts().items()
        return {name: part.together for name, part in parts if part.together is not None}

    def to_add(self, parts: Mapping[str, Array]) -> Mapping[str, Array]:
        """The parts of an answer in a form in which they may be added."""
        return parts

    def from_added(self, parts: dict[str, Array], m: int) -> dict[str, Array]:
        """The parts of the client that m clients are together, by those that were added."""
        return parts

    def floats_down(self) -> int:
        """Floats sent to each client.

        Arrays, step sizes and a random seed count, a solver's settings do not.
        """
        sent = 0
        for name, value in vars(self).items():
            if value is not None and name in self.vectors:
                sent += value.shape[-1]  # each client gets one row, be it its own or that of all
            elif isinstance(value, float) or (value is not None and name == "streams"):
                sent += 1
            elif isinstance(value, np.ndarray):
                sent += value.size
        return sent

    def share(self, rows: slice | NDArray[np.intp]) -> Self:
        """The question as it goes to the clients of these rows."""
        own: dict[str, Array | Streams] = {
            name: point[rows]
            for name, point in zip(self.vectors, self.points(), strict=True)
            if point is not None and point.ndim == 2
        }
        if self.streams is not None:
            own["streams"] = self.streams[rows]
        return replace(self, **own)  # type: ignore[type-var]  # every subclass is a dataclass

    def check(self, value: Any, k: int, d: int) -> str:
        """What is wrong with the answer of k clients: an empty text if nothing is."""
        if not isinstance(value, Answer):
            return f"an answer of the wrong type, {type(value).__name__}"
        shapes = self.shapes(d)
        if list(value.parts) != list(shapes):
            return f"an answer with {', '.join(value.parts)}, expected {', '.join(shapes)}"
        arrays = {**value.parts, "work": value.work}
        for name, shape in {**shapes, "work": (3,)}.items():
            array = arrays[name]
            # whatever came may be no array at all
            kind = getattr(array, "dtype", type(array).__name__)
            if kind != np.float64:
                return f"{name} has the wrong type, {kind}"
            if array.shape != (k, *shape):
                return f"{name} has the wrong shape, {array.shape}, expected {(k, *shape)}"
        # numbers last: a shape that is wrong says more about what went wrong
        for name, part in self.answer_parts().items():
            array = value.parts[name]
            if not ALLOWED[part.allowed](array):
                return f"{name} is below zero" if np.isfinite(array).all() else NOT_FINITE
        return ""
