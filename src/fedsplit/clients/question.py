"""What a question is: a frozen value that any client, anywhere, can answer."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from array_api_compat import device
from numpy.typing import NDArray

from fedsplit.arrays import Array, Mask, column_means, namespace, on_host
from fedsplit.clients.adding import Together, add_parts, read_parts
from fedsplit.losses.batches import Streams
from fedsplit.losses.costs import Costs
from fedsplit.sums import Summands, Total

NOT_FINITE = "an answer that is not finite"
"""What is wrong with an answer whose numbers cannot be used. If those of every client are like
this, the clients are not to blame: the run itself diverges."""


ABSENT: Mapping[str, float] = {"error": 0.0}
"""The parts of an answer that are not nan where a client gave none."""


class Summary(NamedTuple):
    """What is known of the answers of all m clients together, so that nobody goes through them.

    Attributes
    ----------
    mean : (d,) array
        Of the first part, over the clients.
    moved : float
        √Σ_j‖·‖² of the first part less the point that the client was asked about.
    error, margin : float
        The largest error, and the smallest margin of a classifier.
    work : (int, int, int)
        Gradients, Hessians and factorisations of one client; all have the same.
    """

    mean: Array
    moved: float
    error: float
    margin: float
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
        return self.parts.get("error", exact)

    @property
    def complete(self) -> bool:
        """Whether every client answered."""
        return self.summary is not None or bool(self.present.all())

    @property
    def margin(self) -> float:
        """The smallest margin of a classifier; nan where there is none, or a client is absent."""
        if self.summary is not None:
            return self.summary.margin
        margin = self.parts.get("margin")
        return math.nan if margin is None else float(namespace(margin).min(margin))

    def largest_error(self) -> float:
        """The largest proved error of an answer."""
        if self.summary is not None:
            return self.summary.error
        if "error" not in self.parts or not self.present.any():
            return 0.0
        error = self.present_rows("error")
        return float(namespace(error).max(error))

    def total_work(self) -> tuple[int, int, int]:
        """How many gradients, Hessians and factorisations all clients computed."""
        if self.summary is not None:
            gradients, hessians, factorisations = self.summary.work
            m = len(self.present)
            return m * gradients, m * hessians, m * factorisations
        # a minibatch is a fraction of a gradient; who is absent did nothing
        totals = np.add.reduce(self.work, axis=0).tolist()
        gradients, hessians, factorisations = [math.ceil(round(total, 6)) for total in totals]
        return gradients, hessians, factorisations

    def floats(self) -> int:
        """How many numbers each client sent."""
        return sum([math.prod(array.shape[1:]) for array in self.parts.values()])

    def rows_or(self, default: Array) -> Array:
        """The rows, with ``default`` where a client did not answer."""
        if self.complete:
            return self.rows
        mask = self._mask(self.rows)
        filled: Array = namespace(self.rows).where(mask[:, None], self.rows, default)
        return filled

    def mean_or(self, default: Array) -> Array:
        """The mean of ``rows_or(default)`` over the clients."""
        return column_means(self.rows_or(default)) if self.summary is None else self.summary.mean

    def present_rows(self, name: str = "") -> Array:
        """The rows of a part, or of the first one, of the clients that answered."""
        rows = self.parts[name] if name else self.rows
        if self.complete:
            return rows
        chosen: Array = rows[self._mask(rows)]
        return chosen

    def _mask(self, array: Array) -> Mask:
        """``present``, where a part is."""
        if on_host(array):
            return self.present
        mask: Mask = namespace(array).asarray(self.present, device=device(array))
        return mask

    def joined(self, later: Answer) -> Answer:
        """The answers, with those of clients that have answered the same question later only."""
        new = later.present & ~self.present
        parts = {}
        for name, array in self.parts.items():
            rows = new.reshape(-1, *[1] * (array.ndim - 1))
            parts[name] = np.where(rows, later.parts[name], array)
        present = self.present | later.present
        return Answer(parts, present, self.seconds + later.seconds, self.work + later.work)

    def only(self, drawn: Mask) -> Answer:
        """The answers of the clients drawn, as if the others had not answered."""
        only = self._replace(present=self.present & drawn, summary=None)
        parts = {}
        for name, array in self.parts.items():
            xp = namespace(array)
            mask = xp.reshape(only._mask(array), (-1, *[1] * (array.ndim - 1)))
            parts[name] = xp.where(mask, array, ABSENT.get(name, np.nan))
        work = self.work
        if self.summary is not None:
            work = np.where(only.present[:, None], np.array(self.summary.work, dtype=float), 0.0)
        seconds = np.full(len(drawn), np.nan) if self.summary is not None else self.seconds
        return only._replace(parts=parts, work=work, seconds=seconds)


class Question(ABC):
    """A frozen dataclass of plain values, which travels as it is.

    Attributes
    ----------
    answer_type : type
        What comes back from a cohort of clients, for those who decode it.
    prepares : bool
        Whether this question prepares clients for others, and so brings no answer by itself.
    everyone : bool
        Whether the answers are useless unless every client gives one.
    vectors : tuple of str
        The fields that are points.
    brings_matrices : bool
        Whether a method asks this in every round, and for matrices of a client's rows.
    repeatable : bool
        Whether it has the same answer again as long as the data are the same.
    """

    answer_type: ClassVar[Any]
    prepares: ClassVar[bool] = False
    everyone: ClassVar[bool] = False
    vectors: ClassVar[tuple[str, ...]] = ()
    brings_matrices: ClassVar[bool] = False
    repeatable: ClassVar[bool] = True

    @classmethod
    def name(cls) -> str:
        """The question's name in messages and logs, such as ``prox``."""
        return re.sub("(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    @property
    def matrices(self) -> int:
        """How many matrices of its rows a client tells in its answer."""
        return 0

    def points(self) -> list[Array | None]:
        """The fields named in ``vectors``."""
        return [getattr(self, name) for name in self.vectors]

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

    def of_no_rows(self) -> Any:
        """The answer of a client without rows, which adds nothing; only if ``summable``."""
        raise NotImplementedError


class Part(NamedTuple):
    """One array of an answer.

    Attributes
    ----------
    shape : tuple of int or str
        Its shape per client, where ``"d"`` stands for the number of coordinates, and ``"triangle"``
        for that of the entries of a symmetric d×d matrix on and below its diagonal.
    allowed : {"finite", "distance", "size", "convex", "number", "some", "any"}
        Whether entries must be finite, or finite and nonnegative, or only nonnegative; those of a
        triangle finite, and nonnegative on the diagonal; may be infinite; may be nan, but not all
        those of a client; or may be anything.
    """

    shape: tuple[int | str, ...] = ()
    allowed: Literal["finite", "distance", "size", "convex", "number", "some", "any"] = "finite"

    def shape_for(self, d: int) -> tuple[int, ...]:
        """The shape per client, for x with d coordinates."""
        lengths = {"d": d, "triangle": d * (d + 1) // 2}
        return tuple(lengths.get(str(length)) or int(length) for length in self.shape)


def _may_be_convex(triangles: Array) -> Any:
    """Whether matrices with these entries, on and below the diagonal, may be Hessians."""
    d = int(np.sqrt(2 * triangles.shape[-1]))
    diagonal = np.cumsum(np.arange(1, d + 1)) - 1
    return np.isfinite(triangles).all() and (triangles[..., diagonal] >= 0).all()


USABLE: Mapping[str, Callable[[Array], Any]] = {
    "finite": lambda array: np.isfinite(array).all(),
    "distance": lambda array: (np.isfinite(array) & (array >= 0)).all(),
    "size": lambda array: (array >= 0).all(),
    "convex": _may_be_convex,
    "number": lambda array: not np.isnan(array).any(),
    "some": lambda array: not np.isnan(array).all(axis=1).any(),
    "any": lambda array: True,
}
"""By ``Part.allowed``, whether the numbers of a part can be used."""

VECTOR = Part(("d",))
NUMBER = Part((), "number")
SIZE = Part((), "size")
HESSIAN = Part(("triangle",), "convex")


class CostQuestion(Question):
    """A question about each client's own cost f_j.

    Its points are (d,), the same for all clients, (m, d), one per client, or None.

    Attributes
    ----------
    parts : mapping of str to Part
        The arrays of an answer by name; the first one is ``Answer.rows``.
    together : mapping of str to Together
        How each of them is added up over clients; empty if an answer is about one client alone.
    streams : (m,) array of int, or None
        The clients' random seeds, if they draw for their answers and have been given any. A
        question that clients draw for has it as its last field.
    """

    answer_type = Answer
    vectors: ClassVar[tuple[str, ...]] = ("x",)
    parts: ClassVar[Mapping[str, Part]] = {}
    together: ClassVar[Mapping[str, Together]] = {}
    streams: Streams | None = None

    @property
    def draws(self) -> bool:
        """Whether an answer depends on random numbers."""
        return False

    def seeded(self, streams: Streams) -> Self:
        """The question with the clients' random seeds, (m,)."""
        return replace(self, streams=streams)  # type: ignore[type-var]  # as in ``share``

    @abstractmethod
    def answer(self, costs: Costs, *points: Any) -> Mapping[str, Array]:
        """The parts by name, each (k, ...), of the k clients with these costs.

        ``points`` are the fields named in ``vectors``, in their order, each (k, d) or None.
        """

    def answer_parts(self) -> Mapping[str, Part]:
        """The arrays of an answer to this very question."""
        return self.parts

    @property
    def matrices(self) -> int:
        shapes = [part.shape for part in self.answer_parts().values()]
        return shapes.count(("d", "d")) + shapes.count(("triangle",))

    @property
    def summable(self) -> bool:
        return bool(self.together)

    def summands(self, value: Answer) -> list[Summands]:
        return add_parts(self.added_parts(), self.to_add(value.parts))

    def of_total(self, total: Total) -> Answer:
        d = next(point.shape[-1] for point in self.points() if point is not None)
        shapes = {name: part.shape_for(d) for name, part in self.answer_parts().items()}
        parts = self.from_added(read_parts(self.added_parts(), shapes, total), total.m)
        return Answer.of(**{name: parts[name] for name in shapes})

    def of_no_rows(self) -> Answer:
        d = next(point.shape[-1] for point in self.points() if point is not None)
        unlimited = {"radius": np.inf, "sign": 1.0}
        parts = {
            name: np.full(
                (1, *part.shape_for(d)), unlimited.get(self.added_parts().get(name, ""), 0.0)
            )
            for name, part in self.answer_parts().items()
        }
        return Answer.of(**parts)

    def added_parts(self) -> Mapping[str, Together]:
        """How the parts of this very question are added up."""
        return self.together

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
            if name in self.vectors:
                sent += (
                    0 if value is None else value.shape[-1]
                )  # one row per client, or one for all
            elif name == "streams":
                sent += value is not None
            elif isinstance(value, float):
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
        parts = self.answer_parts()
        if list(value.parts) != list(parts):
            return f"an answer with {', '.join(value.parts)}, expected {', '.join(parts)}"
        for name, part in parts.items():
            array = value.parts[name]
            shape = (k, *part.shape_for(d))
            kind = getattr(array, "dtype", type(array).__name__)
            if kind != np.float64:
                return f"{name} has the wrong type, {kind}"
            if array.shape != shape:
                return f"{name} has the wrong shape, {array.shape}, expected {shape}"
        if value.work.shape != (k, 3):
            return f"work has the wrong shape, {value.work.shape}, expected {(k, 3)}"
        for name, part in parts.items():
            array = value.parts[name]
            if not USABLE[part.allowed](array):
                return f"{name} is below zero" if np.isfinite(array).all() else NOT_FINITE
        return ""
