"""Local solvers: how a client computes a prox, one file per solver."""

from collections.abc import Callable

from fedsplit.prox.exact import ExactProx
from fedsplit.prox.gradient import GradientProx
from fedsplit.prox.inexact_newton import NewtonProx
from fedsplit.prox.solver import ProxSolver


def _cvxpy() -> ProxSolver:
    from fedsplit.prox.cvxpy_prox import CvxpyProx  # an extra: imported when it is asked for

    return CvxpyProx()


SOLVERS: dict[str, Callable[[], ProxSolver]] = {
    "newton": NewtonProx,
    "exact": ExactProx,
    "gradient": GradientProx,
    "cvxpy": _cvxpy,
}
"""Every local solver by name, as the documentation and the conformance tests know it."""
