"""What an accelerator is: how the server proposes the next x from earlier answers."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple, Protocol

from fedsplit.arrays import Array
from fedsplit.device.programs import Found, for_each_client
from fedsplit.methods.adapt import StepSize
from fedsplit.methods.memory import Memory, in_scale
from fedsplit.methods.method import average
from fedsplit.penalties.penalty import Penalty


class View(NamedTuple):
    """What an accelerator sees after a round's answers.

    Attributes
    ----------
    x : (d,) array
        The server's x in this round.
    z : (m, d) array
        The plain method's next z, in the coordinates x/scale.
    step : StepSize
    memory : Memory
    penalty : Penalty or None
    trusted : bool
        Whether an accelerated step may be taken.
    longest : float
        The longest move of x/scale that it may make.
    residual : float
        ‖p - x‖/√s of this round.
    """

    x: Array
    z: Array
    step: StepSize
    memory: Memory
    penalty: Penalty | None
    trusted: bool
    longest: float
    residual: float

    def average(self, z: Array) -> Array:
        """The server's x, (d,), for z in the coordinates x/scale."""
        return average(in_scale(z, 1.0 / self.step.scale), self.step.in_x, self.penalty)


class Proposal(NamedTuple):
    """The next x, as an accelerator proposes it.

    Attributes
    ----------
    x : (d,) array
    z : (m, d) array
        The next z for the step s, in the coordinates x/scale: (x/scale - z_j)/s are the clients'
        gradients at x as the server takes them to be.
    s : float
    memory : Memory
        With the curvatures that the proposal has shown.
    low, high : float
        The extreme curvatures that the step should suit.
    accelerated : bool
        Whether this is an accelerated step; else it is the plain one.
    adapts : bool
        Whether the step may follow ``low`` and ``high`` now.
    gain : float
        By how much F falls on the way to x, if that is known.
    """

    x: Array
    z: Array
    s: float
    memory: Memory
    low: float
    high: float
    accelerated: bool
    adapts: bool
    gain: float = math.nan

    def z_for(self, step: StepSize) -> Array:
        """The next z for another step, (m, d)."""
        z = self.z
        if step.s != self.s:
            x = self.x / step.scale
            share = step.s / self.s
            [z] = for_each_client(_with_step, (z,), shared=(x, share)).vectors
        return in_scale(z, 1.0 / step.scale)


def _with_step(operations: Any, z: Array, x: Array, share: float) -> Found:
    """z for another step: the gradient (x - z)/s is the same."""
    return Found(vectors=(x - share * (x - z),))


class Accelerator(Protocol):
    """How the server uses earlier answers: frozen settings, without a state of its own.

    Attributes
    ----------
    unanimous : bool
        Whether its pairs are of the map z → z⁺, which all clients make together at one step. Then
        rounds with absent clients make no pairs and no accelerated step, and pairs are translated
        when the step changes.
    models_costs : bool
        Whether its pairs are of each client's cost, so that they stay true under any penalty, and
        more than d of them are too many.
    largest_d : float
        The most coordinates for which the server should do its work.
    accuracy : float
        How accurate, relative to their moves, local solvers should be.
    memory : int
        How many pairs of each client the server remembers.
    """

    unanimous: ClassVar[bool]
    models_costs: ClassVar[bool]
    largest_d: ClassVar[float]
    accuracy: ClassVar[float]

    @property
    def memory(self) -> int: ...

    def propose(self, view: View) -> Proposal:
        """The next x: the plain step unless ``view.trusted``."""


class NoAcceleration:
    """The plain step in every round; the step follows the curvature seen."""

    unanimous: ClassVar[bool] = False
    models_costs: ClassVar[bool] = False
    largest_d: ClassVar[float] = math.inf
    accuracy: ClassVar[float] = 0.01
    memory: ClassVar[int] = 1

    def propose(self, view: View) -> Proposal:
        x = view.average(view.z)
        sigma = view.memory.typical_curvature()
        return Proposal(
            x, view.z, view.step.s, view.memory, sigma, sigma, accelerated=False, adapts=True
        )
