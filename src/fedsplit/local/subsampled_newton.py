"""Newton's method on h_j with a Hessian that is drawn: from some rows, or by a sketch of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from scipy.sparse import csr_array

from fedsplit.arrays import Array, dots
from fedsplit.checks import count, one_of
from fedsplit.local.line_search import Merit, backtrack
from fedsplit.local.solver import Proximal, Start, bounded
from fedsplit.losses.batches import Streams, independent, unseeded
from fedsplit.losses.costs import Costs, Evaluation
from fedsplit.losses.systems import Woodbury

Sketch = Literal["rows", "count"]


@dataclass(frozen=True)
class SubsampledNewtonProx:
    """Newton steps u ← u - t(Ĥ_j + I/s)⁻¹[∇f_j(u) + (u - v_j)/s], with a line search for t.

    Gradients are of all rows, so every fixed point is exact; Ĥ_j estimates ∇²f_j(u), and only
    decides how fast the steps converge. The term I/s is exact, which keeps Ĥ_j + I/s regular
    however few rows it has. With ``rows`` below d the system has the size of the rows.

    Parameters
    ----------
    steps : int
        Each takes one pass over the rows for its gradient, and one more pass proves the error.
    rows : int
        How many rows the Hessian has.
    sketch : {"rows", "count"}
        "rows": that of so many rows drawn without replacement, scaled (subsampled Newton). "count":
        a Newton sketch (Pilanci and Wainwright, 2017) by CountSketch: every row of B with
        BᵀB = ∇²f_j is added, with a random sign, to one of so many rows, which takes a pass.
    """

    steps: int = 1
    rows: int = 256
    sketch: Sketch = "rows"

    start: ClassVar[Start] = "broadcast"
    per_coordinate: ClassVar[bool] = True  # s may be (d,)
    draws: ClassVar[bool] = True

    def __post_init__(self) -> None:
        count("SubsampledNewtonProx: steps", self.steps)
        count("SubsampledNewtonProx: rows", self.rows)
        one_of("SubsampledNewtonProx: sketch", self.sketch, get_args(Sketch))

    def solve(
        self,
        costs: Costs,
        V: Array,
        s: float | Array,
        start: Array,
        streams: Streams | None = None,
    ) -> Proximal:
        if streams is None:
            streams = unseeded(len(V))
        D = np.broadcast_to(1.0 / np.asarray(s), V.shape[1:])
        merit = Merit(V, D)
        at = costs.at(np.array(np.broadcast_to(start, V.shape)))
        for t, batch in enumerate(independent(streams, costs.stacked, self.rows, self.steps)):
            G = merit.gradient(at)
            if self.sketch == "rows":
                step = costs.batch(batch).at(at.X).solve(D, G)
            else:
                step = _sketched(at, streams, t, self.rows, D, G)
            at = backtrack(merit, at, merit.value(at), step, dots(G, step)).at
        return bounded(V, s, at)


def _sketched(at: Evaluation, streams: Streams, t: int, rows: int, D: Array, G: Array) -> Array:
    """(diag(D) + Ĥ_j)⁻¹ g_j with Ĥ_j = (S_jB_j)ᵀS_jB_j plus the ridge, (k, d), in step t."""
    costs = at.costs
    B = costs.terms.root(at.eta)
    costs.work.hessians += 1
    costs.work.factorisations += 1
    n = B.shape[1]
    if n <= rows:
        return Woodbury.of(B, D + costs.ridge).solve(G)
    sketches = []
    for stream in streams:
        rng = np.random.default_rng([int(stream), t])
        bucket = rng.integers(rows, size=n)
        sign = rng.choice([-1.0, 1.0], size=n)
        sketches.append(csr_array((sign, (bucket, np.arange(n))), shape=(rows, n)))
    return Woodbury.of(B.mixed(sketches), D + costs.ridge).solve(G)
