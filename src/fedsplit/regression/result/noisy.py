"""The model of a fit with noise for differential privacy."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from fedsplit.channels.members import History
from fedsplit.loop.trace import Trace
from fedsplit.regression.privacy import Privacy
from fedsplit.regression.result import table
from fedsplit.regression.result.fitted import Computation, FittedModel
from fedsplit.regression.server.private import PrivateSearch
from fedsplit.regression.server.report import Estimates, FitCertificate, NoiseReport
from fedsplit.version import __version__


@dataclass(frozen=True, eq=False, repr=False)
class NoisyModel(FittedModel):
    """A regression whose clients added noise to all that they sent; it is not the pooled fit.

    Nothing is proved about it, nothing is known of a single client, and there is no deviance and no
    log-likelihood.

    Attributes
    ----------
    noise : NoiseReport
    """

    noise: NoiseReport

    def __repr__(self) -> str:
        return self._described(" with noise", "about ", "")

    @property
    def nobs(self) -> int:
        return max(0, round(self.noise.rows))

    @property
    def dispersion(self) -> float | None:
        """φ, or an upper bound of it; nan where the noise hides it."""
        return self.noise.dispersion

    @property
    def privacy(self) -> Privacy:
        """The budget of the fit, and the bounds of a row."""
        assert self.settings.dp is not None
        return self.settings.dp

    # the number of steps is fixed beforehand, and errors include what is left
    settled = True
    # all clients answered all questions
    complete = True

    @property
    def statistic(self) -> Literal["t", "z"]:
        """Always z: the noise is normal, and its size is known."""
        return "z"

    @property
    def se_reason(self) -> str | None:
        if self.estimates.covariance is not None:
            return None
        return "the noise hides the dispersion, or some coefficients: raise epsilon"

    def _lacks(self, robust: bool) -> str | None:
        return self.se_reason or "with dp there is the model-based one alone"

    @property
    def n_clients(self) -> int:
        return len(self.noise.clients)

    def head(self) -> Iterable[str]:
        yield from table.opening(self)
        yield (
            f"NOISY for privacy: (ε, δ) = ({self.privacy.epsilon:g}, {self.privacy.delta:g}) for "
            f"{self.privacy.protects}, not the pooled fit"
        )
        if self.privacy.seed is not None:
            yield "SIMULATED: the noise follows from a seed, and gives NO PRIVACY"
        about = f"n about {self.noise.rows:,.0f} (± {self.noise.rows_error:,.0f})"
        spread = f"   dispersion {self.dispersion:.6g}" if self.family.dispersed else ""
        yield f"{about}   parameters {self.estimates.rank}{spread}"

    def foot(self) -> Iterable[str]:
        yield (
            f"exchanges {self.exchanges}   floats sent {self.run.floats:,}   "
            f"noise of {self.noise.multiplier:.4g} times the sensitivity"
        )
        yield (
            f"bounds: rows of length {self.privacy.clip:g}, scores of {self.noise.score:g}, "
            f"weights of {self.noise.weight:g}; rows beyond were scaled or cut off"
        )
        errors = "" if self.se_reason else "standard errors include the noise; "
        yield f"{errors}nothing is proved about the distance from the pooled fit"
        for text in self.warnings:
            yield f"warning: {text}"

    def to_dict(self) -> dict[str, Any]:
        privacy = {
            "epsilon": self.privacy.epsilon,
            "delta": self.privacy.delta,
            "protects": self.privacy.protects,
            "simulated": self.privacy.seed is not None,
            **self.noise._asdict(),
        }
        del privacy["dispersion"]  # which JSON has beside the numbers of all models
        return {**super().to_dict(), "privacy": privacy}


def noisy_model(
    search: PrivateSearch, estimates: Estimates, noise: NoiseReport, history: History
) -> NoisyModel:
    """Make a model of noisy estimates, without anything about single clients or a proof."""
    trace = Trace(math.nan, list(history.exchanges))
    run = Computation(
        certificate=FitCertificate(
            None, None, "the estimate has noise in it, for privacy, and is not the pooled fit"
        ),
        converged=False,
        trace=trace,
        first_round=0,
        rounds=len(trace),
        proofs=[],
        warnings=search.warnings,
        version=__version__,
        incidents=list(history.incidents),
        summed=search.summed,
    )
    return NoisyModel(search.plan, search.settings, run, estimates, noise)
