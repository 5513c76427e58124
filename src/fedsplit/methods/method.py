"""What a method is: frozen settings, and dialogues for its first state and for one round."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from fedsplit.arrays import EPS, Array, Mask, column_means, length, namespace, to_host, unpacked
from fedsplit.checks import count, instance, number
from fedsplit.clients.question import Answer, CostQuestion
from fedsplit.clients.questions import BatchCurvature, Curvature, Evaluate, ProofScalars, Prox
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError
from fedsplit.local.gradient import GradientProx, unknown_curvature
from fedsplit.local.newton import ExactProx
from fedsplit.local.solver import ProxSolver, start_of
from fedsplit.penalties.penalty import Penalty, check_penalty, prox_or_same


class State(Protocol):
    """What a method remembers between rounds: a NamedTuple of arrays and numbers."""

    @property
    def x(self) -> Array:
        """The server's point, (d,)."""


S = TypeVar("S", bound=State)


class Evidence(NamedTuple):
    """What the answers of every client say about x, from which a certificate follows."""

    gradients: Array  # (m, d): ∇f_j(x)
    spread: Array  # (m,): t_j, such that ∇²f_j(x) ⪰ e^(-t_j)B_j
    hessians: Array  # (m, d(d + 1)/2): B_j, or ∇²f_j(x) itself where the loss states no concordance
    scalars: ProofScalars
    # how far Σ_j∇f_j(x) may be from the sum of the gradients, in the norm of ``least_hessian``⁻¹
    drift: float = 0.0
    # the least margin of a classifier, as in ``Prox``; nan where there is none
    margin: float = math.nan

    @property
    def least_hessian(self) -> Array:
        """Σ_j e^(-t_j)B_j ⪯ ∇²F(x), (d, d)."""
        return unpacked(np.exp(-self.spread) @ self.hessians)


class Method(ABC, Generic[S]):
    """The server's mathematics: ``start`` gives the first state, ``update`` the next one.

    A method of one's own is a frozen dataclass that derives from this class and has these two. A
    state is a NamedTuple of arrays and numbers with the server's point ``x``, (d,). Everything else
    that the loop asks of a method is declared here, with a default.

    Attributes
    ----------
    settles : bool
        Whether a small residual means that it has converged; False if it ends by itself.
    unanimous : bool
        Whether it needs an answer of every client in every round: clients elsewhere are then asked
        until all have answered.
    arrivals : bool
        Whether it takes answers one by one, by ``Post``, and so runs asynchronously alone.
    newton_may_finish : bool
        Whether a fit may end with Newton steps. Baselines are to show where they stop.
    device : {"arrays", "sums", "host"}
        How it runs where the clients are on a device: its own arithmetic is over the array API, and
        stays there; sums over all clients are all that it needs; or answers go to the host.
    state_type : type
        The type of its states, to recognise those of another method.
    may_be_zero : tuple of str
        The settings that ``check_settings`` allows to be 0.
    """

    settles: ClassVar[bool] = True
    unanimous: ClassVar[bool] = False
    arrivals: ClassVar[bool] = False
    newton_may_finish: ClassVar[bool] = False
    device: ClassVar[Literal["arrays", "sums", "host"]] = "host"
    state_type: ClassVar[type] = object
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def start(self, x0: Array, m: int) -> Dialogue[S]:
        """The first state of m clients at x0, (d,); what is asked here is set-up."""

    @abstractmethod
    def update(self, state: S) -> Dialogue[S | None]:
        """The state after one more round, or None if the method is done."""

    @property
    def hazard(self) -> str:
        """What most likely went wrong when the method diverges, and what to do about it."""
        return (
            "a cost is not convex, or its numbers are beyond float64: "
            "check the loss and the scale of the data"
        )

    @property
    def penalty(self) -> Penalty | None:
        """The convex g of F + g. A method that takes one has it as a field of this name."""
        return None

    def penalised(self, value: float | None, x: Array) -> float:
        """F(x) with the penalty, where ``value`` is Σ_j f_j(x); nan if that was not measured."""
        if value is None:
            return math.nan
        return value if self.penalty is None else value + self.penalty.value(to_host(x))

    @property
    def drawn(self) -> float:
        """The share of the clients that the method itself draws for a round."""
        return 1.0

    def suited(self, m: int, d: int) -> Method[Any]:
        """The method that takes this one's place for m clients and d coordinates: itself."""
        return self

    def described(self) -> str:
        """What runs, in a user's words."""
        return type(self).__name__

    def iterate(self, state: S) -> Array:
        """The variable whose fixed point the method seeks; its change is the residual."""
        return state.x

    def residual(self, before: S, after: S) -> float:
        """How far the iterate has moved in a round."""
        return length(self.iterate(after) - self.iterate(before))

    def step_of(self, state: S) -> float | Array:
        """The step in use; nan if there is none."""
        return math.nan

    def subgradient(self, state: S) -> Array | None:
        """A subgradient of the penalty at x, (d,), which certificates need; None if unknown."""
        return None

    def values(self, state: S) -> Array | None:
        """f_j(x), (m,), if they came with the answers, so that nobody need be asked for F."""
        return None

    def smooth_value(self, state: S) -> float:
        """About F(x) without the penalty; nan if that is not known."""
        return math.nan

    def evidence(self, state: S) -> Evidence | None:
        """What the last answers prove at x; None if a proof has to be asked for."""
        return None

    def expected_gap(self, before: S, after: S) -> float:
        """What F(x) - F* probably is after a round.

        Σ(z⁺ - z)²/s is of the order of the gap where a method converges steadily; a slow method's
        is some hundred times that.
        """
        step = self.step_of(after)
        if isinstance(step, float):
            return 100.0 * self.residual(before, after) ** 2 / step
        return 100.0 * self.in_units_of_F(after, self.iterate(after) - self.iterate(before))

    def in_units_of_F(self, state: S, move: Array) -> float:  # noqa: N802  # F is the objective
        """About how much F changes with a move from its minimiser: Σ move²/s."""
        return estimated_gap(move, self.step_of(state))

    def current(self, state: S, present: Mask) -> Mask:
        """The clients whose last answer is about x, (m,), given who has just answered."""
        return present

    def without(self, state: S, kept: Mask) -> S | None:
        """The state to go on from with the clients kept, (m,); None to start anew from x."""
        return None

    def notes(self, state: S) -> tuple[str, ...]:
        """What the user should know about the run."""
        return ()

    def with_penalty(self, penalty: Penalty) -> Self:
        """The method for F + g."""
        if "penalty" not in getattr(type(self), "__dataclass_fields__", {}):
            raise InputError(
                f"penalty: {type(self).__name__} takes none: use FedSplit, FedSplitInformation, "
                "QuasiNewton, LBFGS, ADMM, GD or AGD"
            )
        return replace(self, penalty=penalty)  # type: ignore[type-var]  # a dataclass, as it says


def settings_of(kind: Any) -> dict[str, tuple[str, bool]]:
    """By name, the type of every setting of a method in words, and whether it may be None."""
    found = {}
    for each in fields(kind) if is_dataclass(kind) else ():
        words = each.type.__name__ if isinstance(each.type, type) else str(each.type)
        word, _, none = words.partition(" | ")
        if each.init:
            found[each.name] = word, bool(none)
    return found


def check_settings(method: Method[Any]) -> None:
    """Raise InputError unless each setting is what its type says; numbers have to be positive."""
    for name, (kind, optional) in settings_of(type(method)).items():
        label = f"{type(method).__name__}: {name}"
        value = getattr(method, name)
        zero = name in method.may_be_zero
        if optional and value is None:
            continue
        if kind == "float":
            number(label, value, strict=not zero)
        elif kind == "int":
            count(label, value, least=0 if zero else 1)
        elif name == "prox":
            instance("prox", value, "a ProxSolver", "solve")
        elif name == "penalty":
            check_penalty(value)


class StepMethod(Method[S]):
    """A method with a step s in its state, whose settings are checked."""

    def __post_init__(self) -> None:
        check_settings(self)

    def step_of(self, state: Any) -> float | Array:
        result: float | Array = state.s
        return result


def estimated_gap(move: Array, s: float | Array) -> float:
    """Σ(z⁺ - z)²/s, which is of the order of F(x) - F* where a method converges steadily."""
    xp = namespace(move)
    return length(move) ** 2 / s if isinstance(s, float) else float(xp.sum(xp.square(move) / s))


def average(z: Array, s: float, penalty: Penalty | None) -> Array:
    """argmin_x g(x) + Σ_j ‖x - z_j‖²/(2s) = prox_{(s/m)g}(mean z): the mean without a penalty."""
    mean = column_means(z)
    # the m terms of 1/(2s) each are one of m/(2s), whose prox has the step s/m
    return mean if penalty is None else prox_or_same(penalty, mean, s / z.shape[0])


def subgradient_of_average(x: Array, z: Array, s: float) -> Array:
    """The subgradient of g at x = prox_{(s/m)g}(mean z), (d,): 0 to rounding without a penalty."""
    result: Array = z.shape[0] * (column_means(z) - x) / s
    return result


def prox_question(solver: ProxSolver | None, v: Array, s: float, x: Array, z: Array) -> Prox:
    """The question for prox_{s f_j}(v_j), whose solver starts at x, z_j or v_j, as it states."""
    return Prox(v, s, start_of(solver or ExactProx(), x, z), solver or ExactProx())


def with_papers_step(solver: ProxSolver | None, x0: Array) -> Dialogue[ProxSolver | None]:
    """A local solver with Corollary 1's step by ℓ_* and L^* of all clients, if it takes that."""
    if not (isinstance(solver, GradientProx) and solver.step == "paper"):
        return None
    bounds = yield from extreme_curvature(x0)
    if not bounds.everywhere:
        raise unknown_curvature()
    return solver.for_bounds(bounds.ell, bounds.L)


class CurvatureBounds(NamedTuple):
    """ℓ* = min ℓ_j and L* = max L_j, and whether they hold everywhere or at the start alone."""

    ell: float
    L: float
    everywhere: bool


def curvatures(x0: Array, batch: int | None = None) -> Dialogue[tuple[Answer, bool]]:
    """ℓ_j and L_j, and whether they hold everywhere.

    If some L_j has no bound that holds for every x, they are those of the Hessians at x0. L_j is
    the expected smoothness of minibatches where these are of ``batch`` rows.
    """
    answer: Answer = yield Curvature() if batch is None else BatchCurvature(batch)
    L = answer.present_rows()[:, 1]
    everywhere = bool(namespace(L).all(namespace(L).isfinite(L)))
    if not everywhere:  # the next best thing, which holds near x0 alone
        answer = yield Curvature(x0) if batch is None else BatchCurvature(batch, x0)
    return answer, everywhere


def extreme_curvature(x0: Array, batch: int | None = None) -> Dialogue[CurvatureBounds]:
    """ℓ* and L* over the clients that answer, see ``curvatures``."""
    answer, everywhere = yield from curvatures(x0, batch)
    rows = answer.present_rows()
    if not rows.shape[0]:
        raise InputError("no step follows from the curvature: no client answered, pass step=")
    xp = namespace(rows)
    return CurvatureBounds(float(xp.min(rows[:, 0])), float(xp.max(rows[:, 1])), everywhere)


def choose_step(
    given: float | None, rule: Callable[[float, float], float], x0: Array, batch: int | None = None
) -> Dialogue[float]:
    """The given step, or the rule's at ℓ* and L*, see ``extreme_curvature``."""
    return float(given or step_from((yield from extreme_curvature(x0, batch)), rule))


def step_from(bounds: CurvatureBounds, rule: Callable[[float, float], float]) -> float:
    """The rule's step at ℓ* and L*; raises InputError if that is no positive number."""
    ell, L, _ = bounds
    step = rule(ell, L) if L > 0 else math.inf  # rules divide by L
    if not (math.isfinite(step) and step > 0):
        raise InputError(f"no step follows from the curvature ℓ* = {ell:g}, L* = {L:g}: pass step=")
    return step


def total(name: str, answer: Answer) -> Array:
    """The sum of an answer's rows over all clients: without one of them it is that of another F."""
    require_complete(name, answer)
    result: Array = answer.rows.sum(axis=0)
    return result


def require_complete(name: str, answer: Answer) -> None:
    """Raise InputError unless every client has answered a method that needs them all."""
    if not answer.complete:
        raise InputError(
            f"{name} needs every client's answer in every round: use a method that takes "
            "partial participation, such as FedSplit"
        )


def answers(question: CostQuestion, wait: bool = True, most: float = math.inf) -> Dialogue[Answer]:
    """The answers to a question, which is asked again until everyone has answered, if ``wait``.

    Who is drawn goes through a shuffled list of all clients before it is shuffled again, so that a
    client may be asked twice before everyone was asked once, but not three times: who has not
    answered then is absent. After ``most`` questions the answers are those that there are.
    """
    answer: Answer = yield question
    times = answer.present.astype(np.int64)
    asked = 1
    while wait and not answer.complete and (times <= 2).all() and asked <= most:
        later: Answer = yield question
        answer = answer.joined(later)
        times += later.present
        asked += 1
    return answer


class FirstOrder(NamedTuple):
    """F and its gradient, (d,), at a point."""

    F: float
    g: Array

    def bounds(self, F: float, move: Array, s: float) -> bool:
        """Whether F after a move is at most what a curvature of 1/s allows, to rounding."""
        # a quadratic of curvature 1/s above F, which proves that F falls with the step s
        allowed = self.F + float(self.g @ move) + float(move @ move) / (2.0 * s)
        return bool(allowed + 16.0 * EPS * abs(self.F) >= F)


def evaluated(name: str, x: Array, wait: bool = False) -> Dialogue[FirstOrder]:
    """F and its gradient at x, from one question; if ``wait``, until all have answered it."""
    # the margin costs nothing, and shows at once where classes are separable
    answer = yield from answers(Evaluate(x, margin=True), wait)
    return FirstOrder(float(total(name, answer)), answer.parts["gradient"].sum(axis=0))


def total_curvature(name: str, x0: Array) -> Dialogue[CurvatureBounds]:
    """Σ_j ℓ_j and Σ_j L_j, and whether they hold for every x or at x0 alone."""
    answer, everywhere = yield from curvatures(x0)
    require_complete(name, answer)
    rows = answer.rows
    ell, L = rows.sum(axis=0).tolist()
    if not 0 < L < np.inf:
        raise InputError(f"{name}: no step follows from curvatures L_j of {L:g} in all: pass step=")
    return CurvatureBounds(ell, L, everywhere)
