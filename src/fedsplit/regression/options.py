"""The options of ``fit`` and ``path``: one field each.

The signatures and docstrings of ``fit`` and ``path``, the options of ``fedsplit fit``, the keys of
files and of ``--set``, and the tables in docs/fit.md follow from these fields. To show or check
them takes none of NumPy, SciPy and pandas: what needs these is imported where it is used.
"""

# No `from __future__ import annotations` here: files and the command line read the types.

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

from fedsplit.channels.patience import Patience
from fedsplit.checks import count, number, one_of, share
from fedsplit.data.types import Type
from fedsplit.errors import InputError, listed, shown
from fedsplit.regression.fields import Option, check_type, options_of
from fedsplit.regression.privacy import Privacy, privacy_of

if TYPE_CHECKING:
    from fedsplit.arrays import Array
    from fedsplit.channels.checkpoint import Checkpoint
    from fedsplit.data.types import Reading
    from fedsplit.regression.families.family import Family
    from fedsplit.regression.server.federation import Progress
else:
    Family = str  # as which options keep it, and files and the command line name it

WITHOUT_NOISE = ("standardize", "aliased", "separation", "empty_site", "tol", "rounds", "seed")
"""Options that have no effect on a fit with noise."""

AUTO = "auto"
"""The method that suits the clients."""


def _family_text(name: str, value: object) -> str:
    """The text of a family, which may be given as the family itself."""
    from fedsplit.regression.families import text_of
    from fedsplit.regression.families.family import Family

    if not isinstance(value, str | Family):
        raise InputError(f"{name} must be a name, as in 'poisson', not {shown(value)}")
    return value if isinstance(value, str) else text_of(value)


def _family(name: str, value: object) -> None:
    from fedsplit.regression.families import family_of

    family_of(_family_text(name, value))


def _levels(name: str, value: Any) -> None:
    check_type(name, value, Mapping[str, Sequence[str]] | None)
    for column, levels in (value or {}).items():
        if not levels or len(set(levels)) < len(levels):
            raise InputError(
                f"{name} of {column} must be one or more levels that differ, not {listed(levels)}"
            )


def _method(name: str, value: object) -> None:
    from fedsplit.methods import METHODS, parse

    if not isinstance(value, str):
        raise InputError(f"{name} must be a name, as in 'quasi-newton', not {shown(value)}")
    one_of(name, value.partition(":")[0], (AUTO, *METHODS))
    if value != AUTO:
        parse(value)


def _engine(name: str, value: object) -> None:
    from fedsplit.regression.engines import ENGINES

    one_of(name, value, ENGINES)


def _object(name: str, value: object) -> None:
    """Raise InputError for what is none of the objects that are given in Python alone."""
    from fedsplit.channels.checkpoint import Checkpoint

    right, what = {
        "patience": (isinstance(value, Patience), "a Patience, as in fs.Patience()"),
        "checkpoint": (isinstance(value, Checkpoint), "a Checkpoint, as in fs.Checkpoint('run')"),
        "progress": (callable(value), "a function of a Progress"),
    }[name]
    if value is not None and not right:
        raise InputError(f"{name} must be {what}, not {shown(value)}")


CHECKS: Mapping[str, Callable[[str, Any], object]] = {
    "family": _family,
    "nonnegative": partial(check_type, kind=Sequence[str], texts="coefficient names"),
    "columns": partial(check_type, kind=Sequence[str], texts="names of columns"),
    "levels": _levels,
    "tol": share,
    "rounds": partial(count, least=10),
    "seed": partial(count, least=0),
    "delta": number,
    "ridge": partial(number, strict=False),
    "l1": partial(number, strict=False),
    "method": _method,
    "engine": _engine,
    "workers": lambda name, value: None if value is None else count(name, value),
    **dict.fromkeys(("patience", "checkpoint", "progress"), _object),
    "l1_ratio": partial(share, zero=True),
    "n_lambdas": count,
    "ratio": partial(share, one=False),
}
"""By option, what raises InputError for a value, where more than its type has to be right."""


def check_value(option: Option, value: object) -> None:
    """Raise InputError for a value that an option cannot have, whatever the others are."""
    if (check := CHECKS.get(option.name)) is not None:
        check(option.name, value)
    else:
        check_type(option.name, value, option.type)


@dataclass(frozen=True)
class Inputs:
    """What to fit, and to which rows.

    Model
    -----
    formula : FORMULA
        Model formula, as in "visits ~ age + C(plan)". Text columns are categories, and C() makes
        numbers categories. A condition can be the target: "{delay > 15} ~ hour".
    target : COLUMN
        Target column, instead of a formula: all other columns, or `columns`, are covariates.

    Data
    ----
    data
        The clients' rows: one file per client (CSV, TSV, JSON lines, each also .gz, Parquet, or a
        file of Excel, R, SPSS, Stata or SAS), a glob, a folder, a list of files or frames, a dict
        of them by client, a TOML file that names the clients, or one file or frame together with
        `group`.
    group : COLUMN
        Column that says which client a row belongs to, where data is a single file or frame.
    """

    data: object
    formula: str | None = None
    _: KW_ONLY
    target: str | None = None
    group: str | None = None


@dataclass(frozen=True, kw_only=True)
class Common:
    """The options that determine the models of ``fit`` and of ``path``.

    Model
    -----
    family : NAME
        Family of the model: gaussian, logistic, poisson, gamma, multinomial, huber.
    nonnegative : NAME,...
        Coefficients constrained to be nonnegative.
    intercept
        Include a constant term.
    aliased : report|refuse
        Columns that are combinations of those before them over all clients: report them without a
        coefficient and fit the others, as R does, or refuse them. With a penalty they have
        coefficients.
    separation : report|refuse
        Coefficients that would grow without bound, since a level has no events or the classes are
        quasi-separable: report them without a number and fit the others to the rows that determine
        them, or refuse. Separable classes are always refused.
    standardize
        Penalise the coefficients of columns scaled to unit standard deviation over all clients.
        Coefficients are reported in the units of the data in any case.
    reference : COLUMN=LEVEL,...
        First levels of categories, to which the others are compared. Of the target, the class that
        a logistic model is not about, or the reference class. In Python a dict.
    delta : δ
        Residual at which Huber's loss turns from quadratic to linear, in robust deviations of the
        residuals over all clients; with differential privacy, in units of the target.

    Data
    ----
    weights : COLUMN
        Column of precision weights.
    offset : COLUMN
        Column that is added to the linear predictor.
    exposure : COLUMN
        Column that multiplies the mean, for a log link.
    columns : COLUMN,...
        Columns of the study: rows that lack a value in any of them are not used, so that models
        with some of them have the same rows. With a target, the covariates.
    missing : drop|fail
        Missing values: drop their rows, or fail.
    types : COLUMN=TYPE,...
        What columns are read as at all clients, number, boolean, date or text, where they are not
        to be guessed: values that do not fit are refused. In Python a dict.
    levels : COLUMN=LEVEL|LEVEL,...
        Levels of categories, all of them, in their order: a client with another one is refused. In
        Python a dict of lists.
    na : CODE,...
        What stands for a missing value, besides an empty field, NA, #N/A, N/A, NaN, nan, NULL and
        null. In Python a list of texts.
    decimal : MARK
        Decimal mark of numbers in text, a point or a comma.
    empty_site : refuse|leave-out
        Clients without any value, such as an empty file or one with names of columns only: refuse
        them, or leave them out with a warning.

    Privacy
    -------
    strict
        Refuse clients of fewer than 10 rows, levels and conditions of fewer than 3, and more
        parameters than a third of the rows, instead of warning; round sums, and report how much of
        all answers can rest on one row. That is reported, not refused.
    secure
        Secure sums: the server sees every answer added up over all clients, three at least, and
        none of one client. Within one process, and on Ray, nothing is masked: to try it out.

    Run
    ---
    tol : SE
        Proved upper bound, in standard errors, on the distance of every coefficient from the pooled
        fit.
    rounds : N
        Maximum number of rounds, at least 10.
    seed : N
        Random seed of stochastic methods.
    """

    family: str | Family = "gaussian"
    nonnegative: Sequence[str] = ()
    weights: str | None = None
    offset: str | None = None
    exposure: str | None = None
    intercept: bool = True
    aliased: Literal["report", "refuse"] = "report"
    separation: Literal["report", "refuse"] = "report"
    standardize: bool = False
    columns: Sequence[str] = ()
    missing: Literal["drop", "fail"] = "drop"
    types: Mapping[str, Type] | None = None
    reference: Mapping[str, str] | None = None
    levels: Mapping[str, Sequence[str]] | None = None
    na: Sequence[str] = ()
    decimal: Literal[".", ","] = "."
    empty_site: Literal["refuse", "leave-out"] = "refuse"
    strict: bool = False
    secure: bool = False
    tol: float = 1e-9
    rounds: int = 500
    seed: int = 0
    delta: float = 1.345

    def __post_init__(self) -> None:
        self._take_family()
        for name, each in options_of(type(self)).items():
            check_value(each, getattr(self, name))
        for name in ("nonnegative", "na", "columns"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        family = self.chosen_family
        if self.exposure is not None and not family.link.multiplicative:
            from fedsplit.regression.families import FAMILIES

            able = [name for name, each in FAMILIES.items() if each.link.multiplicative]
            raise InputError(
                f"exposure needs a log link ({listed(able)}), {self.family} has none: use offset"
            )

    def _take_family(self) -> None:
        """Keep the family as a text, and those of its parameters that are options as options."""
        from fedsplit.regression.families import family_of, parameters_of

        text = _family_text("family", self.family)
        family = family_of(text)
        others = {}
        for name, value in parameters_of(family).items():
            known = options_of(type(self)).get(name)
            if known is None:
                others[name] = f"{name}={value!r}"
            elif ":" in text:
                if getattr(self, name) not in (known.default, value):
                    raise InputError(f"{name} is given twice, in family={text!r} too")
                object.__setattr__(self, name, value)
        parameters = f":{','.join(others.values())}" if others else ""
        object.__setattr__(self, "family", f"{family.name}{parameters}")

    @cached_property
    def chosen_family(self) -> "Family":
        """The family with its parameters."""
        from fedsplit.regression.families import family_of, parameters_of

        family = family_of(str(self.family))
        own = {name: getattr(self, name) for name in parameters_of(family) if hasattr(self, name)}
        return replace(family, **own)

    @property
    def declared(self) -> Mapping[str, Type]:
        """The types of columns that the user has declared."""
        return self.types or {}

    @property
    def references(self) -> Mapping[str, str]:
        """The first level of each category of which the user has named one."""
        return self.reference or {}

    @property
    def declared_levels(self) -> Mapping[str, Sequence[str]]:
        """The levels of each category of which the user has declared all."""
        return self.levels or {}

    @property
    def reading(self) -> "Reading":
        """How files are read."""
        from fedsplit.data.types import Reading

        return Reading(tuple(self.na), self.decimal)


@dataclass(frozen=True, kw_only=True)
class Settings(Common):
    """The options that determine a model: they are saved with it, and with a checkpoint.

    Model
    -----
    ridge : λ
        Weight λ of the penalty (λ/2)‖coef‖² on the sum of the losses of all rows. The intercept is
        not penalised.
    l1 : λ
        Weight λ of the penalty λ‖coef‖₁. The intercept is not penalised.
    firth
        Firth's logistic regression, as R's logistf: the likelihood is penalised by ½ log det of the
        information over all clients, so that separable classes have finite coefficients.

    Privacy
    -------
    dp
        Differential privacy: `fs.Privacy(epsilon, delta, clip, rounds)` has noise added to all that
        leaves a client, and makes another estimate than the pooled fit.

    Run
    ---
    method : NAME
        Optimisation method, as `fedsplit compare` takes it. `auto` is `information`, whose few
        rounds bring a matrix of every client, or `quasi-newton`, whose rounds bring vectors, if a
        client refuses matrices or they would be too large.
    """

    ridge: float = 0.0
    l1: float = 0.0
    firth: bool = False
    dp: Privacy | None = None
    method: str = AUTO

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.firth:
            self._check_firth()
        object.__setattr__(self, "dp", privacy_of(self.dp))
        if self.dp is not None:
            self._check_private(self.dp)
        # those that need sums over all clients alone
        summed = (AUTO, "information", "newton")
        if self.secure and self.method.partition(":")[0] not in summed:
            raise InputError(
                f"secure sums are for the method {' or '.join(summed[1:])}: {self.method} "
                "needs the answers of single clients"
            )

    def _check_firth(self) -> None:
        """Refuse what Firth's penalty cannot be combined with."""
        if not self.chosen_family.binary:
            raise InputError(f"firth is for the family logistic, not {self.family}")
        if self.biased is not None:
            raise InputError(f"firth is a penalty of its own: leave out {self.biased}, or firth")
        if self.method != AUTO:
            raise InputError(f"firth has its own method: leave out {self.method}, or firth")

    def _check_private(self, privacy: Privacy) -> None:
        """Refuse what noise cannot be combined with, or what would tell of single rows."""
        from fedsplit.regression.client.privacy import bounds_of

        bounds_of(self.chosen_family, privacy)
        if self.biased is not None or self.firth:
            raise InputError(f"dp: leave out {self.biased or 'firth'}, noise comes without penalty")
        if self.strict:
            raise InputError("dp: a refusal of strict would tell of single rows: leave out strict")
        if self.missing != "drop":
            raise InputError(
                f"dp: missing={self.missing} would tell of rows: their rows are dropped"
            )
        if self.method != AUTO:
            raise InputError(f"dp has its own method: leave out {self.method}, or dp")
        for each in fields(Common):
            if each.name in WITHOUT_NOISE and getattr(self, each.name) != each.default:
                raise InputError(f"dp: {each.name} has no effect on a fit with noise: leave it out")
        if privacy.colluding and not self.secure:
            raise InputError(
                "dp: colluding is for secure sums, without which every client adds all the noise"
            )

    @property
    def symmetric(self) -> bool:
        """Whether a multinomial penalty treats all classes alike: a ridge does, on its own.

        An l1 penalty and constraints act on the coefficients as reported, relative to the
        reference class.
        """
        return self.ridge > 0 and not self.l1 and not self.nonnegative

    @property
    def biased(self) -> str | None:
        """What keeps the estimate from being the maximum of the likelihood, or None."""
        causes = {"a ridge": self.ridge, "an l1 penalty": self.l1, "a constraint": self.nonnegative}
        return next((cause for cause, value in causes.items() if value), None)


@dataclass(frozen=True, kw_only=True)
class Regression(Common, Inputs, ABC):
    """The options that ``fit`` and ``path`` share. (Fields are in the order of the last base.)"""

    def __post_init__(self) -> None:
        from fedsplit.data.sources import declared  # pandas takes a second to import

        super().__post_init__()
        types, reading = declared(self.data)
        reading = reading.joined(self.reading)
        object.__setattr__(self, "types", {**types, **self.declared} or None)
        object.__setattr__(self, "na", reading.na)
        object.__setattr__(self, "decimal", reading.decimal)
        if (self.formula is None) == (self.target is None):
            raise InputError(
                "give a formula such as 'y ~ x', or a target column for a model on all the others"
            )

    @property
    @abstractmethod
    def settings(self) -> Settings:
        """The part that is saved with a model."""


@dataclass(frozen=True, kw_only=True)
class FitOptions(Settings, Regression):
    """The options of ``fit``.

    Model
    -----
    elastic_net : L1,RIDGE
        Both penalties at once: l1 and ridge.

    Run
    ---
    engine : NAME
        Where the clients run: local, in this process; ray, on a Ray cluster.
    address : HOST:PORT
        Address of the Ray cluster, as in host:6379. Without it Ray is started on this machine.
    workers : N
        Number of Ray workers that share the clients. Without it there is one per core.
    patience
        How long to wait for remote clients, and how many of them are required.
    checkpoint
        Keeps the run on disk, so that it can be resumed.
    progress
        Called with a `Progress` after every round.
    """

    elastic_net: tuple[float, float] | None = None
    engine: str = "local"
    address: str | None = None
    workers: int | None = None
    patience: Patience | None = None
    checkpoint: "Checkpoint | None" = None
    progress: "Callable[[Progress], object] | None" = None

    def __post_init__(self) -> None:
        if self.elastic_net is not None:
            if not isinstance(self.elastic_net, Sequence) or len(self.elastic_net) != 2:
                raise InputError(
                    f"elastic_net must be two numbers, l1 and ridge, not {self.elastic_net!r}"
                )
            if self.l1 or self.ridge:
                raise InputError("elastic_net sets both l1 and ridge: leave those out")
            for name, value in zip(("l1", "ridge"), self.elastic_net, strict=True):
                object.__setattr__(self, name, value)
        super().__post_init__()
        if self.dp is not None and self.group is not None:
            raise InputError(
                "dp: a group column tells which clients there are: use one file per client"
            )

    @property
    def settings(self) -> Settings:
        return Settings(**{each.name: getattr(self, each.name) for each in fields(Settings)})


@dataclass(frozen=True, kw_only=True)
class PathOptions(Regression):
    """The options of ``path``. The penalties of its models follow from λ and ``l1_ratio``.

    Model
    -----
    l1_ratio
        Share of l1 in the penalty: 1 is the lasso, 0 a ridge.
    lambdas
        The values of λ. Without them, `n_lambdas` values from λ_max, the smallest λ at which every
        coefficient is zero, to `ratio`·λ_max, evenly spaced on a log scale. A ridge alone takes
        λ_max of an l1_ratio of 0.001.
    n_lambdas
        Number of values of λ.
    ratio
        The smallest λ over the largest.
    folds
        "clients" holds out one client at a time, a number that many groups of clients, drawn with
        `seed`. The others fit the path for the same λ, with columns scaled by their own moments,
        and those held out report their deviance. It takes a second copy of all rows.

    Run
    ---
    tol
        Proved upper bound, in standard errors, on the distance of every coefficient from the pooled
        fit. It is looser than in `fit`, since each proof costs rounds; `path.model(lam)` meets that
        of `fit`.
    """

    standardize: bool = True
    tol: float = 1e-6
    l1_ratio: float = 1.0
    lambdas: "Sequence[float] | Array | None" = None
    n_lambdas: int = 50
    ratio: float = 1e-3
    folds: int | str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.folds, str) and self.folds != "clients":
            raise InputError(
                f"folds must be 'clients' or a number of groups, not {shown(self.folds)}"
            )
        if not isinstance(self.folds, str | None):
            count("folds", self.folds, least=2)
        if self.secure and self.folds is not None:
            raise InputError("secure sums tell nothing of single clients: leave out folds")

    @property
    def settings(self) -> Settings:
        """Those of λ = 1: what all models of the path share, but for the sizes of penalties."""
        return self.settings_at(1.0)

    def settings_at(self, lam: float) -> Settings:
        """The settings of the model at a λ."""
        shared = {each.name: getattr(self, each.name) for each in fields(Common)}
        return Settings(**shared, l1=lam * self.l1_ratio, ridge=lam * (1.0 - self.l1_ratio))
