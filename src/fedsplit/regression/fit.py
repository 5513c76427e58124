"""``fit``: from the options of a user to a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any, TypeVar
from warnings import warn

from fedsplit.clients.oracle import Removed
from fedsplit.data.formula.formula import Formula, quoted
from fedsplit.data.sources.sources import sources
from fedsplit.errors import InputError, NotConverged, listed
from fedsplit.loop.trace import Row
from fedsplit.regression.engines import ENGINES
from fedsplit.regression.fields import with_options
from fedsplit.regression.options import FitOptions, Regression, Settings
from fedsplit.regression.result.certificate import FitCertificate
from fedsplit.regression.result.model import Model
from fedsplit.regression.result.noisy import noisy_model
from fedsplit.regression.result.parts import (
    Computation,
    Estimates,
    FitStatistics,
    PooledMoments,
    fingerprint_of,
)
from fedsplit.regression.server.assessment import MOST_ROUNDING
from fedsplit.regression.server.declaring import declare
from fedsplit.regression.server.federation import release_rows
from fedsplit.regression.server.firth import FirthEstimate
from fedsplit.regression.server.handshake import Agreement, agree
from fedsplit.regression.server.identifiability import Unbounded
from fedsplit.regression.server.inference import Inference
from fedsplit.regression.server.limit import not_estimable, separable, without_receding
from fedsplit.regression.server.private import search_privately
from fedsplit.regression.server.proof import PROOF
from fedsplit.regression.server.search import Estimate, Progress
from fedsplit.regression.server.task import NothingToFit, Task
from fedsplit.remote.channel import Channel
from fedsplit.remote.masked import clients_of_run
from fedsplit.remote.members import Members, Patience
from fedsplit.remote.summed import SummedChannel
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
        Coefficients, standard errors, predictions and the proof.

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
    found = sources(options.data, options.group, options.reading)
    engine = ENGINES[options.engine]
    with engine.of_sources(found, options.cohorts, options.address) as channel:
        if options.secure and options.dp is None:  # which declares without looking
            options = with_declaration(channel, options)
        model = fit_over(channel, options)
        release_rows(channel)  # a model that is kept holds results
    if not model.settled:
        warn(f"the fit did not converge: {model.warnings[-1]}", NotConverged, stacklevel=3)
    return model


R = TypeVar("R", bound=Regression)


def with_declaration(channel: Channel, options: R) -> R:
    """The options with all that a study with secure sums declares, from clients that tell it."""
    patience = None
    if not channel.free:
        patience = getattr(options, "patience", None) or Patience()
    members = Members(channel, patience)
    formula, excluded = asked_formula(options)
    found = declare(members, formula, options.settings, excluded)
    levels = {**found.levels, **options.declared_levels}
    declared: dict[str, Any] = {"formula": found.formula, "target": None, "types": found.types}
    if isinstance(options, FitOptions):
        declared["elastic_net"] = None  # l1 and ridge say the same
    return replace(options, levels=levels, **declared)


def fit_over(channel: Channel, options: FitOptions) -> Model:
    """Fit a regression to the clients that a channel reaches.

    The options ``data`` and ``engine`` are not used: they are what a channel is opened from. When
    clients are removed, the others agree anew and go on from the coefficients reached.
    """
    settings = options.settings
    about = {
        "clients": clients_of_run(channel),
        "formula": options.formula,
        "target": options.target,
        **asdict(settings),
    }
    patience = None
    if not channel.free:
        patience = options.patience or Patience()
    summed: Sequence[str] = ()
    if options.secure:
        channel = SummedChannel(channel)
        summed = channel.clients
    with ExitStack() as stack:
        if options.checkpoint is not None:
            channel = stack.enter_context(options.checkpoint.over(channel, about))
        members = Members(channel, patience, summed=summed)
        if options.dp is not None:
            return fit_with_noise(members, options)
        reached: Mapping[str, float] = {}
        while True:
            try:
                agreement = prepare(members, options)
                task = make_task(agreement, settings)
                return finish(task, agreement, options.progress, reached)
            except Removed as gone:
                members = members.without(gone.names)
                reached = gone.reached or reached


def fit_with_noise(members: Members, options: Regression) -> Model:
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
        found = search.run()
    except Removed as gone:
        raise InputError(
            f"dp: client {listed(gone.names)} is away, and the others are not asked twice: resume "
            "the run when it is back"
        ) from None
    return noisy_model(settings, search, found, members.history)


def prepare(members: Members, options: Regression) -> Agreement:
    """Agree with the clients on columns and categories."""
    formula, excluded = asked_formula(options)
    return agree(members, formula, options.settings, excluded)


def asked_formula(options: Regression) -> tuple[Formula, list[str]]:
    """The formula, and the columns that ``.`` in it does not stand for."""
    text = options.formula
    if text is None:
        text = f"{quoted([str(options.target)])} ~ ."
    formula = Formula(text)
    if formula.open and options.columns:
        formula = formula.expanded(options.columns)
    others = [options.group, options.weights, options.offset, options.exposure]
    return formula, [name for name in others if name is not None]


def make_task(agreement: Agreement, settings: Settings) -> Task:
    """The regression that the clients agreed on, ready for its rounds."""
    labels = list(agreement.plan.classes)
    return Task(agreement.rows, agreement.moments, settings, agreement.intercept, labels)


def finish(
    task: Task,
    agreement: Agreement,
    progress: Callable[[Progress], object] | None = None,
    reached: Mapping[str, float] | None = None,
) -> Model:
    """Run the rounds, and make a model of where they end.

    Parameters
    ----------
    task : Task
        The regression.
    agreement : Agreement
        What the clients agreed on.
    progress : callable, optional
        Called with a ``Progress`` after every round.
    reached : mapping of str to float, optional
        Coefficients to start from, by name: those of a run that lost a client.
    """
    first = task
    history = task.rows.members.history
    begun = len(history.exchanges)
    lost: Mapping[str, str] = {}
    earlier: list[Row] = []
    while True:
        try:
            penalty = task.penalty(task.settings.l1)
            found = task.run(penalty, report=progress, reached=reached or {}, spent=len(earlier))
            break
        except Unbounded as error:
            earlier += error.trace
            left = task.settings.rounds - len(earlier)
            if error.direction is None or not task.reports_separation or left <= PROOF:
                raise
            agreement = without_receding(agreement, task, error)
            # fewer rows may be too few for matrices
            settings = replace(task.settings, method=task.asked_method)
            try:
                task = make_task(agreement, settings)
            except NothingToFit:
                raise separable(error) from None
            lost = not_estimable(first, task)
    model = _model(task, agreement, found.after(earlier), lost)
    # the end of the fit, too, is in the history by now
    others = [*first.asked, *history.exchanges[begun:]]
    return replace(model, run=model.run.among(others))


def _model(task: Task, agreement: Agreement, found: Estimate, lost: Mapping[str, str]) -> Model:
    """The model of where the rounds ended, where the coefficients ``lost`` have no estimate."""
    inference = task.assessment.infer(found, agreement.missing)
    limit = None
    if lost:
        limit = inference.coef
        inference = inference.without(lost)
    estimates = Estimates(
        names=inference.names,
        values=inference.coef,
        covariance=inference.covariance_,
        robust=inference.robust,
        errors=inference.errors,
        aliased=inference.aliased,
        not_estimable=dict(lost),
        recessions=task.rows.recessions,
        limit=limit,
    )
    pool = task.pool
    fit = FitStatistics(
        clients=inference.clients,
        # n - d counts no degrees of freedom where coefficients are shrunk
        dispersion=None if task.settings.biased is not None else inference.dispersion,
        deviance=inference.deviance,
        null_deviance=inference.null_deviance,
        llf=_likelihood(inference, task),
        pearson=inference.pearson,
        calibration=inference.calibration,
        penalised=inference.penalised,
        moments=PooledMoments(pool.names, pool.weight, pool.mean, pool.scatter, pool.target),
        fingerprint=fingerprint_of(dict(zip(task.sizes, agreement.moments, strict=True))),
        missing_values=agreement.missing_values,
    )
    history = task.rows.members.history
    certificate = certified(task, found)
    run = Computation(
        certificate=certificate,
        converged=inference.converged,
        trace=inference.trace,
        first_round=0,
        rounds=len(inference.trace),
        proofs=inference.proofs,
        warnings=[*agreement.warnings, *_warnings(task, found, certificate, lost)],
        version=__version__,
        removed=dict(history.removed),
        incidents=list(history.incidents),
        logs=dict(history.logs),
        summed=task.rows.members.summed,
    )
    model = Model(agreement.plan, task.settings, estimates, fit, run)
    if task.clients.free:
        # A model holds its clients only where a question to them costs nothing.
        return replace(model, task=task, x=inference.x)
    return model


def _likelihood(inference: Inference, task: Task) -> float | None:
    """The log-likelihood; None if φ would be that of a perfect fit, with any height of the peak."""
    if task.family.dispersed and task.pool.n <= task.d:
        return None
    return inference.log_likelihood


def _warnings(
    task: Task, found: Estimate, certificate: FitCertificate, lost: Mapping[str, str]
) -> Iterator[str]:
    """What a reader of the table has to know of the estimate."""
    if lost:
        plural = "s" * (len(lost) > 1)
        instead = "; firth gives all of them finite estimates" * task.family.binary
        yield (
            f"the data do not determine the coefficient{plural} of {listed(lost, 4)}, which would "
            "grow without bound: the others are those of the fit without the rows that say so"
            + instead
        )
    if found.undetermined:
        weak = listed(found.undetermined, 4)
        remedy = "add a ridge, or leave it out"
        if task.family.name == "huber":  # whose curvature is that of rows with residuals below it
            remedy = "choose a larger delta, in units of the target, add a ridge, or leave it out"
        yield f"the data hardly determine the coefficient of {weak}: {remedy}"
    if found.converged and not certificate.within(MOST_ROUNDING):
        yield (
            "columns nearly cancel: rounding can have moved coefficients by up to "
            f"{_known(certificate.arithmetic)} standard errors; centre them, or leave one out"
        )
    if not found.converged:
        proved = "nothing is proved"
        if certificate.bound is not None:
            proved = f"{certificate.bound:.1g} standard errors are proved"
        advice = _advice(found, task.settings)
        yield f"{proved}, not the tolerance of {task.settings.tol:g}: {advice}"


def _advice(found: Estimate, settings: Settings) -> str:
    """What to do if the proved distance is above the tolerance."""
    if len(found.trace) + PROOF >= settings.rounds:
        return "allow more rounds"
    return "rounding leaves no better bound; if it will do, set a larger tol"


def _known(bound: float | None) -> str:
    if bound is None:
        return "any number of"
    return f"{bound:.1g}"


def certified(task: Task, found: Estimate) -> FitCertificate:
    """What is proved at the end of the rounds, in the units of the data."""
    proved = found.proof.certificate
    gap = proved.gap
    if gap is not None:
        gap *= task.scaling.unit**2
    arithmetic: float | None = task.assessment.arithmetic(found)
    if arithmetic == math.inf:
        arithmetic = None
    distance = task.assessment.distance(found)
    if distance == math.inf:  # a proof about some directions alone bounds no coefficient
        distance = None
    stationary = None
    if isinstance(found, FirthEstimate):
        stationary = found.look.distance
    return FitCertificate(
        gap,
        distance,
        proved.reason,
        arithmetic,
        task.assessment.inflation(found),
        stationary,
    )
