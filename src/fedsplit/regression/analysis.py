"""Analyses: dialogues about tables, over data as ``fit`` takes them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import fields
from typing import Any, TypeAlias, TypeVar

from fedsplit.channels.channel import Channel
from fedsplit.channels.patience import Patience
from fedsplit.checks import one_of
from fedsplit.clients.oracle import Removed
from fedsplit.data.sources import declared, sources
from fedsplit.dialogue import Dialogue
from fedsplit.errors import InputError
from fedsplit.regression.engines import ENGINES
from fedsplit.regression.options import Settings
from fedsplit.regression.server.federation import FitDriver, members_of, release_rows

R = TypeVar("R")

Analysis: TypeAlias = Callable[[Settings], Dialogue[R]]
"""A dialogue about the rows of clients, from what is set for all of its models.

It agrees with the clients on a plan by ``agree``, asks for sums over the rows of it by
``sums_of``, and fits models by ``glm``.
"""


def analyse(
    analysis: Analysis[R],
    data: object,
    *,
    group: str | None = None,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    watch: Callable[[Any, Any], object] | None = None,
    **settings: Any,
) -> R:
    """Run an analysis over clients that keep their rows.

    Parameters
    ----------
    analysis : callable
        Makes the dialogue from the ``Settings``.
    data, group, engine, workers, address
        As ``fit`` takes them.
    watch : callable, optional
        Called with every question and what was answered. The answers carry a new dialogue to the
        same result by ``replay``.
    **settings
        Fields of ``Settings``, such as ``secure``, ``strict``, ``types`` and ``levels``.

    Returns
    -------
    Any
        What the dialogue returns.

    Raises
    ------
    InputError
        When the data or a setting cannot be used, or the analysis is no dialogue.

    Examples
    --------
    >>> def mean_age(settings):
    ...     agreement = yield from agree("age ~ 1", settings)
    ...     return agreement.moments
    >>> analyse(mean_age, "hospitals/*.csv", strict=True)  # doctest: +SKIP
    """
    one_of("engine", engine, ENGINES)
    for name in settings:
        one_of("setting", name, [each.name for each in fields(Settings)])
    types, reading = declared(data)
    given = Settings(**settings)
    given = Settings(**{**settings, "types": {**types, **given.declared} or None})
    reading = reading.joined(given.reading)
    with ENGINES[engine].of_sources(
        sources(data, group, reading, given.missing), workers, address
    ) as channel:
        try:
            return analyse_over(channel, analysis, given, watch=watch, before=channel)
        finally:
            release_rows(channel)


def analyse_over(
    channel: Channel,
    analysis: Analysis[R],
    settings: Settings,
    patience: Patience | None = None,
    *,
    watch: Callable[[Any, Any], object] | None = None,
    before: Channel | None = None,
) -> R:
    """Run an analysis over the clients that a channel reaches.

    When clients are removed, it begins anew with the others. ``before`` reaches clients that may
    be asked one by one, what an analysis with secure sums declares.
    """
    members = members_of(channel, patience, settings.secure)
    while True:
        driver = FitDriver(members, settings.rounds, before=before)
        try:
            made: Any = analysis(settings) if callable(analysis) else analysis
            if not isinstance(made, Generator):
                raise InputError(
                    "an analysis must be a function of the settings that yields questions, "
                    f"as in yield from agree('y ~ x', settings), not one that makes {made!r}"
                )
            result: R = driver.run(made, watch)
            return result
        except Removed as gone:
            members = members.without(gone.names)
