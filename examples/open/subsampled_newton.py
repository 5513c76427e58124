"""Newton's method on h_j with a Hessian that is drawn: from some rows, or by a sketch of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fedsplit.local import (
    Costs,
    Evaluation,
    Merit,
    Proximal,
    Start,
    Streams,
    backtrack,
    bounded,
    independent,
)


@dataclass(frozen=True)
class SubsampledNewtonProx:
    """Newton steps u ← u - t(Ĥ_j + I/s)⁻¹[∇f_j(u) + (u - v_j)/s], with a line search for t.

    Gradients are of all rows, so every fixed point is exact; Ĥ_j estimates ∇²f_j(u), and only
    decides how fast the steps converge. The term I/s is exact, which keeps Ĥ_j + I/s regular
    however few rows it has.

    Parameters
    ----------
    steps : int
        Each takes one pass over the rows for its gradient, and one more pass proves the error.
    rows : int
        How many rows the Hessian has.
    sketch : {"rows", "count"}
        "rows": that of rows drawn without replacement, scaled (subsampled Newton). "count": a
        Newton sketch (Pilanci and Wainwright, 2017) by CountSketch: every row of B with
        BᵀB = ∇²f_j is added, with a random sign, to one of ``rows`` sums, which takes a pass.
    """

    steps: int = 1
    rows: int = 256
    sketch: Literal["rows", "count"] = "rows"

    start: ClassVar[Start] = "broadcast"
    draws: ClassVar[bool] = True

    def solve(
        self,
        costs: Costs,
        V: NDArray[Any],
        s: float,
        start: NDArray[Any],
        streams: Streams | None = None,
    ) -> Proximal:
        """Approximate the prox of k clients, each with the Hessian that its stream draws."""
        if streams is None:
            streams = np.zeros(len(V), dtype=np.int64)
        merit = Merit(V, 1.0 / s)
        at = costs.at(np.array(np.broadcast_to(start, V.shape)))
        for t, batch in enumerate(independent(streams, costs.stacked, self.rows, self.steps)):
            G = merit.gradient(at)
            if self.sketch == "rows":
                step = costs.batch(batch).at(at.X).solve(1.0 / s, G)
            else:
                step = _sketched(at, streams, t, self.rows, 1.0 / s, G)
            slope = np.sum(G * step, axis=1)
            at = backtrack(merit, at, merit.value(at), step, slope).at
        return bounded(V, s, at)


def _sketched(
    at: Evaluation, streams: Streams, t: int, rows: int, shift: float, G: NDArray[Any]
) -> NDArray[Any]:
    """(shift·I + Ĥ_j)⁻¹ g_j with Ĥ_j = (S_jB_j)ᵀS_jB_j plus the ridge, (k, d), in step t."""
    costs = at.costs
    B = costs.terms.root(at.eta)
    costs.work.hessians += 1
    costs.work.factorisations += 1
    steps = []
    for j, stream in enumerate(streams):
        own = B.matrix(j)
        n = own.shape[0]
        if n > rows:
            rng = np.random.default_rng([int(stream), t])
            bucket = rng.integers(rows, size=n)
            sign = rng.choice([-1.0, 1.0], size=n)
            own = csr_array((sign, (bucket, np.arange(n))), shape=(rows, n)) @ own
        H = own.T @ own + np.diag(shift + costs.ridge)
        steps.append(np.linalg.solve(H, G[j]))
    return np.array(steps)
