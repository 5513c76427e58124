"""What the table of a fit with noise says of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from fedsplit.regression.result.model import Model

NO_CERTIFICATE = "the estimate has noise in it, for privacy, and is not the pooled fit"
"""The reason of a certificate that proves nothing."""


class Noised(NamedTuple):
    """What is told of a fit with noise, beside its coefficients.

    Attributes
    ----------
    clients : sequence of str
        Who took part.
    rows, rows_error : float
        The number of rows, with noise, and the standard deviation of that noise.
    noise_se : sequence of float
        The part of the noise in each standard error.
    multiplier : float
        The standard deviation of the noise over the sensitivity of all answers together.
    score, weight : float
        The bounds of a row.
    """

    clients: Sequence[str]
    rows: float
    rows_error: float
    noise_se: Sequence[float]
    multiplier: float
    score: float
    weight: float


def head(model: Model, noised: Noised) -> list[str]:
    """The lines in place of those about the pooled fit."""
    privacy = model.settings.dp
    assert privacy is not None
    simulated = []
    if privacy.seed is not None:
        simulated = ["SIMULATED: the noise follows from a seed, and gives NO PRIVACY"]
    numbers = f"n about {noised.rows:,.0f} (± {noised.rows_error:,.0f})   parameters {model.rank}"
    if model.family.dispersed:
        numbers += f"   dispersion {model.dispersion:.6g}"
    return [
        f"NOISY for privacy: (ε, δ) = ({privacy.epsilon:g}, {privacy.delta:g}) for "
        f"{privacy.protects}, not the pooled fit",
        *simulated,
        numbers,
    ]


def foot(model: Model, noised: Noised) -> list[str]:
    """The lines in place of those about clients and proof."""
    privacy = model.settings.dp
    assert privacy is not None
    return [
        f"questions {model.questions}   floats sent {model.floats:,}   "
        f"noise of {noised.multiplier:.4g} times the sensitivity",
        f"bounds: rows of length {privacy.clip:g}, scores of {noised.score:g}, weights of "
        f"{noised.weight:g}; rows beyond were scaled or cut off",
        "standard errors include the noise; nothing is proved about the distance from the pooled "
        "fit",
        *(f"warning: {text}" for text in model.warnings),
    ]


def to_dict(model: Model) -> dict[str, Any] | None:
    """What JSON has of the noise; None for a fit without."""
    privacy, noised = model.settings.dp, model.noised
    if privacy is None or noised is None:
        return None
    return {
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "protects": privacy.protects,
        "simulated": privacy.seed is not None,
        **noised._asdict(),
        "clients": list(noised.clients),
        "noise_se": list(noised.noise_se),
    }


def of_record(record: dict[str, Any] | None) -> Noised | None:
    """The inverse of ``to_dict``."""
    if record is None:
        return None
    return Noised(**{name: record[name] for name in Noised._fields})
