"""How much noise an (ε, δ) guarantee needs, by the package ``dp-accounting``."""

from __future__ import annotations

from functools import lru_cache

from fedsplit.errors import RequestError

SLACK = 1e-6
"""The share of ε and δ that is left for noise on a grid in the place of real numbers.

For |k| ≤ Bσ, with σ in steps of the grid, the probabilities of a discrete Gaussian are within
1 ± η of those of a rounded one, η ≤ (B² + 1)/(24σ²); so are those of a sum of several, up to less
than e^(-σ²). For L numbers this adds 2Lη to ε and a factor (1 + η)^L to δ, and what is beyond B has
no more than Le^(ε - B²/2). With σ ≥ 2⁴⁰ and B² = 2(700 + ε), that is below this share for L up to a
million and every ε ≥ 1e-9.
"""


@lru_cache(maxsize=16)
def noise_multiplier(epsilon: float, delta: float) -> float:
    """The least σ/Δ with which one Gaussian mechanism of sensitivity Δ is (ε, δ)-private.

    Answers to several questions, of which each may depend on those before, are one such mechanism
    if the squares of their Δ/σ add up to its own.
    """
    try:
        from dp_accounting.pld import accountant, common
    except ModuleNotFoundError:
        raise RequestError(
            "a fit with dp needs the package dp-accounting: pip install 'fedsplit[dp]'"
        ) from None
    wanted = common.DifferentialPrivacyParameters((1.0 - SLACK) * epsilon, (1.0 - SLACK) * delta)
    return float(accountant.get_smallest_gaussian_noise(wanted, 1, 1.0))
