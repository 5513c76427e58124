"""The paper's experiments: one file a figure, and the table of them all."""

from fedsplit.experiments.fig1 import FIG1
from fedsplit.experiments.fig2 import FIG2A, FIG2B
from fedsplit.experiments.fig3 import FIG3
from fedsplit.experiments.fig4 import FIG4A, FIG4B
from fedsplit.experiments.record import Experiment

EXPERIMENTS: dict[str, Experiment] = {each.name: each for each in (FIG1, FIG2A, FIG2B, FIG3, FIG4A, FIG4B)}
