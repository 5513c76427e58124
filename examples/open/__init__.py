"""What the paper leaves open (its Discussion): experiments by public names of fedsplit alone.

``fedsplit reproduce open`` runs them in a checkout of the repository; docs/open-questions.md says
what came out. One file per question has its figures and claims, and the files beside them have the
methods, local solvers, clients and theory that these need and the package does not have.
"""

import fedsplit as fs
from open.asynchronous import OPEN_ASYNC
from open.fedavg import OPEN_FEDAVG
from open.privacy import OPEN_PRIVACY
from open.second_order import OPEN_SECOND_ORDER
from open.stochastic_prox import OPEN_STOCHASTIC_PROX

OPEN: dict[str, fs.paper.Experiment] = {
    each.name: each
    for each in (OPEN_FEDAVG, OPEN_STOCHASTIC_PROX, OPEN_SECOND_ORDER, OPEN_ASYNC, OPEN_PRIVACY)
}
"""By the names that ``fedsplit reproduce`` takes."""
