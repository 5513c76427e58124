"""The interface of an experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from fedsplit.paper.measurements import Measurements

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Watch: TypeAlias = Callable[[float, float], None]
"""Called as ``watch(share, gap)`` while an experiment runs: how much is done, and F(x) - F*."""


class Claim(NamedTuple):
    """A sentence of the paper that can be true or false, with what was measured here.

    Attributes
    ----------
    id : str
        Its key in claims.json.
    claim : str
    paper : object
        The paper's number or words.
    measured : float or list of float
        What is not finite, such as the time of a run that never arrives, is null in claims.json.
    holds : bool
    reason : str
        Why it does not hold, or how far it does.
    """

    id: str
    claim: str
    paper: object
    measured: float | list[float]
    holds: bool
    reason: str = ""


class Finding(NamedTuple):
    """What was found of a claim: a ``Claim`` without its key and its sentence."""

    paper: object
    measured: float | list[float]
    holds: bool
    reason: str = ""


def claims_of(
    figure: str, sentences: Mapping[str, str], findings: Mapping[str, Finding]
) -> list[Claim]:
    """Put each sentence about a figure together with what was found of it."""
    return [Claim(f"{figure}-{key}", sentences[key], *finding) for key, finding in findings.items()]


@dataclass(frozen=True)
class Experiment:
    """One figure of the paper: how to compute it, draw it, and check what the paper says of it.

    Parameters
    ----------
    name : str
        Of the figure, as in ``fedsplit reproduce NAME``.
    title : str
    choices : str
        The settings on which the paper is silent, in words; shown beside the figure.
    settings : mapping
        Sizes, seeds and numbers of rounds, in JSON's types.
    compute : callable
        Called as ``compute(settings, watch)``; returns the measurements.
    draw : callable
        Called with the measurements; returns figures by the names of their files.
    claims : callable
        Called with the measurements; returns the claims.
    cost : float
        About how many seconds it takes, for the progress bar and to start the longest first.
    """

    name: str
    title: str
    choices: str
    settings: Mapping[str, Any]
    compute: Callable[[Mapping[str, Any], Watch], Measurements]
    draw: Callable[[Measurements], Mapping[str, Figure]]
    claims: Callable[[Measurements], list[Claim]]
    cost: float
