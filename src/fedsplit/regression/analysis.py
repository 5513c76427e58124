"""``run``: an analysis of one's own over clients that keep their rows.

An analysis is a dialogue: a generator over the rows that clients have agreed on, which asks for
sums by ``yield from`` and returns its result. It runs wherever a fit runs, with the same options.

    def score_errors(agreement, settings):
        made = yield from glm(agreement, settings, {})
        meat = yield from sums_at(made.problem, {"meat": ScoreSquares(made.found.x)})
        ...
        return errors

    run(score_errors, "sites/*.csv", "y ~ x", family="poisson", secure=True)

Its statistics say what is summed (``fedsplit.statistic``), and are entered in ``STATISTICS`` where
they travel between processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError
from fedsplit.regression.fit import open_channel, over
from fedsplit.regression.options import FitOptions, Settings
from fedsplit.regression.server.agreement import Agreement
from fedsplit.regression.server.federation import FitDriver, sums_at, sums_of
from fedsplit.regression.server.glm import glm
from fedsplit.remote.channel import Channel

__all__ = ["Agreement", "FitOptions", "Settings", "glm", "run", "run_over", "sums_at", "sums_of"]

R = TypeVar("R")


def run(
    analysis: Callable[[Agreement, Settings], Dialogue[R]], *arguments: Any, **options: Any
) -> R:
    """Run an analysis over clients that keep their rows.

    Parameters
    ----------
    analysis : callable
        Its dialogue, from what clients agreed on and the settings.
    arguments, options : Any
        Those of ``fit``: data, formula, family, engine, secure, strict and so on.
    """
    with open_channel(FitOptions(*arguments, **options)) as (channel, chosen):
        return run_over(channel, chosen, analysis)


def run_over(
    channel: Channel,
    options: FitOptions,
    analysis: Callable[[Agreement, Settings], Dialogue[R]],
) -> R:
    """Run an analysis over the clients that a channel reaches."""
    if options.dp is not None:
        raise InputError("dp: noise is for fits alone")

    def dialogue(agreement: Agreement, reached: Mapping[str, float]) -> Dialogue[R]:
        return analysis(agreement, options.settings)

    def result(driver: FitDriver, agreement: Agreement, found: R) -> R:
        return found

    return over(channel, options, dialogue, result)
