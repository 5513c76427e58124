"""How much noise an (ε, δ) guarantee needs, by the package ``dp-accounting``."""

from __future__ import annotations

from functools import lru_cache

from fedsplit.errors import InputError

SLACK = 1e-6
"""The share of δ that is left for noise on a grid in the place of real numbers.

A discrete Gaussian is within 0.05/σ² of a rounded one in total variation, with σ in steps of the
grid: below 1e-25 per number, and (1 + e^ε) times as much of δ.
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
        raise InputError(
            "a fit with dp needs the package dp-accounting: pip install 'fedsplit[dp]'"
        ) from None
    wanted = common.DifferentialPrivacyParameters(epsilon, (1.0 - SLACK) * delta)
    return float(accountant.get_smallest_gaussian_noise(wanted, 1, 1.0))
