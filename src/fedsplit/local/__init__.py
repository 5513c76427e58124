"""Local solvers: how a client computes a prox, one file per solver."""

from fedsplit.local.gradient import GradientProx
from fedsplit.local.newton import ExactProx, NewtonProx
from fedsplit.local.solver import ProxSolver
from fedsplit.local.stochastic import StochasticProx
from fedsplit.local.subsampled_newton import SubsampledNewtonProx

SOLVERS: dict[str, type[ProxSolver]] = {
    "newton": NewtonProx,
    "exact": ExactProx,
    "gradient": GradientProx,
    "stochastic": StochasticProx,
    "subsampled-newton": SubsampledNewtonProx,
}
"""Every local solver that clients anywhere can be asked to use, by name: the wire format, the
documentation and the conformance tests read this table. ``CvxpyProx`` is not in it, because it
needs an extra that a client may not have."""
