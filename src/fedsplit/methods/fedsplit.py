"""FedSplit: Peaceman-Rachford splitting between the clients' costs and their agreement (Algorithm 1).

With ``accelerate`` and ``adapt`` off this is the paper's method. With them on, as by default, the same iteration uses
what the server has learnt of the clients' curvature (``secants``), and a step that follows it (``adapt``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

from array_api_compat import array_namespace

from fedsplit.arrays import Array, Mask, dots, norms
from fedsplit.clients.protocol import Answer, Clients
from fedsplit.errors import InputError
from fedsplit.methods.adapt import ROUGH, Adapt, Setting
from fedsplit.methods.anderson import Anderson, extrapolate
from fedsplit.methods.composite import minimise
from fedsplit.methods.method import check_prox, check_step, choose_step
from fedsplit.methods.secants import Secants, learn, remember
from fedsplit.penalties import Penalty, check_penalty, coordinatewise
from fedsplit.prox.exact import ExactProx
from fedsplit.prox.newton import NewtonProx
from fedsplit.prox.solver import ProxSolver
from fedsplit.rates import fedsplit_step

LARGEST = 2000
"""The most columns for which the server solves a d×d system in every round."""

ROUNDING = 1e-11
"""A change of p below this share of p says nothing about the curvature."""

CAUTION = 1.2
"""By how much the largest step may grow in a round, after a local solver found one too large."""

REJECT = 15.0
"""A residual this many times the smallest so far sends the run back to where that was."""

TRIALS, TRUST, DECAY = 5, 10.0, 1.1
"""An accelerated step is taken while the residual is at most TRUST·r/n^DECAY, n counting such steps and r being the
largest residual of the first TRIALS rounds.

The sum of what is allowed is finite, so either the residual goes to zero or the plain method, which converges, takes
over for good."""


class Learnt(NamedTuple):
    """What the server knows beside x and z, in the coordinates x/scale.

    scale : (d,).
    s, first, cap : the step in these coordinates, the first one, and the most that the local solver manages.
    low, high : the extreme curvatures of each client seen so far, (m,).
    heard : which clients have answered, (m,).
    x, p, y : the last question's x, (d,), and each client's last point and gradient, (m, d).
    dx, dp, dy : their latest changes, (k, d) and (k, m, d), the newest first, zero where there is none.
    best, home, home_s : the smallest residual, and the plain next z, (m, d), and the step there.
    residual, taken : the largest residual of the first rounds, and the number of accelerated steps.
    notes : what the user should know.
    """

    scale: Array
    s: float
    first: float
    cap: float
    low: Array
    high: Array
    heard: Mask
    x: Array
    p: Array
    y: Array
    dx: Array
    dp: Array
    dy: Array
    best: float
    home: Array
    home_s: float
    residual: float
    taken: int
    notes: tuple[str, ...]


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
        the first step, and None is taken from the clients' curvature at the start.
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
            raise InputError(f"FedSplit: accelerate must be Secants(), Anderson() or None, not {self.accelerate!r}")
        if not isinstance(self.adapt, Adapt | None):
            raise InputError(f"FedSplit: adapt must be Adapt() or None, not {self.adapt!r}")

    @property
    def _solver(self) -> ProxSolver:
        plain = self.accelerate is None and self.adapt is None
        return self.prox or (ExactProx() if plain else NewtonProx())

    @property
    def _metric(self) -> str | None:
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
            setting = self.adapt.start(clients, x0, self.step, self._metric)
        m, d, scale = clients.m, clients.d, setting.scale
        accelerate = self._accelerator(d)
        k = 1 if accelerate is None else accelerate.pairs(m, d)
        pairs, heard = xp.zeros((k, m, d)), xp.zeros(m, dtype=xp.bool)
        notes = setting.notes
        if accelerate is not self.accelerate:
            notes = (*notes, f"Anderson stands in for Secants, whose work at the server grows like d³: d = {d}")
        learnt = Learnt(
            scale, setting.s, setting.s, xp.inf, setting.low, setting.high, heard,
            x0 / scale, z / scale, xp.zeros((m, d)), xp.zeros((k, d)), pairs, pairs,
            xp.inf, z / scale, setting.s, 0.0, 0, notes,
        )  # fmt: skip
        steps = _in_coordinates(learnt)
        return FedSplitState(self._average(z, steps), z, steps, learnt)

    def update(self, clients: AnswersProx, state: FedSplitState) -> FedSplitState:
        x, z, s, learnt = state
        solver = self._solver
        v = 2.0 * x - z
        start = {"broadcast": x, "iterate": z, "argument": v}[solver.start]
        if not isinstance(s, float):  # the steps take the place of x in the question: two vectors, not three
            solver, start = ExactProx(), v
        answer = clients.prox(v, s, start, solver)
        z_half = answer.rows_or(x)  # local prox step
        z = z + 2.0 * (z_half - x)  # local centring step
        if learnt is None:
            return FedSplitState(self._average(z, s), z, s)  # global average
        return self._accelerated(state, learnt, answer, v, z)

    def _average(self, z: Array, s: float | Array) -> Array:
        """prox_{(s/m)g}(mean z): the mean itself without a penalty."""
        mean: Array = array_namespace(z).mean(z, axis=0)
        return mean if self.penalty is None else self.penalty.prox(mean, s / z.shape[0])

    def _accelerator(self, d: int) -> Secants | Anderson | None:
        return Anderson() if isinstance(self.accelerate, Secants) and d > LARGEST else self.accelerate

    def _accelerated(self, state: FedSplitState, learnt: Learnt, answer: Answer, v: Array, z: Array) -> FedSplitState:
        """The next state from all that is known now; ``z`` is the plain method's."""
        xp = array_namespace(z)
        m, d = z.shape
        accelerate, scale = self._accelerator(d), learnt.scale
        learnt, residual = self._hear(learnt, state.x / scale, v / scale, answer)
        z = z / scale
        everyone = bool(xp.all(answer.present))
        trusted = accelerate is not None and residual <= TRUST * learnt.residual / (learnt.taken + 1) ** DECAY
        if residual < learnt.best:
            learnt = learnt._replace(best=residual, home=z, home_s=learnt.s)
        elif residual > REJECT * learnt.best and learnt.taken >= TRIALS and everyone:
            trusted, z, learnt = (
                False,
                learnt.home,
                learnt._replace(s=learnt.home_s),
            )  # back to the best, and plainly on
        low, high = float(xp.min(learnt.low)), float(xp.max(learnt.high))
        if isinstance(accelerate, Secants):
            models = learn(learnt.dp, learnt.dy, learnt.low, learnt.high)
            learnt = learnt._replace(low=models.low, high=models.high)
        if isinstance(accelerate, Secants) and trusted:
            total = models.pooled()
            spectrum = xp.linalg.eigvalsh(total)
            low, high = float(spectrum[0]) / m, float(spectrum[-1]) / m
            b = xp.sum(models.times(learnt.p) - learnt.y, axis=0)
            x, slope = minimise(total, b, self.penalty, scale, state.x / scale)
            y = learnt.y + models.times(x - learnt.p)  # what each client's gradient is taken to be at x
            y = y - (xp.sum(y, axis=0) + slope) / m
        else:
            trusted = trusted and everyone
            if isinstance(accelerate, Anderson) and trusted:
                r, dr, dz = learnt.p - learnt.x, learnt.dp - learnt.dx[:, None], learnt.dp - learnt.s * learnt.dy
                z = extrapolate(accelerate, r, z, dr, dz)
            x = self._average(scale * z, _in_coordinates(learnt)) / scale
            y = (x - z) / learnt.s
        s = learnt.s
        if self.adapt is not None and (trusted or accelerate is None):
            s = self.adapt.follow(s, low, high, learnt.first, learnt.cap)
        if s != learnt.s and isinstance(accelerate, Anderson):  # another step, another map
            learnt = learnt._replace(dx=0.0 * learnt.dx, dp=0.0 * learnt.dp, dy=0.0 * learnt.dy)
        learnt = learnt._replace(s=s, taken=learnt.taken + trusted)
        return FedSplitState(scale * x, scale * (x - s * y), _in_coordinates(learnt), learnt)

    def _hear(self, learnt: Learnt, x: Array, v: Array, answer: Answer) -> tuple[Learnt, float]:
        """What is known after the answers p_j = prox(v_j), and the residual ‖p - x‖/√s of those who gave one."""
        xp = array_namespace(v)
        present = answer.present
        p = xp.where(present[:, None], answer.rows / learnt.scale, learnt.p)
        y = xp.where(present[:, None], (v - p) / learnt.s, learnt.y)
        moved = xp.where(present, norms(p - x), 0.0)
        residual = float(xp.linalg.vector_norm(moved)) / learnt.s**0.5
        moves = moved > ROUNDING * norms(p)
        rough = float(xp.sum(xp.where(moves, answer.error, 0.0))) > ROUGH * float(xp.sum(moved))
        dp, dy, dx = p - learnt.p, y - learnt.y, x - learnt.x
        new = present & learnt.heard & (norms(dp) > ROUNDING * norms(p))
        if isinstance(self._accelerator(v.shape[1]), Anderson):  # one map for all clients: all of them, or none
            new = new & bool(xp.all(present & learnt.heard))
        slope = dots(dp, dy)
        curved = new & (slope > 0)
        square, ratio = xp.where(curved, dots(dp, dp), 1.0), xp.where(curved, slope, 1.0)
        known = learnt._replace(
            cap=0.5 * learnt.s if rough else CAUTION * learnt.cap,
            low=xp.where(curved, xp.minimum(learnt.low, slope / square), learnt.low),
            high=xp.where(curved, xp.maximum(learnt.high, dots(dy, dy) / ratio), learnt.high),
            heard=learnt.heard | present,
            x=x,
            p=p,
            y=y,
            dx=xp.concat([dx[None], learnt.dx[:-1]], axis=0) if xp.any(new) else learnt.dx,
            dp=remember(learnt.dp, dp, new),
            dy=remember(learnt.dy, dy, new),
            residual=max(learnt.residual, residual) if learnt.taken < TRIALS else learnt.residual,
        )
        return known, residual


def _in_coordinates(learnt: Learnt) -> float | Array:
    """The step for x itself: s·scale², a number where all scales are one."""
    xp = array_namespace(learnt.scale)
    return learnt.s if xp.all(learnt.scale == 1.0) else learnt.s * learnt.scale**2
