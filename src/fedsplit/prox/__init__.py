"""Local solvers: how a client computes a prox, one file per solver."""

from fedsplit.prox.exact import ExactProx
from fedsplit.prox.gradient import GradientProx
from fedsplit.prox.inexact_newton import NewtonProx
from fedsplit.prox.solver import ProxSolver
from fedsplit.prox.stochastic import StochasticProx
from fedsplit.prox.subsampled_newton import SubsampledNewtonProx

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
