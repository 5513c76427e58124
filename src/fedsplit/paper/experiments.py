"""The tables of experiments: the paper's, and what it leaves open."""

from fedsplit.paper.experiment import Experiment
from fedsplit.paper.fig1 import FIG1
from fedsplit.paper.fig2 import FIG2A, FIG2B
from fedsplit.paper.fig3 import FIG3
from fedsplit.paper.fig4 import FIG4A, FIG4B
from fedsplit.paper.open.asynchronous import OPEN_ASYNC
from fedsplit.paper.open.fedavg import OPEN_FEDAVG
from fedsplit.paper.open.privacy import OPEN_PRIVACY
from fedsplit.paper.open.second_order import OPEN_SECOND_ORDER
from fedsplit.paper.open.stochastic_prox import OPEN_STOCHASTIC_PROX

EXPERIMENTS: dict[str, Experiment] = {
    each.name: each for each in (FIG1, FIG2A, FIG2B, FIG3, FIG4A, FIG4B)
}
"""The paper's own figures."""

OPEN: dict[str, Experiment] = {
    each.name: each
    for each in (
        OPEN_FEDAVG,
        OPEN_STOCHASTIC_PROX,
        OPEN_SECOND_ORDER,
        OPEN_ASYNC,
        OPEN_PRIVACY,
    )
}
"""Figures about what the paper leaves open."""


def named(name: str) -> Experiment:
    """The experiment of this name, of either table."""
    return {**EXPERIMENTS, **OPEN}[name]
