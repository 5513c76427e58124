"""FedSplit accelerated: Algorithm 1's questions, with an accelerator and a step that follows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from array_api_compat import array_namespace, device

from fedsplit.arrays import Array, Mask
from fedsplit.clients.oracle import Clients
from fedsplit.clients.question import Answer
from fedsplit.device.programs import Found, for_each_client
from fedsplit.errors import InputError
from fedsplit.local.newton import NewtonProx
from fedsplit.local.solver import ProxSolver
from fedsplit.methods.accelerator import Accelerator, Proposal, View
from fedsplit.methods.adapt import Adapt, Outset, StepSize
from fedsplit.methods.anderson import Anderson
from fedsplit.methods.first_look import first_look
from fedsplit.methods.memory import ROUNDING, Memory, in_scale
from fedsplit.methods.method import average, choose_step, subgradient_of_average
from fedsplit.methods.trust import TRIALS, Best, Trust
from fedsplit.penalties.penalty import Penalty
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

    @property
    def iterate(self) -> Array:
        return self.z

    @property
    def subgradient(self) -> Array:
        return subgradient_of_average(self.x, self.z, self.s)

    @property
    def smooth_value(self) -> float:
        """About F(x) without the penalty; not a number if that is not known."""
        return self.memory.objective(self.x / self.step.scale)


@dataclass(frozen=True)
class AcceleratedFedSplit:
    """FedSplit whose server uses earlier answers.

    The clients get Algorithm 1's questions and remember nothing. ``Memory`` keeps their answers,
    the accelerator proposes the next x and z from them, ``Trust`` decides whether the proposal may
    be an accelerated step, and ``Adapt`` lets the step follow the curvature seen.

    Parameters
    ----------
    step : float or None
        The first step; None takes it from the curvature at the start.
    prox : ProxSolver or None
        The local solver; None is Newton's method, as accurate as the accelerator needs it.
    accelerate : Accelerator
    adapt : Adapt or None
        None keeps the first step.
    penalty : Penalty, optional
    """

    step: float | None
    prox: ProxSolver | None
    accelerate: Accelerator
    adapt: Adapt | None
    penalty: Penalty | None = None

    state_type: ClassVar[type[AcceleratedState]] = AcceleratedState

    def start(self, clients: Clients, x0: Array) -> AcceleratedState:
        xp = array_namespace(x0)
        if self.adapt is None:
            s = choose_step(self.step, fedsplit_step, clients, x0)
            each = xp.full(clients.m, 1.0 / s, device=device(x0))
            unknown = xp.full(clients.m, math.nan, device=device(x0))
            outset = Outset(StepSize(s, xp.ones_like(x0), first=s), each, each, unknown)
        else:
            x0, answer, better = first_look(clients, x0, self.penalty)
            outset = self.adapt.start(clients, answer, self.step, self._obstacle())
            outset = outset._replace(notes=(*better, *outset.notes))
        step, low, high, values, notes = outset
        accelerator = self._accelerator(clients.d)
        if accelerator is not self.accelerate:
            notes = (
                *notes,
                f"{type(accelerator).__name__} stands in for {type(self.accelerate).__name__}, "
                f"whose work at the server is too much for d = {clients.d}",
            )
        pairs = self._pairs(clients)
        if pairs < accelerator.memory and not accelerator.models_costs:
            notes = (
                *notes,
                f"{type(accelerator).__name__} remembers {pairs} of {accelerator.memory} rounds, "
                f"which are {clients.m} clients × {clients.d} coordinates each",
            )
        z = xp.tile(x0, (clients.m, 1))
        memory = Memory.empty(x0 / step.scale, low, high, values, pairs)
        if accelerator is not self.accelerate:
            answer = clients.gradient(x0)
            z = _with_gradients(z, step.in_x, answer)
            if self.penalty is None:
                memory = memory.with_gradients(answer, step.scale, step.s)
        x = average(z, step.in_x, self.penalty)
        trust = Trust(Best(math.inf, memory.p, step.s, low, high))
        return AcceleratedState(x, z, step, memory, trust, notes)

    def update(self, clients: Clients, state: AcceleratedState) -> AcceleratedState:
        x = state.x
        z = state.z
        v = 2.0 * x - z
        solver = self.prox or NewtonProx(self._accelerator(clients.d).accuracy)
        start = {"broadcast": x, "iterate": z, "argument": v}[solver.start]
        if array_namespace(x).any(state.step.scale != 1.0):
            obstacle = self._obstacle()
            if obstacle is not None:
                raise InputError(
                    f"state: it has a step per coordinate, but {obstacle}: start without it"
                )
        answer = clients.prox(v, state.s, start, solver)
        unanimous = self._accelerator(clients.d).unanimous
        memory = state.memory.update(x, v, answer, state.step.scale, state.step.s, unanimous)
        [z] = for_each_client(_centred, (z, answer.rows_or(x)), shared=(x,)).vectors
        del v, start  # where m·d is large, the memory that is left
        return self._after(state, memory, answer, z)

    def resume(
        self, state: AcceleratedState, gradients: Array | None, hessians: Array | None
    ) -> AcceleratedState:
        """The state to continue from under this method's penalty.

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

    def remaining(self, state: AcceleratedState, kept: Mask) -> AcceleratedState:
        """The state without removed clients, whose rows of z would keep pulling at x.

        Only the curvatures of the others are remembered.
        """
        z = state.z[kept]
        x = average(z, state.s, self.penalty)
        step = state.step._replace(first=state.step.s)
        best = state.trust.best
        home = Best(math.inf, best.z[kept], best.s, best.low[kept], best.high[kept])
        return AcceleratedState(x, z, step, state.memory.of(kept), Trust(home), state.notes)

    def _pairs(self, clients: Clients) -> int:
        """How many pairs the server remembers."""
        accelerator = self._accelerator(clients.d)
        size = clients.m * clients.d
        if accelerator.models_costs:
            # No more than d pairs are independent, and 4 Mi floats of them are 32 MB.
            return max(1, min(accelerator.memory, clients.d, 4 * 2**20 // size))
        return max(1, min(accelerator.memory, MOST_FLOATS // (2 * size)))

    def _accelerator(self, d: int) -> Accelerator:
        """The accelerator for d coordinates: Anderson's work is linear in d."""
        if d > self.accelerate.largest_d:
            return Anderson()
        return self.accelerate

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
