"""FedSplit: Peaceman-Rachford splitting between the clients' costs and their agreement (Algorithm 1).

With ``accelerate`` and ``adapt`` off this is the paper's method. With them on, as by default, the same iteration uses
what the server has learnt of the clients' curvature (``secants``), and a step that follows it (``adapt``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

from array_api_compat import array_namespace

from fedsplit.arrays import Array, Mask
from fedsplit.clients.oracle import Clients
from fedsplit.clients.questions import Answer
from fedsplit.errors import InputError
from fedsplit.methods.adapt import Adapt, Setting
from fedsplit.methods.anderson import Anderson, extrapolate
from fedsplit.methods.composite import minimise
from fedsplit.methods.learnt import TRIALS, Learnt
from fedsplit.methods.method import check_prox, check_step, choose_step
from fedsplit.methods.secants import Models, Secants, learn
from fedsplit.penalties.penalty import Penalty, check_penalty, coordinatewise
from fedsplit.prox.exact import ExactProx
from fedsplit.prox.inexact_newton import NewtonProx
from fedsplit.prox.solver import ProxSolver
from fedsplit.theory import fedsplit_step

FLATTEST = 1e-4
"""Without models, a client's smallest curvature counts as at least this share of its largest."""

SINGULAR = 1e-8
"""With models, the smallest curvature of their mean counts as at least this share of its largest."""

LARGEST = 2000
"""The most columns for which the server solves a d×d system in every round."""


class FedSplitState(NamedTuple):
    """The server's x, the clients' z_j as rows of z, and the step s, a number or one for each coordinate.

    At a fixed point z_j = x - s∇f_j(x). ``learnt`` is None in the paper's mode.
    """

    x: Array
    z: Array
    s: float | Array
    learnt: Learnt | None = None

    @property
    def iterate(self) -> Array:
        return self.z

    @property
    def subgradient(self) -> Array:
        """The penalty's subgradient at x, from x = prox_{(s/m)g}(mean z): zero without a penalty."""
        xp = array_namespace(self.z)
        slope: Array = self.z.shape[0] * (xp.mean(self.z, axis=0) - self.x) / self.s
        return slope

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self.learnt is None else self.learnt.notes


class AnswersProx(Protocol):
    """All that FedSplit asks of clients in a round."""

    def prox(self, v: Array, s: float | Array, start: Array, solver: ProxSolver) -> Answer: ...


@dataclass(frozen=True)
class FedSplit:
    """FedSplit, the paper's Algorithm 1. Its fixed points minimise F for every s > 0 (Proposition 3).

    Parameters
    ----------
    step : float, optional
        s. With ``adapt=None`` it stays, and None is Theorem 1's 1/√(ℓ*L*), or 1/L* where ℓ* = 0. With adaptation it is
        the first step, and None is taken from the clients' curvature at the start; where the coordinates get steps of
        their own it is their geometric mean.
    prox : ProxSolver, optional
        The local solver; None is ``NewtonProx()``, which does no more work than the round deserves, and
        ``ExactProx()`` in the paper's mode.
    accelerate : Secants, Anderson or None
        How the server uses earlier answers; None is the plain method.
    adapt : Adapt or None
        How the step follows the curvature that is seen; None keeps it.
    penalty : Penalty, optional
        A convex g(x) at the server; ``solve(penalty=...)`` sets it.

    ``FedSplit.plain(s, prox)`` is the paper's method: ``FedSplit(step=s, prox=prox, accelerate=None, adapt=None)``.
    """

    step: float | None = None
    prox: ProxSolver | None = None
    accelerate: Secants | Anderson | None = field(default_factory=Secants)
    adapt: Adapt | None = field(default_factory=Adapt)
    penalty: Penalty | None = None

    settles: ClassVar[bool] = True
    state_type: ClassVar[type[FedSplitState]] = FedSplitState

    @classmethod
    def plain(cls, step: float | None = None, prox: ProxSolver | None = None) -> FedSplit:
        """The paper's method: no acceleration, a fixed step."""
        return cls(step, prox, accelerate=None, adapt=None)

    def __post_init__(self) -> None:
        check_step("FedSplit", self.step)
        check_prox(self.prox)
        check_penalty(self.penalty)
        if not isinstance(self.accelerate, Secants | Anderson | None):
            raise InputError(
                f"FedSplit: accelerate must be Secants(), Anderson() or None, not {self.accelerate!r}"
            )
        if not isinstance(self.adapt, Adapt | None):
            raise InputError(f"FedSplit: adapt must be Adapt() or None, not {self.adapt!r}")

    @property
    def _solver(self) -> ProxSolver:
        plain = self.accelerate is None and self.adapt is None
        return self.prox or (ExactProx() if plain else NewtonProx())

    @property
    def _obstacle(self) -> str | None:
        """Why the coordinates cannot have steps of their own; None where they can."""
        if not coordinatewise(self.penalty):
            return "the penalty is not coordinatewise"
        if not isinstance(self._solver, ExactProx | NewtonProx):
            return f"{type(self._solver).__name__} takes one step for all coordinates"
        return None

    @property
    def hazard(self) -> str:
        if isinstance(self._solver, ExactProx | NewtonProx):
            return "a cost is not convex, or its numbers are beyond float64: check the loss and the scale of the data"
        return (
            "the local solver is too inexact for this start: use ExactProx(), GradientProx(start='broadcast') "
            "with its default step, or more inner steps"
        )

    def start(self, clients: Clients, x0: Array) -> FedSplitState:
        xp = array_namespace(x0)
        z = xp.tile(x0, (clients.m, 1))
        if self.adapt is None:
            s = choose_step(self.step, fedsplit_step, clients, x0)
            if self.accelerate is None:
                return FedSplitState(self._average(z, s), z, s)
            same = xp.full(clients.m, 1.0 / s)
            setting = Setting(s, xp.ones(clients.d), same, same, ())
        else:
            setting = self.adapt.start(clients, x0, self.step, self._obstacle)
        accelerate, notes = self._accelerator(clients.d), setting.notes
        if accelerate is not self.accelerate:
            notes = (
                *notes,
                f"Anderson stands in for Secants, whose work at the server grows like d³: d = {clients.d}",
            )
        k = 1 if accelerate is None else accelerate.pairs(clients.m, clients.d)
        learnt = Learnt.nothing(setting, x0, clients.m, k, notes)
        return FedSplitState(self._average(z, learnt.steps), z, learnt.steps, learnt)

    def update(self, clients: AnswersProx, state: FedSplitState) -> FedSplitState:
        x, z, s, learnt = state
        solver = self._solver
        v = 2.0 * x - z
        start = {"broadcast": x, "iterate": z, "argument": v}[solver.start]
        if not isinstance(
            s, float | int
        ):  # the steps take the place of x in the question: two vectors, not three
            if self._obstacle is not None:
                raise InputError(
                    f"state: it has a step for each coordinate, but {self._obstacle}: start without it"
                )
            solver, start = ExactProx(), v
        answer = clients.prox(v, s, start, solver)
        z_half = answer.rows_or(x)  # local prox step
        z = z + 2.0 * (z_half - x)  # local centring step
        if learnt is None:
            return FedSplitState(self._average(z, s), z, s)  # global average
        return self._accelerated(state, learnt, answer, v, z)

    def resume(
        self, state: FedSplitState, gradients: Array | None = None, hessians: Array | None = None
    ) -> FedSplitState:
        """The state to go on from under another penalty; no client is asked.

        Where the clients' gradients and Hessians at x are known, (m, d) and (m, d, d), the models have them.

        What is learnt of the clients' costs stays, and x is at once the minimiser of their models with this penalty.
        The smallest residual is forgotten: beside that of a run's end every move would look like a mistake.
        """
        if state.learnt is None:
            return state._replace(x=self._average(state.z, state.s))
        xp = array_namespace(state.z)
        learnt = state.learnt._replace(
            first=state.learnt.s, best=float("inf"), taken=0, falls=0, pause=0
        )
        if not isinstance(self._accelerator(state.z.shape[1]), Secants):
            return state._replace(x=self._average(state.z, state.s), learnt=learnt.forget())
        if gradients is not None and hessians is not None:
            learnt = learnt.told(state.x, gradients, hessians)
        models = learn(learnt.dp, learnt.dy, learnt.low, learnt.high)
        total = models.pooled()
        x, slope = self._minimiser(
            learnt, models, total, float(xp.linalg.eigvalsh(total)[-1]), state.x
        )
        learnt = learnt._replace(reach=float(xp.linalg.vector_norm((x - state.x) / learnt.scale)))
        y = _gradients(learnt, models, x, slope)
        return FedSplitState(x, x - learnt.s * learnt.scale * y, learnt.steps, learnt)

    def remaining(self, state: FedSplitState, kept: Mask) -> FedSplitState:
        """The state to go on from without some clients: their rows of z are deleted, and what was learnt is forgotten.

        A row that stays frozen would keep pulling: the fixed point would be nobody's optimum.
        """
        z = state.z[kept]
        learnt = None if state.learnt is None else state.learnt.of(kept)
        return FedSplitState(self._average(z, state.s), z, state.s, learnt)

    def _accelerator(self, d: int) -> Secants | Anderson | None:
        return (
            Anderson() if isinstance(self.accelerate, Secants) and d > LARGEST else self.accelerate
        )

    def _average(self, z: Array, s: float | Array) -> Array:
        """prox_{(s/m)g}(mean z): the mean itself without a penalty."""
        mean: Array = array_namespace(z).mean(z, axis=0)
        return mean if self.penalty is None else self.penalty.prox(mean, s / z.shape[0])

    def _minimiser(
        self, learnt: Learnt, models: Models, total: Array, largest: float, x: Array
    ) -> tuple[Array, Array]:
        """x that minimises the models with the penalty, found from the given one, and a subgradient of the penalty."""
        b = array_namespace(x).sum(models.times(learnt.p) - learnt.y, axis=0)
        return minimise(total, b, largest, self.penalty, learnt.scale, x)

    def _accelerated(
        self, state: FedSplitState, known: Learnt, answer: Answer, v: Array, z: Array
    ) -> FedSplitState:
        """The next state from all that is known now; ``z`` is the plain method's."""
        xp = array_namespace(z)
        m, d = z.shape
        accelerate, scale = self._accelerator(d), known.scale
        everyone = bool(xp.all(answer.present))
        learnt, residual = known.hear(
            state.x / scale, v / scale, answer, isinstance(accelerate, Anderson)
        )
        z = z / scale
        trusted = accelerate is not None and learnt.trusts(residual)
        if everyone:
            learnt, z, back = learnt.settle(residual, z)
            trusted = trusted and not back
        flattest = xp.maximum(learnt.low, FLATTEST * learnt.high)
        low = high = float(xp.exp(xp.mean(xp.log(flattest) + xp.log(learnt.high)) / 2.0))
        if isinstance(accelerate, Secants):
            models = learn(learnt.dp, learnt.dy, learnt.low, learnt.high)
            learnt = learnt._replace(low=models.low, high=models.high)
            total = models.pooled()
            spectrum = xp.linalg.eigvalsh(total)
            low, high = (
                max(float(spectrum[0]), SINGULAR * float(spectrum[-1])) / m,
                float(spectrum[-1]) / m,
            )
        if isinstance(accelerate, Secants) and trusted:
            x, slope = self._minimiser(learnt, models, total, float(spectrum[-1]), state.x)
            excess = max(1.0, learnt.leaps(x, state.x))
            x = state.x + (x - state.x) / excess if self.penalty is None and excess > 1.0 else x
            trusted = (
                self.penalty is None or excess == 1.0
            )  # part of the way would be no output of its prox
        if isinstance(accelerate, Secants) and trusted:
            y = _gradients(learnt, models, x, slope)
        else:
            trusted = trusted and everyone
            if isinstance(accelerate, Anderson) and trusted:
                r, dr, dz = (
                    learnt.p - learnt.x,
                    learnt.dp - learnt.dx[:, None],
                    learnt.dp - learnt.s * learnt.dy,
                )
                z = extrapolate(accelerate, r, z, dr, dz)
            x = self._average(scale * z, learnt.steps)
            y = (x / scale - z) / learnt.s
        if self.adapt is not None:
            s = self.adapt.follow(learnt.s, low, high, learnt.first, learnt.cap)
            if learnt.misjudged(s):
                learnt = learnt.restart(s)
            elif trusted or accelerate is None:
                learnt = learnt._replace(s=s, first=s if learnt.taken < TRIALS else learnt.first)
        if isinstance(accelerate, Anderson) and learnt.s != known.s:  # another step, another map
            learnt = learnt.forget()
        move = float(xp.linalg.vector_norm((x - state.x) / scale))
        learnt = learnt._replace(taken=learnt.taken + trusted, reach=max(move, 0.5 * learnt.reach))
        return FedSplitState(x, x - learnt.s * scale * y, learnt.steps, learnt)


def _gradients(learnt: Learnt, models: Models, x: Array, slope: Array) -> Array:
    """What each client's gradient is taken to be at x, (m, d), all less the same, so that their sum is -slope."""
    y = learnt.y + models.times(x / learnt.scale - learnt.p)
    shifted: Array = y - (array_namespace(x).sum(y, axis=0) + slope) / y.shape[0]
    return shifted
