"""What is proved about a fit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FitCertificate:
    """What is proved about the distance of a fit from the fit of the pooled data.

    Attributes
    ----------
    gap : float or None
        Upper bound on the objective above its minimum; None where nothing can be proved.
    standard_errors : float or None
        Upper bound on |coefficient - pooled coefficient| in standard errors, for all coefficients.
        With a penalty they are those that the information matrix alone would give. A model that
        explains all but 1e-6 of the target's variance counts as if it left that share.
    reason : str
        The argument of the proof, or why there is none.
    arithmetic : float or None
        Both bounds above are about the numbers that the clients hold in float64. This bounds how
        far rounding, in forming columns and sums, can have moved any coefficient from the fit of
        the data in exact arithmetic, in standard errors. None if that is not known.
    inflation : float
        How many times those of the table these standard errors are: 1 unless the fit is nearly
        perfect.
    stationary : float or None
        With ``firth`` there is no gap: the penalised likelihood need not be concave. Upper bound on
        the length of the modified score in the norm of the inverse information. The next step would
        move no coefficient by more standard errors than this.
    """

    gap: float | None
    standard_errors: float | None
    reason: str
    arithmetic: float | None = None
    inflation: float = 1.0
    stationary: float | None = None

    @property
    def bound(self) -> float | None:
        """What the tolerance is about: ``standard_errors``, or ``stationary`` with ``firth``."""
        if self.stationary is not None:
            return self.stationary
        return self.standard_errors

    def within(self, limit: float) -> bool:
        """Whether rounding moved no coefficient by more than this, in standard errors."""
        return self.arithmetic is not None and self.arithmetic <= limit

    def __str__(self) -> str:
        if self.stationary is not None:
            return self._stationary_point(self.stationary)
        if self.gap is None or self.standard_errors is None:
            return f"nothing is proved: {self.reason}"
        text = (
            f"within {self.gap:.1g} of the pooled optimum; every coefficient within "
            f"{self.standard_errors:.1g} standard errors of the pooled fit (by {self.reason})"
        )
        if self.arithmetic is not None:
            text += f"; moved by rounding by at most {self.arithmetic:.1g} standard errors"
        if self.inflation > 1.0:
            text += (
                f". These standard errors are {self.inflation:.1g} times those of the table: "
                "the fit is nearly perfect"
            )
        return text

    def _stationary_point(self, bound: float) -> str:
        text = (
            "a stationary point of the penalised likelihood: the modified score is within "
            f"{bound:.1g} standard errors of zero"
        )
        if self.arithmetic is not None:
            text += f", and rounding moves it by at most {self.arithmetic:.1g}"
        return (
            f"{text}. That it is the maximum is not proved: "
            "the penalised likelihood need not be concave"
        )
