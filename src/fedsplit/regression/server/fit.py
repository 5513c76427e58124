"""``fit``: from what a user names to a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

from fedsplit.checks import one_of
from fedsplit.clients.oracle import Removed
from fedsplit.data.categories import as_text
from fedsplit.data.formula import Formula
from fedsplit.data.sources import sources
from fedsplit.errors import InputError, listed
from fedsplit.regression.client.dataset import Dataset
from fedsplit.regression.client.dataset_cohort import DatasetCohort
from fedsplit.regression.options import Settings
from fedsplit.regression.result.model import FitCertificate, Model
from fedsplit.regression.server.federation import Federation
from fedsplit.regression.server.handshake import Agreement, agree, complete
from fedsplit.regression.server.search import Estimate, Progress
from fedsplit.regression.server.task import Task
from fedsplit.remote.channel import Channel, LocalChannel
from fedsplit.remote.checkpoint import Checkpoint
from fedsplit.remote.members import Members, Patience
from fedsplit.version import __version__

ENGINES = ("local", "ray")


def fit(
    data: object,
    formula: str | None = None,
    *,
    family: str = "gaussian",
    target: str | None = None,
    group: str | None = None,
    ridge: float = 0.0,
    l1: float = 0.0,
    elastic_net: tuple[float, float] | None = None,
    nonnegative: Sequence[str] = (),
    weights: str | None = None,
    offset: str | None = None,
    exposure: str | None = None,
    intercept: bool = True,
    standardize: bool = False,
    missing: str = "drop",
    strict: bool = False,
    tol: float = 1e-9,
    rounds: int = 500,
    seed: int = 0,
    method: str = "fedsplit",
    delta: float = 1.345,
    engine: str = "local",
    address: str | None = None,
    cohorts: int | None = None,
    patience: Patience | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> Model:
    """Fit one regression over clients that keep their rows: the table that pooling them would have given, with a proof.

    Parameters
    ----------
    data : path, frame, or several
        One file a client (CSV, TSV, JSON lines, each also .gz, or Parquet), a glob, a folder, a list of files or
        frames, a dict of them by name, a TOML file that names clients, or one file or frame and ``group``.
    formula : str
        ``"y ~ x + C(g)"``. Text columns are categories, C() makes numbers categories. A condition can be the target of
        a logistic model: ``"{delay > 15} ~ hour"``.
    family : str
        ``gaussian``, ``logistic``, ``poisson`` and ``gamma`` (log link), ``multinomial`` (the first class is the
        reference, names are ``class:term``), ``huber`` (quadratic up to ``delta``, in units of the target).
    target : str
        In the place of a formula: this column on all others.
    group : str
        The column of the one file or frame that says whose row it is.
    ridge, l1 : float
        λ of (λ/2)‖coef‖² and of λ‖coef‖₁, beside the sum of the losses of all rows; the intercept is free. A ridge
        alone on a multinomial is on the coefficients of all classes, centred, whichever is the reference.
    elastic_net : (float, float)
        Both at once: l1, ridge.
    nonnegative : sequence of str
        Coefficients that must not be negative.
    weights, offset, exposure : str
        Columns: of precision weights, of what is added to the linear predictor, and of what multiplies the mean.
    intercept : bool
        Whether there is a constant term.
    standardize : bool
        Whether a penalty acts on coefficients of columns of unit deviation over all clients. Coefficients are reported
        in the units of the files always.
    missing : str
        ``drop`` rows with a missing value, ``fail``, or fill numbers with the ``mean`` over all clients.
    strict : bool
        Refuse what could disclose single rows, where it is only a warning otherwise.
    tol : float
        The proved largest |coefficient - pooled coefficient| in standard errors.
    rounds, seed, method
        The most rounds, the seed of methods that draw, and a method of ``fedsplit compare``.
    delta : float
        Of huber.
    engine, address, cohorts
        ``local``, or ``ray``: on a Ray cluster, at this address where it is not this machine, the clients in so many
        workers. Files are read where the workers are.
    patience : Patience
        How long to wait for clients that are elsewhere, and how many are needed.
    checkpoint : Checkpoint
        Keeps the run on disk, and lets it go on from there.
    progress : callable
        Called with a ``Progress`` after every round.

    Raises
    ------
    TooFewClients
        When fewer clients are left than ``patience`` asks for.
    """
    settings = make_settings(
        elastic_net, family=family, ridge=ridge, l1=l1, nonnegative=nonnegative, weights=weights, offset=offset,
        exposure=exposure, intercept=intercept, standardize=standardize, missing=missing, strict=strict, tol=tol,
        rounds=rounds, seed=seed, method=method, delta=delta,
    )  # fmt: skip
    one_of("engine", engine, ENGINES)
    if engine == "local":
        cohort = DatasetCohort([Dataset(source) for source in sources(data, group)])
        return fit_over(
            LocalChannel(cohort), formula, target, group, settings, None, checkpoint, progress
        )
    from fedsplit.regression.server.workers import workers  # Ray is an extra

    with workers(data, group, cohorts, address) as channel:
        patience = Patience() if patience is None else patience
        return fit_over(channel, formula, target, group, settings, patience, checkpoint, progress)


def fit_over(
    channel: Channel,
    formula: str | None,
    target: str | None,
    group: str | None,
    settings: Settings,
    patience: Patience | None,
    checkpoint: Checkpoint | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> Model:
    """``fit`` with the clients of a channel. Those that are given up are left out, and the others agree anew."""
    clients = [name for members in channel.names for name in members]
    about = {"clients": clients, "formula": formula, "target": target, **asdict(settings)}
    with nullcontext(channel) if checkpoint is None else checkpoint.over(channel, about) as channel:
        members = Members(channel, patience)
        reached: Mapping[str, float] = {}
        while True:
            try:
                agreement, parsed = prepare(Federation(members), formula, target, group, settings)
                task = make_task(agreement, parsed, settings)
                return finish(task, agreement, progress, reached)
            except Removed as gone:
                members = members.without(gone.names)
                reached = gone.reached or reached


def make_settings(elastic_net: object = None, **chosen: Any) -> Settings:
    """The settings that ``fit`` was given, where ``elastic_net`` stands for l1 and ridge."""
    if elastic_net is None:
        return Settings(**chosen)
    if chosen["l1"] or chosen["ridge"]:
        raise InputError("elastic_net brings its own l1 and ridge: leave those out")
    if (
        not isinstance(elastic_net, Sequence)
        or isinstance(elastic_net, str)
        or len(elastic_net) != 2
    ):
        raise InputError(f"elastic_net is two numbers, l1 and ridge, not {elastic_net!r}")
    return Settings(**chosen | {"l1": elastic_net[0], "ridge": elastic_net[1]})


def prepare(
    federation: Federation,
    formula: str | None,
    target: str | None,
    group: str | None,
    settings: Settings,
) -> tuple[Agreement, Formula]:
    """The clients' coded rows, and the formula that they agreed on."""
    if (formula is None) == (target is None):
        raise InputError(
            "give a formula such as 'y ~ x', or a target column for a model on all the others"
        )
    for name, value in (("formula", formula), ("target", target), ("group", group)):
        if value is not None and not isinstance(value, str):
            raise InputError(f"{name} must be text, not {value!r}")
    excluded = [group, settings.weights, settings.offset, settings.exposure]
    parsed = (
        Formula(formula) if formula is not None else complete(str(target), federation, excluded)
    )
    if not settings.intercept:
        parsed = parsed.without_intercept()
    return agree(federation, parsed, settings), parsed


def make_task(agreement: Agreement, formula: Formula, settings: Settings) -> Task:
    """The regression, ready for its rounds."""
    names = agreement.moments[0].names
    for name, told in zip(agreement.rows.names, agreement.moments, strict=True):
        if list(told.names) != list(names):
            raise InputError(
                f"client {name}: its terms are {listed(told.names)}, not {listed(names)}"
            )
    if not names:
        raise InputError(f"formula {formula.text!r}: there is no term on the right")
    labels = [as_text(level) for level in agreement.plan.classes]
    return Task(
        agreement.rows, agreement.moments, settings, 0 if formula.intercept else None, labels
    )


def finish(
    task: Task,
    agreement: Agreement,
    progress: Callable[[Progress], object] | None = None,
    reached: Mapping[str, float] | None = None,
) -> Model:
    """Run the rounds, from the coefficients ``reached`` before, and put all that is known into a model."""
    found = task.run(task.penalty(task.settings.l1), report=progress, reached=reached or {})
    warnings = list(agreement.warnings)
    if found.undetermined:
        weak = listed(found.undetermined, 4)
        warnings.append(
            f"the data hardly determine the coefficient of {weak}: add a ridge, or leave it out"
        )
    inference = task.infer(found, agreement.missing)
    book = task.rows.members.history
    return Model(
        plan=agreement.plan,
        settings=task.settings,
        certificate=certified(task, found),
        warnings=warnings,
        version=__version__,
        removed=dict(book.removed),
        incidents=list(book.incidents),
        task=task if task.clients.free else None,
        **inference._asdict(),
    )


def certified(task: Task, found: Estimate) -> FitCertificate:
    """What is proved at the end of the rounds, in the units of the files."""
    told = found.proof.certificate
    gap = None if told.gap is None else told.gap * task.scaling.unit**2
    return FitCertificate(gap, task.distance(found), told.reason)
