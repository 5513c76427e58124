"""The paper's experiments: their figures, and what the paper claims of them.

The names below are what an experiment of one's own needs, such as those of examples/open. The
commands print what ``comparison``, ``reproduction`` and ``report`` compute.
"""

from fedsplit.paper.experiment import Claim, Experiment, Measurements, Watch
from fedsplit.paper.runs import SolvedProblem, run_to_gap

__all__ = ["Claim", "Experiment", "Measurements", "SolvedProblem", "Watch", "run_to_gap"]
