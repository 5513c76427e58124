"""FedSplit by vectors: Algorithm 1's questions, with an accelerator and a step that follows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from array_api_compat import array_namespace, device

from fedsplit.arrays import Array, Mask
from fedsplit.checks import instance, number
from fedsplit.clients.question import Answer
from fedsplit.clients.questions import Gradient, Prox
from fedsplit.device.programs import Found, for_each_client
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError
from fedsplit.local.newton import NewtonProx
from fedsplit.local.solver import ProxSolver
from fedsplit.methods.accelerator import Accelerator, NoAcceleration, Proposal, View
from fedsplit.methods.adapt import Adapt, Outset, StepSize
from fedsplit.methods.anderson import Anderson
from fedsplit.methods.fedsplit import FedSplit
from fedsplit.methods.first_look import first_look
from fedsplit.methods.memory import ROUNDING, Memory, in_scale
from fedsplit.methods.method import (
    Method,
    average,
    choose_step,
    start_point,
    subgradient_of_average,
)
from fedsplit.methods.secants import Secants
from fedsplit.methods.trust import TRIALS, Best, Trust
from fedsplit.penalties.penalty import Penalty, check_penalty
from fedsplit.theory import fedsplit_step

MOST_FLOATS = 10**8
"""Of the pairs of an accelerator that does not model costs: 800 MB."""

SURPRISE = 0.01
"""A step's gain counts as at least this share of Σ_j‖p_j - x‖²/s: while clients are off their
models, a penalty may hold x where it is."""


class AcceleratedState(NamedTuple):
    """FedSplit's x, z and s, and what the server knows beside them.

    Attributes
    ----------
    x : (d,) array
        The server's x.
    z : (m, d) array
        The clients' z_j as rows.
    step : StepSize
    memory : Memory
    trust : Trust
    notes : tuple of str
        What the user should know.
    gain : float
        By how much F falls with the last step, as the models have it: about F(x) - F* before it.
        Not a number after a plain step.
    """

    x: Array
    z: Array
    step: StepSize
    memory: Memory
    trust: Trust
    notes: tuple[str, ...]
    gain: float = math.nan

    @property
    def s(self) -> float | Array:
        """The step: a number, or (d,), one per coordinate."""
        return self.step.in_x


@dataclass(frozen=True)
class FedSplitVectors(Method[AcceleratedState]):
    """FedSplit whose server uses earlier answers, for clients that send vectors alone.

    The clients get Algorithm 1's questions and remember nothing. ``Memory`` keeps their answers,
    the accelerator proposes the next x and z from them, ``Trust`` decides whether the proposal may
    be an accelerated step, and ``Adapt`` lets the step follow the curvature seen.

    Parameters
    ----------
    step : float, optional
        The first step; if the coordinates get their own steps it is their geometric mean. None
        takes it from the clients' curvature at the start.
    prox : ProxSolver, optional
        The local solver; None is ``NewtonProx()``, which solves only as accurately as the round
        needs.
    accelerate : Secants, Anderson or None
        How the server uses earlier answers; None is the plain step.
    adapt : Adapt or None
        How the step follows the curvature seen; None keeps the first one.
    penalty : Penalty, optional
        A convex g(x) at the server; ``solve(penalty=...)`` sets it.
    """

    step: float | None = None
    prox: ProxSolver | None = None
    accelerate: Accelerator | None = field(default_factory=Secants)
    adapt: Adapt | None = field(default_factory=Adapt)
    penalty: Penalty | None = None

    newton_may_finish = True
    state_type = AcceleratedState

    def __post_init__(self) -> None:
        if self.step is not None:
            number("FedSplitVectors: step", self.step)
        if self.prox is not None:
            instance("prox", self.prox, "a ProxSolver", "solve")
        check_penalty(self.penalty)
        if self.accelerate is not None:
            instance(
                "FedSplitVectors: accelerate", self.accelerate, "Secants() or Anderson()", "propose"
            )
        if self.adapt is not None:
            instance("FedSplitVectors: adapt", self.adapt, "Adapt()", "follow")

    def described(self) -> str:
        return "FedSplit by vectors, accelerated: clients send points and gradients alone"

    @property
    def hazard(self) -> str:
        return FedSplit(prox=self.prox).hazard

    def iterate(self, state: AcceleratedState) -> Array:
        return state.z

    def step_of(self, state: AcceleratedState) -> float | Array:
        return state.s

    def subgradient(self, state: AcceleratedState) -> Array:
        return subgradient_of_average(state.x, state.z, state.s)

    def smooth_value(self, state: AcceleratedState) -> float:
        return state.memory.objective(state.x / state.step.scale)

    def notes(self, state: AcceleratedState) -> tuple[str, ...]:
        return state.notes

    def expected_gap(self, before: AcceleratedState, after: AcceleratedState) -> float:
        """The gain of the step from x, times the share that the last gain was of the one before.

        A round is not expected to leave less than a tenth of the gap, however fast those before.
        """
        if not math.isfinite(after.gain):
            return super().expected_gap(before, after)
        if not before.gain > 0.0:
            return after.gain
        return after.gain * min(1.0, max(0.1, after.gain / before.gain))

    def start(self, x0: Array, m: int) -> Dialogue[AcceleratedState]:
        xp = array_namespace(x0)
        d = x0.shape[0]
        if self.adapt is None:
            s = yield from choose_step(self.step, fedsplit_step, x0)
            each = xp.full(m, 1.0 / s, device=device(x0))
            unknown = xp.full(m, math.nan, device=device(x0))
            outset = Outset(StepSize(s, xp.ones_like(x0), first=s), each, each, unknown)
        else:
            x0, answer, better = yield from first_look(x0, self.penalty)
            outset = yield from self.adapt.start(answer, self.step, self._obstacle())
            outset = outset._replace(notes=(*better, *outset.notes))
        step, low, high, values, notes = outset
        accelerator = self._accelerator(d)
        stands_in = self.accelerate is not None and accelerator is not self.accelerate
        if stands_in:
            notes = (
                *notes,
                f"{type(accelerator).__name__} stands in for {type(self.accelerate).__name__}, "
                f"whose work at the server is too much for d = {d}",
            )
        pairs = self._pairs(m, d)
        if pairs < accelerator.memory and not accelerator.models_costs:
            notes = (
                *notes,
                f"{type(accelerator).__name__} remembers {pairs} of {accelerator.memory} rounds, "
                f"which are {m} clients × {d} coordinates each",
            )
        z = xp.tile(x0, (m, 1))
        memory = Memory.empty(x0 / step.scale, low, high, values, pairs)
        if stands_in:
            answer = yield Gradient(x0)
            z = _with_gradients(z, step.in_x, answer)
            if self.penalty is None:
                memory = memory.with_gradients(answer, step.scale, step.s)
        x = average(z, step.in_x, self.penalty)
        trust = Trust(Best(math.inf, memory.p, step.s, low, high))
        return AcceleratedState(x, z, step, memory, trust, notes)

    def update(self, state: AcceleratedState) -> Dialogue[AcceleratedState]:
        x = state.x
        z = state.z
        v = 2.0 * x - z
        accelerator = self._accelerator(x.shape[0])
        solver = self.prox or NewtonProx(accelerator.accuracy)
        if array_namespace(x).any(state.step.scale != 1.0):
            obstacle = self._obstacle()
            if obstacle is not None:
                raise InputError(
                    f"state: it has a step per coordinate, but {obstacle}: start without it"
                )
        answer: Answer = yield Prox(v, state.s, start_point(solver, x, z, v), solver)
        scale, s = state.step.scale, state.step.s
        memory = state.memory.update(x, v, answer, scale, s, accelerator.unanimous)
        [z] = for_each_client(_centred, (z, answer.rows_or(x)), shared=(x,)).vectors
        del v  # where m·d is large, the memory that is left
        return self._after(state, memory, answer, z)

    def resume(
        self,
        state: AcceleratedState,
        gradients: Array | None = None,
        hessians: Array | None = None,
    ) -> AcceleratedState:
        """The state to continue from under this method's penalty; no client is asked.

        What the server knows of the clients' costs stays, and x is at once the minimiser of their
        models with this penalty. The clients' gradients and Hessians at ``state.x``, (m, d) and
        (m, d, d), make the models exact there if they are known.

        The smallest residual is forgotten: after that of a run's end, every move would look like a
        mistake.
        """
        xp = array_namespace(state.z)
        accelerator = self._accelerator(state.z.shape[1])
        step = state.step._replace(first=state.step.s)
        memory = state.memory
        best = state.trust.best._replace(residual=math.inf)
        trust = state.trust._replace(best=best, taken=0, falls=0, pause=0)
        if not accelerator.models_costs:
            x = average(state.z, state.s, self.penalty)
            return state._replace(x=x, step=step, memory=memory.without_pairs(), trust=trust)
        if gradients is not None and hessians is not None:
            memory = memory.with_hessians(state.x, gradients, hessians, step.scale)
        view = View(state.x, state.z, step, memory, self.penalty, True, math.inf, math.nan)
        proposal = accelerator.propose(view)
        move = float(xp.linalg.vector_norm((proposal.x - state.x) / step.scale))
        trust = trust._replace(reach=move)
        return AcceleratedState(proposal.x, proposal.z_for(step), step, memory, trust, state.notes)

    def without(self, state: AcceleratedState, kept: Mask) -> AcceleratedState:
        """Only the curvatures of the others are remembered."""
        z = state.z[kept]  # rows that stayed would keep pulling at x
        x = average(z, state.s, self.penalty)
        step = state.step._replace(first=state.step.s)
        best = state.trust.best
        home = Best(math.inf, best.z[kept], best.s, best.low[kept], best.high[kept])
        return AcceleratedState(x, z, step, state.memory.of(kept), Trust(home), state.notes)

    def _pairs(self, m: int, d: int) -> int:
        """How many pairs the server remembers."""
        accelerator = self._accelerator(d)
        size = m * d
        if accelerator.models_costs:
            # No more than d pairs are independent, and 4 Mi floats of them are 32 MB.
            return max(1, min(accelerator.memory, d, 4 * 2**20 // size))
        return max(1, min(accelerator.memory, MOST_FLOATS // (2 * size)))

    def _accelerator(self, d: int) -> Accelerator:
        """The accelerator for d coordinates: Anderson's work is linear in d."""
        accelerate = self.accelerate or NoAcceleration()
        return Anderson() if d > accelerate.largest_d else accelerate

    def _obstacle(self) -> str | None:
        """Why the coordinates cannot have their own steps; None if they can."""
        if not getattr(self.penalty, "coordinatewise", self.penalty is None):
            return "the penalty is not coordinatewise"
        if not getattr(self.prox, "per_coordinate", self.prox is None):
            return f"{type(self.prox).__name__} takes one step for all coordinates"
        return None

    def _after(
        self, state: AcceleratedState, memory: Memory, answer: Answer, z: Array
    ) -> AcceleratedState:
        """The next state, from the answers, in the memory too, and the plain method's next z."""
        xp = array_namespace(z)
        accelerator = self._accelerator(z.shape[1])
        s, scale, *_ = state.step
        residual = memory.residual(s)
        trust = state.trust.observe(residual)
        step = state.step.limited(memory.rough(answer, scale))
        everyone = bool(xp.all(answer.present))
        trusted = trust.allows(residual) and (everyone or not accelerator.unanimous)
        z = in_scale(z, scale)
        # Residuals of rounds with absent clients cannot be compared with those of all.
        if everyone and trust.rejects(residual):
            best = trust.best
            z = best.z
            step = step._replace(s=best.s)
            memory = memory._replace(low=best.low, high=best.high)
            trust = trust.fall_back()
            trusted = False
        elif everyone and residual < trust.best.residual:
            # Not below rounding: beside a residual of zero, every later one would be rejected.
            rounding = ROUNDING * float(xp.linalg.vector_norm(memory.sizes)) / s**0.5
            best = Best(max(residual, rounding), z, s, memory.low, memory.high)
            trust = trust._replace(best=best)
        view = View(state.x, z, step, memory, self.penalty, trusted, trust.longest, residual)
        proposal = accelerator.propose(view)
        step, trust = self._follow(step, trust, proposal)
        memory = proposal.memory
        if accelerator.unanimous and step.s != s:  # another step is another map
            memory = memory.with_step(step.s, s)
        taken = trust.taken + proposal.accelerated
        move = float(xp.linalg.vector_norm((proposal.x - state.x) / scale))
        trust = trust._replace(taken=taken, reach=max(move, 0.5 * trust.reach))
        gain = proposal.gain
        if gain < SURPRISE * residual**2:
            gain = SURPRISE * residual**2
        z = proposal.z_for(step)
        return AcceleratedState(proposal.x, z, step, memory, trust, state.notes, gain)

    def _follow(self, step: StepSize, trust: Trust, proposal: Proposal) -> tuple[StepSize, Trust]:
        """The step that suits the curvature seen, and the trust that is left with it."""
        if self.adapt is None:
            return step, trust
        s = self.adapt.follow(step, proposal.low, proposal.high)
        if trust.misjudged(step.s, s):
            return step._replace(s=s, first=s), trust.restart()
        # While accelerated steps are not trusted s stays: plain steps converge with a fixed s.
        if proposal.adapts:
            if trust.taken < TRIALS:
                step = step._replace(first=s)
            step = step._replace(s=s)
        return step, trust


def _centred(operations: Any, z: Array, p: Array, x: Array) -> Found:
    """z + 2(p - x): Algorithm 1's local centring step."""
    return Found(vectors=(z + 2.0 * (p - x),))


def _with_gradients(z: Array, s: float | Array, gradients: Answer) -> Array:
    """z_j - s∇f_j, (m, d), of those who tell their gradients; the others keep their z_j.

    With z_j = x the first round is spent on finding that the gradients are not zero. Where x has
    many coordinates, a gradient takes a fraction of the time of that round.
    """
    xp = array_namespace(z)
    moved: Array = z - s * gradients.rows_or(xp.zeros_like(z))
    if xp.all(xp.isfinite(moved)):
        return moved
    return z
