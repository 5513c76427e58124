"""The options of ``fit`` and ``path``: one field each.

The signatures and docstrings of ``fit`` and ``path``, the options of ``fedsplit fit``, the keys of
files and of ``--set``, and the tables in docs/fit.md follow from these fields. To show or check
them takes none of NumPy, SciPy and pandas: what needs these is imported where it is used.
"""

# No `from __future__ import annotations` here: files and the command line read the types.

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import KW_ONLY, Field, dataclass, field, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, get_args

from fedsplit.channels.patience import Patience
from fedsplit.checks import count, number, one_of, share
from fedsplit.data.types import Type
from fedsplit.errors import InputError, listed
from fedsplit.regression.fields import Option, option, options_of
from fedsplit.regression.privacy import Privacy, privacy_of

if TYPE_CHECKING:
    from fedsplit.arrays import Array
    from fedsplit.channels.checkpoint import Checkpoint
    from fedsplit.data.reading import Reading
    from fedsplit.regression.families.family import Family
    from fedsplit.regression.server.federation import Progress
else:
    Family = str  # as which options keep it, and files and the command line name it

WITHOUT_NOISE = ("standardize", "aliased", "separation", "empty_site", "tol", "rounds", "seed")
"""Options that have no effect on a fit with noise."""


def _text(name: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise InputError(f"{name} must be text, not {value!r}")


def _texts(name: str, value: Any, what: str = "texts, as in ['-9', '.']") -> None:
    listing = isinstance(value, list | tuple | Set)
    if not listing or not all(isinstance(each, str) for each in value):
        raise InputError(f"{name} must be a list of {what}, not {value!r}")


def _levels(name: str, value: Any) -> None:
    """Accept a list of different texts, of one at least."""
    _texts(name, value)
    if not value or len(set(value)) < len(value):
        raise InputError(f"{name} must be one or more levels that differ, not {listed(value)}")


def _by_column(name: str, value: Any, check: Callable[[str, Any], object]) -> None:
    """Accept a dict by column whose values pass a check; None stands for an empty one."""
    if value is None:
        return
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value):
        raise InputError(f"{name} must be a dict with names of columns as keys, not {value!r}")
    for column, each in value.items():
        check(f"{name} of {column}", each)


def _family(name: str, value: object) -> None:
    from fedsplit.regression.families import family_of

    family_of(_family_text(name, value))


def _family_text(name: str, value: object) -> str:
    """The text of a family, which may be given as the family itself."""
    from fedsplit.regression.families import text_of
    from fedsplit.regression.families.family import Family

    if not isinstance(value, str | Family):
        raise InputError(f"{name} must be a name, as in 'poisson', not {value!r}")
    return value if isinstance(value, str) else text_of(value)


def _yes_or_no(name: str, value: object) -> None:
    if not isinstance(value, bool) and type(value).__name__ != "bool":  # that of NumPy
        raise InputError(f"{name} must be True or False, not {value!r}")


def _decimal(name: str, value: object) -> None:
    from fedsplit.data.reading import DECIMAL_MARKS

    one_of(name, value, DECIMAL_MARKS)


def _engine(name: str, value: object) -> None:
    from fedsplit.regression.engines import ENGINES

    one_of(name, value, ENGINES)


def _workers(name: str, value: object) -> None:
    if value is not None:
        count(name, value)


def _patience(name: str, value: object) -> None:
    if value is not None and not isinstance(value, Patience):
        raise InputError(f"{name} must be a Patience, as in fs.Patience(), not {value!r}")


def _checkpoint(name: str, value: object) -> None:
    from fedsplit.channels.checkpoint import Checkpoint

    if value is not None and not isinstance(value, Checkpoint):
        raise InputError(f"{name} must be a Checkpoint, as in fs.Checkpoint('run'), not {value!r}")


def _function(name: str, value: object) -> None:
    if value is not None and not callable(value):
        raise InputError(f"{name} must be a function of a Progress, not {value!r}")


AUTO = "auto"
"""The method that suits the clients."""

SUMMED_METHODS = (AUTO, "information", "newton")
"""Those that need sums over all clients alone."""


def _method(name: str, value: object) -> None:
    from fedsplit.methods import METHODS, parse

    if not isinstance(value, str):
        raise InputError(f"{name} must be a name, as in 'quasi-newton', not {value!r}")
    one_of(name, value.partition(":")[0], (AUTO, *METHODS))
    if value != AUTO:
        parse(value)


def check_value(about: Field[Any], value: object) -> None:
    """Raise InputError for a value that an option cannot have, whatever the others are."""
    check = _yes_or_no if about.type is bool else about.metadata["option"].check
    if check is not None:
        check(about.name, value)


@dataclass(frozen=True)
class Inputs:
    """What to fit, and to which rows."""

    data: object = field(
        metadata={
            "option": Option(
                "The clients' rows: one file per client (CSV, TSV, JSON lines, each also .gz, "
                "Parquet, or a file of Excel, R, SPSS, Stata or SAS), a glob, a folder, a list of "
                "files or frames, a dict of them by client, "
                "a TOML file that names the clients, or one file or frame together with `group`.",
                "data",
            )
        }
    )
    formula: str | None = option(
        None,
        'Model formula, as in "visits ~ age + C(plan)". Text columns are categories, and C() makes '
        'numbers categories. A condition can be the target: "{delay > 15} ~ hour".',
        "model",
        metavar="FORMULA",
        check=_text,
    )
    _: KW_ONLY
    target: str | None = option(
        None,
        "Target column, instead of a formula: all other columns, or `columns`, are covariates.",
        "model",
        metavar="COLUMN",
        check=_text,
    )
    group: str | None = option(
        None,
        "Column that says which client a row belongs to, where data is a single file or frame.",
        "data",
        metavar="COLUMN",
        check=_text,
    )


@dataclass(frozen=True, kw_only=True)
class Common:
    """The options that determine the models of ``fit`` and of ``path``."""

    family: str | Family = option(
        "gaussian",
        "Family of the model: gaussian, logistic, poisson, gamma, multinomial, huber.",
        "model",
        metavar="NAME",
        check=_family,
    )
    nonnegative: Sequence[str] = option(
        (),
        "Coefficients constrained to be nonnegative.",
        "model",
        metavar="NAME,...",
        check=partial(_texts, what="coefficient names"),
    )
    weights: str | None = option(
        None, "Column of precision weights.", "data", metavar="COLUMN", check=_text
    )
    offset: str | None = option(
        None,
        "Column that is added to the linear predictor.",
        "data",
        metavar="COLUMN",
        check=_text,
    )
    exposure: str | None = option(
        None,
        "Column that multiplies the mean, for a log link.",
        "data",
        metavar="COLUMN",
        check=_text,
    )
    intercept: bool = option(True, "Include a constant term.", "model")
    aliased: str = option(
        "report",
        "Columns that are combinations of those before them over all clients: report them without "
        "a coefficient and fit the others, as R does, or refuse them. With a penalty they have "
        "coefficients.",
        "model",
        metavar="report|refuse",
        check=partial(one_of, known=("report", "refuse")),
    )
    separation: str = option(
        "report",
        "Coefficients that would grow without bound, since a level has no events or the classes "
        "are quasi-separable: report them without a number and fit the others to the rows that "
        "determine them, or refuse. Separable classes are always refused.",
        "model",
        metavar="report|refuse",
        check=partial(one_of, known=("report", "refuse")),
    )
    standardize: bool = option(
        False,
        "Penalise the coefficients of columns scaled to unit standard deviation over all clients. "
        "Coefficients are reported in the units of the data in any case.",
        "model",
    )
    columns: Sequence[str] = option(
        (),
        "Columns of the study: rows that lack a value in any of them are not used, so that models "
        "with some of them have the same rows. With a target, the covariates.",
        "data",
        metavar="COLUMN,...",
        check=partial(_texts, what="names of columns"),
    )
    missing: str = option(
        "drop",
        "Missing values: drop their rows, or fail.",
        "data",
        metavar="drop|fail",
        check=partial(one_of, known=("drop", "fail")),
    )
    types: Mapping[str, Type] | None = option(
        None,
        "What columns are read as at all clients, number, boolean, date or text, where they are "
        "not to be guessed: values that do not fit are refused. In Python a dict.",
        "data",
        metavar="COLUMN=TYPE,...",
        check=partial(_by_column, check=partial(one_of, known=get_args(Type))),
    )
    reference: Mapping[str, str] | None = option(
        None,
        "First levels of categories, to which the others are compared. Of the target, the class "
        "that a logistic model is not about, or the reference class. In Python a dict.",
        "model",
        metavar="COLUMN=LEVEL,...",
        check=partial(_by_column, check=_text),
    )
    levels: Mapping[str, Sequence[str]] | None = option(
        None,
        "Levels of categories, all of them, in their order: a client with another one is refused. "
        "In Python a dict of lists.",
        "data",
        metavar="COLUMN=LEVEL|LEVEL,...",
        check=partial(_by_column, check=_levels),
    )
    na: Sequence[str] = option(
        (),
        "What stands for a missing value, besides an empty field, NA, #N/A, N/A, NaN, nan, NULL "
        "and null. In Python a list of texts.",
        "data",
        metavar="CODE,...",
        check=_texts,
    )
    decimal: str = option(
        ".",
        "Decimal mark of numbers in text, a point or a comma.",
        "data",
        metavar="MARK",
        check=_decimal,
    )
    empty_site: str = option(
        "refuse",
        "Clients without any value, such as an empty file or one with names of columns only: "
        "refuse them, or leave them out with a warning.",
        "data",
        metavar="refuse|leave-out",
        check=partial(one_of, known=("refuse", "leave-out")),
    )
    strict: bool = option(
        False,
        "Refuse clients of fewer than 10 rows, levels and conditions of fewer than 3, and more "
        "parameters than a third of the rows, instead of warning; round sums, and report how much "
        "of all answers can rest on one row. That is reported, not refused.",
        "privacy",
    )
    secure: bool = option(
        False,
        "Secure sums: the server sees every answer added up over all clients, three at least, and "
        "none of one client. Within one process, and on Ray, nothing is masked: to try it out.",
        "privacy",
    )
    tol: float = option(
        1e-9,
        "Proved upper bound, in standard errors, on the distance of every coefficient from the "
        "pooled fit.",
        "run",
        metavar="SE",
        check=share,
    )
    rounds: int = option(
        500,
        "Maximum number of rounds, at least 10.",
        "run",
        metavar="N",
        check=partial(count, least=10),
    )
    seed: int = option(
        0,
        "Random seed of stochastic methods.",
        "run",
        metavar="N",
        check=partial(count, least=0),
    )
    delta: float = option(
        1.345,
        "Residual at which Huber's loss turns from quadratic to linear, in robust deviations of "
        "the residuals over all clients; with differential privacy, in units of the target.",
        "model",
        metavar="δ",
        check=number,
    )

    def __post_init__(self) -> None:
        self._take_family()
        for each in fields(self):
            check_value(each, getattr(self, each.name))
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
            known = next((each for each in fields(self) if each.name == name), None)
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
        from fedsplit.data.reading import Reading

        return Reading(tuple(self.na), self.decimal)


@dataclass(frozen=True, kw_only=True)
class Settings(Common):
    """The options that determine a model: they are saved with it, and with a checkpoint."""

    ridge: float = option(
        0.0,
        "Weight λ of the penalty (λ/2)‖coef‖² on the sum of the losses of all rows. The intercept "
        "is not penalised.",
        "model",
        metavar="λ",
        check=partial(number, strict=False),
    )
    l1: float = option(
        0.0,
        "Weight λ of the penalty λ‖coef‖₁. The intercept is not penalised.",
        "model",
        metavar="λ",
        check=partial(number, strict=False),
    )
    firth: bool = option(
        False,
        "Firth's logistic regression, as R's logistf: the likelihood is penalised by ½ log det of "
        "the information over all clients, so that separable classes have finite coefficients.",
        "model",
    )
    dp: Privacy | None = option(
        None,
        "Differential privacy: `fs.Privacy(epsilon, delta, clip, rounds)` has noise added to all "
        "that leaves a client, and makes another estimate than the pooled fit.",
        "privacy",
    )
    method: str = option(
        AUTO,
        "Optimisation method, as `fedsplit compare` takes it. `auto` is `information`, whose few "
        "rounds bring a matrix of every client, or `quasi-newton`, whose rounds bring vectors, if "
        "a client refuses matrices or they would be too large.",
        "run",
        metavar="NAME",
        check=_method,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.firth:
            self._check_firth()
        object.__setattr__(self, "dp", privacy_of(self.dp))
        if self.dp is not None:
            self._check_private(self.dp)
        if self.secure and self.method.partition(":")[0] not in SUMMED_METHODS:
            raise InputError(
                f"secure sums are for the method {' or '.join(SUMMED_METHODS[1:])}: {self.method} "
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
    """The options of ``fit``."""

    elastic_net: tuple[float, float] | None = option(
        None,
        "Both penalties at once: l1 and ridge.",
        "model",
        metavar="L1,RIDGE",
    )
    engine: str = option(
        "local",
        "Where the clients run: local, in this process; ray, on a Ray cluster.",
        "run",
        metavar="NAME",
        check=_engine,
    )
    address: str | None = option(
        None,
        "Address of the Ray cluster, as in host:6379. Without it Ray is started on this machine.",
        "run",
        metavar="HOST:PORT",
        check=_text,
    )
    workers: int | None = option(
        None,
        "Number of Ray workers that share the clients. Without it there is one per core.",
        "run",
        metavar="N",
        check=_workers,
    )
    patience: Patience | None = option(
        None,
        "How long to wait for remote clients, and how many of them are required.",
        "run",
        check=_patience,
    )
    checkpoint: "Checkpoint | None" = option(
        None, "Keeps the run on disk, so that it can be resumed.", "run", check=_checkpoint
    )
    progress: "Callable[[Progress], object] | None" = option(
        None, "Called with a `Progress` after every round.", "run", check=_function
    )

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
    """The options of ``path``. The penalties of its models follow from λ and ``l1_ratio``."""

    standardize: bool = field(default=True, metadata={"option": options_of(Common)["standardize"]})
    tol: float = option(
        1e-6,
        "Proved upper bound, in standard errors, on the distance of every coefficient from the "
        "pooled fit. It is looser than in `fit`, since each proof costs rounds; `path.model(lam)` "
        "meets that of `fit`.",
        "run",
        check=share,
    )
    l1_ratio: float = option(
        1.0,
        "Share of l1 in the penalty: 1 is the lasso, 0 a ridge.",
        "model",
        check=partial(share, zero=True),
    )
    lambdas: "Sequence[float] | Array | None" = option(
        None,
        "The values of λ. Without them, `n_lambdas` values from λ_max, the smallest λ at which "
        "every coefficient is zero, to `ratio`·λ_max, evenly spaced on a log scale. A ridge "
        "alone takes λ_max of an l1_ratio of 0.001.",
        "model",
    )
    n_lambdas: int = option(50, "Number of values of λ.", "model", check=count)
    ratio: float = option(
        1e-3, "The smallest λ over the largest.", "model", check=partial(share, one=False)
    )
    folds: int | str | None = option(
        None,
        '"clients" holds out one client at a time, a number that many groups of clients, drawn '
        "with `seed`. The others fit the path for the same λ, with columns scaled by their own "
        "moments, and those held out report their deviance. It takes a second copy of all rows.",
        "model",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.folds, str) and self.folds != "clients":
            raise InputError(f"folds must be 'clients' or a number of groups, not {self.folds!r}")
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
