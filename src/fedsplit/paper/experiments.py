"""The table of the paper's experiments."""

from fedsplit.paper.experiment import Experiment
from fedsplit.paper.fig1 import FIG1
from fedsplit.paper.fig2 import FIG2A, FIG2B
from fedsplit.paper.fig3 import FIG3
from fedsplit.paper.fig4 import FIG4A, FIG4B

EXPERIMENTS: dict[str, Experiment] = {
    each.name: each for each in (FIG1, FIG2A, FIG2B, FIG3, FIG4A, FIG4B)
}
