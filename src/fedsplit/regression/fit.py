"""``fit``: from the options of a user to a model."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from typing import cast
from warnings import warn

import pandas as pd

from fedsplit.channels.channel import Channel, LocalChannel
from fedsplit.channels.members import Members
from fedsplit.clients.oracle import Removed
from fedsplit.data.formula.formula import Formula, quoted
from fedsplit.data.sources import sources
from fedsplit.errors import InputError, NotConverged, listed
from fedsplit.loop.trace import Trace
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.client.guards.ledger import HIGH, DisclosureLedger
from fedsplit.regression.client.plan import columns_of
from fedsplit.regression.client.release import UNSTATED
from fedsplit.regression.engines import ENGINES, cohort_of
from fedsplit.regression.fields import with_options
from fedsplit.regression.options import FitOptions, Regression
from fedsplit.regression.result.fitted import Computation
from fedsplit.regression.result.model import Model
from fedsplit.regression.result.noisy import NoisyModel, noisy_model
from fedsplit.regression.server.agreement import Agreement, agree
from fedsplit.regression.server.bias import ClientsAtHand
from fedsplit.regression.server.federation import FitDriver, members_of, release_rows
from fedsplit.regression.server.glm import FitReport, glm
from fedsplit.regression.server.private import search_privately
from fedsplit.version import __version__


@with_options(FitOptions)
def fit(options: FitOptions) -> Model:
    """Fit one regression over clients that keep their rows.

    The result is the table that pooling all rows would have given, with a proof of how far every
    coefficient is from the pooled one at most.

    <parameters>

    Returns
    -------
    Model
        Coefficients, standard errors, predictions and the proof; with ``dp`` a ``NoisyModel``.

    Raises
    ------
    InputError
        When the data or an option cannot be used.
    TooFewClients
        When fewer clients are left than ``patience`` requires.

    Warns
    -----
    NotConverged
        When the rounds ended before the tolerance was reached; the table then says so first, and
        has no p-values.

    Notes
    -----
    The gamma family has a log link. The reference class of a multinomial model is the first one,
    and its coefficients are named ``class:term``; a ridge without l1 penalises the coefficients of
    all classes, centred, so that it does not depend on the reference.
    """
    found = sources(options.data, options.group, options.reading, options.missing)
    engine = ENGINES[options.engine]
    with engine.of_sources(found, options.workers, options.address) as channel:
        model = fit_over(channel, options, before=channel)
        if options.strict:
            model = with_disclosure(model, channel)
        release_rows(channel)  # a model that is kept holds results
    if not model.settled:
        warn(f"the fit did not converge: {model.warnings[-1]}", NotConverged, stacklevel=3)
    if options.dp is not None:
        return model
    return replace(model, disclosed_by=partial(disclosed_by, options))


def disclosed_by(options: FitOptions, person: str | None) -> pd.DataFrame:
    """What the answers of a fit disclose, from the same fit once more, recorded."""
    found = sources(options.data, options.group, options.reading, options.missing)
    cohort = cohort_of(found)
    cohort.records = True
    channel = LocalChannel(cohort)
    fit_over(channel, replace(options, progress=None, checkpoint=None), before=channel)
    return leverage_table(cohort, person)


def leverage_table(cohort: DatasetCohort, person: str | None = None) -> pd.DataFrame:
    """By client, the largest leverage of its rows, or persons, and how many are above 0.9."""
    h = cohort.leverages(person)
    columns = {
        "largest_h": {name: each.max(initial=0.0) for name, each in h.items()},
        "above": {name: int((each > HIGH).sum()) for name, each in h.items()},
        "of": {name: len(each) for name, each in h.items()},
        "unstated": {name: each.ledger.count(UNSTATED) for name, each in cohort.datasets.items()},
    }
    return pd.DataFrame(columns).rename_axis("client")


def with_disclosure(model: Model, channel: Channel) -> Model:
    """A model with a warning, if much of what was disclosed can rest on single rows."""
    if not (isinstance(channel, LocalChannel) and isinstance(channel.cohort, DatasetCohort)):
        return model
    table = leverage_table(channel.cohort)
    for dataset in channel.cohort.datasets.values():
        dataset.ledger = DisclosureLedger()  # it holds rows
    high = table[table["above"] > 0]
    if high.empty:
        return model
    counts = zip(high.index, high["above"], high["of"], strict=True)
    cases = listed([f"{name} ({above} of {n})" for name, above, n in counts], 3)
    note = (
        f"rows whose leverage in all that was disclosed is above {HIGH:g}: {cases}. Who keeps the "
        "answers could compute numbers that rest on one of them; model.disclosure() has the table"
    )
    return replace(model, run=replace(model.run, warnings=[*model.run.warnings, note]))


def fit_over(channel: Channel, options: FitOptions, before: Channel | None = None) -> Model:
    """Fit a regression to the clients that a channel reaches.

    The options ``data`` and ``engine`` are not used: they are what a channel is opened from. When
    clients are removed, the others agree anew and go on from the coefficients reached. ``before``
    reaches clients that may be asked one by one, what a model with secure sums declares.
    """
    settings = options.settings
    about = {
        "clients": [name for names in channel.names for name in names],
        "formula": options.formula,
        "target": options.target,
        **asdict(settings),
    }
    members = members_of(channel, options.patience, options.secure)
    with ExitStack() as stack:
        if options.checkpoint is not None:
            channel = stack.enter_context(options.checkpoint.over(members.channel, about))
            members = Members(channel, members.patience, summed=members.summed)
        if options.dp is not None:
            # another type, but a checker cannot tell by an option
            return cast("Model", fit_with_noise(members, options))
        reached: Mapping[str, float] = {}
        while True:
            try:
                agreement = prepare(members, options, before)
                driver = FitDriver(members, settings.rounds, options.progress)
                made = driver.run(glm(agreement, reached))
                return make_model(driver, agreement, made)
            except Removed as gone:
                members = members.without(gone.names)
                reached = gone.reached or reached


def fit_with_noise(members: Members, options: Regression) -> NoisyModel:
    """Fit a regression with noise, of declarations and a fixed number of questions.

    Raises
    ------
    InputError
        If a client is away for so long that it would be removed: its answers are part of the
        budget, and the questions cannot be asked again of the others.
    """
    settings = options.settings
    formula, excluded = asked_formula(options)
    search = search_privately(members, formula, settings, excluded)
    try:
        estimates, noise = FitDriver(members).run(search.run())
    except Removed as gone:
        raise InputError(
            f"dp: client {listed(gone.names)} is away, and the others are not asked twice: resume "
            "the run when it is back"
        ) from None
    return noisy_model(search, estimates, noise, members.history)


def prepare(members: Members, options: Regression, before: Channel | None = None) -> Agreement:
    """Agree with the clients on columns and categories."""
    formula, excluded = asked_formula(options)
    agreement = FitDriver(members, before=before).run(agree(formula, options.settings, excluded))
    return replace(agreement, exchanges=tuple(members.history.exchanges))


def asked_formula(options: Regression) -> tuple[Formula, list[str]]:
    """The formula, and the columns that ``.`` in it does not stand for."""
    text = options.formula
    if text is None:
        text = f"{quoted([str(options.target)])} ~ ."
    formula = Formula(text)
    if formula.open and options.columns:
        formula = formula.expanded(options.columns)
    extra = columns_of(options.weights, options.offset, options.exposure)
    return formula, extra if options.group is None else [options.group, *extra]


def make_model(driver: FitDriver, agreement: Agreement, made: FitReport) -> Model:
    """The model of a regression.

    Parameters
    ----------
    driver : FitDriver
        Which asked all questions after those of the agreement.
    """
    problem = made.problem
    members, trace = driver.members, driver.trace
    history = members.history
    rows = [row._replace(objective=problem.unit * row.objective) for row in trace.rows]
    if problem.settings.firth:  # which asks about its start first
        trace.start = trace.rows[0].objective
    run = Computation(
        certificate=made.certificate,
        converged=made.converged,
        trace=Trace(problem.unit * trace.start, rows),
        first_round=0,
        rounds=len(rows),
        proofs=[
            (at, None if each.gap is None else problem.unit * each.gap)
            for at, each in made.found.proofs
        ],
        warnings=list(dict.fromkeys([*agreement.warnings, *made.warnings])),
        version=__version__,
        removed=dict(history.removed),
        incidents=list(history.incidents),
        summed=members.summed,
    )
    run = run.among([*agreement.exchanges, *history.exchanges[driver.begun :]])
    model = Model(agreement.plan, problem.settings, run, made.estimates, made.fit)
    if not members.channel.free:
        return model
    # A model holds its clients only where a question to them costs nothing.
    return replace(model, at_hand=ClientsAtHand(members, problem), x=made.found.point.x)
