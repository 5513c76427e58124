"""Questions about minibatches of a client's rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedsplit.arrays import Array, like, namespace
from fedsplit.clients.question import CostQuestion, Part, not_nan
from fedsplit.clients.rounding import rounded_up
from fedsplit.losses.batches import Batch, Streams, epochs, independent, unseeded
from fedsplit.losses.costs import Costs


@dataclass(frozen=True)
class StochasticDescend(CostQuestion):
    """The end of gradient steps on f_j from x, each with the gradient of a minibatch."""

    x: Array  # (d,)
    step: float
    steps: int  # the number of steps, or of passes over the client's rows if ``in_epochs``
    batch: int  # B: the gradient of a batch is multiplied by n_j/B
    # whether batches go through all rows in random order; otherwise each is drawn anew
    in_epochs: bool = False
    streams: Streams | None = None  # (m,)

    parts: ClassVar = {"point": Part(("d",))}

    @property
    def draws(self) -> bool:
        return True

    def answer(self, costs: Costs, x: Array) -> Mapping[str, Array]:
        for batch in self._batches(costs):
            # a client that has finished its passes stays where it is
            used = np.any(batch.scale > 0, axis=1, keepdims=True)
            x = x - self.step * like(1.0 * used, x) * costs.batch(batch).gradient(x)
        return {"point": x}

    def _batches(self, costs: Costs) -> Iterator[Batch]:
        streams = unseeded(costs.terms.k) if self.streams is None else self.streams
        # without seeds, as when clients are asked directly, all draw from the same ones
        draw = epochs if self.in_epochs else independent
        return draw(streams, costs.stacked, self.batch, self.steps)


@dataclass(frozen=True)
class BatchCurvature(CostQuestion):
    """ℓ_j, and the expected smoothness ℒ_j of batches of B rows, everywhere or at x.

    ℒ_j is rounded up to a power of two, since of small batches it is a number of one row.
    """

    batch: int
    x: Array | None = None

    everyone = True
    parts: ClassVar = {"bounds": Part((2,), not_nan)}

    def answer(self, costs: Costs, x: Array | None) -> Mapping[str, Array]:
        ell, _ = costs.bounds if x is None else costs.at(x).bounds()
        # of one row per batch, this is that row's curvature
        smooth = like(rounded_up(costs.batch_smoothness(self.batch, x)), ell)
        return {"bounds": namespace(ell).stack([ell, smooth], axis=1)}
