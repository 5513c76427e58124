"""Theory as functions: the paper's rates, bounds and fixed points.

Rates and bounds are functions of numbers (Theorems 1-3, Corollary 1). Closed-form fixed points are
for least squares; the ``*_defect`` functions test any point, for any loss, against Propositions
1-3. The paper numbers the convergence with general residuals, from which Theorem 1 follows, as
Theorem 3.

Throughout, κ = L*/ℓ* is the condition number of the worst client, z* the fixed point of FedSplit,
and distance is ‖z^(1) - z*‖ over all clients.
"""

from fedsplit.local.gradient import inner_step
from fedsplit.theory.paper import (
    Envelope,
    Reduction,
    batch_step,
    contraction,
    corollary1_bound,
    fedgd_defect,
    fedgd_fixed_point,
    fedgd_rounds,
    fedgd_step,
    fedprox_defect,
    fedprox_fixed_point,
    fedsplit_defect,
    fedsplit_fixed_point,
    fedsplit_step,
    master_bound,
    moreau_envelope,
    optimality_defect,
    theorem1_bound,
    theorem1_rounds,
    theorem2,
)

__all__ = [
    "Envelope",
    "Reduction",
    "batch_step",
    "contraction",
    "corollary1_bound",
    "fedgd_defect",
    "fedgd_fixed_point",
    "fedgd_rounds",
    "fedgd_step",
    "fedprox_defect",
    "fedprox_fixed_point",
    "fedsplit_defect",
    "fedsplit_fixed_point",
    "fedsplit_step",
    "inner_step",
    "master_bound",
    "moreau_envelope",
    "optimality_defect",
    "theorem1_bound",
    "theorem1_rounds",
    "theorem2",
]
