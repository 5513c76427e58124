"""Local solvers: how a client computes a prox, one file per solver.

The names below are also what a local solver of one's own needs: it gets the ``Costs`` of some
clients and answers with a ``Proximal``, see ``ProxSolver`` and ``StochasticSolver``.
"""

from fedsplit.local.gradient import GradientProx
from fedsplit.local.newton import ExactProx
from fedsplit.local.solver import (
    Merit,
    Proximal,
    ProxSolver,
    Start,
    StochasticSolver,
    backtrack,
    bounded,
)
from fedsplit.losses.batches import Batch, Streams, independent
from fedsplit.losses.costs import Costs, Evaluation

__all__ = [
    "SOLVERS",
    "Batch",
    "Costs",
    "Evaluation",
    "Merit",
    "ProxSolver",
    "Proximal",
    "Start",
    "StochasticSolver",
    "Streams",
    "backtrack",
    "bounded",
    "independent",
]

SOLVERS: dict[str, type[ProxSolver]] = {
    "exact": ExactProx,
    "gradient": GradientProx,
}
"""Every local solver that a question to any client may name: the wire format, the documentation and
the conformance tests read this table. ``CvxpyProx`` is not in it, because it needs an extra that a
client may not have."""
